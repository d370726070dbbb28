"""The memory of what servers said about their tools, and of their instructions for the model.

A server can change a tool after people have learned to trust it. The first listing of a tool is
trusted. A later listing that claims less risk, or has another description or schema, is a change:
an admin is asked before the next call, and the call that the admin allows accepts the change.
Changed instructions are withheld from the model until an admin accepts them.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import msgspec

from agent.tools.mcp.changes import (
    ToolClaims,
    claims_of,
    describe_change,
    describe_text_change,
    digest_of,
    is_change,
)
from agent.tools.mcp.contract import ListedTool
from sessions.errors import StoreError
from sessions.values.clock import Clock
from sessions.values.steady_clock import SteadyClock

_SHELF = "mcp_tools"
_INSTRUCTIONS = "/instructions"  # ends the name of a record; those of tools end with a digest
_MAX_INSTRUCTIONS = 2_000  # characters kept for a comparison
_DAY_MS = 86_400_000
_FORGET_AFTER_MS = 90 * _DAY_MS
_log = logging.getLogger(__name__)


class ValueStore(Protocol):
    """The methods of the store that the memory needs."""

    async def values(self, shelf: str) -> dict[str, str]:
        """Return all values of a shelf by name."""
        ...

    async def put_value(self, shelf: str, name: str, value: str | None) -> None:
        """Store a value durably."""
        ...


class RememberedTool(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool as stored."""

    trusted: ToolClaims
    pending: ToolClaims | None = None  # a change that no admin has accepted yet
    name: str = ""  # empty in records of older versions
    told: str = ""  # digest of the last change that the admins were told about
    seen_at: int = 0  # day of the last listing, in milliseconds since 1970


class ToolChange(msgspec.Struct, frozen=True):
    """Tools that a server has changed."""

    server: str
    tools: tuple[str, ...]


def review_claims(known: RememberedTool | None, claims: ToolClaims) -> RememberedTool:
    """Return the new record of a tool; `pending` is set if an admin has to be asked.

    More risk alone is believed at once, and less risk is a change from then on.
    """
    if known is None:
        return RememberedTool(claims)
    if is_change(known.trusted, claims):
        return msgspec.structs.replace(known, pending=claims)
    return msgspec.structs.replace(known, trusted=claims, pending=None)


def pending_change(record: RememberedTool) -> str:
    """Return the change that is pending, in words; empty if there is none."""
    return describe_change(record.trusted, record.pending) if record.pending else ""


class InstructionsChange(msgspec.Struct, frozen=True):
    """Instructions for the model that a server has changed."""

    server: str
    change: str  # in words


