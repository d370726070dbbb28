"""Logs on stderr: lines for people, or JSON for programs; no secrets in either.

    with log.about(session=session.id, chat=str(key)):
        logger.info("turn began")

What is said about a conversation travels with the task that works on it, so the code in between
need not pass it along.
"""

import contextlib
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Literal, TextIO

import msgspec

from gateway.observe.redact import Redactor
from sessions.values.clock import rfc3339

OWN_LOGGERS = ("agent", "gateway", "platforms", "sessions")
_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
LogLevel = Literal["debug", "info", "warning", "error"]

_context: ContextVar[Mapping[str, str]] = ContextVar("about")
# What every record carries; anything more was given as `extra`.
_STANDARD_FIELDS = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}


@contextlib.contextmanager
def log_context(**fields: str) -> Iterator[None]:
    """Say what the log lines inside are about; adds to what is said outside."""
    token = _context.set({**_context.get({}), **fields})
    try:
        yield
    finally:
        _context.reset(token)


def configure(
    redactor: Redactor,
    *,
    level: LogLevel = "info",
    log_format: Literal["text", "json"] = "text",
    stream: TextIO | None = None,
    journal: bool = False,
) -> None:
    """Write logs to a stream (stderr) from now on; replaces what was configured before.

    Libraries are heard only when they warn. With `journal` lines bear systemd's `<N>` instead of
    the time, which the journal knows by itself.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    formatter = (
        JsonFormatter(redactor) if log_format == "json" else TextFormatter(redactor, journal)
    )
    handler.setFormatter(formatter)
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    set_level(level)
    logging.captureWarnings(capture=True)


def set_level(level: LogLevel) -> None:
    """Write lines of ours from this level on."""
    for name in OWN_LOGGERS:
        logging.getLogger(name).setLevel(_LEVELS[level])


def is_journal_stream(environ: Mapping[str, str], stream: TextIO | None = None) -> bool:
    """Tell whether a stream (stderr) is systemd's journal, and not a file it was led into."""
    try:
        status = os.fstat((stream or sys.stderr).fileno())
    except (OSError, ValueError):
        return False
    return environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


class TextFormatter(logging.Formatter):
    """`2026-11-18T13:05:00.123Z info gateway.turns.host: turn began [chat=… session=…]`."""

    def __init__(self, redactor: Redactor, journal: bool = False) -> None:
        super().__init__()
        self._redactor = redactor
        self._journal = journal

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        said = f"{record.name}: {record.getMessage()}"
        fields = " ".join(f"{name}={value}" for name, value in _fields(record).items())
        first = f"{said} [{fields}]" if fields else said
        # What people write is quoted in messages; it must not look like a line of ours.
        first = first.replace("\r", "\\r").replace("\n", "\\n")
        lines = [first, *_error_lines(self, record)]
        text = self._redactor.redact("\n".join(lines))
        if not self._journal:
            moment = rfc3339(int(record.created * 1000))
            return f"{moment} {record.levelname.lower()} {text}"
        sign = (
            f"<{_syslog_priority(record.levelno)}>"  # for each line: the journal takes them apart
        )
        return "\n".join(sign + line for line in text.split("\n"))


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        clean = self._redactor.redact
        line = {
            "at": rfc3339(int(record.created * 1000)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": clean(record.getMessage()),
        }
        line |= {name: clean(value) for name, value in _fields(record).items() if name not in line}
        trouble = "\n".join(_error_lines(self, record))
        if trouble:
            line["error"] = clean(trouble)
        return msgspec.json.encode(line).decode()


def _fields(record: logging.LogRecord) -> dict[str, str]:
    extra = {
        name: str(value) for name, value in vars(record).items() if name not in _STANDARD_FIELDS
    }
    return {**_context.get({}), **extra}


def _error_lines(formatter: logging.Formatter, record: logging.LogRecord) -> list[str]:
    """Exception and stack, where the record has them; not kept on it, since it is not cleaned."""
    lines = []
    if record.exc_info and record.exc_info[0] is not None:
        lines.append(formatter.formatException(record.exc_info))
    if record.stack_info:
        lines.append(formatter.formatStack(record.stack_info))
    return lines


def _syslog_priority(level: int) -> int:
    if level >= logging.CRITICAL:
        return 2
    if level >= logging.ERROR:
        return 3
    if level >= logging.WARNING:
        return 4
    return 6 if level >= logging.INFO else 7
