"""`holdfast service restart`: says what a restart interrupts, asks, and waits until it is back.

It asks the running daemon, whoever started it.
"""

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click

from gateway.errors import CannotStart, HoldfastError
from gateway.operate.cli.common import order
from gateway.process.control_socket import NotRunning
from gateway.process.restart import IDLE_MINUTES, Refused

LOOK_EVERY = 0.25  # seconds
BACK_WITHIN = 60.0  # seconds after the last task had its time
"""How long a daemon may take to end and to start."""


class NotBack(HoldfastError):
    """It has not come back."""


when_idle = click.option(
    "--when-idle",
    type=click.FloatRange(min=0),
    is_flag=False,
    flag_value=IDLE_MINUTES,
    metavar="[MINUTES]",
    help=f"Wait until nothing runs, {IDLE_MINUTES:g} minutes at most unless you say otherwise.",
)
yes = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


def running_process() -> int | None:
    """The number of the daemon of this state folder; None when none runs."""
    try:
        return int(order("status")["pid"])
    except NotRunning:
        return None


def restart_running(minutes: float | None = None, *, sure: bool = False) -> None:
    """Restart the daemon of this state folder; raises `NotRunning` when there is none.

    `minutes`: how long it may wait for a moment in which nothing runs; None: it restarts now.
    """
    if minutes is None:
        ask_first(sure=sure)
    asked = order("restart", when_idle=minutes)
    try:
        _follow(asked)
    except KeyboardInterrupt:
        _let_be(asked["id"])
        raise


def ask_first(*, sure: bool) -> None:
    """Show what would be interrupted, and let who sits here decide; raises `Refused`."""
    tasks = order("restart_list")
    if not tasks:
        return
    click.echo(f"Running now, and interrupted unless finished in time: {_count(tasks)}.")
    _list(each["line"] for each in tasks)
    if not sure and sys.stdin.isatty() and not click.confirm("Restart now?"):
        msg = "Not restarted. With --when-idle it waits until nothing runs."
        raise Refused(msg)


def wait_until_idle(minutes: float) -> None:
    """Wait for a moment in which nothing runs, and restart nothing; raises `Refused`."""
    until, said = time.monotonic() + minutes * 60, ""
    while running := order("restart_list"):
        left = round(until - time.monotonic())
        standing = {"state": "waiting", "running": running, "seconds_left": max(left, 0)}
        if left <= 0:
            raise _gave_up(standing)
        if (line := _progress(standing)) != said:
            click.echo(line)
            said = line
        time.sleep(LOOK_EVERY)


def _follow(standing: dict[str, Any]) -> None:
    """Say how it goes until it is over."""
    id_, said, until = str(standing["id"]), "", None
    while True:
        state = standing["state"]
        if state == "back":
            _back(standing)
            return
        if state in _ENDS:
            raise _ENDS[state](standing)
        if state == "draining" and until is None:
            until = time.monotonic() + float(standing["drain_seconds"]) + BACK_WITHIN
        line = _progress(standing)
        if line != said:
            click.echo(line)
            said = line
        standing = _look(id_, until) or {**standing, "running": []}


def _look(id_: str, until: float | None) -> dict[str, Any] | None:
    """Ask how it stands; None while nobody is there who could say."""
    time.sleep(LOOK_EVERY)
    if until is not None and time.monotonic() > until:
        msg = "It was told to restart and has not come back; its log says why."
        raise NotBack(msg)
    try:
        found: dict[str, Any] = order("restart_state", restart=id_)
    except NotRunning:
        if until is None:
            msg = "Holdfast ended before anything was restarted; its log says why."
            raise NotBack(msg) from None
        return None
    except CannotStart:  # it ends at this very moment
        if until is None:
            raise
        return None
    return found


def _progress(standing: dict[str, Any]) -> str:
    running = standing["running"]
    if standing["state"] == "waiting":
        minutes = -(-int(standing["seconds_left"]) // 60)
        return f"Waiting until nothing runs: {_count(running)}, {minutes} min left."
    return f"Restarting; {_count(running)} finishing." if running else "Restarting."


def _back(standing: dict[str, Any]) -> None:
    click.echo(f"Back after {standing['took_text']}.")
    before, after = standing["before"], standing["after"]
    if before != after:
        click.echo(f"Version {after} now, {before} before.")
    if lines := standing["lines"]:
        click.echo(f"Interrupted: {_count(lines)}.")
        _list(lines)
    if not standing.get("in_order", True):
        click.echo("It ended before all was finished in order; its log says why.")
    if standing.get("careful"):
        click.echo("It is in safe mode; see `holdfast status`.")


def _gave_up(standing: dict[str, Any]) -> HoldfastError:
    running = standing["running"]
    return Refused(
        f"Not restarted: there was no moment without a running task ({_count(running)} now).",
        *(f"· {each['line']}" for each in running),
    )


def _refused(standing: dict[str, Any]) -> HoldfastError:
    return Refused(f"Not restarted, and nothing was interrupted: {standing['cause']}")


def _called_off(_: dict[str, Any]) -> HoldfastError:
    return Refused("Not restarted: somebody called it off.")


def _stopping(_: dict[str, Any]) -> HoldfastError:
    return NotBack("It was told to stop meanwhile, and stops instead.")


_ENDS: dict[str, Callable[[dict[str, Any]], HoldfastError]] = {
    "gave_up": _gave_up,
    "refused": _refused,
    "cancelled": _called_off,
    "stopping": _stopping,
}


def _let_be(id_: str) -> None:
    """The person at the terminal does not want to wait."""
    try:
        state = order("restart_cancel", restart=id_)["state"]
    except HoldfastError:
        state = "draining"
    over = state == "cancelled"
    click.echo("\nCalled off; nothing was restarted." if over else "\nThe restart goes on.")


def _count(tasks: Sequence[object]) -> str:
    return f"{len(tasks)} {'task' if len(tasks) == 1 else 'tasks'}"


def _list(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(f"  · {line}")
