"""`holdfast service restart`: lists running tasks, asks, and follows the restart to the end.

The commands talk to the running daemon, whether systemd or a person started it.
"""

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click

from gateway.config.loader import read_environment, state_folder
from gateway.errors import CannotStart, HoldfastError
from gateway.operate.cli.common import call_daemon, print_text
from gateway.process.control_socket import NotRunning
from gateway.process.lock import find_lock_holder
from gateway.process.restart import IDLE_MINUTES, RestartRefused
from gateway.process.restart_report import RestartState

POLL_SECONDS = 0.25
RESTART_TIMEOUT_SECONDS = 60.0
"""Seconds for a daemon to end and start again, after the drain time of running tasks."""


class RestartNotFinished(HoldfastError):
    """The daemon has not come back."""


when_idle_option = click.option(
    "--when-idle",
    type=click.FloatRange(min=0),
    is_flag=False,
    flag_value=IDLE_MINUTES,
    metavar="[MINUTES]",
    help=f"Wait until no task runs, for at most MINUTES (default {IDLE_MINUTES:g}).",
)
yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


def running_pid() -> int | None:
    """Return the process id of this state folder's daemon; None if none runs."""
    try:
        return int(call_daemon("status")["pid"])
    except NotRunning:
        return None


def restart_daemon(minutes: float | None = None, *, assume_yes: bool = False) -> None:
    """Restart the daemon of this state folder; raise `NotRunning` if none runs.

    With `minutes`, wait that long for a moment without running tasks; with None, restart now.
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
    """List the tasks a restart interrupts, and ask; raise `RestartRefused` if the person declines."""
    tasks = call_daemon("restart_list")
    if not tasks:
        return
    click.echo(f"Running now, interrupted unless finished in time: {_count_tasks(tasks)}.")
    _print_tasks(task["line"] for task in tasks)
    if not assume_yes and sys.stdin.isatty() and not click.confirm("Restart now?"):
        msg = "Not restarted. Use --when-idle to restart once no task runs."
        raise RestartRefused(msg)


def wait_until_idle(minutes: float) -> None:
    """Wait until no task runs, without restarting; raise `RestartRefused` after `minutes`."""
    until, shown = time.monotonic() + minutes * 60, ""
    while running := call_daemon("restart_list"):
        left = round(until - time.monotonic())
        standing = {"state": RestartState.WAITING, "running": running, "seconds_left": max(left, 0)}
        if left <= 0:
            raise _not_idle_error(standing)
        if (line := _progress_line(standing)) != shown:
            click.echo(line)
            shown = line
        time.sleep(POLL_SECONDS)


def _follow_restart(status: dict[str, Any]) -> None:
    """Print the progress of a restart until the end."""
    id_, shown, until = str(status["id"]), "", None
    while True:
        state = status["state"]
        if state == RestartState.BACK:
            _print_finished(status)
            return
        if state in _ERRORS:
            raise _ERRORS[state](status)
        if state == RestartState.DRAINING and until is None:
            until = time.monotonic() + float(status["drain_seconds"]) + RESTART_TIMEOUT_SECONDS
        line = _progress_line(status)
        if line != shown:
            click.echo(line)
            shown = line
        found = _poll_status(id_, until)
        if found is None and until is None:  # the restart began between two looks
            until = time.monotonic() + RESTART_TIMEOUT_SECONDS
        elif found and found["state"] == RestartState.WAITING:
            until = None
        status = found or {**status, "running": []}


def _poll_status(restart_id: str, deadline: float | None) -> dict[str, Any] | None:
    """Ask the daemon for the state of the restart; return None while none answers."""
    time.sleep(POLL_SECONDS)
    if deadline is not None and time.monotonic() > deadline:
        msg = "Holdfast was told to restart and has not come back. See its log."
        raise RestartNotFinished(msg)
    try:
        found: dict[str, Any] = call_daemon("restart_state", restart=restart_id)
    except NotRunning:
        if deadline is None and not _lives():
            msg = "Holdfast ended before the restart began. See its log."
            raise RestartNotFinished(msg) from None
        return None
    except CannotStart:  # the daemon is ending right now
        if deadline is None and not _lives():
            raise
        return None
    return found


def _lives() -> bool:
    """Return True while a process holds the state folder, also one that begins its restart."""
    return find_lock_holder(state_folder(read_environment()))[0]


def _progress_line(status: dict[str, Any]) -> str:
    running = status["running"]
    if status["state"] == RestartState.WAITING:
        minutes = -(-int(status["seconds_left"]) // 60)
        return f"Waiting for {_count_tasks(running)} to finish, {minutes} min left."
    return f"Restarting; waiting for {_count_tasks(running)}." if running else "Restarting."


def _print_finished(status: dict[str, Any]) -> None:
    click.echo(f"Back after {status['took_text']}.")
    before, after = status["before"], status["after"]
    if before != after:
        click.echo(f"Updated from version {before} to {after}.")
    if lines := status["lines"]:
        click.echo(f"Interrupted: {_count_tasks(lines)}.")
        _print_tasks(lines)
    if not status.get("in_order", True):
        click.echo("The shutdown was not clean. See the log.")
    if status.get("careful"):
        click.echo("Holdfast is in safe mode; see: holdfast status")


def _not_idle_error(status: dict[str, Any]) -> HoldfastError:
    running = status["running"]
    return RestartRefused(
        f"Not restarted: tasks were running all the time ({_count_tasks(running)} now).",
        *(f"· {task['line']}" for task in running),
    )


def _refused_error(status: dict[str, Any]) -> HoldfastError:
    return RestartRefused(f"Not restarted, and nothing was interrupted: {status['cause']}")


def _cancelled_error(_: dict[str, Any]) -> HoldfastError:
    return RestartRefused("Not restarted: the restart was cancelled.")


def _stopping_error(_: dict[str, Any]) -> HoldfastError:
    return RestartNotFinished("Not restarted: Holdfast was told to stop, and is stopping.")


_ERRORS: dict[str, Callable[[dict[str, Any]], HoldfastError]] = {
    RestartState.GAVE_UP: _not_idle_error,
    RestartState.REFUSED: _refused_error,
    RestartState.CANCELLED: _cancelled_error,
    RestartState.STOPPING: _stopping_error,
}


def _cancel_restart(restart_id: str) -> None:
    """Cancel the restart after Ctrl-C, and say whether that was still possible."""
    try:
        state = call_daemon("restart_cancel", restart=restart_id)["state"]
    except HoldfastError:
        state = RestartState.DRAINING
    cancelled = state == RestartState.CANCELLED
    click.echo("\nCancelled; nothing was restarted." if cancelled else "\nThe restart continues.")


def _count_tasks(tasks: Sequence[object]) -> str:
    return f"{len(tasks)} {'task' if len(tasks) == 1 else 'tasks'}"


def _print_tasks(lines: Iterable[str]) -> None:
    for line in lines:
        print_text(f"  · {line}")
