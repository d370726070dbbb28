"""Sans-IO: line numbers of the keys in a TOML document, which tomllib does not report.

The document must be valid TOML, as checked by tomllib before; the scanner only finds where keys and
values begin and end.
"""

import bisect
import re
import tomllib
from typing import Any

from gateway.settings import KeyPath

_BLANK = re.compile(r"(?:[ \t\n]+|#[^\n]*)*")
_KEY = re.compile(r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*'|[ \t]*\.[ \t]*)+""")
_STRING = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*"{3,5}'
    r"|'''(?:[^']|'(?!''))*'{3,5}"
    r'|"(?:[^"\\]|\\.)*"'
    r"|'[^']*'",
    re.DOTALL,
)
_BARE_VALUE = re.compile(r"[^,\]}#\n]+")  # numbers, dates, true and false


def locate_keys(document: str) -> dict[KeyPath, int]:
    """Return the line, counted from 1, of every key, table and array element by path.

    A table has the line of its header; an implied table has the line of the first key or header
    inside the table.
    """
    return _Scanner(document.replace("\r\n", "\n")).scan()


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._line_ends = [match.start() for match in re.finditer("\n", text)]
        self._key_lines: dict[KeyPath, int] = {}
        self._table_counts: dict[KeyPath, int] = {}  # tables so far, by array of tables

    def scan(self) -> dict[KeyPath, int]:
        table: KeyPath = ()
        self._skip_blank()
        while self._position < len(self._text):
            table = self._header() if self._peek("[") else self._key_value(table)
            self._skip_blank()
        return self._key_lines

    def _header(self) -> KeyPath:
        line = self._current_line()
        in_array = self._peek("[[")
        self._position += 2 if in_array else 1
        self._skip_blank()
        *parents, name = self._key()
        path: KeyPath = ()
        for part in parents:
            path = self._newest_table((*path, part))
            self._key_lines.setdefault(path, line)
        path = (*path, name)
        if in_array:
            self._key_lines.setdefault(path, line)
            self._table_counts[path] = self._table_counts.get(path, 0) + 1
        path = self._newest_table(path)
        self._key_lines[path] = line
        self._skip_blank()
        self._position += 2 if in_array else 1
        return path

    def _newest_table(self, path: KeyPath) -> KeyPath:
        """Return the path of the last table so far if the path is an array of tables."""
        return (*path, self._table_counts[path] - 1) if path in self._table_counts else path

    def _key_value(self, table: KeyPath) -> KeyPath:
        line = self._current_line()
        path = table
        for part in self._key():
            path = (*path, part)
            self._key_lines.setdefault(path, line)
        self._skip_blank()
        self._position += 1  # the equals sign
        self._skip_blank()
        self._value(path)
        return table

    def _value(self, path: KeyPath) -> None:
        if self._peek("["):
            self._array(path)
        elif self._peek("{"):
            self._inline_table(path)
        else:
            self._match(_STRING if self._peek('"') or self._peek("'") else _BARE_VALUE)

    def _array(self, path: KeyPath) -> None:
        index = 0
        self._skip_character()
        while not self._peek("]"):
            if self._peek(","):
                self._skip_character()
                continue
            self._key_lines[*path, index] = self._current_line()
            self._value((*path, index))
            self._skip_blank()
            index += 1
        self._position += 1

    def _inline_table(self, path: KeyPath) -> None:
        self._skip_character()
        while not self._peek("}"):
            if self._peek(","):
                self._skip_character()
                continue
            self._key_value(path)
            self._skip_blank()
        self._position += 1

    def _key(self) -> list[str]:
        """Read a dotted key; tomllib resolves quotes and escapes."""
        node: Any = tomllib.loads(f"{self._match(_KEY)} = 0")
        parts: list[str] = []
        while isinstance(node, dict):
            ((part, node),) = node.items()
            parts.append(part)
        return parts

    def _peek(self, token: str) -> bool:
        return self._text.startswith(token, self._position)

    def _skip_character(self) -> None:
        self._position += 1
        self._skip_blank()

    def _skip_blank(self) -> None:
        self._match(_BLANK)

    def _match(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._position)
        if match is None or (not match[0] and pattern is not _BLANK):
            msg = f"line {self._current_line()} is not TOML"
            raise ValueError(msg)
        self._position = match.end()
        return match[0]

    def _current_line(self) -> int:
        return bisect.bisect_left(self._line_ends, self._position) + 1
