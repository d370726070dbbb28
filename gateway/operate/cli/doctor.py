"""`holdfast doctor`: what is wrong, and what to do about it."""

import asyncio
import logging
import shutil
import sys
from collections.abc import Mapping, Sequence

import click
from msgspec.structs import replace

from gateway.config.loader import Options, environment
from gateway.observe.redact import Redactor, secrets_in
from gateway.operate.cli.common import as_json, configured, print_json
from gateway.operate.cli.service import Here, unit_text
from gateway.operate.doctor.aside import Aside
from gateway.operate.doctor.checks import all_checks
from gateway.operate.doctor.context import Case, taken_up
from gateway.operate.doctor.fixes import mended
from gateway.operate.doctor.found import Group
from gateway.operate.doctor.report import (
    PLAIN_SIGNS,
    SIGNS,
    Line,
    exit_code,
    lines,
    records,
    summary,
)
from gateway.operate.doctor.run import run
from gateway.operate.doctor.service import Services
from platforms.core.registry import specs
from sessions.values.clock import SystemClock
from sessions.values.finding import Level

_COLOURS: dict[Level, str] = {"ok": "green", "warn": "yellow", "fail": "red"}
_LONGEST = 110
_BEGINS = "Looking; the model is asked for two answers of a few words (--offline asks nobody).\n"


@click.command(
    help="Look for what is wrong, and say what to do about it.",
    epilog="Exit code 0 when nothing is wrong (warnings do not count), 1 when something is, 78 when "
    "the configuration cannot work. It asks the model for two answers of a few words.",
)
@click.option("--fix", is_flag=True, help="Mend what can be mended without asking.")
@click.option("--offline", is_flag=True, help="Ask no service; look at this machine only.")
@click.option("--all", "everything", is_flag=True, help="Also show what is well.")
@as_json
@configured
def doctor(options: Options, *, fix: bool, offline: bool, everything: bool, as_json: bool) -> None:
    """See the help."""
    logging.getLogger().addHandler(logging.NullHandler())  # findings say it all
    if sys.stderr.isatty() and not (as_json or offline):
        click.echo(_BEGINS, err=True)
    case, groups = asyncio.run(_visit(options, fix=fix, offline=offline))
    if as_json:
        print_json(records(groups))
    else:
        _print(case, groups, everything=everything)
    sys.exit(exit_code(groups))


async def _visit(options: Options, *, fix: bool, offline: bool) -> tuple[Case, Sequence[Group]]:
    asyncio.get_running_loop().set_default_executor(Aside(1))

    here = Here.now()
    scopes = (here.scope(user=False), here.scope(user=True))
    services = Services(here.booted, scopes, unit_text)

    async def look() -> tuple[Case, Sequence[Group]]:
        case = await taken_up(options, environment(), specs(), clock=SystemClock(), offline=offline)
        return case, _redacted(await run(all_checks(case, services), case), case)

    case, groups = await look()
    if not fix or not any(each.mend for group in groups for each in group.findings):
        return case, groups
    done = await mended(groups, case)
    again = {group.name for group in groups if any(each.mend for each in group.findings)}
    case = await taken_up(options, environment(), specs(), clock=SystemClock(), offline=offline)
    checks = [each for each in all_checks(case, services) if each.group in again]
    newer = {group.name: group for group in _redacted(await run(checks, case), case)}
    return case, [*_redacted([done], case), *(newer.get(group.name, group) for group in groups)]


def _redacted(groups: Sequence[Group], case: Case) -> Sequence[Group]:
    """Take secrets out of what services said: they may repeat what they were given."""
    redactor = Redactor(secrets_in(case.settings))
    return [
        replace(
            group,
            findings=tuple(
                replace(each, text=redactor.clean(each.text), fix=redactor.clean(each.fix))
                for each in group.findings
            ),
        )
        for group in groups
    ]


def _print(
    case: Case,
    groups: Sequence[Group],
    *,
    everything: bool,
) -> None:
    signs = SIGNS if _shows(sys.stdout.encoding) else PLAIN_SIGNS
    width = min(shutil.get_terminal_size().columns, _LONGEST) if sys.stdout.isatty() else None
    colour = False if case.environ.get("NO_COLOR") else None
    click.echo(f"state folder {case.home}, configuration {case.path or 'none'}\n", color=colour)
    for line in lines(groups, all_of_it=everything, signs=signs, width=width):
        click.echo(_coloured(line, signs), color=colour)
    click.echo(f"\n{summary(groups)}", color=colour)


def _coloured(line: Line, signs: Mapping[Level, str]) -> str:
    """Colour the sign alone: a screen full of green text is hard to read."""
    if line.level is None:
        return line.text
    sign = signs[line.level]
    return line.text.replace(sign, click.style(sign, fg=_COLOURS[line.level]), 1)


def _shows(encoding: str | None) -> bool:
    try:
        "".join(SIGNS.values()).encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
