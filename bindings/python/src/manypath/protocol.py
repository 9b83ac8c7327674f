"""The protocol without input and output: lines to values and back. One JSON object a line, see docs/control.md."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import socket
import stat
import struct
import subprocess
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple, Type, TypeVar, Union

T = TypeVar("T")

# The longest line that is taken, in bytes, and how many objects, lists and members it may have: a list of 65,536 connections.
MAX_LINE = 256 << 20
MAX_CONTAINERS = 2_000_000
MAX_MEMBERS = 20_000_000

# Events that are kept for a program that does not read them; what comes then is counted, and told as `lost`.
MAX_EVENTS = 100_000

# Seconds that connecting, or a request with its reply, may take unless a session is told otherwise.
TIMEOUT = 30.0


class ManypathError(Exception):
    """What all errors of this library are. Anything else that a call raises is a mistake of the caller, or of the library."""


class ControlError(ManypathError):
    """The process refused a request. `code` is for programs: `not_found`, `owned`, `no_path`, `no_port`, `limit`, `state`..."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class SessionError(ManypathError, ConnectionError):
    """The process is gone, or cannot be reached. `__cause__` is what the system said, if it said something."""


class ProtocolError(ManypathError, ValueError):
    """What the process says is not the protocol. The session goes on: what comes after that line is not lost."""


class RequestTimeout(ManypathError, TimeoutError):
    """The process did not answer in time. The session goes on: a late reply is thrown away."""


@contextlib.contextmanager
def converted() -> Iterator[None]:
    """Turns what Python says of sockets and of values into an error of this library."""
    try:
        yield
    except ManypathError:
        raise
    except (socket.timeout, TimeoutError) as error:
        raise RequestTimeout("the process does not answer in time") from error
    except (OSError, subprocess.SubprocessError) as error:
        raise SessionError(f"the session is over: {error}") from error
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError, struct.error) as error:
        raise ProtocolError(f"this is not the protocol: {error!r}") from error


def _read(kind: Type[T], fields: Mapping[str, Any]) -> T:
    """What is not known here was added later, and is left out."""
    known = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in fields.items() if name in known})


@dataclasses.dataclass(frozen=True)
class Address:
    """A local address as a connection knows it."""

    id: int = 0
    iface: str = ""
    address: str = ""
    backup: bool = False
    up: bool = False
    announced: bool = False


@dataclasses.dataclass(frozen=True)
class PeerAddress:
    """An address and port of the peer."""

    id: int = 0
    address: str = ""
    announced: bool = False


@dataclasses.dataclass(frozen=True)
class Subflow:
    """A live subflow. Times in microseconds, amounts in bytes, rates in bytes a second."""

    id: int = 0
    iface: str = ""
    local: str = ""
    remote: str = ""
    local_id: int = 0
    remote_id: int = 0
    origin: str = ""
    phase: str = ""
    tcp_state: str = ""
    backup_here: bool = False
    backup_there: bool = False
    stale: bool = False
    age_us: int = 0
    srtt_us: Optional[int] = None
    min_rtt_us: Optional[int] = None
    rto_us: int = 0
    backoffs: int = 0
    cwnd: int = 0
    ssthresh: Optional[int] = None
    pacing_rate: Optional[int] = None
    delivery_rate: int = 0
    inflight: int = 0
    mss: int = 0
    bytes_sent: int = 0
    bytes_acked: int = 0
    bytes_received: int = 0
    bytes_retransmitted: int = 0
    bytes_reinjected: int = 0
    retransmissions: int = 0
    timeouts: int = 0

    @property
    def established(self) -> bool:
        """It carries data, or could."""
        return self.phase == "established"

    @property
    def local_address(self) -> str:
        """Its local address without the port."""
        return split(self.local)[0]


@dataclasses.dataclass(frozen=True)
class Connection:
    """A connection as it was when it was asked for."""

    id: str = ""
    role: str = ""
    state: str = ""
    level: str = ""
    local: str = ""
    remote: str = ""
    token: Optional[str] = None
    scheduler: str = ""
    congestion: str = ""
    path_manager: str = ""
    age_us: int = 0
    bytes_written: int = 0
    bytes_acked: int = 0
    bytes_received: int = 0
    bytes_read: int = 0
    bytes_reinjected: int = 0
    send_queue: int = 0
    recv_queue: int = 0
    peer_window: int = 0
    may_join: bool = False
    may_create: bool = False
    held_up_by: Optional[int] = None
    local_addresses: Tuple[Address, ...] = ()
    remote_addresses: Tuple[PeerAddress, ...] = ()
    subflows: Tuple[Subflow, ...] = ()

    def unused_addresses(self) -> List[Address]:
        """Our usable addresses from which no subflow leaves, backup ones last; none while no subflow may be added."""
        used = {subflow.local_address for subflow in self.subflows}
        free = [local for local in self.local_addresses if self.may_join and local.up and local.address not in used]
        return sorted(free, key=lambda local: local.backup)

    @staticmethod
    def read(fields: Mapping[str, Any]) -> "Connection":
        """From a report of the protocol."""
        inner: Dict[str, Any] = dict(fields)
        for name, kind in (("local_addresses", Address), ("remote_addresses", PeerAddress), ("subflows", Subflow)):
            inner[name] = tuple(_read(kind, one) for one in fields.get(name, ()))
        return _read(Connection, inner)


@dataclasses.dataclass(frozen=True)
class Decision:
    """An entry of the decision log."""

    number: int = 0
    ago_us: int = 0
    decision: str = ""
    reason: str = ""

    @staticmethod
    def read(fields: Mapping[str, Any]) -> "Decision":
        """From a line of the protocol."""
        return _read(Decision, fields)


