"""Sans-IO: decoding of a parsed document into settings, with all problems collected.

msgspec alone would stop at the first error and describe it in terms of Python types. Therefore
tables are decoded here, and msgspec converts only single values.
"""

import math
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, Protocol, Union, get_args, get_origin, runtime_checkable

import msgspec
from msgspec import NODEFAULT, Meta, Struct

from gateway.config.layers import UnquotedValue, format_path
from gateway.settings import KeyPath
from sessions.values.spelling import did_you_mean

ValueReader = Callable[[Any, KeyPath], object]
"""Converts a value into a custom type; raises `ValueError` with the problem."""


class Problem(Struct, frozen=True):
    """A problem of the configuration and its key."""

    path: KeyPath
    text: str  # a complete sentence that names the key


@runtime_checkable
class ChecksConflicts(Protocol):
    """Settings with rules that involve several keys."""

    def conflicts(self) -> Iterable[tuple[KeyPath, str]]:
        """Yield paths inside the struct, each with its problem."""
        ...


class ConfigDecoder:
    """Decoder of one document; collects errors in `problems`."""

    def __init__(
        self,
        readers: Mapping[type, ValueReader],
        platforms: Mapping[str, type[Struct]],
        hints: Mapping[KeyPath, str],
        section_by_key: Mapping[str, str],
    ) -> None:
        self._readers = readers
        self._platforms = platforms
        self._hints = hints  # advice for a missing required key
        self._section_by_key = section_by_key  # to correct keys in the wrong section
        self.problems: list[Problem] = []

    def decode_struct(self, kind: type[Struct], value: object, path: KeyPath) -> Any:  # noqa: ANN401
        """Decode a table; returns `NODEFAULT` if it has a problem."""
        table = value.as_toml if isinstance(value, UnquotedValue) else value
        if not isinstance(table, dict):
            return self._add_problem(
                path, f"must be a table ([{format_path(path)}]), not {describe_value(table)}"
            )
        before = len(self.problems)
        fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
        for key in table:
            if key not in fields:
                self._add_unknown_key((*path, key), fields)
        found = {}
        for key, field in fields.items():
            if key in table:
                found[field.name] = self._decode_value(field.type, table[key], (*path, key))
            elif field.required:
                hint = self._hints.get((*path, key), "")
                self._add_problem((*path, key), f"is missing{hint}")
        if len(self.problems) > before:
            return NODEFAULT
        settings = kind(**found)
        if isinstance(settings, ChecksConflicts):
            for inside, text in settings.conflicts():
                self._add_problem((*path, *inside), text)
        return settings

    def _decode_value(self, kind: Any, value: object, path: KeyPath) -> object:  # noqa: ANN401
        bare = unwrap_type(kind)
        if path == ("platforms",):
            return self._decode_platforms(value)
        if isinstance(bare, type) and issubclass(bare, Struct):
            return self.decode_struct(bare, value, path)
        if get_origin(bare) is tuple:
            return self._decode_list(kind, get_args(bare)[0], value, path)
        if get_origin(bare) is dict:
            return self._decode_table(kind, get_args(bare)[1], value, path)
        problems = []
        for given in [value.as_toml, str(value)] if isinstance(value, UnquotedValue) else [value]:
            try:
                return self._decode_scalar(kind, given, path)
            except ValueError as error:
                problems.append(str(error))
        return self._add_problem(path, problems[0])

    def _decode_scalar(self, kind: Any, value: object, path: KeyPath) -> object:  # noqa: ANN401
        bare = unwrap_type(kind)
        if bare in self._readers:
            return self._readers[bare](value, path)
        finite = not isinstance(value, float) or math.isfinite(value)
        try:
            if finite:
                return msgspec.convert(value, kind)
        except msgspec.ValidationError:
            pass
        raise ValueError(_must_be(kind, value))

    def _decode_list(self, kind: Any, item: Any, value: object, path: KeyPath) -> object:  # noqa: ANN401
        items = value.as_toml if isinstance(value, UnquotedValue) else value
        if not isinstance(items, list):
            return self._add_problem(path, _must_be(kind, items))
        return tuple(
            self._decode_value(item, each, (*path, index)) for index, each in enumerate(items)
        )

    def _decode_table(self, kind: Any, item: Any, value: object, path: KeyPath) -> object:  # noqa: ANN401
        table = value.as_toml if isinstance(value, UnquotedValue) else value
        if not isinstance(table, dict):
            return self._add_problem(path, _must_be(kind, table))
        return {key: self._decode_value(item, each, (*path, key)) for key, each in table.items()}

    def _decode_platforms(self, value: object) -> object:
        if not isinstance(value, dict):
            return self._add_problem(("platforms",), "must be tables, such as [platforms.telegram]")
        found = {}
        for name, table in value.items():
            kind = self._platforms.get(name.partition("@")[0])
            if kind is None:
                hint = did_you_mean(name, self._platforms)
                known = "" if hint else f"; known are {', '.join(sorted(self._platforms))}"
                text = f"unknown platform {name}{hint}{known}"
                self.problems.append(Problem(("platforms", name), text))
                continue
            found[name] = self.decode_struct(kind, table, ("platforms", name))
        return found

    def _add_unknown_key(self, path: KeyPath, fields: Iterable[str]) -> None:
        key = str(path[-1])
        hint = did_you_mean(key, fields)
        if not hint and key in self._section_by_key and len(path) <= 2:  # noqa: PLR2004 - section.key
            hint = f" (it belongs to [{self._section_by_key[key]}])"
        self.problems.append(Problem(path, f"unknown key {format_path(path)}{hint}"))

    def _add_problem(self, path: KeyPath, text: str) -> object:
        self.problems.append(Problem(path, f"{format_path(path)} {text}"))
        return NODEFAULT


