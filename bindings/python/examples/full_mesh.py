"""Full mesh by cause (SMAPP section 4.1): a subflow from each local address, and again after a loss, later for worse causes."""

import heapq
import math
import random
import sys
import time

from manypath import Control, ControlError, Event, connect

# Seconds before the first new attempt; each further loss in a row doubles them, up to a minute. What the peer or the
# administrator ended for good is not tried again.
PAUSES = {"reset_by_peer": 1.0, "timed_out": 1.0, "unreachable": 3.0, "address_gone": 0.0}


class FullMesh:
    def __init__(self, control: Control) -> None:
        self.control = control
        self.losses: dict[tuple[str, str], int] = {}
        self.due: list[tuple[float, tuple[str, str]]] = []

    def fill(self) -> None:
        """Opens what is missing."""
        waiting = {path for _, path in self.due}
        for connection in self.control.connections():
            for local in connection.unused_addresses():
                try:
                    if (connection.id, local.address) not in waiting:
                        self.control.create(connection.id, local=local.address, backup=local.backup)
                except ControlError as error:
                    print(f"{connection.id}: {error}", file=sys.stderr)

    def lost(self, event: Event) -> None:
        """Notes when the path may be tried again."""
        path = (event.connection, event.local_address)
        count = self.losses[path] = self.losses.get(path, -1) + 1
        meant = event.transient is False and event.reset_reason is not None
        pause = math.inf if meant else PAUSES.get(event.cause, math.inf)
        pause = min(pause * 2**count, max(pause, 60)) * random.uniform(1, 1.25)
        heapq.heappush(self.due, (time.monotonic() + pause, path))

    def run(self) -> None:
        self.control.subscribe("established", "sub_closed", "new_local_addr")
        self.control.claim()
        while True:
            self.fill()
            wait = max(self.due[0][0] - time.monotonic(), 0) if self.due else math.inf
            event = self.control.next_event(None if wait == math.inf else wait)
            if event is None:
                heapq.heappop(self.due)
            elif event.event == "sub_closed":
                self.lost(event)


if __name__ == "__main__":
    FullMesh(connect(*sys.argv[1:2])).run()
