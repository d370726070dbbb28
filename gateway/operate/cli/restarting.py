"""`holdfast service restart`: says what a restart interrupts, asks, and waits until it is back.

It asks the running daemon, whoever started it.
"""

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click

from gateway.errors import CannotStart, HoldfastError
from gateway.operate.cli.common import call_daemon
from gateway.process.control_socket import NotRunning
from gateway.process.restart import IDLE_MINUTES, RestartRefused

POLL_SECONDS = 0.25  # seconds
RESTART_TIMEOUT_SECONDS = 60.0  # seconds after the last task had its time
"""How long a daemon may take to end and to start."""


class RestartNotFinished(HoldfastError):
    """It has not come back."""


when_idle_option = click.option(
    "--when-idle",
    type=click.FloatRange(min=0),
    is_flag=False,
    flag_value=IDLE_MINUTES,
    metavar="[MINUTES]",
    help=f"Wait until nothing runs, {IDLE_MINUTES:g} minutes at most unless you say otherwise.",
)
yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


def running_pid() -> int | None:
    """The number of the daemon of this state folder; None when none runs."""
    try:
        return int(call_daemon("status")["pid"])
    except NotRunning:
        return None


def restart_daemon(minutes: float | None = None, *, assume_yes: bool = False) -> None:
    """Restart the daemon of this state folder; raises `NotRunning` when there is none.

    `minutes`: how long it may wait for a moment in which nothing runs; None: it restarts now.
    """
    if minutes is None:
        confirm_restart(assume_yes=assume_yes)
    asked = call_daemon("restart", when_idle=minutes)
    try:
        _follow_restart(asked)
    except KeyboardInterrupt:
        _cancel_restart(asked["id"])
        raise


def confirm_restart(*, assume_yes: bool) -> None:
    """Show what would be interrupted, and let who sits here decide; raises `Refused`."""
    tasks = call_daemon("restart_list")
    if not tasks:
        return
    click.echo(f"Running now, and interrupted unless finished in time: {_count_tasks(tasks)}.")
    _print_tasks(each["line"] for each in tasks)
    if not assume_yes and sys.stdin.isatty() and not click.confirm("Restart now?"):
        msg = "Not restarted. With --when-idle it waits until nothing runs."
        raise RestartRefused(msg)


def wait_until_idle(minutes: float) -> None:
    """Wait for a moment in which nothing runs, and restart nothing; raises `Refused`."""
    until, said = time.monotonic() + minutes * 60, ""
    while running := call_daemon("restart_list"):
        left = round(until - time.monotonic())
        standing = {"state": "waiting", "running": running, "seconds_left": max(left, 0)}
        if left <= 0:
            raise _not_idle_error(standing)
        if (line := _progress_line(standing)) != said:
            click.echo(line)
            said = line
        time.sleep(POLL_SECONDS)


def _follow_restart(status: dict[str, Any]) -> None:
    """Say how it goes until it is over."""
    id_, said, until = str(status["id"]), "", None
    while True:
        state = status["state"]
        if state == "back":
            _print_finished(status)
            return
        if state in _ERRORS:
            raise _ERRORS[state](status)
        if state == "draining" and until is None:
            until = time.monotonic() + float(status["drain_seconds"]) + RESTART_TIMEOUT_SECONDS
        line = _progress_line(status)
        if line != said:
            click.echo(line)
            said = line
        status = _poll_status(id_, until) or {**status, "running": []}


def _poll_status(restart_id: str, deadline: float | None) -> dict[str, Any] | None:
    """Ask how it stands; None while nobody is there who could say."""
    time.sleep(POLL_SECONDS)
    if deadline is not None and time.monotonic() > deadline:
        msg = "It was told to restart and has not come back; its log says why."
        raise RestartNotFinished(msg)
    try:
        found: dict[str, Any] = call_daemon("restart_state", restart=restart_id)
    except NotRunning:
        if deadline is None:
            msg = "Holdfast ended before anything was restarted; its log says why."
            raise RestartNotFinished(msg) from None
        return None
    except CannotStart:  # it ends at this very moment
        if deadline is None:
            raise
        return None
    return found


def _progress_line(status: dict[str, Any]) -> str:
    running = status["running"]
    if status["state"] == "waiting":
        minutes = -(-int(status["seconds_left"]) // 60)
        return f"Waiting until nothing runs: {_count_tasks(running)}, {minutes} min left."
    return f"Restarting; {_count_tasks(running)} finishing." if running else "Restarting."


def _print_finished(status: dict[str, Any]) -> None:
    click.echo(f"Back after {status['took_text']}.")
    before, after = status["before"], status["after"]
    if before != after:
        click.echo(f"Version {after} now, {before} before.")
    if lines := status["lines"]:
        click.echo(f"Interrupted: {_count_tasks(lines)}.")
        _print_tasks(lines)
    if not status.get("in_order", True):
        click.echo("It ended before all was finished in order; its log says why.")
    if status.get("careful"):
        click.echo("It is in safe mode; see `holdfast status`.")


def _not_idle_error(status: dict[str, Any]) -> HoldfastError:
    running = status["running"]
    return RestartRefused(
        f"Not restarted: there was no moment without a running task ({_count_tasks(running)} now).",
        *(f"· {each['line']}" for each in running),
    )


def _refused_error(status: dict[str, Any]) -> HoldfastError:
    return RestartRefused(f"Not restarted, and nothing was interrupted: {status['cause']}")


def _cancelled_error(_: dict[str, Any]) -> HoldfastError:
    return RestartRefused("Not restarted: somebody called it off.")


def _stopping_error(_: dict[str, Any]) -> HoldfastError:
    return RestartNotFinished("It was told to stop meanwhile, and stops instead.")


_ERRORS: dict[str, Callable[[dict[str, Any]], HoldfastError]] = {
    "gave_up": _not_idle_error,
    "refused": _refused_error,
    "cancelled": _cancelled_error,
    "stopping": _stopping_error,
}


def _cancel_restart(restart_id: str) -> None:
    """The person at the terminal does not want to wait."""
    try:
        state = call_daemon("restart_cancel", restart=restart_id)["state"]
    except HoldfastError:
        state = "draining"
    over = state == "cancelled"
    click.echo("\nCalled off; nothing was restarted." if over else "\nThe restart goes on.")


def _count_tasks(tasks: Sequence[object]) -> str:
    return f"{len(tasks)} {'task' if len(tasks) == 1 else 'tasks'}"


def _print_tasks(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(f"  · {line}")
