"""Sans-IO: the configuration merged from its layers, with the origin of each value."""

import re
import tomllib
from typing import Any, Literal

import msgspec
from msgspec import Struct

from gateway.settings import KeyPath


class ValueOrigin(Struct, frozen=True):
    """The origin of a value, labelled as in errors: `holdfast.toml:7`, `--set http.port=x`."""

    label: str
    kind: Literal["file", "set", "environment", "default", "inherited"]


class UnquotedValue(str):
    """A value typed without TOML quotes: either TOML or plain text is meant."""

    __slots__ = ()

    @property
    def as_toml(self) -> Any:  # noqa: ANN401 - whatever TOML can say
        """The text parsed as a TOML value, or the text itself if it is not TOML."""
        try:
            document = tomllib.loads(f"value = {self}")
        except (ValueError, RecursionError):
            return str(self)
        return document["value"] if len(document) == 1 else str(self)

    @property
    def unambiguous(self) -> Any:  # noqa: ANN401
        """The TOML value if only one meaning is possible; else the text, to be decided later."""
        value = self.as_toml
        tables = isinstance(value, list) and any(isinstance(item, dict) for item in value)
        return value if tables or isinstance(value, (dict, str)) else self


class ConfigTree:
    """A document merged from layers; a later layer replaces values and extends tables."""

    def __init__(self) -> None:
        self.document: dict[str, Any] = {}
        self._origins: dict[KeyPath, ValueOrigin] = {}

    def put(self, path: KeyPath, value: object, origin: ValueOrigin) -> None:
        """Set one value. A table is merged key by key; anything else replaces the old value."""
        if isinstance(value, UnquotedValue):
            value = value.unambiguous
        if isinstance(value, dict) and isinstance(self.get(path, {}), dict):
            self._set(path, {**self.get(path, {})}, origin)
            for key, below in value.items():
                self.put((*path, key), below, origin)
            return
        self._set(path, value, origin)

    def put_file(self, document: dict[str, Any], lines: dict[KeyPath, int], name: str) -> None:
        """Merge a file over the layers so far."""
        self.put((), document, ValueOrigin(name, "file"))
        for path, line in lines.items():
            self._origins[path] = ValueOrigin(f"{name}:{line}", "file")

    def get(self, path: KeyPath, default: Any = None) -> Any:  # noqa: ANN401 - any TOML value
        """Return a value, or `default` if the key is not set."""
        node: Any = self.document
        for part in path:
            inside = isinstance(node, dict) and part in node
            if not inside and not (isinstance(node, list) and isinstance(part, int)):
                return default
            node = node[part]
        return node

    def origin(self, path: KeyPath) -> ValueOrigin | None:
        """Return the origin of a value, or else of the nearest enclosing table."""
        for length in range(len(path), 0, -1):
            if path[:length] in self._origins:
                return self._origins[path[:length]]
        return None

    def origins(self) -> dict[KeyPath, ValueOrigin]:
        """Return a copy of all origins by path."""
        return dict(self._origins)

    def _set(self, path: KeyPath, value: object, origin: ValueOrigin) -> None:
        for known in [known for known in self._origins if known[: len(path)] == path]:
            if not isinstance(value, dict) or known == path:
                del self._origins[known]
        if not path:
            return
        self._origins[path] = origin
        node: Any = self.document
        for depth, part in enumerate(path[:-1], start=1):
            below = self.get(path[:depth])
            if not isinstance(below, list if isinstance(path[depth], int) else dict):
                node[part] = {}
                self._origins.setdefault(path[:depth], origin)
            node = node[part]
        node[path[-1]] = value


_QUOTED = r'"(?:[^"\\]|\\.)*"|\'[^\']*\''
_SETTING = re.compile(rf"((?:[A-Za-z0-9_-]|[ \t]*\.[ \t]*|{_QUOTED})+)\s*=(.*)", re.DOTALL)


def parse_setting(text: str) -> tuple[KeyPath, UnquotedValue]:
    """Parse `dotted.key=VALUE`; raises `ValueError` with the problem."""
    match = _SETTING.fullmatch(text.strip())
    try:
        node: Any = tomllib.loads(f"{match[1]} = 0") if match else None
    except tomllib.TOMLDecodeError:
        node = None
    if match is None or not node:
        msg = "is not KEY=VALUE, such as http.port=8421"
        raise ValueError(msg)
    path: KeyPath = ()
    while isinstance(node, dict):
        ((part, node),) = node.items()
        path = (*path, part)
    return path, UnquotedValue(match[2].strip())


def format_path(path: KeyPath) -> str:
    """Return a path in readable form: `limits.users."telegram:1001"`, `access.allow[0]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
            continue
        key = part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else quote_toml(part)
        text += f".{key}" if text else key
    return text


def quote_toml(text: str) -> str:
    """Return a text as a TOML string."""
    # JSON escapes are valid in TOML, but TOML also requires an escaped DEL character.
    return msgspec.json.encode(text).decode().replace("\x7f", "\\u007f")
