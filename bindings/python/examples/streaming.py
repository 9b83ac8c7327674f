"""Smart streaming (SMAPP section 4.3): a second subflow only when a block is late; none whose time-out passes a second."""

import sys
import time

from manypath import Connection, ControlError, connect

BLOCK, PERIOD, BOUND_US = 65_536, 1.0, 1_000_000


class Stream:
    """When the block that began last must be half through, and how many bytes that is."""

    def __init__(self) -> None:
        self.begun, self.half_way, self.half = 0, 0.0, 0

    def is_late(self, now: float, connection: Connection) -> bool:
        begun = -(-connection.bytes_written // BLOCK)
        if begun > self.begun:
            self.begun, self.half_way, self.half = begun, now + PERIOD / 2, begun * BLOCK - BLOCK // 2
        if not self.half or now < self.half_way:
            return False
        late, self.half = connection.bytes_acked < self.half, 0
        return late


def main(who: "str | None" = None) -> None:
    streams: dict[str, Stream] = {}
    with connect(who) as control:
        # A sample twenty times a period shows when a block begins.
        control.subscribe("timeout", "closed", "sample", sample_ms=int(PERIOD * 50))
        control.claim()
        for event in control.events():
            try:
                if event.event == "closed":
                    streams.pop(event.connection, None)
                elif event.event == "timeout" and event.rto_us > BOUND_US:
                    connection = control.show(event.connection)
                    if sum(s.established for s in connection.subflows) > 1:
                        control.destroy(connection.id, event.subflow, reset=True)
                elif event.sample is not None:
                    stream = streams.setdefault(event.connection, Stream())
                    if stream.is_late(time.monotonic(), event.sample):
                        for free in event.sample.unused_addresses()[:1]:
                            control.create(event.connection, local=free.address)
            except ControlError as error:
                print(f"{event.connection}: {error}", file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:2])
