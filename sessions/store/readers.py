"""Readers of the store, one for each kind of record.

Every read sees one unchanging moment, and every write that returned before it.
"""

from collections.abc import Collection

from sessions.errors import AmbiguousSession
from sessions.records import (
    Approval,
    BudgetUsage,
    InboxEntry,
    Message,
    OutboxItem,
    Session,
    ToolRun,
    Turn,
    UsageTotals,
)
from sessions.store.database import Database
from sessions.store.queries import (
    approvals,
    budgets,
    costs,
    inbox,
    outbox,
    sessions,
    together,
    turns,
)
from sessions.values.address import Address


class SessionReader:
    """Reads sessions and their history."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, session_id: str) -> Session | None:
        """Return a session by id."""
        return await self._database.read(lambda c: sessions.find_session(c, session_id))

    async def find(self, text: str, key: str | None = None) -> Session | None:
        """Return the session with this id, or the only one whose id begins with this text.

        With `key`, search only that conversation. Raises `AmbiguousSession`.
        """
        found = await self._database.read(lambda c: sessions.find_by_prefix(c, text, key))
        if len(found) > 1:
            msg = f"{text} matches {len(found)} or more sessions; give more of the id"
            raise AmbiguousSession(msg)
        return found[0] if found else None

    async def list(
        self, *, key: str | None = None, platform: str | None = None, limit: int | None = None
    ) -> tuple[Session, ...]:
        """Return sessions, newest first: all, those of a conversation, or those of a platform."""
        return await self._database.read(lambda c: sessions.list_sessions(c, key, platform, limit))

    async def chats(self, platform: str, limit: int) -> tuple[tuple[Address, str | None, int], ...]:
        """Return (address, title, last use) of a platform's chats, the last used first."""
        return await self._database.read(lambda c: sessions.list_chats(c, platform, limit))

    async def history(self, session_id: str, limit: int | None = None) -> tuple[Message, ...]:
        """Return the history of a session in order, without retracted rows.

        `limit`: only the newest.
        """
        return await self._database.read(lambda c: sessions.read_history(c, session_id, limit))

    async def history_up_to(self, session_id: str, turn_id: str) -> tuple[Message, ...]:
        """Return the history up to and including a turn; nothing if the turn has no rows."""
        return await self._database.read(
            lambda c: sessions.read_history_up_to(c, session_id, turn_id)
        )

    async def context(self, session_id: str) -> tuple[str, tuple[Message, ...]]:
        """Return the session as a model sees it: a summary of old rows, then the newer rows.

        Without a summary ("") these are all rows. Retracted rows are never included.
        """
        return await self._database.read(lambda c: sessions.read_context(c, session_id))


class TurnReader:
    """Reads turns and their tool runs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, turn_id: str) -> Turn | None:
        """Return a turn by id."""
        return await self._database.read(lambda c: turns.find_turn(c, turn_id))

    async def of_session(self, session_id: str) -> tuple[Turn, ...]:
        """Return the turns of a session, oldest first, including retracted ones."""
        return await self._database.read(lambda c: turns.turns_of_session(c, session_id))

    async def last(self, session_id: str) -> Turn | None:
        """Return the newest turn of a session that was not retracted."""
        return await self._database.read(lambda c: turns.last_turn(c, session_id))

    async def running(self) -> tuple[Turn, ...]:
        """Return the running turns; right after a start, those that a dead process left."""
        return await self._database.read(turns.running_turns)

    async def tool_runs(self, turn_id: str) -> tuple[ToolRun, ...]:
        """Return the tool runs of a turn in order of their start."""
        return await self._database.read(lambda c: turns.tool_runs(c, turn_id))

    async def tool_runs_of_calls(
        self, session_id: str, calls: Collection[str]
    ) -> tuple[ToolRun, ...]:
        """Return the tool runs of these calls, from any turn of the session, by start time."""
        if not calls:
            return ()
        return await self._database.read(lambda c: turns.tool_runs_of_calls(c, session_id, calls))


class SpendingReader:
    """Reads usage and budgets."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def totals(
        self,
        *,
        turn_id: str | None = None,
        session_id: str | None = None,
        key: str | None = None,
        person: str | None = None,
        since: int | None = None,
        requests_from: int | None = None,
        requests_before: int | None = None,
    ) -> UsageTotals:
        """Return the total usage of the turns that match all given filters.

        `since` selects turns started at that time or later, `requests_from` and `requests_before`
        model requests of these turns. Retracted turns and unfinished requests are included.
        """
        given = {
            "turn_id": turn_id,
            "session_id": session_id,
            "key": key,
            "person": person,
            "since": since,
            "requests_from": requests_from,
            "requests_before": requests_before,
        }
        only = {name: value for name, value in given.items() if value is not None}
        return await self._database.read(lambda c: costs.sum_usage(c, only))

    async def on_day(self, day: str, scopes: Collection[str]) -> dict[str, BudgetUsage]:
        """Return the spending of these scopes on a day; `BudgetUsage()` for scopes without any."""
        return await self._database.read(lambda c: budgets.read_usage(c, day, scopes))


