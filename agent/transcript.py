"""What a turn shows to the model: the rows so far, behind the summary of what came before."""

from collections.abc import Iterable, Sequence

from agent.compaction import SendSummaryRequest, compact_history
from agent.model.contract import ModelRequest
from agent.providers.registry import Target
from agent.request import history_plan
from agent.request.tokens import count_characters, estimate_message, estimate_request
from sessions.records import Message


class Transcript:
    """The conversation as a turn goes on with it."""

    def __init__(self, history: Sequence[Message], summary: str) -> None:
        self.rows: list[Message] = []
        self._row_tokens: list[int] = []  # estimated tokens of the rows, each estimated once
        self._characters = 0
        self._summary = summary
        self._covered_call_ids: frozenset[str] = frozenset()  # of calls that a summary stands for
        self.add(history)

    def add(self, rows: Iterable[Message]) -> None:
        """More was said."""
        for row in rows:
            self.rows.append(row)
            self._characters += count_characters(row)

    @property
    def messages(self) -> list[Message]:
        """All of it, the summary first."""
        if not self._summary:
            return list(self.rows)
        return [history_plan.make_summary_row(self._summary), *self.rows]

    @property
    def ends_with_tool_result(self) -> bool:
        """The last thing said is a tool's result."""
        return bool(self.rows) and self.rows[-1].role == "tool"

    @property
    def call_ids(self) -> frozenset[str]:
        """Ids that no other call may have, also those of calls that are not in view any more."""
        return self._covered_call_ids.union(call.id for row in self.rows for call in row.tool_calls)

    def certainly_fits(self, window: int | None) -> bool:
        """Whether it fits beyond doubt: no text has more tokens than characters."""
        return window is None or self._characters < window // 2

    @property
    def row_tokens(self) -> list[int]:
        """Estimated tokens of each row."""
        self._row_tokens += map(estimate_message, self.rows[len(self._row_tokens) :])
        return self._row_tokens

    def estimate_with(self, request: ModelRequest, extra_messages: Sequence[Message]) -> int:
        """Estimate the tokens of a request that shows all of it, and behind it `asks`."""
        summary = self.messages[: len(self.messages) - len(self.rows)]
        rest = estimate_request(request.system, (*summary, *extra_messages), request.tools)
        return sum(self.row_tokens) + rest

    async def compact(
        self, room_tokens: int | None, target: Target, send_request: SendSummaryRequest
    ) -> tuple[int, str] | None:
        """Put a summary in place of the oldest rows, so that half of the room is free.

        Gives how many of the newest rows stayed, and the summary; None when it would not help.
        """
        whole = sum(self.row_tokens)
        done = await compact_history(
            self.rows,
            self._summary,
            room_tokens=min(room_tokens or whole, whole) // 2,
            target=target,
            send_request=send_request,
        )
        if done is None:
            return None
        self._covered_call_ids = (
            self.call_ids
        )  # the journal knows calls by their ids: none comes twice
        self._summary = done.summary
        self.rows, self._row_tokens, self._characters = [], [], 0
        self.add(done.rows)
        return done.kept_rows, done.summary
