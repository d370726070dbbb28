"""`holdfast doctor`: finds problems and explains how to fix them."""

import asyncio
import logging
import shutil
import sys
from collections.abc import Mapping, Sequence

import click
from msgspec.structs import replace

from gateway.config.loader import ConfigOptions, read_environment
from gateway.observe.redact import Redactor, find_secrets
from gateway.operate.cli.common import config_options, json_option, print_json
from gateway.operate.cli.found_config import confirm_found_config, confirm_found_store
from gateway.operate.cli.service import ServiceContext, unit_text
from gateway.operate.doctor.checks import all_checks
from gateway.operate.doctor.context import DoctorContext, collect_context
from gateway.operate.doctor.fixes import apply_fixes
from gateway.operate.doctor.report import (
    ASCII_SIGNS,
    SIGNS,
    FindingGroup,
    ReportLine,
    exit_code,
    finding_records,
    report_lines,
    summary_line,
)
from gateway.operate.doctor.run import DaemonThreadExecutor, run_checks
from gateway.operate.doctor.service import ServiceCheck
from platforms.core.registry import load_specs
from sessions.values.clock import SystemClock
from sessions.values.finding import FindingLevel

_COLOURS: dict[FindingLevel, str] = {"ok": "green", "warn": "yellow", "fail": "red"}
_MAX_WIDTH = 110
_START_MESSAGE = (
    "Checking. The model is asked for two short answers (use --offline to contact no service).\n"
)


@click.command(
    help="Find problems and explain how to fix them.",
    epilog="Exit code 0 without problems (warnings do not count), 1 with problems, 78 if the "
    "configuration cannot work. The model is asked for two short answers.",
)
@click.option("--fix", is_flag=True, help="Fix problems that can be fixed automatically.")
@click.option("--offline", is_flag=True, help="Check this machine only; contact no service.")
@click.option("--all", "everything", is_flag=True, help="Also show passed checks.")
@json_option
@config_options
def doctor(
    options: ConfigOptions, *, fix: bool, offline: bool, everything: bool, as_json: bool
) -> None:
    """See the help."""
    logging.getLogger().addHandler(logging.NullHandler())  # the findings are the output
    if sys.stderr.isatty() and not (as_json or offline):
        click.echo(_START_MESSAGE, err=True)
    if offline:
        confirm_found_store(options)
    else:
        confirm_found_config(options)
    context, groups = asyncio.run(_run_doctor(options, fix=fix, offline=offline))
    if as_json:
        print_json(finding_records(groups))
    else:
        _print_report(context, groups, everything=everything)
    sys.exit(exit_code(groups))


async def _run_doctor(
    options: ConfigOptions, *, fix: bool, offline: bool
) -> tuple[DoctorContext, Sequence[FindingGroup]]:
    asyncio.get_running_loop().set_default_executor(DaemonThreadExecutor(1))

    here = ServiceContext.detect()
    scopes = (here.scope(user=False), here.scope(user=True))
    services = ServiceCheck(here.has_systemd, scopes, unit_text)

    async def look() -> tuple[DoctorContext, Sequence[FindingGroup]]:
        context = await collect_context(
            options, read_environment(), load_specs(), clock=SystemClock(), offline=offline
        )
        return context, _redacted(await run_checks(all_checks(context, services), context), context)

    context, groups = await look()
    if not fix or not any(item.mend for group in groups for item in group.findings):
        return context, groups
    done = await apply_fixes(groups, context)
    again = {group.name for group in groups if any(item.mend for item in group.findings)}
    context = await collect_context(
        options, read_environment(), load_specs(), clock=SystemClock(), offline=offline
    )
    checks = [item for item in all_checks(context, services) if item.group in again]
    newer = {group.name: group for group in _redacted(await run_checks(checks, context), context)}
    return context, [
        *_redacted([done], context),
        *(newer.get(group.name, group) for group in groups),
    ]


def _redacted(groups: Sequence[FindingGroup], context: DoctorContext) -> Sequence[FindingGroup]:
    """Remove secrets from the findings, because services may repeat them in their errors."""
    redactor = Redactor(find_secrets(context.settings))
    return [
        replace(
            group,
            findings=tuple(
                replace(item, text=redactor.redact(item.text), fix=redactor.redact(item.fix))
                for item in group.findings
            ),
        )
        for group in groups
    ]


def _print_report(
    context: DoctorContext,
    groups: Sequence[FindingGroup],
    *,
    everything: bool,
) -> None:
    signs = SIGNS if _can_encode_signs(sys.stdout.encoding) else ASCII_SIGNS
    width = min(shutil.get_terminal_size().columns, _MAX_WIDTH) if sys.stdout.isatty() else None
    colour = False if context.environ.get("NO_COLOR") else None
    click.echo(
        f"state folder {context.home}, configuration {context.config_path or 'none'}\n",
        color=colour,
    )
    for line in report_lines(groups, show_all=everything, signs=signs, width=width):
        click.echo(_colour_line(line, signs), color=colour)
    click.echo(f"\n{summary_line(groups)}", color=colour)


def _colour_line(line: ReportLine, signs: Mapping[FindingLevel, str]) -> str:
    """Colour the sign only: a screen full of green text is hard to read."""
    if line.level is None:
        return line.text
    sign = signs[line.level]
    return line.text.replace(sign, click.style(sign, fg=_COLOURS[line.level]), 1)


def _can_encode_signs(encoding: str | None) -> bool:
    try:
        "".join(SIGNS.values()).encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
