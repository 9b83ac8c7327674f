"""A session that waits: for scripts, and for threads of their own."""

from __future__ import annotations

import os
import select
import socket
from collections import deque
from typing import Any, Deque, Iterator, List, Mapping, Optional, Union

from .protocol import Connection, Decision, Event, Lines, find_socket, result


class Client:
    """A session with one process. `fileno()` is readable when events wait, for use with select and the like.

    Raises `ControlError` when the process refuses something, and `ConnectionError` when it is gone.
    """

    def __init__(self, path: Union[str, "os.PathLike[str]", None] = None, pid: Optional[int] = None) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(os.fspath(path if path is not None else find_socket(pid)))
        self._lines = Lines()
        self._events: Deque[Event] = deque()
        self._replies: Deque[Mapping[str, Any]] = deque()

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

    def _receive(self) -> bool:
        data = self._socket.recv(1 << 16)
        for line in self._lines.feed(data):
            if "event" in line:
                self._events.append(Event.read(line))
            else:
                self._replies.append(line)
        return bool(data)

    def request(self, request: str, **fields: Any) -> Mapping[str, Any]:
        """Asks anything; the methods below are names for it."""
        wanted, line = self._lines.ask(request, fields)
        self._socket.sendall(line)
        while True:
            while self._replies:
                reply = self._replies.popleft()
                if reply.get("id") in (wanted, None):
                    return result(reply)
            if not self._receive():
                raise ConnectionError("the process is gone")

    def connections(self) -> List[Connection]:
        """All connections, oldest first."""
        return [Connection.read(one) for one in self.request("list")["process"]["connections"]]

    def show(self, connection: str) -> Connection:
        """One connection."""
        return Connection.read(self.request("show", connection=connection)["connection"])

    def why(self, connection: str) -> List[Decision]:
        """The decisions of its path manager, oldest first."""
        return [Decision.read(one) for one in self.request("why", connection=connection)["decisions"]]

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
        return int(self.request("announce", connection=connection, address=address, port=port)["address_id"])

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
        while not self._events:
            ready, _, _ = select.select([self._socket], [], [], timeout)
            if not ready:
                return None
            if not self._receive():
                raise ConnectionError("the process is gone")
        return self._events.popleft()

    def events(self) -> Iterator[Event]:
        """All events until the process is gone."""
        while True:
            try:
                event = self.next_event()
            except ConnectionError:
                return
            if event is not None:
                yield event
