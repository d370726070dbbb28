"""Threads that keep nobody waiting: a disk or a name server that hangs must not hold up the end.

Python waits for the threads of its usual pool before it ends, however long that takes.
"""

import concurrent.futures
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class DaemonThreadExecutor(concurrent.futures.ThreadPoolExecutor):
    """A pool for `loop.set_default_executor` whose threads end with the program."""

    def submit(
        self,
        fn: Callable[..., T],
        /,
        *args: Any,  # noqa: ANN401 - as the pool it stands in for
        **kwargs: Any,  # noqa: ANN401 - likewise
    ) -> concurrent.futures.Future[T]:
        """Start a thread for it."""
        promised: concurrent.futures.Future[T] = concurrent.futures.Future()

        def work() -> None:
            if not promised.set_running_or_notify_cancel():
                return
            try:
                promised.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - whoever waits for it is given it
                promised.set_exception(error)

        threading.Thread(target=work, name="doctor", daemon=True).start()
        return promised

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for nobody."""