# --- descriptions of types ---------------------------------------------------------------------


def unwrap_type(kind: Any) -> Any:  # noqa: ANN401 - annotations have no type of their own
    """Remove limits and `| None` from an annotation."""
    if get_origin(kind) is Annotated:
        return unwrap_type(get_args(kind)[0])
    if get_origin(kind) in {Union, types.UnionType}:
        (inner,) = (each for each in get_args(kind) if each is not type(None))
        return unwrap_type(inner)
    return kind


def iter_metas(kind: Any) -> Iterator[Meta]:  # noqa: ANN401
    """Yield all limits and descriptions in an annotation."""
    if get_origin(kind) is Annotated:
        inner, *notes = get_args(kind)
        yield from (note for note in notes if isinstance(note, Meta))
        yield from iter_metas(inner)
    elif get_origin(kind) in {Union, types.UnionType}:
        for each in get_args(kind):
            yield from iter_metas(each)


_TYPE_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def describe_type(kind: Any) -> str:  # noqa: ANN401
    """Return the description of a type: `a whole number from 1 to 65535`."""
    bare = unwrap_type(kind)
    for meta in iter_metas(kind):
        if meta.extra and "form" in meta.extra:
            return str(meta.extra["form"])
    if get_origin(bare) is Literal:
        return "one of " + ", ".join(f'"{choice}"' for choice in get_args(bare))
    if get_origin(bare) is tuple:
        item = unwrap_type(get_args(bare)[0])
        if isinstance(item, type) and issubclass(item, Struct):
            return "a list of tables, each written [[...]]"
        return f"a list, each {describe_type(item)}"
    if get_origin(bare) is dict:
        return "a table"
    return _TYPE_WORDS.get(bare, "text") + _describe_limits(kind)


def _describe_limits(kind: Any) -> str:  # noqa: ANN401
    low = high = None
    words = ""
    for meta in iter_metas(kind):
        low = meta.ge if meta.ge is not None else low
        high = meta.le if meta.le is not None else high
        words = f" greater than {meta.gt:g}" if meta.gt is not None else words
        words = " that is not empty" if meta.min_length == 1 else words
    if low is not None and high is not None:
        return f" from {low} to {high}"
    return f" of at least {low}" if low is not None else words


def describe_value(value: object) -> str:
    """Return the kind of a value, but not the value: it may be a secret in the wrong place."""
    for kind, words in _TYPE_WORDS.items():
        if isinstance(value, kind):
            return words
    if isinstance(value, list):
        return "a list"
    return "a table" if isinstance(value, dict) else "a date or time"


def _must_be(kind: Any, value: object) -> str:  # noqa: ANN401
    bare = unwrap_type(kind)
    text = f"must be {describe_type(kind)}"
    if get_origin(bare) is Literal and isinstance(value, str):
        return f'{text}, not "{value}"' + did_you_mean(value, get_args(bare))
    if isinstance(value, (int, float)) and not isinstance(value, bool) and bare in {int, float}:
        return f"{text}, not {value}"
    if isinstance(value, str) and (bare is str or typing.get_origin(bare) is Literal):
        return text  # a string in the wrong format
    return f"{text}, not {describe_value(value)}"
