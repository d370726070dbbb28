"""Sans-IO: how the daemon stands, in one line: what a service manager shows beside its name."""

from collections.abc import Mapping, Sequence

MAX_PROBLEM_LENGTH = 80
"""Characters of one trouble; `holdfast status` has all of it."""

CONNECTED = "connected"


def format_status_summary(
    platforms: Mapping[str, str],
    running: int,
    *,
    stopping: bool = False,
    restarting: bool = False,
) -> str:
    """Say where it answers, where it does not and why, and what it is working on.

    `platforms` says of each how it stands: `connected`, or what is wrong.
    """
    turns = f"{running} turn{'' if running == 1 else 's'}"
    if stopping:
        ending = "Restarting" if restarting else "Stopping"
        return f"{ending}; {turns} still running." if running else f"{ending}."
    well = [name for name, standing in platforms.items() if standing == CONNECTED]
    ill = [f"{name}: {_single_line(how)}" for name, how in platforms.items() if how != CONNECTED]
    first = f"Answering on {_join_names(well)}" if well else "Nobody can be reached"
    return "; ".join([first, *ill, f"{turns} running" if running else "idle"]) + "."


def _join_names(names: Sequence[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _single_line(text: str) -> str:
    # A platform's words stand in it: a line break would begin another message to the manager.
    line = " ".join("".join(each if each.isprintable() else " " for each in text).split())
    return (
        line.rstrip(".")
        if len(line) <= MAX_PROBLEM_LENGTH
        else f"{line[: MAX_PROBLEM_LENGTH - 1]}…"
    )
