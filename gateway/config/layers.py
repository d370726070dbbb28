"""Sans-IO: what the layers of a configuration say together, and where each value comes from."""

import re
import tomllib
from typing import Any, Literal

import msgspec
from msgspec import Struct

from gateway.settings import KeyPath


class ValueOrigin(Struct, frozen=True):
    """Where a value comes from, as an error names it: `holdfast.toml:7`, `--set http.port=x`."""

    label: str
    kind: Literal["file", "set", "environment", "default", "inherited"]


class UnquotedValue(str):
    """A value typed without TOML's quotes: it may be meant as TOML, or as the bare text."""

    __slots__ = ()

    @property
    def as_toml(self) -> Any:  # noqa: ANN401 - whatever TOML can say
        """The text read as a TOML value, or the text itself when it is none."""
        try:
            document = tomllib.loads(f"value = {self}")
        except (ValueError, RecursionError):
            return str(self)
        return document["value"] if len(document) == 1 else str(self)

    @property
    def unambiguous(self) -> Any:  # noqa: ANN401
        """The value, where it can be meant in one way only; else the text as it was typed."""
        value = self.as_toml
        tables = isinstance(value, list) and any(isinstance(item, dict) for item in value)
        return value if tables or isinstance(value, (dict, str)) else self


class ConfigTree:
    """One document made of layers; a later layer replaces values, and adds to tables."""

    def __init__(self) -> None:
        self.document: dict[str, Any] = {}
        self._origins: dict[KeyPath, ValueOrigin] = {}

    def put(self, path: KeyPath, value: object, origin: ValueOrigin) -> None:
        """Set one value. A table is merged key by key; anything else replaces what was there."""
        if isinstance(value, UnquotedValue):
            value = value.unambiguous
        if isinstance(value, dict) and isinstance(self.get(path, {}), dict):
            self._set(path, {**self.get(path, {})}, origin)
            for key, below in value.items():
                self.put((*path, key), below, origin)
            return
        self._set(path, value, origin)

    def put_file(self, document: dict[str, Any], lines: dict[KeyPath, int], name: str) -> None:
        """Lay a file over what is there."""
        self.put((), document, ValueOrigin(name, "file"))
        for path, line in lines.items():
            self._origins[path] = ValueOrigin(f"{name}:{line}", "file")

    def get(self, path: KeyPath, default: Any = None) -> Any:  # noqa: ANN401 - whatever stands there
        """Read a value; `default` when nothing stands there."""
        node: Any = self.document
        for part in path:
            inside = isinstance(node, dict) and part in node
            if not inside and not (isinstance(node, list) and isinstance(part, int)):
                return default
            node = node[part]
        return node

    def origin(self, path: KeyPath) -> ValueOrigin | None:
        """Where a value comes from: its own origin, or that of the nearest table around it."""
        for length in range(len(path), 0, -1):
            if path[:length] in self._origins:
                return self._origins[path[:length]]
        return None

    def origins(self) -> dict[KeyPath, ValueOrigin]:
        """All origins."""
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
    """Read `dotted.key=VALUE`; raises `ValueError` with what is wrong."""
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
    """Write a path as people do: `limits.users."telegram:1001"`, `access.allow[0]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
            continue
        key = part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else quote_toml(part)
        text += f".{key}" if text else key
    return text


def quote_toml(text: str) -> str:
    """Write a text as a TOML string."""
    # JSON's escapes are TOML's, but TOML also wants the delete character escaped.
    return msgspec.json.encode(text).decode().replace("\x7f", "\\u007f")
