"""`holdfast selftest`: does it keep its promises on this machine?"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from gateway.config.loader import read_environment
from gateway.errors import CannotStart
from gateway.operate.cli.common import json_option, print_json
from gateway.operate.selftest.stage import open_gateway
from gateway.operate.selftest.trials import TrialResult, TrialRunner
from platforms.core.registry import PlatformNotInstalled, find_platform
from sessions.values.clock import SystemClock

_TIMEOUT_SECONDS = 60.0  # it takes about fifteen


@click.command(help="Break things on purpose, and see that nothing is lost or doubled here.")
@json_option
def selftest(*, as_json: bool) -> None:
    """See the help."""
    try:
        find_platform("telegram")
    except PlatformNotInstalled as error:
        msg = f"The self-test talks as Telegram does: {error}"
        raise CannotStart(msg) from error
    if not as_json:
        click.echo(
            "A gateway of its own is started, on a state that is thrown away; it takes half a minute."
        )
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="holdfast-selftest-") as folder:
        found = asyncio.run(_run_trials(Path(folder), quiet=as_json))
    took = time.monotonic() - began
    failed = [each for each in found if not each.well]
    if as_json:
        trials = [msgspec.to_builtins(each) for each in found]
        print_json({"ok": not failed, "seconds": round(took, 1), "trials": trials})
    else:
        click.echo(summary_line(found, took))
    sys.exit(int(bool(failed)))


def summary_line(found: Sequence[TrialResult], seconds: float) -> str:
    """All of it in one line."""
    failed = sum(not each.well for each in found)
    said = f"{failed} of {len(found)} failed" if failed else f"All {len(found)} well"
    return f"{said}, in {seconds:.0f} s."


async def _run_trials(folder: Path, *, quiet: bool) -> list[TrialResult]:
    found = []
    try:
        async with (
            asyncio.timeout(_TIMEOUT_SECONDS),
            open_gateway(folder, read_environment(), SystemClock()) as stage,
        ):
            async for each in TrialRunner(stage).run():
                found.append(each)
                if not quiet:
                    click.echo(f"{'✓' if each.well else '✗'} {each.trial + ':':<48} {each.words}")
    except TimeoutError as error:
        msg = f"It did not come to an end within {_TIMEOUT_SECONDS:g} s."
        raise CannotStart(msg) from error
    return found