@dataclasses.dataclass(frozen=True)
class Event:
    """Something happened. What does not fit the event is None, or empty."""

    event: str = ""
    seq: int = 0
    at_us: int = 0
    connection: str = ""
    token: Optional[str] = None
    server_side: Optional[bool] = None
    subflow: int = -1
    local: str = ""
    remote: str = ""
    local_id: Optional[int] = None
    remote_id: Optional[int] = None
    backup: bool = False
    origin: str = ""
    cause: str = ""
    error: int = 0
    reset_reason: Optional[int] = None
    transient: Optional[bool] = None
    rto_us: int = 0
    backoffs: int = 0
    address: str = ""
    port: Optional[int] = None
    decision: str = ""
    reason: str = ""
    sample: Optional[Connection] = None
    samples: int = 0
    events: int = 0

    @property
    def local_address(self) -> str:
        """Our address of the subflow, without the port."""
        return split(self.local)[0] if self.local else ""

    @staticmethod
    def read(fields: Mapping[str, Any]) -> "Event":
        """From a line of the protocol."""
        inner = dict(fields)
        if "sample" in inner:
            inner["sample"] = Connection.read(inner["sample"])
        return _read(Event, inner)


def split(end: str) -> Tuple[str, int]:
    """An address and port, `10.0.0.1:80` or `[2001:db8::1]:80`, in its parts."""
    address, _, port = end.rpartition(":")
    return address.strip("[]"), int(port)


def _is_own_folder(folder: Path, uid: int) -> bool:
    """Only a folder that nobody else can write to is believed, and no link to one."""
    try:
        info = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(info.st_mode) and info.st_uid == uid and not info.st_mode & 0o077


def _is_own_socket(path: Path, uid: int) -> bool:
    try:
        info = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISSOCK(info.st_mode) and info.st_uid == uid


def sockets() -> Dict[int, Path]:
    """The control sockets of this user's processes, by process id."""
    uid = os.getuid()
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    folders = [Path(runtime) / "manypath"] if runtime else []
    folders += [Path(f"/run/user/{uid}/manypath"), Path(f"/run/manypath-{uid}")]
    with contextlib.suppress(OSError):
        folders += sorted(Path("/tmp").glob(f"manypath-{uid}*"))
    found: Dict[int, Path] = {}
    for folder in folders:
        if _is_own_folder(folder, uid):
            with contextlib.suppress(OSError):
                for path in folder.glob("*.sock"):
                    if path.stem.isdecimal() and _is_own_socket(path, uid):
                        found.setdefault(int(path.stem), path)
    return found


def _is_heard(path: Path) -> bool:
    """Whether somebody listens. An id may have been used again, or be that of a process whose end nobody took note of."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        # One with too many sessions lives, too.
        probe.setblocking(False)
        return probe.connect_ex(os.fspath(path)) not in (errno.ECONNREFUSED, errno.ENOENT)


def find_socket(pid: Optional[int] = None) -> Path:
    """The socket of a process, or of the only one."""
    found = sockets()
    if pid is not None:
        found = {known: path for known, path in found.items() if known == pid}
    # What a killed process left behind does not count.
    living = {known: path for known, path in found.items() if _is_heard(path)}
    if len(living) != 1:
        names = ", ".join(map(str, sorted(living))) or "none"
        raise ControlError("not_found", f"one process is wanted, and there are: {names}")
    return next(iter(living.values()))


def _load(line: bytes) -> Dict[str, Any]:
    """The value of a line. What would grow beyond all bounds is refused before it is read."""
    with converted():
        if line.count(b"{") + line.count(b"[") > MAX_CONTAINERS or line.count(b",") > MAX_MEMBERS:
            raise ProtocolError("a line says more than there is memory for")
        value = json.loads(line)
        if not isinstance(value, dict):
            raise ProtocolError("a line is no object")
        return value


class Lines:
    """Cuts what arrives into lines and tells replies from events."""

    def __init__(self) -> None:
        self._parts: List[bytes] = []
        self._length = 0
        self._next_id = 0

    def ask(self, request: str, fields: Mapping[str, Any]) -> Tuple[int, bytes]:
        """The line of a request, and the id that its reply will have."""
        line = {"id": self._next_id + 1, "request": request}
        line.update({name: value for name, value in fields.items() if value is not None})
        text = json.dumps(line).encode() + b"\n"
        self._next_id += 1
        return self._next_id, text

    def feed(self, data: bytes) -> List[Union[Dict[str, Any], ProtocolError]]:
        """The lines that are complete now, and in the place of one that cannot be read the error.

        Raises `SessionError` when a line has no end: nobody knows where the next one begins.
        """
        *whole, rest = data.split(b"\n")
        found: List[Union[Dict[str, Any], ProtocolError]] = []
        for line in whole:
            self._parts.append(line)
            line, self._parts, self._length = b"".join(self._parts), [], 0
            if not line:
                continue
            try:
                found.append(_load(line))
            except ProtocolError as error:
                found.append(error)
        self._parts.append(rest)
        self._length += len(rest)
        if self._length > MAX_LINE:
            raise SessionError(f"a line of more than {MAX_LINE} bytes")
        return found


def result(reply: Mapping[str, Any]) -> Mapping[str, Any]:
    """The reply, or the error that it is."""
    if reply.get("reply") == "error":
        raise ControlError(str(reply.get("code", "")), str(reply.get("message", "")))
    return reply
