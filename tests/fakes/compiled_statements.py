"""SQL that is compiled once per process of tests, not once for each of its thousands of databases."""

from collections.abc import Iterator, MutableMapping
from typing import Any

import sqlalchemy as sa

_Key = tuple[Any, ...]


class _OfAllEngines(MutableMapping[_Key, Any]):
    """A cache of compiled statements, in which all dialects of one class are the same.

    An engine has a dialect of its own, with which SQLAlchemy begins each key.
    """

    def __init__(self) -> None:
        self._compiled: dict[_Key, Any] = {}

    def __getitem__(self, key: _Key) -> Any:
        return self._compiled[_without_engine(key)]

    def __setitem__(self, key: _Key, compiled: Any) -> None:
        self._compiled[_without_engine(key)] = compiled

    def __delitem__(self, key: _Key) -> None:
        del self._compiled[_without_engine(key)]

    def __iter__(self) -> Iterator[_Key]:
        return iter(self._compiled)

    def __len__(self) -> int:
        return len(self._compiled)


def _without_engine(key: _Key) -> _Key:
    dialect, *rest = key
    return (type(dialect), *rest)


def compile_once() -> None:
    """Share the compiled statements of all engines of this process."""
    compiled = _OfAllEngines()

    @sa.event.listens_for(sa.Engine, "engine_connect")
    def share(connection: sa.Connection) -> None:
        connection.execution_options(compiled_cache=compiled)
