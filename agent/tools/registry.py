"""The registry of built-in and installed tools."""

from collections.abc import Collection, Iterable, Iterator, Mapping

from agent.model.contract import ToolSchema
from agent.tools.clock import current_time
from agent.tools.contract import Tool
from agent.tools.files.reading import list_dir, read_file
from agent.tools.files.searching import search_files
from agent.tools.files.sending import send_file
from agent.tools.files.writing import edit_file, write_file, write_file_continue
from sessions.values.entry_points import entry_points_of

_ENTRY_POINT_GROUP = "holdfast.tools"

BUILT_IN: tuple[Tool, ...] = (
    current_time,
    read_file,
    write_file,
    write_file_continue,
    edit_file,
    list_dir,
    search_files,
    send_file,
)
"""All built-in tools; add new tools here."""


class ToolRegistry:
    """The tools of one turn by name; raises `ValueError` for a duplicate name.

    `reserved_names` are the names of known tools that the turn cannot call, such as those of a
    disconnected server. No call of such a tool is taken for a call of another one. `earlier_names`
    are names of older versions, still found in histories, each with the present name of that tool.
    """

    def __init__(
        self,
        tools: Iterable[Tool] = BUILT_IN,
        reserved_names: Iterable[str] = (),
        earlier_names: Mapping[str, str] | None = None,
    ) -> None:
        self.by_name: dict[str, Tool] = {}
        self.reserved_names = frozenset(reserved_names)
        self.earlier_names = earlier_names or {}
        for tool in tools:
            if tool.name in self.by_name:
                msg = f"Two tools are named {tool.name!r}; remove or rename one of them."
                raise ValueError(msg)
            self.by_name[tool.name] = tool
        self.schemas: tuple[ToolSchema, ...] = tuple(tool.schema for tool in self)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self.by_name.values())

    def __len__(self) -> int:
        return len(self.by_name)


def load_entry_points() -> tuple[Tool, ...]:
    """Load the tools of other distributions: each entry point of `holdfast.tools` is one `Tool`."""
    return tuple(entry.load() for entry in entry_points_of(_ENTRY_POINT_GROUP))


def filter_enabled(tools: Iterable[Tool], families: Collection[str]) -> tuple[Tool, ...]:
    """Return the tools of these families and the tools without a family."""
    return tuple(tool for tool in tools if not tool.family or tool.family in families)
