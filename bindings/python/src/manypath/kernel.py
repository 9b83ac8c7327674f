"""The same calls for the Linux kernel's own Multipath TCP, by its generic netlink family `mptcp_pm` (linux/mptcp.h).

It takes CAP_NET_ADMIN and `net.mptcp.pm_type = 1`, which leaves the paths of new connections to user space. What the kernel
does not offer: there is no time-out event and no reading of a connection by netlink, so both are derived by asking `ss` every
tenth of a second while somebody wants them; connections that began before the session are not known; there is one owner of
all, no decision log, no policies of the kernel to change, and no limits of a single connection.
"""

from __future__ import annotations

import asyncio
import dataclasses
import ipaddress
import json
import re
import select
import socket
import struct
import subprocess
import time
from collections import deque
from typing import Any, AsyncIterator, Awaitable, Callable, Deque, Dict, Iterator, List, Optional, Tuple

from .protocol import TIMEOUT, Address, Connection, ControlError, Event, PeerAddress, Subflow, converted, split

GENERIC, CONTROL = 16, 16  # NETLINK_GENERIC, GENL_ID_CTRL
SOL_NETLINK, ADD_MEMBERSHIP = 270, 1
REQUEST_ACK = 5
SET_FLAGS, ANNOUNCE, REMOVE, CREATE, DESTROY = 7, 8, 9, 10, 11  # MPTCP_PM_CMD_*
SIGNAL, BACKUP = 1, 4  # MPTCP_PM_ADDR_FLAG_*
NAMES = {1: "created", 2: "established", 3: "closed", 6: "announced", 7: "removed"}
NAMES.update({10: "sub_established", 11: "sub_closed", 13: "sub_priority"})  # MPTCP_EVENT_*
CAUSES = {0: "finished", 104: "reset_by_peer", 110: "timed_out", 111: "refused", 113: "unreachable", 99: "address_gone"}
POLL = 0.1

Ends = Tuple[str, str]


def _attr(kind: int, data: bytes) -> bytes:
    return struct.pack("=HH", len(data) + 4, kind) + data + bytes(-len(data) % 4)


def _attrs(data: bytes) -> Dict[int, bytes]:
    out = {}
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        if length < 4:
            break
        out[kind & 0x3FFF] = data[4:length]
        data = data[(length + 3) & ~3 :]
    return out


