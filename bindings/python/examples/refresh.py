"""Refresh (SMAPP section 4.4): several subflows over a network that hashes flows; every 2.5 s the slowest is replaced."""

import sys

from manypath import Connection, Control, ControlError, connect

SUBFLOWS, EVERY_MS = 5, 2_500


def refresh(control: Control, connection: Connection, before: dict[int, int]) -> dict[int, int]:
    """Replaces the slowest unless all do about alike; gives what each had acknowledged by now."""
    for _ in range(SUBFLOWS - len(connection.subflows)):
        control.create(connection.id)
    up = [subflow for subflow in connection.subflows if subflow.established]
    # One that was not there at the last look has not had its chance.
    rates = {s.id: s.bytes_acked - before[s.id] for s in up if s.id in before}
    if rates and min(rates.values()) * 4 < max(rates.values()) * 3:
        slowest = min(rates, key=lambda subflow: rates[subflow])
        control.create(connection.id)
        control.destroy(connection.id, slowest)
    return {subflow.id: subflow.bytes_acked for subflow in up}


def main(who: "str | None" = None) -> None:
    acked: dict[str, dict[int, int]] = {}
    with connect(who) as control:
        control.subscribe("established", "closed", "sample", sample_ms=EVERY_MS)
        control.claim()
        for event in control.events():
            name = event.connection
            try:
                if event.event == "closed":
                    acked.pop(name, None)
                elif event.event == "established":
                    acked[name] = refresh(control, control.show(name), {})
                elif event.sample is not None and event.sample.may_join:
                    acked[name] = refresh(control, event.sample, acked.get(name, {}))
            except ControlError as error:
                print(f"{name}: {error}", file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:2])
