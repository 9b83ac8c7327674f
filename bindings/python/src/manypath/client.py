"""A session that waits: for scripts, and for threads of their own."""

from __future__ import annotations

import os
import select
import socket
import time
from collections import deque
from typing import Any, Deque, Iterator, List, Mapping, Optional, Union

from .protocol import (
    MAX_EVENTS,
    TIMEOUT,
    Connection,
    Decision,
    Event,
    Lines,
    ProtocolError,
    RequestTimeout,
    SessionError,
    converted,
    find_socket,
    result,
)


class Client:
    """A session with one process. `fileno()` is readable when events wait, for use with select and the like.

    Connecting, and each request with its reply, takes `timeout` seconds at most; None is for ever.

    All that it raises is a `ManypathError`: `ControlError` when the process refuses something, `SessionError` (a `ConnectionError`)
    when it is gone or cannot be reached, `RequestTimeout` (a `TimeoutError`) when it does not answer in time, and `ProtocolError`
    (a `ValueError`) when what it says is not the protocol, once for each line of that kind.
    """

    def __init__(
        self,
        path: Union[str, "os.PathLike[str]", None] = None,
        pid: Optional[int] = None,
        timeout: Optional[float] = TIMEOUT,
    ) -> None:
        self._timeout = timeout
        self._lines = Lines()
        self._events: Deque[Event] = deque()
        self._lost = 0
        self._replies: Deque[Mapping[str, Any]] = deque()
        self._bad: Deque[ProtocolError] = deque()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with converted():
                self._socket.settimeout(timeout)
                self._socket.connect(os.fspath(path if path is not None else find_socket(pid)))
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the session, and with it every claim."""
        self._socket.close()

    def fileno(self) -> int:
        """The descriptor to wait on. Call `next_event(0)` until it gives None when it is readable."""
        return self._socket.fileno()

    def _receive(self) -> None:
        """Takes what has come. Each line that cannot be read waits to be told, and those after it count."""
        with converted():
            data = self._socket.recv(1 << 16)
        if not data:
            raise SessionError("the process is gone")
        for line in self._lines.feed(data):
            if isinstance(line, ProtocolError):
                self._bad.append(line)
            elif "event" not in line:
                self._replies.append(line)
            elif len(self._events) >= MAX_EVENTS:
                self._lost += 1
            else:
                try:
                    with converted():
                        self._events.append(Event.read(line))
                except ProtocolError as error:
                    self._bad.append(error)

    def request(self, request: str, **fields: Any) -> Mapping[str, Any]:
        """Asks anything; the methods below are names for it."""
        wanted, line = self._lines.ask(request, fields)
        until = None if self._timeout is None else time.monotonic() + self._timeout
        with converted():
            self._socket.settimeout(self._timeout)
            self._socket.sendall(line)
        while True:
            while self._replies:
                reply = self._replies.popleft()
                if reply.get("id") in (wanted, None):
                    return result(reply)
            if self._bad:
                raise self._bad.popleft()
            if until is not None:
                left = until - time.monotonic()
                if left <= 0:
                    raise RequestTimeout("the process does not answer in time")
                self._socket.settimeout(left)
            self._receive()

    def connections(self) -> List[Connection]:
        """All connections, oldest first."""
        reply = self.request("list")
        with converted():
            return [Connection.read(one) for one in reply["process"]["connections"]]

    def show(self, connection: str) -> Connection:
        """One connection."""
        reply = self.request("show", connection=connection)
        with converted():
            return Connection.read(reply["connection"])

    def why(self, connection: str) -> List[Decision]:
        """The decisions of its path manager, oldest first."""
        reply = self.request("why", connection=connection)
        with converted():
            return [Decision.read(one) for one in reply["decisions"]]

    def subscribe(self, *events: str, connection: Optional[str] = None, sample_ms: Optional[int] = None) -> None:
        """Events of these names from now on, all without any; and samples of the connections."""
        self.request("subscribe", events=list(events), connection=connection, sample_ms=sample_ms)

    def claim(self, connection: Optional[str] = None, force: bool = False) -> None:
        """Owns a connection, or all that nobody owns, now and later; their own policies stand still."""
        self.request("claim", connection=connection, force=force)

    def release(self, connection: Optional[str] = None) -> None:
        """Ends a claim."""
        self.request("release", connection=connection)

    def create(
        self,
        connection: str,
        local: Optional[str] = None,
        local_port: Optional[int] = None,
        remote: Optional[str] = None,
        remote_port: Optional[int] = None,
        backup: bool = False,
    ) -> Optional[int]:
        """Opens a subflow from any part of a four-tuple and gives its number; None while it can only be noted for later."""
        wanted = {"local": local, "local_port": local_port, "remote": remote, "remote_port": remote_port}
        reply = self.request("subflow_create", connection=connection, backup=backup, **wanted)
        return reply.get("subflow")

    def destroy(self, connection: str, subflow: int, reset: bool = False) -> None:
        """Ends a subflow, by a FIN or by a reset."""
        self.request("subflow_destroy", connection=connection, subflow=subflow, reset=reset)

    def set_backup(self, connection: str, subflow: int, backup: bool) -> None:
        """Lets both ends use a subflow only when nothing better is left, or no longer."""
        self.request("set_flags", connection=connection, subflow=subflow, backup=backup)

    def announce(self, connection: str, address: str, port: Optional[int] = None) -> int:
        """Tells the peer one of our addresses and gives its identifier."""
        reply = self.request("announce", connection=connection, address=address, port=port)
        with converted():
            return int(reply["address_id"])

    def remove(self, connection: str, address_id: int) -> None:
        """Withdraws one of our addresses."""
        self.request("remove", connection=connection, address_id=address_id)

    def set_limits(
        self, connection: str, subflows: Optional[int] = None, add_addr_accepted: Optional[int] = None
    ) -> None:
        """Changes the limits of a connection."""
        self.request("set_limits", connection=connection, subflows=subflows, add_addr_accepted=add_addr_accepted)

    def set_policy(self, connection: str, policy: str) -> None:
        """Lets another policy of the process decide: `fullmesh`, `smart-backup:threshold=1s`..."""
        self.request("set_policy", connection=connection, policy=policy)

    def next_event(self, timeout: Optional[float] = None) -> Optional[Event]:
        """The next event; None when none came within so many seconds. Without a time it waits."""
        until = None if timeout is None else time.monotonic() + timeout
        while not self._events:
            if self._lost:
                lost, self._lost = self._lost, 0
                return Event(event="lost", events=lost)
            if self._bad:
                raise self._bad.popleft()
            left = None if until is None else max(until - time.monotonic(), 0)
            with converted():
                ready, _, _ = select.select([self._socket], [], [], left)
            if not ready:
                return None
            self._receive()
        return self._events.popleft()

    def events(self) -> Iterator[Event]:
        """All events until the process is gone."""
        while True:
            try:
                event = self.next_event()
            except SessionError:
                return
            if event is not None:
                yield event
