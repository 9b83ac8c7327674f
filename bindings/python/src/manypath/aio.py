"""The same session for asyncio."""

from __future__ import annotations

import asyncio
import os
from typing import Any, AsyncIterator, Dict, List, Mapping, Optional, Union

from .protocol import Connection, Decision, Event, Lines, find_socket, result


class AsyncClient:
    """A session with one process: `async with AsyncClient() as control`.

    Raises `ControlError` when the process refuses something, and `ConnectionError` when it is gone.
    """

    def __init__(self, path: Union[str, "os.PathLike[str]", None] = None, pid: Optional[int] = None) -> None:
        self._path, self._pid = path, pid
        self._lines = Lines()
        self._waiting: Dict[int, "asyncio.Future[Mapping[str, Any]]"] = {}

    async def __aenter__(self) -> "AsyncClient":
        path = self._path if self._path is not None else find_socket(self._pid)
        self._reader, self._writer = await asyncio.open_unix_connection(os.fspath(path))
        self._events: "asyncio.Queue[Optional[Event]]" = asyncio.Queue()
        self._task = asyncio.ensure_future(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        self._writer.close()

    async def _read(self) -> None:
        while True:
            data = await self._reader.read(1 << 16)
            for line in self._lines.feed(data):
                if "event" in line:
                    self._events.put_nowait(Event.read(line))
                else:
                    waiting = self._waiting.pop(line.get("id", 0), None)
                    if waiting is not None and not waiting.done():
                        waiting.set_result(line)
            if not data:
                break
        self._events.put_nowait(None)
        for waiting in self._waiting.values():
            waiting.set_exception(ConnectionError("the process is gone"))

    async def request(self, request: str, **fields: Any) -> Mapping[str, Any]:
        """Asks anything; the methods below are names for it."""
        wanted, line = self._lines.ask(request, fields)
        self._waiting[wanted] = asyncio.get_running_loop().create_future()
        self._writer.write(line)
        await self._writer.drain()
        return result(await self._waiting[wanted])

    async def connections(self) -> List[Connection]:
        """All connections, oldest first."""
        return [Connection.read(one) for one in (await self.request("list"))["process"]["connections"]]

    async def show(self, connection: str) -> Connection:
        """One connection."""
        return Connection.read((await self.request("show", connection=connection))["connection"])

    async def why(self, connection: str) -> List[Decision]:
        """The decisions of its path manager, oldest first."""
        return [Decision.read(one) for one in (await self.request("why", connection=connection))["decisions"]]

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
        return int((await self.request("announce", connection=connection, address=address, port=port))["address_id"])

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
        return await self._events.get()

    async def events(self) -> AsyncIterator[Event]:
        """All events until the process is gone."""
        while True:
            event = await self._events.get()
            if event is None:
                return
            yield event
