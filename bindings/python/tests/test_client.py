"""Both clients against a process that a thread plays."""

import asyncio
import json
import os
import socket
import sys
import tempfile
import threading
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import refresh  # noqa: E402
import streaming  # noqa: E402

from manypath import (  # noqa: E402
    AsyncClient,
    Client,
    Connection,
    ControlError,
    Event,
    KernelClient,
    ManypathError,
    ProtocolError,
    RequestTimeout,
    SessionError,
    Subflow,
    find_socket,
    sockets,
)

SHOWN = {
    "id": "3.1",
    "may_join": True,
    "added_later": 1,
    "local_addresses": [{"id": 0, "address": "10.0.0.1", "up": True}],
    "subflows": [{"id": 0, "phase": "established", "local": "10.0.0.1:5000", "srtt_us": None}],
}
EVENT = {"event": "timeout", "seq": 1, "at_us": 5, "connection": "3.1", "subflow": 0, "rto_us": 400_000, "backoffs": 1}


class Process:
    """Answers as a process would, with an event in front of every reply, and remembers what it was asked."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "7.sock"
        self.asked: list[dict[str, object]] = []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.path))
        self.listener.listen()
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self) -> None:
        stream, _ = self.listener.accept()
        with stream, stream.makefile("rwb") as lines:
            for line in lines:
                asked = json.loads(line)
                self.asked.append({k: v for k, v in asked.items() if k != "id"})
                replies: dict[str, dict[str, object]] = {
                    "show": {"reply": "connection", "connection": SHOWN},
                    "subflow_create": {"reply": "done", "subflow": 4} if asked.get("local") else {"reply": "done"},
                    "remove": {"reply": "error", "code": "not_found", "message": "no such address"},
                    "why": {"reply": "decisions", "decisions": [{"ago_us": 1, "decision": "d", "reason": "r"}]},
                }
                reply = replies.get(asked["request"], {"reply": "done"})
                for out in (EVENT, {"id": asked["id"], **reply}):
                    lines.write(json.dumps(out).encode() + b"\n")
                lines.flush()

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: object) -> None:
        self.thread.join(10)
        self.listener.close()
        self.folder.cleanup()


class Clients(unittest.TestCase):
    EXPECTED = [
        {"request": "subscribe", "events": ["timeout"]},
        {"request": "show", "connection": "3.1"},
        {"request": "subflow_create", "connection": "3.1", "backup": True, "local": "10.1.0.1"},
        {"request": "remove", "connection": "3.1", "address_id": 9},
        {"request": "why", "connection": "3.1"},
    ]

    def check(self, shown: Connection, created: "int | None", code: str, reason: str) -> None:
        self.assertTrue(shown.may_join and shown.subflows[0].established)
        self.assertEqual(shown.subflows[0].local_address, shown.local_addresses[0].address)
        self.assertEqual((created, code, reason), (4, "not_found", "r"))

    def test_blocking(self) -> None:
        with Process() as process, Client(process.path) as control:
            control.subscribe("timeout")
            shown = control.show("3.1")
            created = control.create("3.1", local="10.1.0.1", backup=True)
            with self.assertRaises(ControlError) as refused:
                control.remove("3.1", 9)
            self.check(shown, created, refused.exception.code, control.why("3.1")[0].reason)
            events = [control.next_event(0) for _ in range(5)]
            self.assertEqual([event and event.rto_us for event in events], [400_000] * 5)
            self.assertIsNone(control.next_event(0))
            control.close()
        self.assertEqual(process.asked, self.EXPECTED)

    def test_asyncio(self) -> None:
        async def talk(path: Path) -> None:
            async with AsyncClient(path) as control:
                await control.subscribe("timeout")
                shown, created = await asyncio.gather(
                    control.show("3.1"), control.create("3.1", local="10.1.0.1", backup=True)
                )
                with self.assertRaises(ControlError) as refused:
                    await control.remove("3.1", 9)
                self.check(shown, created, refused.exception.code, (await control.why("3.1"))[0].reason)
                async for event in control.events():
                    self.assertEqual((event.event, event.connection), ("timeout", "3.1"))
                    break

        with Process() as process:
            asyncio.run(talk(process.path))
        self.assertEqual(process.asked, self.EXPECTED)

    def test_an_early_order_has_no_number_yet(self) -> None:
        async def talk(path: Path) -> None:
            async with AsyncClient(path) as control:
                self.assertIsNone(await control.create("3.1"))

        with Process() as process, Client(process.path) as control:
            self.assertIsNone(control.create("3.1"))
            control.close()
        with Process() as process:
            asyncio.run(talk(process.path))

    def test_what_a_killed_process_left_behind_does_not_count(self) -> None:
        with tempfile.TemporaryDirectory() as runtime:
            folder = Path(runtime) / "manypath"
            folder.mkdir(mode=0o700)
            with mock.patch.dict("os.environ", {"XDG_RUNTIME_DIR": runtime}):
                with socket.socket(socket.AF_UNIX) as listener:
                    # A process of that number runs, and has nothing to do with it.
                    path = folder / f"{os.getpid()}.sock"
                    listener.bind(str(path))
                    listener.listen()
                    self.assertEqual(find_socket(os.getpid()), path)
                with self.assertRaises(ControlError) as refused:
                    find_socket(os.getpid())
                self.assertEqual(refused.exception.code, "not_found")

    def test_a_process_that_goes_away(self) -> None:
        here, there = socket.socketpair()
        with Process() as process, Client(process.path) as control:
            control._socket.close()
            control._socket = here
            there.close()
            with self.assertRaises(ConnectionError):
                control.show("3.1")
            self.assertEqual(list(control.events()), [])


class Liar:
    """A process that says what it is told to say, line for line, and then nothing more."""

    def __init__(self, *says: bytes, ends: bool = False) -> None:
        self.says, self.ends = says, ends

    def __enter__(self) -> Path:
        self.folder = tempfile.TemporaryDirectory()
        path = Path(self.folder.name) / "7.sock"
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen()
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()
        return path

    def serve(self) -> None:
        stream, _ = self.listener.accept()
        with stream:
            lines = stream.makefile("rb")
            for says in self.says:
                lines.readline()
                stream.sendall(says)
            if not self.ends:
                lines.read()

    def __exit__(self, *_: object) -> None:
        self.thread.join(10)
        self.listener.close()
        self.folder.cleanup()


def named(event: Event | None) -> str:
    """The kind of an event that must be there."""
    assert event is not None
    return event.event


class Errors(unittest.TestCase):
    """Whatever a process says or does not say ends in one kind of error."""

    LIES = (
        b"no JSON\n",
        b"[1]\n",
        b"\xff\xfe\n",
        b"[" * 100_000 + b"\n",
        b'{"id":1,"reply":"connection"}\n',
        b'{"id":1,"reply":"connection","connection":7}\n',
        b'{"id":1,"reply":"connection","connection":{"subflows":[1]}}\n',
        b'{"event":"sample","sample":[]}\n',
        b"{}," * 3_000_000 + b"\n",
    )

    def test_what_is_not_the_protocol(self) -> None:
        for lie in self.LIES:
            with Liar(lie) as path, Client(path, timeout=20) as control:
                with self.assertRaises(ProtocolError, msg=lie[:40]):
                    control.show("3.1")

            async def talk(path: Path) -> None:
                async with AsyncClient(path, timeout=20) as control:
                    await control.show("3.1")

            with Liar(lie) as path, self.assertRaises(ProtocolError, msg=lie[:40]):
                asyncio.run(talk(path))

    def test_a_bad_line_takes_none_of_those_after_it(self) -> None:
        event = json.dumps(EVENT).encode() + b"\n"
        done = b'{"id":%d,"reply":"done"}\n'
        with Liar(event + b"bad\n" + event + done % 1, done % 2) as path, Client(path) as control:
            control.release()
            self.assertEqual([named(control.next_event(0)) for _ in range(2)], ["timeout"] * 2)
            with self.assertRaises(ProtocolError):
                control.next_event(0)
            self.assertIsNone(control.next_event(0))
            control.claim()

        async def talk(path: Path) -> None:
            async with AsyncClient(path) as control:
                with self.assertRaises(ProtocolError):
                    await control.release()
                await control.claim()
                self.assertEqual([named(await control.next_event()) for _ in range(2)], ["timeout"] * 2)

        with Liar(event + b"bad\n" + event, done % 2) as path:
            asyncio.run(talk(path))

    def test_a_process_that_does_not_answer(self) -> None:
        with Liar(b'{"ev') as path, Client(path, timeout=0.2) as control:
            with self.assertRaises(RequestTimeout):
                control.show("3.1")

        async def talk(path: Path) -> None:
            async with AsyncClient(path, timeout=0.2) as control:
                with self.assertRaises(RequestTimeout):
                    await control.show("3.1")

        with Liar(b"") as path:
            asyncio.run(talk(path))

    def test_a_late_reply_is_no_reply_to_the_next_request(self) -> None:
        late = b'{"id":1,"reply":"done","subflow":1}\n{"id":2,"reply":"done","subflow":2}\n'
        with Liar(b"", late) as path, Client(path, timeout=0.2) as control:
            with self.assertRaises(RequestTimeout):
                control.create("3.1")
            control._timeout = 10
            self.assertEqual(control.create("3.1"), 2)

    def test_a_process_that_is_gone(self) -> None:
        async def talk(path: Path) -> None:
            async with AsyncClient(path) as control:
                for _ in range(2):
                    with self.assertRaises(SessionError):
                        await control.show("3.1")
                self.assertIsNone(await control.next_event())
                self.assertIsNone(await control.next_event())

        with Liar(b"", ends=True) as path:
            asyncio.run(talk(path))
        for nowhere in ("/nowhere/7.sock", "/" + "x" * 300, "/tmp"):
            with self.assertRaises(SessionError, msg=nowhere):
                Client(nowhere)
            with self.assertRaises(SessionError, msg=nowhere):
                asyncio.run(talk(Path(nowhere)))

    def test_the_errors_are_one_family(self) -> None:
        for kind, usual in ((SessionError, ConnectionError), (RequestTimeout, TimeoutError), (ProtocolError, ValueError)):
            self.assertTrue(issubclass(kind, ManypathError) and issubclass(kind, usual))
        self.assertTrue(issubclass(ControlError, ManypathError))

    def test_a_host_without_the_kernels_family(self) -> None:
        with mock.patch("builtins.open", side_effect=FileNotFoundError), self.assertRaises(SessionError):
            KernelClient()

    def test_links_are_not_followed(self) -> None:
        with tempfile.TemporaryDirectory() as runtime, socket.socket(socket.AF_UNIX) as listener:
            folder = Path(runtime) / "manypath"
            folder.mkdir(mode=0o700)
            real = Path(runtime) / "other.sock"
            listener.bind(str(real))
            listener.listen()
            (folder / "4294967.sock").symlink_to(real)
            with mock.patch.dict("os.environ", {"XDG_RUNTIME_DIR": runtime}):
                self.assertNotIn(4294967, sockets())


class Examples(unittest.TestCase):
    def test_a_block_is_late_when_less_than_half_is_through_half_way(self) -> None:
        stream = streaming.Stream()
        connection = Connection(bytes_written=65_536, bytes_acked=32_767)
        self.assertFalse(stream.is_late(1.0, connection))
        self.assertFalse(stream.is_late(1.49, connection))
        self.assertTrue(stream.is_late(1.5, connection))
        self.assertFalse(stream.is_late(1.55, connection), "once a block")

    def test_the_slowest_is_replaced(self) -> None:
        control = mock.create_autospec(Client, instance=True)

        def subflows(*acked: int) -> Connection:
            made = (Subflow(id=i, phase="established", bytes_acked=a) for i, a in enumerate(acked))
            return Connection(id="3.1", subflows=tuple(made))

        before = refresh.refresh(control, subflows(0, 0, 0, 0, 0), {})
        refresh.refresh(control, subflows(8, 7, 8, 7, 8), before)
        self.assertEqual(control.method_calls, [])
        refresh.refresh(control, subflows(8, 8, 3, 4, 8), before)
        self.assertEqual(control.method_calls, [mock.call.create("3.1"), mock.call.destroy("3.1", 2)])

    def test_examples_are_short(self) -> None:
        for path in sorted((Path(__file__).parents[1] / "examples").glob("*.py")):
            lines = [line for line in path.read_text().splitlines() if line.strip()]
            self.assertLess(len(lines), 60, path.name)


if __name__ == "__main__":
    unittest.main()
