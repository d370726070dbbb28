"""A place on loopback that answers no attempt to connect: the queue of its listener is full."""

import contextlib
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def deaf() -> Iterator[int]:
    """Give its port."""
    with contextlib.ExitStack() as opened:
        listener = opened.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(3):
            filler = opened.enter_context(socket.socket())
            filler.setblocking(False)  # noqa: FBT003 - as the standard library has it
            filler.connect_ex(listener.getsockname())
        yield int(listener.getsockname()[1])
