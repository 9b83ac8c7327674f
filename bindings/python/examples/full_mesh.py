"""Full mesh by cause (SMAPP section 4.1): a subflow from each local address, and again after a loss, later for worse causes."""

import heapq
import random
import sys
import time

from manypath import Client, ControlError, Event, connect
from manypath.protocol import split

# Seconds before the first new attempt; each further loss in a row doubles them, up to a minute. What the peer or the
# administrator ended for good is not tried again.
PAUSES = {"reset_by_peer": 1.0, "timed_out": 1.0, "unreachable": 3.0, "address_gone": 0.0}


class FullMesh:
    def __init__(self, control: Client) -> None:
        self.control = control
        self.failures: dict = {}
        self.due: list = []

    def fill(self, name: str) -> None:
        """Opens what is missing."""
        connection = self.control.show(name)
        used = {subflow.local_address for subflow in connection.subflows}
        waiting = {(c, a) for _, c, a in self.due}
        for local in connection.local_addresses:
            wanted = local.up and local.address not in used and (name, local.address) not in waiting
            if wanted and connection.may_join and self.failures.get((name, local.address)) != "given up":
                self.control.create(name, local=local.address, backup=local.backup)

    def lost(self, event: Event) -> None:
        """Notes when the path may be tried again."""
        path = (event.connection, split(event.local)[0])
        pause = PAUSES.get(event.cause)
        if pause is None or event.transient is False and event.reset_reason is not None:
            self.failures[path] = "given up"
            return
        count = self.failures.get(path, 0)
        self.failures[path] = count + 1
        pause = min(pause * 2**count, 60) * random.uniform(1, 1.25)
        heapq.heappush(self.due, (time.monotonic() + pause, *path))

    def run(self) -> None:
        self.control.subscribe("established", "sub_closed", "new_local_addr")
        self.control.claim()
        names = [connection.id for connection in self.control.connections()]
        while True:
            for name in names:
                try:
                    self.fill(name)
                except ControlError as error:
                    print(f"{name}: {error}", file=sys.stderr)
            wait = max(self.due[0][0] - time.monotonic(), 0) if self.due else None
            event, names = self.control.next_event(wait), []
            if event is None:
                names = [heapq.heappop(self.due)[1]]
            elif event.event == "sub_closed":
                self.lost(event)
            else:
                names = [event.connection] if event.connection else [c.id for c in self.control.connections()]


if __name__ == "__main__":
    FullMesh(connect(*sys.argv[1:2])).run()