class ToolMemory:
    """The remembered tools of all servers; without a store they live as long as the process.

    The record of a tool that no server has listed for 90 days is deleted.
    """

    def __init__(
        self,
        clock: Clock,
        store: ValueStore | None = None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._clock = SteadyClock(clock)  # a clock set ahead must not delete records
        self._store = store
        self._on_change = on_change  # called when `unreported_changes` has news
        self._records: dict[str, RememberedTool] = {}

    async def load(self) -> None:
        """Read the store; a tool whose record cannot be read asks an admin again."""
        for name, value in (await self._store.values(_SHELF) if self._store else {}).items():
            try:
                self._records[name] = msgspec.json.decode(value, type=RememberedTool)
            except msgspec.DecodeError as error:
                _log.warning("the stored record of the tool %s cannot be read: %s", name, error)
                self._records[name] = RememberedTool(ToolClaims(2, ""))
        if any(_is_unreported(record) for record in self._records.values()):
            self._on_change()

    async def review(self, server: str, listed: Iterable[ListedTool]) -> tuple[ListedTool, ...]:
        """Remember the listed tools of a server and return them with their pending changes."""
        reviewed, new_records = [], {}
        for tool in listed:
            name = _record_name(server, tool.name)
            known = self._records.get(name)
            record = msgspec.structs.replace(
                review_claims(known, claims_of(tool)), name=tool.name, seen_at=self._today()
            )
            change = pending_change(record)
            if record != known:
                new_records[name] = record
            if change and (known is None or record.pending != known.pending):
                _log.warning(
                    "MCP server %s has changed the tool %s (%s); an admin is asked before the "
                    "next call",
                    server,
                    tool.name,
                    change.replace("\n", "; "),
                )
            reviewed.append(msgspec.structs.replace(tool, change=change))
        await self._put_all(new_records)
        if any(_is_unreported(record) for record in new_records.values()):
            self._on_change()
        return tuple(reviewed)

    async def accept(self, server: str, tool: ListedTool) -> None:
        """Trust a changed tool from now on, because an admin has allowed a call."""
        _log.info("the change of the tool %s of MCP server %s is accepted", tool.name, server)
        record = RememberedTool(claims_of(tool), name=tool.name, seen_at=self._today())
        await self._put_all({_record_name(server, tool.name): record})

    async def review_instructions(self, server: str, text: str) -> bool:
        """Remember the instructions of a server; return False until an admin accepts a change.

        Instructions that a server drops, and brings back unchanged, are no change.
        """
        name = _instructions_name(server)
        known = self._records.get(name)
        if known is not None and not text:
            return True
        claims = ToolClaims(0, digest_of(text), text[:_MAX_INSTRUCTIONS])
        record = msgspec.structs.replace(review_claims(known, claims), seen_at=self._today())
        if record != known:
            await self._put_all({name: record})
        if record.pending and (known is None or record.pending != known.pending):
            _log.warning(
                "MCP server %s has changed its instructions; the model does not get them until an "
                "admin accepts them with /mcp accept (%s)",
                server,
                _instructions_change(record).replace("\n", "; "),
            )
            self._on_change()
        return record.pending is None

    async def accept_instructions(self, server: str) -> bool:
        """Trust the changed instructions of a server; return False if there are none."""
        name = _instructions_name(server)
        record = self._records.get(name)
        if record is None or record.pending is None:
            return False
        _log.info("the instructions of MCP server %s are accepted", server)
        await self._put_all({name: RememberedTool(record.pending, seen_at=self._today())})
        return True

    def unreported_instructions(self) -> tuple[InstructionsChange, ...]:
        """Return the changed instructions that the admins have not been told about."""
        return tuple(
            InstructionsChange(name.removesuffix(_INSTRUCTIONS), _instructions_change(record))
            for name, record in self._records.items()
            if name.endswith(_INSTRUCTIONS)
            and record.pending
            and record.told != _change_digest(record)
        )

    async def mark_instructions_reported(self, servers: Iterable[str]) -> None:
        """Remember that the admins were told about the changed instructions of these servers."""
        names = map(_instructions_name, servers)
        await self._put_all(
            {
                name: msgspec.structs.replace(record, told=_change_digest(record))
                for name in names
                if (record := self._records.get(name))
            }
        )

    async def forget_unseen(self) -> None:
        """Delete the records of tools that have not been listed for 90 days."""
        before = self._clock.now() - _FORGET_AFTER_MS
        old = [
            name
            for name, record in self._records.items()
            if record.seen_at and record.seen_at < before
        ]
        undated = {
            name: msgspec.structs.replace(record, seen_at=self._today())
            for name, record in self._records.items()
            if not record.seen_at  # of an older version
        }
        for name in old:
            del self._records[name]
        await self._write(dict.fromkeys(old))
        await self._put_all(undated)

    def unreported_changes(self) -> tuple[ToolChange, ...]:
        """Return the pending changes that the admins have not been told about."""
        tools: dict[str, list[str]] = {}
        for name, record in self._records.items():
            if _is_unreported(record):
                tools.setdefault(name.rpartition("/")[0], []).append(record.name)
        return tuple(ToolChange(server, tuple(names)) for server, names in tools.items())

    async def mark_reported(self, changes: Iterable[ToolChange]) -> None:
        """Remember that the admins were told about these changes."""
        names = [_record_name(change.server, tool) for change in changes for tool in change.tools]
        await self._put_all(
            {
                name: msgspec.structs.replace(record, told=_change_digest(record))
                for name in names
                if (record := self._records.get(name))
            }
        )

    def _today(self) -> int:
        return self._clock.now() // _DAY_MS * _DAY_MS

    async def _put_all(self, records: Mapping[str, RememberedTool]) -> None:
        self._records.update(records)
        await self._write(
            {name: msgspec.json.encode(record).decode() for name, record in records.items()}
        )

    async def _write(self, values: Mapping[str, str | None]) -> None:
        async with asyncio.TaskGroup() as group:  # the writes share one commit
            for name, value in values.items():
                group.create_task(self._write_one(name, value))

    async def _write_one(self, name: str, value: str | None) -> None:
        if self._store is None:
            return
        try:
            await self._store.put_value(_SHELF, name, value)
        except StoreError as error:
            _log.warning("the tool %s is remembered only until the next start: %s", name, error)


def _is_unreported(record: RememberedTool) -> bool:
    # A record without a name is of an older version, which told the admins at once.
    return (
        record.pending is not None and bool(record.name) and record.told != _change_digest(record)
    )


def _change_digest(record: RememberedTool) -> str:
    return f"{record.pending.risk} {record.pending.digest}" if record.pending else ""


def _instructions_name(server: str) -> str:
    return f"{server}{_INSTRUCTIONS}"


def _instructions_change(record: RememberedTool) -> str:
    new = record.pending.description if record.pending else ""
    return describe_text_change(record.trusted.description or "", new or "")


def _record_name(server: str, tool: str) -> str:
    # The name of a tool can have any length and any characters.
    return f"{server}/{digest_of(json.dumps(tool))}"
