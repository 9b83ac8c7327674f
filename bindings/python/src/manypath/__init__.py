"""Steer the paths of Multipath TCP connections: of running manypath processes, and of the Linux kernel."""

from typing import Optional, Union

from .aio import AsyncClient
from .client import Client
from .kernel import AsyncKernelClient, KernelClient
from .protocol import (
    Address,
    Connection,
    ControlError,
    Decision,
    Event,
    ManypathError,
    PeerAddress,
    ProtocolError,
    RequestTimeout,
    SessionError,
    Subflow,
    find_socket,
    sockets,
)


# Either session, with the same calls.
Control = Union[Client, KernelClient]
AsyncControl = Union[AsyncClient, AsyncKernelClient]


def connect(who: Optional[str] = None) -> Control:
    """A session with the process of this id, with the only one of this user, or with the `kernel`."""
    return KernelClient() if who == "kernel" else Client(pid=_process(who))


def connect_async(who: Optional[str] = None) -> AsyncControl:
    """The same for asyncio, for use with `async with`."""
    return AsyncKernelClient() if who == "kernel" else AsyncClient(pid=_process(who))


def _process(who: Optional[str]) -> Optional[int]:
    if who and not who.isdecimal():
        raise ControlError("invalid", f"`{who}` is neither the id of a process nor `kernel`")
    return int(who) if who else None


__all__ = [
    "Address",
    "AsyncClient",
    "AsyncControl",
    "AsyncKernelClient",
    "Client",
    "Connection",
    "Control",
    "ControlError",
    "Decision",
    "Event",
    "KernelClient",
    "ManypathError",
    "PeerAddress",
    "ProtocolError",
    "RequestTimeout",
    "SessionError",
    "Subflow",
    "connect",
    "connect_async",
    "find_socket",
    "sockets",
]
