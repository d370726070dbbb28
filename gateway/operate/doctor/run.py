"""Runs checks side by side, each with its deadline; one that breaks is a finding like others."""

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from gateway.operate.doctor.check import Check
from gateway.operate.doctor.context import DoctorContext
from gateway.operate.doctor.report import FindingGroup
from sessions.values.finding import Finding, fail, ok

log = logging.getLogger(__name__)


async def run_checks(checks: Iterable[Check], context: DoctorContext) -> tuple[FindingGroup, ...]:
    """Carry out all of them; gives the groups in the order of their first checks."""
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
        return (ok(check.group, "not looked at: the configuration does not work"),)
    if check.needs_network and context.offline:
        return (ok(check.group, "not looked at: --offline"),)
    try:
        async with asyncio.timeout(check.timeout_seconds):
            return tuple(await check.run(context))
    except TimeoutError:
        return (
            fail(
                "the check",
                f"looking took longer than {check.timeout_seconds:g} s",
                "Find out what hangs there: a disk, a name server, or the network.",
            ),
        )
    except Exception as error:
        # What one check did not foresee must not hide what the others find.
        log.debug("a check of %s broke", check.group, exc_info=error)
        what = f"{type(error).__name__}: {error}".partition("\n")[0]
        return (fail("the check", f"broke: {what}", "Report this to those who make Holdfast."),)


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