def _end(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


@dataclasses.dataclass
class _Known:
    """What events have told of a connection."""

    token: int
    local: str = ""
    remote: str = ""
    established: bool = False
    server_side: bool = False
    subflows: Dict[Ends, Subflow] = dataclasses.field(default_factory=dict)
    remotes: Dict[int, str] = dataclasses.field(default_factory=dict)
    address_ids: Dict[str, int] = dataclasses.field(default_factory=dict)
    made: int = 0


@dataclasses.dataclass
class _Look:
    """What the host says of all its connections at one time."""

    subflows: Dict[Ends, Dict[str, Any]]
    unacknowledged: Dict[int, int]
    addresses: List[Address]


def _ss(options: str) -> str:
    with converted():
        return subprocess.run(["ss", options], stdout=subprocess.PIPE, check=True, text=True, timeout=TIMEOUT).stdout


class KernelClient:
    """A session with the kernel. The methods are those of `Client`; a connection's name is its token.

    It raises what `Client` raises: `SessionError` where the kernel has no such family or `ip` and `ss` are missing.
    """

    def __init__(self) -> None:
        with converted():
            self._open()

    def _open(self) -> None:
        with open("/proc/sys/net/mptcp/pm_type", encoding="ascii") as file:
            if file.read().strip() != "1":
                raise ControlError("state", "the kernel decides itself: set net.mptcp.pm_type to 1")
        self._commands = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, GENERIC)
        self._commands.bind((0, 0))
        self._sequence = 0
        reply = _attrs(self._call(CONTROL, 3, _attr(2, b"mptcp_pm\0")))
        self._family = struct.unpack("=H", reply[1])[0]
        groups = [_attrs(group) for group in _attrs(reply[7]).values()]
        ids = {group[1].rstrip(b"\0"): struct.unpack("=I", group[2])[0] for group in groups}
        self._news = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, GENERIC)
        self._news.bind((0, 0))
        self._news.setsockopt(SOL_NETLINK, ADD_MEMBERSHIP, ids[b"mptcp_pm_events"])
        self._known: Dict[str, _Known] = {}
        self._events: Deque[Event] = deque()
        self._wanted: Optional[Tuple[str, ...]] = None
        self._sample: Optional[float] = None
        self._next_look = self._next_sample = time.monotonic()
        self._seq = 0
        self._start = time.monotonic()

    def __enter__(self) -> "KernelClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the session. Subflows stay."""
        self._commands.close()
        self._news.close()

    def fileno(self) -> int:
        """The descriptor on which the kernel's own events arrive."""
        return self._news.fileno()

    def _call(self, family: int, command: int, attributes: bytes) -> bytes:
        with converted():
            return self._exchange(family, command, attributes)

    def _exchange(self, family: int, command: int, attributes: bytes) -> bytes:
        self._sequence += 1
        flags = 1 if family == CONTROL else REQUEST_ACK
        body = struct.pack("=BBH", command, 1, 0) + attributes
        self._commands.send(struct.pack("=IHHII", len(body) + 16, family, flags, self._sequence, 0) + body)
        data = self._commands.recv(1 << 16)
        kind = struct.unpack_from("=H", data, 4)[0]
        if kind == 2:  # NLMSG_ERROR
            error = -struct.unpack_from("=i", data, 16)[0]
            if error:
                raise ControlError("not_found" if error in (2, 3) else "state", f"the kernel refuses: errno {error}")
        return data[20:]

    # What is known.

    def _local_addresses(self) -> List[Address]:
        with converted():
            out = subprocess.run(["ip", "-j", "addr"], stdout=subprocess.PIPE, check=True, timeout=TIMEOUT).stdout
        found = []
        for link in json.loads(out):
            for one in link.get("addr_info", ()):
                if one.get("scope") == "global" and "local" in one:
                    up = link.get("operstate") != "DOWN"
                    found.append(Address(iface=link["ifname"], address=one["local"], up=up))
        return found

    def _diag(self) -> Dict[Ends, Dict[str, Any]]:
        """What `ss` knows of each TCP socket, by its two ends."""
        found = {}
        for line in _ss("-tinHO").splitlines():
            words = line.split()
            if len(words) < 5:
                continue
            ends = tuple(re.sub(r"%[^:\]]*|::ffff:", "", end) for end in words[3:5])
            values = dict(re.findall(r"(\w+):([\d.]+)", line))
            rate = re.search(r"pacing_rate (\d+)bps", line)
            info = {
                "rto_us": int(float(values.get("rto", 0)) * 1000),
                "backoffs": int(values.get("backoff", 0)),
                "bytes_acked": int(values.get("bytes_acked", 0)),
                "bytes_sent": int(values.get("bytes_sent", 0)),
                "bytes_retransmitted": int(values.get("bytes_retrans", 0)),
                "pacing_rate": int(rate.group(1)) // 8 if rate else None,
            }
            if "rtt" in values:
                info["srtt_us"] = int(float(values["rtt"]) * 1000)
            found[(ends[0], ends[1])] = info
        return found

    def _unacknowledged(self) -> Dict[int, int]:
        """Bytes that each Multipath TCP socket, by its token, was given and has no Data ACK for."""
        found = re.findall(r"token:(\w+) write_seq:(\w+) snd_una:(\w+)", _ss("-MinHO"))
        return {int(token, 16): (int(end, 16) - int(una, 16)) % (1 << 64) for token, end, una in found}

    def _look(self) -> _Look:
        return _Look(self._diag(), self._unacknowledged(), self._local_addresses())

    def _connection(self, name: str, seen: _Look) -> Connection:
        known = self._known.get(name)
        if known is None:
            raise ControlError("not_found", f"no connection {name}")
        subflows = tuple(dataclasses.replace(sf, **seen.subflows.get(ends, {})) for ends, sf in known.subflows.items())
        family = ":" in split(known.local)[0]
        # At data level the kernel does not count; what the subflows had acknowledged is no less.
        acked = sum(sf.bytes_acked for sf in subflows)
        return Connection(
            id=name,
            role="responder" if known.server_side else "initiator",
            local=known.local,
            remote=known.remote,
            token=name,
            may_join=known.established,
            may_create=known.established,
            bytes_acked=acked,
            bytes_written=acked + seen.unacknowledged.get(known.token, 0),
            local_addresses=tuple(a for a in seen.addresses if (":" in a.address) == family),
            remote_addresses=(PeerAddress(0, known.remote),)
            + tuple(PeerAddress(id_, address, True) for id_, address in known.remotes.items()),
            subflows=subflows,
        )

    def connections(self) -> List[Connection]:
        """The connections that began during this session."""
        self._drain()
        seen = self._look()
        return [self._connection(name, seen) for name in self._known]

    def show(self, connection: str) -> Connection:
        """One connection."""
        self._drain()
        return self._connection(connection, self._look())

    # Events.

    def subscribe(self, *events: str, connection: Optional[str] = None, sample_ms: Optional[int] = None) -> None:
        """Events of these names, all without any. `timeout` and samples are derived by polling."""
        if connection is not None:
            raise ControlError("invalid", "the kernel's events come for all connections")
        self._wanted = events
        self._sample = None if sample_ms is None else sample_ms / 1000

    def claim(self, connection: Optional[str] = None, force: bool = False) -> None:
        """Nothing to do: with pm_type 1 nobody else decides."""

    def release(self, connection: Optional[str] = None) -> None:
        """Nothing to do."""

    def _wants(self, name: str) -> bool:
        return self._wanted is not None and (not self._wanted or name in self._wanted)

    def _tell(self, event: str, **fields: Any) -> None:
        self._seq += 1
        if self._wants(event) or event == "sample":
            at = int((time.monotonic() - self._start) * 1e6)
            self._events.append(Event(event=event, seq=self._seq, at_us=at, **fields))

    def _drain(self) -> None:
        while select.select([self._news], [], [], 0)[0]:
            data = self._news.recv(1 << 16)
            command = data[16]
            if command in NAMES:
                self._hear(NAMES[command], _attrs(data[20:]))

    def _hear(self, event: str, attrs: Dict[int, bytes]) -> None:
        token = struct.unpack("=I", attrs[1])[0]
        name = f"{token:08x}"
        known = self._known.setdefault(name, _Known(token))

        def address(four: int, six: int) -> str:
            raw = attrs.get(four) or attrs.get(six)
            if not raw:
                return ""
            found = ipaddress.ip_address(raw)
            mapped = getattr(found, "ipv4_mapped", None)
            return str(mapped or found)

        def port(kind: int) -> int:
            return struct.unpack(">H", attrs[kind][:2])[0] if kind in attrs else 0

        local, remote = address(5, 6), address(7, 8)
        ends = (_end(local, port(9)), _end(remote, port(10)))
        fields: Dict[str, Any] = {"connection": name}
        if event == "created":
            known.local, known.remote = ends
            known.server_side = bool(attrs.get(18, b"\0")[0])
            known.subflows[ends] = Subflow(id=0, local=ends[0], remote=ends[1], origin="first", phase="established")
            known.made = 1
            fields.update(local=ends[0], remote=ends[1], server_side=known.server_side, token=name)
        elif event == "established":
            known.established = True
        elif event == "closed":
            self._known.pop(name)
        elif event == "announced":
            remote_id = attrs[4][0]
            known.remotes[remote_id] = _end(remote, port(10) or split(known.remote)[1])
            fields.update(remote_id=remote_id, address=remote, port=port(10) or None)
        elif event == "removed":
            known.remotes.pop(attrs[4][0], None)
            fields.update(remote_id=attrs[4][0])
        else:
            backup = bool(attrs.get(11, b"\0")[0])
            subflow = known.subflows.get(ends)
            if event == "sub_established" and subflow is None:
                subflow = Subflow(id=known.made, local=ends[0], remote=ends[1], phase="established", backup_here=backup)
                known.made += 1
                known.subflows[ends] = subflow
            elif event == "sub_closed":
                subflow = known.subflows.pop(ends, None)
                error = attrs.get(12, b"\0")[0]
                fields.update(error=error, cause=CAUSES.get(error, "finished"))
                if 16 in attrs:
                    fields.update(cause="reset_by_peer", reset_reason=struct.unpack("=I", attrs[16])[0])
                    fields.update(transient=bool(struct.unpack("=I", attrs.get(17, bytes(4)))[0] & 1))
            fields.update(subflow=subflow.id if subflow else -1, local=ends[0], remote=ends[1], backup=backup)
        self._tell(event, **fields)

    def _poll(self, now: float) -> None:
        """Time-outs and samples, which the kernel does not tell."""
        if self._wants("timeout") and now >= self._next_look:
            self._next_look = now + POLL
            diag = self._diag()
            for name, known in self._known.items():
                for ends, subflow in list(known.subflows.items()):
                    seen = diag.get(ends, {"backoffs": 0, "rto_us": 0})
                    if seen["backoffs"] > subflow.backoffs:
                        more = {"rto_us": seen["rto_us"], "backoffs": seen["backoffs"], "local": ends[0], "remote": ends[1]}
                        self._tell("timeout", connection=name, subflow=subflow.id, **more)
                    known.subflows[ends] = dataclasses.replace(subflow, backoffs=seen["backoffs"])
        if self._sample is not None and now >= self._next_sample:
            self._next_sample = now + self._sample
            for connection in self.connections():
                self._tell("sample", connection=connection.id, sample=connection)

    def next_event(self, timeout: Optional[float] = None) -> Optional[Event]:
        """The next event; None when none came within so many seconds. Without a time it waits."""
        with converted():
            return self._next_event(timeout)

    def _next_event(self, timeout: Optional[float]) -> Optional[Event]:
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            self._drain()
            now = time.monotonic()
            self._poll(now)
            if self._events:
                return self._events.popleft()
            if until is not None and now >= until:
                return None
            polls = self._wants("timeout") or self._sample is not None
            waits = [until - now] if until is not None else []
            select.select([self._news], [], [], min(waits + [POLL]) if polls else (waits[0] if waits else None))

    def events(self) -> Iterator[Event]:
        """All events for ever."""
        while True:
            event = self.next_event()
            if event is not None:
                yield event

    # Commands.

    def _find(self, connection: str, subflow: int) -> Tuple[_Known, Ends]:
        self._drain()
        known = self._known.get(connection)
        for ends, one in (known.subflows if known else {}).items():
            if one.id == subflow and known:
                return known, ends
        raise ControlError("not_found", "no such connection or subflow")

    @staticmethod
    def _address(address: str, port: Optional[int] = None, id_: int = 0, flags: int = 0) -> bytes:
        raw = ipaddress.ip_address(address).packed
        family = socket.AF_INET if len(raw) == 4 else socket.AF_INET6
        out = _attr(1, struct.pack("=H", family)) + _attr(3 if len(raw) == 4 else 4, raw)
        out += _attr(2, bytes([id_])) if id_ else b""
        out += _attr(5, struct.pack("=H", port)) if port else b""
        return out + (_attr(6, struct.pack("=I", flags)) if flags else b"")

    def _order(self, known: _Known, command: int, *attributes: bytes) -> None:
        self._call(self._family, command, _attr(4, struct.pack("=I", known.token)) + b"".join(attributes))

    @staticmethod
    def _id_of(known: _Known, address: str) -> int:
        """Identifiers are ours to give; the first subflow's address has 0, which a command cannot name."""
        return known.address_ids.setdefault(address, len(known.address_ids) + 1)

    def create(
        self,
        connection: str,
        local: Optional[str] = None,
        local_port: Optional[int] = None,
        remote: Optional[str] = None,
        remote_port: Optional[int] = None,
        backup: bool = False,
    ) -> int:
        """Opens a subflow. Its number is told by the `sub_established` event; here it is the one that it will have."""
        self._drain()
        known = self._known.get(connection)
        if known is None:
            raise ControlError("not_found", f"no connection {connection}")
        own = local or split(known.local)[0]
        peer, peer_port = split(known.remote)
        here = self._address(own, local_port, self._id_of(known, own), BACKUP if backup else 0)
        there = self._address(remote or peer, remote_port or peer_port)
        self._order(known, CREATE, _attr(1 | 0x8000, here), _attr(6 | 0x8000, there))
        return known.made

    def destroy(self, connection: str, subflow: int, reset: bool = False) -> None:
        """Ends a subflow, as the kernel ends it: by a reset."""
        known, (local, remote) = self._find(connection, subflow)
        here, there = self._address(*split(local)), self._address(*split(remote))
        self._order(known, DESTROY, _attr(1 | 0x8000, here), _attr(6 | 0x8000, there))

    def set_backup(self, connection: str, subflow: int, backup: bool) -> None:
        """Changes the priority of a subflow."""
        known, (local, remote) = self._find(connection, subflow)
        here = self._address(*split(local), flags=BACKUP if backup else 0)
        self._order(known, SET_FLAGS, _attr(1 | 0x8000, here), _attr(6 | 0x8000, self._address(*split(remote))))

    def announce(self, connection: str, address: str, port: Optional[int] = None) -> int:
        """Tells the peer an address and gives its identifier."""
        self._drain()
        known = self._known.get(connection)
        if known is None:
            raise ControlError("not_found", f"no connection {connection}")
        id_ = self._id_of(known, address)
        self._order(known, ANNOUNCE, _attr(1 | 0x8000, self._address(address, port, id_, SIGNAL)))
        return id_

    def remove(self, connection: str, address_id: int) -> None:
        """Withdraws an address."""
        self._drain()
        known = self._known.get(connection)
        if known is None:
            raise ControlError("not_found", f"no connection {connection}")
        self._order(known, REMOVE, _attr(5, bytes([address_id])))


class AsyncKernelClient:
    """The same for asyncio. Every call is short, so it is made in place; events are looked for fifty times a second."""

    async def __aenter__(self) -> "AsyncKernelClient":
        self._client = KernelClient()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._client.close()

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._client, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            return method(*args, **kwargs)

        return call

    async def events(self) -> AsyncIterator[Event]:
        """All events for ever."""
        while True:
            event = self._client.next_event(0)
            if event is None:
                await asyncio.sleep(0.02)
            else:
                yield event
