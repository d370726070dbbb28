"""Sans-IO: edits the configuration while keeping comments and formatting."""

import tomllib
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT, InlineTable

from gateway.config.layers import format_path
from gateway.config.toml_lines import locate_keys
from gateway.errors import ConfigError
from gateway.settings import KeyPath

_HEADER = """\
# Created by `holdfast setup`, which keeps your changes when it runs again.
# All keys: docs/configuration.md. To check this file: `holdfast config check`.

"""


class ConfigDraft:
    """An editable configuration, and the secrets named in the document.

    `reference` maps a secret's name to the value in the document; `text` is None for a new
    document.
    """

    def __init__(self, text: str | None, reference: Callable[[str], str]) -> None:
        self._reference = reference
        self._text = _HEADER if text is None else text
        self._values: dict[str, Any] = tomllib.loads(self._text)
        self._document = tomlkit.parse(self._text)
        self._changed = text is None
        self._new_tables: list[KeyPath] = []
        self.secrets: dict[str, str] = {}  # content by file name

    def get(self, path: KeyPath) -> Any:  # noqa: ANN401 - any TOML value
        """Return a value; None if not set."""
        node: Any = self._values
        for part in path:
            if not isinstance(node, dict) or part not in node:
                return None
            node = node[part]
        return node

    def put(self, path: KeyPath, value: str | float) -> None:
        """Set a value, if different."""
        if self.get(path) == value:
            return
        table: Any = self._document
        plain: Any = self._values
        for depth, part in enumerate(path[:-1], start=1):
            if part not in table:
                inline = isinstance(table, InlineTable)
                self._new_tables.append(path[:depth])
                table[part] = (
                    tomlkit.inline_table()
                    if inline
                    else tomlkit.table(is_super_table=depth < len(path) - 1)
                )
            table = table[part]
            plain = plain.setdefault(part, {})
            if not isinstance(table, MutableMapping):
                raise ConfigError(_not_editable(path))
        table[path[-1]] = value
        plain[path[-1]] = value
        self._changed = True

    def put_secret(self, path: KeyPath, name: str, text: str) -> None:
        """Store a secret in a file named after its variable, and refer to that file."""
        self.put(path, self._reference(name))
        self.secrets[name] = text

    def keep_secret(self, name: str, text: str) -> str:
        """Store a secret in a file, and return the value that refers to the file."""
        self.secrets[name] = text
        return self._reference(name)

    def add_table(self, name: str, values: Mapping[str, object]) -> None:
        """Add a table to an array of tables; tables inside become inline tables."""
        table = tomlkit.table()
        for key, value in values.items():
            inline = tomlkit.inline_table()
            if isinstance(value, dict):
                inline.update(value)
            table[key] = inline if isinstance(value, dict) else value
        if name not in self._document:
            self._document[name] = tomlkit.aot()
        array: Any = self._document[name]
        if not isinstance(array, AoT):
            raise ConfigError(_not_editable((name,)))
        self._new_tables.append((name, len(array)))
        array.append(table)
        self._values.setdefault(name, []).append(dict(values))
        self._changed = True

    def remove(self, path: KeyPath) -> None:
        """Remove a value, if set."""
        if self.get(path) is None:
            return
        table: Any = self._document
        plain: Any = self._values
        for part in path[:-1]:
            table, plain = table[part], plain[part]
        del table[path[-1]]
        del plain[path[-1]]
        self._changed = True

    def _separate_tables(self, text: str) -> str:
        """Insert a blank line before the headers of new tables."""
        found = locate_keys(text)
        lines = text.splitlines(keepends=True)
        numbers = {found[path] - 1 for path in self._new_tables if path in found}
        for number in sorted(numbers, reverse=True):
            is_header = lines[number].lstrip().startswith("[")
            if is_header and number and lines[number - 1].strip():
                lines.insert(number, "\n")
        return "".join(lines)

    def render(self) -> str:
        """Return the document; raise `ConfigError` if editing would lose something."""
        if not self._changed:
            return self._text
        try:
            text = self._separate_tables(tomlkit.dumps(self._document))
            if tomllib.loads(text) == self._values:
                return text
        except (TOMLKitError, ValueError):
            pass
        raise ConfigError(_not_editable(()))


def _not_editable(path: KeyPath) -> str:
    what = f"set {format_path(path)}" if path else "change it"
    return f"The configuration is formatted so that a program cannot {what}. Edit it by hand."
