"""Sans-IO: the configuration as it is to be; what people wrote in it stays untouched."""

import tomllib
from collections.abc import Callable, MutableMapping
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable

from gateway.config.layers import format_path
from gateway.errors import ConfigError
from gateway.settings import KeyPath

_HEADER = """\
# Made by `holdfast setup`. What you add or change stays as it is when that runs again.
# docs/configuration.md has all keys, and `holdfast config check` says what is wrong.

"""


class ConfigDraft:
    """A document that is edited, and the secrets that it names.

    `reference` tells how it names one; `text` is None where there is no document yet.
    """

    def __init__(self, text: str | None, reference: Callable[[str], str]) -> None:
        self._reference = reference
        self._text = _HEADER if text is None else text
        self._values: dict[str, Any] = tomllib.loads(self._text)
        self._document = tomlkit.parse(self._text)
        self._changed = text is None
        self.secrets: dict[str, str] = {}  # text by the name of its file

    def get(self, path: KeyPath) -> Any:  # noqa: ANN401 - whatever stands there
        """Read a value; None when there is none."""
        node: Any = self._values
        for part in path:
            if not isinstance(node, dict) or part not in node:
                return None
            node = node[part]
        return node

    def put(self, path: KeyPath, value: str | float) -> None:
        """Write a value, where it is another one."""
        if self.get(path) == value:
            return
        table: Any = self._document
        plain: Any = self._values
        for depth, part in enumerate(path[:-1], start=1):
            if part not in table:
                inline = isinstance(table, InlineTable)
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
        """Keep a secret in a file that is called like its variable, and have the document name it."""
        self.put(path, self._reference(name))
        self.secrets[name] = text

    def remove(self, path: KeyPath) -> None:
        """Take a value away, if there is one."""
        if self.get(path) is None:
            return
        table: Any = self._document
        plain: Any = self._values
        for part in path[:-1]:
            table, plain = table[part], plain[part]
        del table[path[-1]]
        del plain[path[-1]]
        self._changed = True

    def render(self) -> str:
        """The document; raises `ConfigError` when it cannot be edited without losing something."""
        if not self._changed:
            return self._text
        try:
            text = tomlkit.dumps(self._document)
            if tomllib.loads(text) == self._values:
                return text
        except (TOMLKitError, ValueError):
            pass
        raise ConfigError(_not_editable(()))


def _not_editable(path: KeyPath) -> str:
    what = f"{format_path(path)} cannot be set in it" if path else "it cannot be changed"
    return f"The configuration is written in a form in which {what} by a program; edit it by hand."
