"""Logs on stderr, as text for people or as JSON for programs, with secrets masked.

    with log_context(session=session.id, chat=str(key)):
        logger.info("turn began")

Context fields travel with the task that works on a conversation, so the code in between need not
pass them along.
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
from sessions.values.visible_text import visible_text

OWN_LOGGERS = ("agent", "gateway", "platforms", "sessions")
_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
LogLevel = Literal["debug", "info", "warning", "error"]

_context: ContextVar[Mapping[str, str]] = ContextVar("about")
# Attributes of every record; other attributes were passed as `extra`.
_STANDARD_FIELDS = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}


@contextlib.contextmanager
def log_context(**fields: str) -> Iterator[None]:
    """Add fields to all log lines inside this block and inside tasks that it creates."""
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
    """Send logs to a stream, by default stderr; replaces the previous handlers.

    Libraries log only warnings and errors. With `journal` each line begins with systemd's priority
    `<N>` instead of a time, because the journal adds the time itself.
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
    """Set the level of Holdfast's own loggers."""
    for name in OWN_LOGGERS:
        logging.getLogger(name).setLevel(_LEVELS[level])


def is_journal_stream(environ: Mapping[str, str], stream: TextIO | None = None) -> bool:
    """Return True if a stream, by default stderr, is systemd's journal and not redirected."""
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
        message = f"{record.name}: {record.getMessage()}"
        fields = " ".join(f"{name}={value}" for name, value in _fields(record).items())
        first = f"{message} [{fields}]" if fields else message
        # Messages may quote text of people, which must not be able to forge a log line.
        first = visible_text(first.replace("\r", "\\r").replace("\n", "\\n"))
        lines = [first.replace("\n", "\\n"), *map(visible_text, _error_lines(self, record))]
        text = self._redactor.redact("\n".join(lines))
        if not self._journal:
            moment = rfc3339(int(record.created * 1000))
            return f"{moment} {record.levelname.lower()} {text}"
        # The journal stores each line as an entry of its own.
        prefix = f"<{_syslog_priority(record.levelno)}>"
        return "\n".join(prefix + line for line in text.split("\n"))


class JsonFormatter(logging.Formatter):
    """Formatter that writes one JSON object per line."""

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
    """Return exception and stack; not cached on the record, because they may contain secrets."""
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
