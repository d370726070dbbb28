"""Which tools there are, and the decorator that makes one from a typed async function."""

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from importlib.metadata import entry_points
from typing import Any, get_type_hints

import msgspec

from agent.providers.contract import ToolSchema
from agent.tools.contract import Risk, Tool, ToolContext

GROUP = "holdfast.tools"

Function = Callable[..., Awaitable[str]]


class ToolRegistry:
    """The tools of one turn, by name; a name that appears twice is an error at start-up."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self.by_name: dict[str, Tool] = {}
        for each in tools:
            if each.name in self.by_name:
                msg = f"two tools are named {each.name!r}; rename one of them"
                raise ValueError(msg)
            self.by_name[each.name] = each
        self.schemas: tuple[ToolSchema, ...] = tuple(each.schema for each in self)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self.by_name.values())

    def __len__(self) -> int:
        return len(self.by_name)


def from_entry_points() -> tuple[Tool, ...]:
    """Tools that other distributions bring; each entry point loads one `Tool`."""
    return tuple(entry.load() for entry in entry_points(group=GROUP))
