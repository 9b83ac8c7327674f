"""Smart backup (SMAPP section 4.2): no second subflow before the time-out of the first passes a second; then move."""

import asyncio
import sys

from manypath import AsyncControl, Connection, ControlError, connect_async

THRESHOLD_US = 1_000_000
RETRY = 10.0  # seconds before the primary path is tried again
PROBATION = 3.0  # seconds without a time-out after which it is well again


def other_address(connection: Connection, primary: str) -> str:
    """Where to move: what is meant as a backup goes first."""
    others = [local for local in connection.local_addresses if local.up and local.address != primary]
    return max(others, key=lambda local: local.backup).address if others else ""


async def lead_back(control: AsyncControl, name: str, primary: str, troubled: set[tuple[str, int]]) -> None:
    """Tries the primary path again until it does well, and closes the others then."""
    while True:
        await asyncio.sleep(RETRY)
        new = await control.create(name, local=primary)
        await asyncio.sleep(PROBATION)
        connection = await control.show(name)
        well = any(s.id == new and s.established for s in connection.subflows)
        if well and (name, new) not in troubled:
            for subflow in connection.subflows:
                if subflow.local_address != primary:
                    await control.destroy(name, subflow.id)
            return


async def main(who: "str | None" = None) -> None:
    async with connect_async(who) as control:
        await control.subscribe("timeout", "closed")
        await control.claim()
        moved: dict[str, asyncio.Future[None]] = {}
        troubled: set[tuple[str, int]] = set()
        async for event in control.events():
            name, tried = event.connection, moved.get(event.connection)
            if event.event == "closed":
                if tried:
                    moved.pop(name).cancel()
                continue
            troubled.add((name, event.subflow))
            if event.rto_us <= THRESHOLD_US or (tried and not tried.done()):
                continue
            try:
                connection = await control.show(name)
                primary = next(s.local_address for s in connection.subflows if s.id == event.subflow)
                await control.create(name, local=other_address(connection, primary) or None)
                await control.destroy(name, event.subflow, reset=True)
                moved[name] = asyncio.ensure_future(lead_back(control, name, primary, troubled))
            except (ControlError, StopIteration) as error:
                print(f"{name}: {error}", file=sys.stderr)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:2]))
