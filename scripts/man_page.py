"""The man page, from the declarations of the commands; `make man` writes it."""

import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import click

from gateway.operate.cli import root

PAGE = Path(__file__).parents[1] / "gateway/operate/holdfast.1"

_BEFORE = r""".\" Written by `make man` from the declarations of the commands.
.TH HOLDFAST 1 "" "holdfast {version}" "Holdfast"
.SH NAME
holdfast \- connects an AI agent to chat platforms, the web and the terminal
.SH SYNOPSIS
.B holdfast
.I COMMAND
.RI [ OPTIONS ]
.RI [ ARGUMENTS ]
.SH DESCRIPTION
{description}
.P
Commands that change something go through the running gateway; commands that only read open the
database directly.
Every command has
.B \-\-help
(short:
.BR \-h ).
.SH OPTIONS
"""

_AFTER = r""".SH "EXIT STATUS"
.TP
.B 0
Success.
.TP
.B 1
Failure; the reason is on standard error.
.TP
.B 2
Wrong usage.
.TP
.B 78
The configuration cannot work.
.SH ENVIRONMENT
.TP
.B HOLDFAST_CONFIG
The configuration file, unless
.B \-\-config
names one.
.TP
.B HOLDFAST_HOME
The state folder.
.TP
.BI HOLDFAST_ SECTION __ KEY
One key of the configuration, such as HOLDFAST_HTTP__PORT.
.SH FILES
.TP
.I ./holdfast.toml, ~/.config/holdfast/holdfast.toml, /etc/holdfast/holdfast.toml
The configuration; the first that exists.
.TP
.I ~/.config/holdfast/credentials/
Secrets, one file each.
.TP
.I ~/.local/share/holdfast/
The state: database, workspaces, files.
"""


def page() -> str:
    """Return the whole page."""
    context = click.Context(root, info_name="holdfast")
    before = _BEFORE.format(
        version=_escape(version("holdfast")), description=_paragraphs(root.help or "")
    )
    return "".join(
        (before, *_options(root, context), ".SH COMMANDS\n", *_commands(root, context), _AFTER)
    )


def _commands(group: click.Group, context: click.Context) -> Iterator[str]:
    """Yield a section for each command of a group and of the groups inside."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None  # noqa: S101 - listed by its group
        inside = click.Context(command, parent=context, info_name=name)
        usage = " ".join(command.collect_usage_pieces(inside))
        yield f'.SS "{_escape(f"{inside.command_path} {usage}")}"\n'
        yield f"{_paragraphs(command.help or '')}\n"
        yield from _options(command, inside)
        if command.epilog:
            yield f".P\n{_paragraphs(command.epilog)}\n"
        if isinstance(command, click.Group):
            yield from _commands(command, inside)


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    for parameter in command.get_params(context):
        if not isinstance(parameter, click.Option) or "--help" in parameter.opts:
            continue
        record = parameter.get_help_record(context)
        assert record is not None  # noqa: S101 - no option is hidden
        names, meaning = record
        yield f".TP\n.B {_escape(names)}\n{_line(meaning)}\n"


def _paragraphs(text: str) -> str:
    """Return help text as paragraphs."""
    parts = text.replace("\b", "").strip().split("\n\n")
    return "\n.P\n".join(_line(" ".join(part.split())) for part in parts)


def _line(text: str) -> str:
    """Return a line of text, with code in bold; it must not begin like a request of roff."""
    return re.sub(r"^(?=[.'])", r"\\&", re.sub(r"`([^`]+)`", r"\\fB\1\\fR", _escape(text)))


def _escape(text: str) -> str:
    escaped = text.replace("\\", r"\e").replace("-", r"\-").replace('"', r"\(dq")
    return escaped.replace("'", r"\(aq").replace("…", "...")
