"""Runs checks concurrently, each with a deadline; a check that breaks becomes a finding."""

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from gateway.operate.doctor.check import Check
from gateway.operate.doctor.context import DoctorContext
from gateway.operate.doctor.report import FindingGroup
from sessions.values.exceptions import error_line
from sessions.values.finding import Finding, fail, ok

log = logging.getLogger(__name__)


async def run_checks(checks: Iterable[Check], context: DoctorContext) -> tuple[FindingGroup, ...]:
    """Run all checks; return their groups in the order of each group's first check."""
    listed = tuple(checks)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_run_check(check, context)) for check in listed]
    found: dict[str, list[Finding]] = {}
    for check, task in zip(listed, tasks, strict=True):
        found.setdefault(check.group, []).extend(task.result())
    return tuple(
        FindingGroup(name, tuple(findings)) for name, findings in found.items() if findings
    )


async def _run_check(check: Check, context: DoctorContext) -> tuple[Finding, ...]:
    if context.loaded is None and not check.works_without_config:
        return (ok(check.group, "not checked: the configuration does not work"),)
    if check.needs_network and context.offline:
        return (ok(check.group, "not checked: --offline"),)
    try:
        async with asyncio.timeout(check.timeout_seconds):
            return tuple(await check.run(context))
    except TimeoutError:
        return (
            fail(
                "the check",
                f"the check took longer than {check.timeout_seconds:g} s",
                "Find out what hangs: a disk, a name server or the network.",
            ),
        )
    except Exception as error:
        # An unforeseen error in one check must not hide the findings of the others.
        log.debug("a check of group %s raised an error", check.group, exc_info=error)
        what = error_line(error)
        return (
            fail(
                "the check",
                f"the check failed to run: {what}",
                "Report this to the Holdfast project.",
            ),
        )


T = TypeVar("T")


class DaemonThreadExecutor(concurrent.futures.ThreadPoolExecutor):
    """Executor for `loop.set_default_executor` whose threads never delay the program's exit."""

    def submit(
        self,
        fn: Callable[..., T],
        /,
        *args: Any,  # noqa: ANN401 - as in the base class
        **kwargs: Any,  # noqa: ANN401 - as in the base class
    ) -> concurrent.futures.Future[T]:
        """Run `fn` in a new daemon thread."""
        promised: concurrent.futures.Future[T] = concurrent.futures.Future()

        def work() -> None:
            if not promised.set_running_or_notify_cancel():
                return
            try:
                promised.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - passed to the waiter
                promised.set_exception(error)

        threading.Thread(target=work, name="doctor", daemon=True).start()
        return promised

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Return at once; running threads are daemons."""
