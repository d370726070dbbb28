"""What a turn shows to the model: the rows so far, behind the summary of what came before."""

from collections.abc import Iterable, Sequence

from agent.compaction import Ask, compact
from agent.model.contract import ModelRequest
from agent.providers.registry import Target
from agent.request import history_plan
from agent.request.tokens import characters, estimate_message, estimate_request
from sessions.records import Message


class Transcript:
    """The conversation as a turn goes on with it."""

    def __init__(self, history: Sequence[Message], summary: str) -> None:
        self.rows: list[Message] = []
        self._sizes: list[int] = []  # estimated tokens of the rows, each estimated once
        self._characters = 0
        self._summary = summary
        self._covered_ids: frozenset[str] = frozenset()  # of calls that a summary stands for
        self.add(history)

    def add(self, rows: Iterable[Message]) -> None:
        """More was said."""
        for row in rows:
            self.rows.append(row)
            self._characters += characters(row)

    @property
    def shown(self) -> list[Message]:
        """All of it, the summary first."""
        if not self._summary:
            return list(self.rows)
        return [history_plan.as_summary_row(self._summary), *self.rows]

    @property
    def follows_tools(self) -> bool:
        """The last thing said is a tool's result."""
        return bool(self.rows) and self.rows[-1].role == "tool"

    @property
    def call_ids(self) -> frozenset[str]:
        """Ids that no other call may have, also those of calls that are not in view any more."""
        return self._covered_ids.union(call.id for row in self.rows for call in row.tool_calls)

    def surely_fits(self, window: int | None) -> bool:
        """Whether it fits beyond doubt: no text has more tokens than characters."""
        return window is None or self._characters < window // 2

    @property
    def sizes(self) -> list[int]:
        """Estimated tokens of each row."""
        self._sizes += map(estimate_message, self.rows[len(self._sizes) :])
        return self._sizes

    def size_with(self, request: ModelRequest, asks: Sequence[Message]) -> int:
        """Estimate the tokens of a request that shows all of it, and behind it `asks`."""
        summary = self.shown[: len(self.shown) - len(self.rows)]
        rest = estimate_request(request.system, (*summary, *asks), request.tools)
        return sum(self.sizes) + rest

    async def compact(self, room: int | None, target: Target, ask: Ask) -> tuple[int, str] | None:
        """Put a summary in place of the oldest rows, so that half of the room is free.

        Gives how many of the newest rows stayed, and the summary; None when it would not help.
        """
        whole = sum(self.sizes)
        done = await compact(
            self.rows, self._summary, room=min(room or whole, whole) // 2, target=target, ask=ask
        )
        if done is None:
            return None
        self._covered_ids = self.call_ids  # the journal knows calls by their ids: none comes twice
        self._summary = done.summary
        self.rows, self._sizes, self._characters = [], [], 0
        self.add(done.rows)
        return done.keep, done.summary
