"""`holdfast selftest`: tests on this machine that no message is lost or duplicated."""

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

_TIMEOUT_SECONDS = 60.0  # the trials take about 15 s


@click.command(
    help="Start a throwaway gateway, break things on purpose, and check that no message is lost or "
    "duplicated."
)
@json_option
def selftest(*, as_json: bool) -> None:
    """See the help."""
    try:
        find_platform("telegram")
    except PlatformNotInstalled as error:
        msg = f"The self-test uses the Telegram adapter: {error}"
        raise CannotStart(msg) from error
    if not as_json:
        click.echo(
            "Starting a separate gateway with temporary data. This takes up to half a minute."
        )
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="holdfast-selftest-") as folder:
        results = asyncio.run(_run_trials(Path(folder), quiet=as_json))
    took = time.monotonic() - began
    failed = [each for each in results if not each.well]
    if as_json:
        trials = [msgspec.to_builtins(each) for each in results]
        print_json({"ok": not failed, "seconds": round(took, 1), "trials": trials})
    else:
        click.echo(summary_line(results, took))
    sys.exit(int(bool(failed)))


def summary_line(results: Sequence[TrialResult], seconds: float) -> str:
    """Return the result of all trials in one line."""
    failed = sum(not each.well for each in results)
    result = (
        f"{failed} of {len(results)} trials failed"
        if failed
        else f"All {len(results)} trials passed"
    )
    return f"{result}, in {seconds:.0f} s."


async def _run_trials(folder: Path, *, quiet: bool) -> list[TrialResult]:
    results = []
    try:
        async with (
            asyncio.timeout(_TIMEOUT_SECONDS),
            open_gateway(folder, read_environment(), SystemClock()) as stage,
        ):
            async for each in TrialRunner(stage).run():
                results.append(each)
                if not quiet:
                    click.echo(f"{'✓' if each.well else '✗'} {each.trial + ':':<48} {each.words}")
    except TimeoutError as error:
        msg = f"The self-test did not finish within {_TIMEOUT_SECONDS:g} s."
        raise CannotStart(msg) from error
    return results
