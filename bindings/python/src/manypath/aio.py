"""The same session for asyncio."""

from __future__ import annotations

import asyncio
import os
from typing import Any, AsyncIterator, Dict, List, Mapping, Optional, Union

from .protocol import (
    MAX_EVENTS,
    TIMEOUT,
    Connection,
    Decision,
    Event,
    Lines,
    ManypathError,
    ProtocolError,
    RequestTimeout,
    SessionError,
    converted,
    find_socket,
    result,
)


class AsyncClient:
    """A session with one process: `async with AsyncClient() as control`.

    Connecting, and each request with its reply, takes `timeout` seconds at most; None is for ever. It raises what `Client` raises.
    """

    def __init__(
        self,
        path: Union[str, "os.PathLike[str]", None] = None,
        pid: Optional[int] = None,
        timeout: Optional[float] = TIMEOUT,
    ) -> None:
        self._path, self._pid, self._timeout = path, pid, timeout
        self._lines = Lines()
        self._waiting: Dict[int, "asyncio.Future[Mapping[str, Any]]"] = {}
        self._over: Optional[SessionError] = None
        self._lost = 0

    async def __aenter__(self) -> "AsyncClient":
        with converted():
            path = self._path if self._path is not None else find_socket(self._pid)
            opening = asyncio.open_unix_connection(os.fspath(path))
            try:
                self._reader, self._writer = await asyncio.wait_for(opening, self._timeout)
            except asyncio.TimeoutError as error:
                raise RequestTimeout("the process does not answer in time") from error
        self._events: "asyncio.Queue[Union[Event, ProtocolError, None]]" = asyncio.Queue()
        self._task = asyncio.ensure_future(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        self._writer.close()

    def _hear(self, line: "Union[Dict[str, Any], ProtocolError]") -> None:
        """One line. One that cannot be read is told to the oldest request, or else in the place of an event."""
        if not isinstance(line, ProtocolError) and "event" in line:
            if self._events.qsize() >= MAX_EVENTS:
                self._lost += 1
                return
            try:
                with converted():
                    self._events.put_nowait(Event.read(line))
                return
            except ProtocolError as error:
                line = error
        # What could not be read as a request has no id: replies come in the order of their requests.
        of = None if isinstance(line, ProtocolError) else line.get("id")
        oldest = min(self._waiting, default=None) if of is None else of
        waiting = self._waiting.pop(oldest, None) if isinstance(oldest, int) else None
        if waiting is not None and not waiting.done():
            if isinstance(line, ProtocolError):
                waiting.set_exception(line)
            else:
                waiting.set_result(line)
        elif isinstance(line, ProtocolError):
            self._events.put_nowait(line)

    async def _read(self) -> None:
        over = SessionError("the process is gone")
        try:
            while True:
                with converted():
                    data = await self._reader.read(1 << 16)
                if not data:
                    break
                for line in self._lines.feed(data):
                    self._hear(line)
        except SessionError as error:
            over = error
        except ManypathError as error:
            over = SessionError(str(error))
        self._over = over
        self._events.put_nowait(None)
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(over)
        self._waiting.clear()

    async def request(self, request: str, **fields: Any) -> Mapping[str, Any]:
        """Asks anything; the methods below are names for it."""
        wanted, line = self._lines.ask(request, fields)
        if self._over is not None:
            raise SessionError(str(self._over))
        reply: "asyncio.Future[Mapping[str, Any]]" = asyncio.get_running_loop().create_future()
        self._waiting[wanted] = reply

        async def asked() -> Mapping[str, Any]:
            self._writer.write(line)
            await self._writer.drain()
            return await reply

        try:
            with converted():
                return result(await asyncio.wait_for(asked(), self._timeout))
        except asyncio.TimeoutError as error:
            raise RequestTimeout("the process does not answer in time") from error
        finally:
            self._waiting.pop(wanted, None)

    async def connections(self) -> List[Connection]:
        """All connections, oldest first."""
        reply = await self.request("list")
        with converted():
            return [Connection.read(one) for one in reply["process"]["connections"]]

    async def show(self, connection: str) -> Connection:
        """One connection."""
        reply = await self.request("show", connection=connection)
        with converted():
            return Connection.read(reply["connection"])

    async def why(self, connection: str) -> List[Decision]:
        """The decisions of its path manager, oldest first."""
        reply = await self.request("why", connection=connection)
        with converted():
            return [Decision.read(one) for one in reply["decisions"]]

    async def subscribe(self, *events: str, connection: Optional[str] = None, sample_ms: Optional[int] = None) -> None:
        """Events of these names from now on, all without any; and samples of the connections."""
        await self.request("subscribe", events=list(events), connection=connection, sample_ms=sample_ms)

    async def claim(self, connection: Optional[str] = None, force: bool = False) -> None:
        """Owns a connection, or all that nobody owns, now and later; their own policies stand still."""
        await self.request("claim", connection=connection, force=force)

    async def release(self, connection: Optional[str] = None) -> None:
        """Ends a claim."""
        await self.request("release", connection=connection)

    async def create(
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
        reply = await self.request("subflow_create", connection=connection, backup=backup, **wanted)
        return reply.get("subflow")

    async def destroy(self, connection: str, subflow: int, reset: bool = False) -> None:
        """Ends a subflow, by a FIN or by a reset."""
        await self.request("subflow_destroy", connection=connection, subflow=subflow, reset=reset)

    async def set_backup(self, connection: str, subflow: int, backup: bool) -> None:
        """Lets both ends use a subflow only when nothing better is left, or no longer."""
        await self.request("set_flags", connection=connection, subflow=subflow, backup=backup)

    async def announce(self, connection: str, address: str, port: Optional[int] = None) -> int:
        """Tells the peer one of our addresses and gives its identifier."""
        reply = await self.request("announce", connection=connection, address=address, port=port)
        with converted():
            return int(reply["address_id"])

    async def remove(self, connection: str, address_id: int) -> None:
        """Withdraws one of our addresses."""
        await self.request("remove", connection=connection, address_id=address_id)

    async def set_limits(
        self, connection: str, subflows: Optional[int] = None, add_addr_accepted: Optional[int] = None
    ) -> None:
        """Changes the limits of a connection."""
        await self.request("set_limits", connection=connection, subflows=subflows, add_addr_accepted=add_addr_accepted)

    async def set_policy(self, connection: str, policy: str) -> None:
        """Lets another policy of the process decide: `fullmesh`, `smart-backup:threshold=1s`..."""
        await self.request("set_policy", connection=connection, policy=policy)

    async def next_event(self) -> Optional[Event]:
        """The next event; None when the process is gone."""
        if self._lost and self._events.empty():
            lost, self._lost = self._lost, 0
            return Event(event="lost", events=lost)
        event = await self._events.get()
        if event is None:
            # For whoever asks again.
            self._events.put_nowait(None)
        if isinstance(event, ProtocolError):
            raise event
        return event

    async def events(self) -> AsyncIterator[Event]:
        """All events until the process is gone."""
        while True:
            event = await self.next_event()
            if event is None:
                return
            yield event