class ApprovalReader:
    """Reads approvals."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, approval_id: str) -> Approval | None:
        """Return an approval by id."""
        return await self._database.read(lambda c: approvals.find_approval(c, approval_id))

    async def open(self, key: str | None = None) -> tuple[Approval, ...]:
        """Return the open approvals, oldest first; `key`: of one conversation."""
        return await self._database.read(lambda c: approvals.open_approvals(c, key))

    async def find_allowed(
        self, session_id: str, tool: str, arguments: str, since: int
    ) -> Approval | None:
        """Return the newest unused permission for exactly this call, asked since a time."""
        return await self._database.read(
            lambda c: approvals.allowed_approval(c, session_id, tool, arguments, since)
        )


class ReceivedReader:
    """Reads received messages and commands."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, source: str, event: str) -> InboxEntry | None:
        """Return an inbox entry by the two fields that a redelivery repeats."""
        return await self._database.read(lambda c: inbox.find_entry(c, source, event))

    async def get(self, inbox_id: str) -> InboxEntry | None:
        """Return an inbox entry by id."""
        return await self._database.read(lambda c: inbox.find_entry_by_id(c, inbox_id))

    async def of_turn(self, turn_id: str) -> tuple[InboxEntry, ...]:
        """Return the entries that a turn answers."""
        return await self._database.read(lambda c: inbox.entries_of_turn(c, turn_id))

    async def of_request(self, turn_id: str) -> tuple[InboxEntry, ...]:
        """Return the entries that a turn answers; for a resumed turn, those of an earlier turn."""
        return await self._database.read(lambda c: together.request_entries(c, turn_id))

    async def unanswered(self) -> tuple[InboxEntry, ...]:
        """Return the messages of all conversations that wait or are held, oldest first."""
        return await self._database.read(inbox.unanswered_entries)

    async def waiting_keys(self) -> tuple[str, ...]:
        """Return the keys of conversations with waiting messages."""
        return await self._database.read(inbox.waiting_keys)

    async def held(self, session_id: str) -> tuple[InboxEntry, ...]:
        """Return the messages held with a suspended session."""
        return await self._database.read(lambda c: inbox.held_entries(c, session_id))

    async def pending_commands(self) -> tuple[InboxEntry, ...]:
        """Return commands that were received and not yet executed."""
        return await self._database.read(inbox.pending_commands)

    async def newest(
        self, platform: str, limit: int, *, ignored_only: bool = False
    ) -> tuple[InboxEntry, ...]:
        """Return the newest entries of a platform, newest first; optionally only ignored ones."""
        return await self._database.read(
            lambda c: inbox.newest_entries(c, platform, limit, ignored_only=ignored_only)
        )


class OutboxReader:
    """Reads items to deliver."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def undelivered(self) -> tuple[OutboxItem, ...]:
        """Return the undelivered items, by `seq`."""
        return await self._database.read(outbox.undelivered_items)

    async def of_turn(self, turn_id: str) -> tuple[OutboxItem, ...]:
        """Return the items of a turn by `seq`, including an answer still being written."""
        return await self._database.read(lambda c: outbox.items_of_turn(c, turn_id, -1))

    async def get(self, item_id: str) -> OutboxItem | None:
        """Return an outbox item by id."""
        return await self._database.read(lambda c: outbox.find_item(c, item_id))
