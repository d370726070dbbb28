"""Conversation of a turn as the model sees it: the summary of earlier messages, then the rows."""

from collections.abc import Iterable, Sequence

from agent.compaction import SendSummaryRequest, compact_history
from agent.model.contract import ModelRequest
from agent.providers.registry import Target
from agent.request import history_plan
from agent.request.tokens import count_characters, estimate_message, estimate_request
from sessions.records import Message, MessageRole


class Transcript:
    """Growing conversation of one turn, with its size."""

    def __init__(self, history: Sequence[Message], summary: str) -> None:
        self.rows: list[Message] = []
        self._row_tokens: list[int] = []  # estimated lazily, once per row
        self._characters = 0
        self._summary = summary
        self._covered_call_ids: frozenset[str] = frozenset()  # ids of calls covered by the summary
        self.add(history)

    def add(self, rows: Iterable[Message]) -> None:
        """Append rows."""
        for row in rows:
            self.rows.append(row)
            self._characters += count_characters(row)

    @property
    def messages(self) -> list[Message]:
        """The whole conversation, starting with the summary."""
        if not self._summary:
            return list(self.rows)
        return [history_plan.make_summary_row(self._summary), *self.rows]

    @property
    def ends_with_tool_result(self) -> bool:
        """True if the last row is a tool result."""
        return bool(self.rows) and self.rows[-1].role == MessageRole.TOOL

    @property
    def call_ids(self) -> frozenset[str]:
        """Ids of all calls so far, including calls covered by the summary."""
        return self._covered_call_ids.union(call.id for row in self.rows for call in row.tool_calls)

    def certainly_fits(self, window: int | None) -> bool:
        """Return True if the conversation fits without estimating its tokens.

        A text never has more tokens than characters.
        """
        return window is None or self._characters < window // 2

    @property
    def row_tokens(self) -> list[int]:
        """Estimated tokens per row."""
        self._row_tokens += map(estimate_message, self.rows[len(self._row_tokens) :])
        return self._row_tokens

    def estimate_with(self, request: ModelRequest, extra_messages: Sequence[Message]) -> int:
        """Estimate the tokens of a request with this conversation and `extra_messages`."""
        summary = self.messages[: len(self.messages) - len(self.rows)]
        rest = estimate_request(request.system, (*summary, *extra_messages), request.tools)
        return sum(self.row_tokens) + rest

    async def compact(
        self, room_tokens: int | None, target: Target, send_request: SendSummaryRequest
    ) -> tuple[int, str] | None:
        """Replace the oldest rows by a summary, so that half of the room becomes free.

        Return the number of kept rows and the summary; None if compaction would not help.
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
        # Call ids must stay unique within the turn, because the journal identifies calls by id.
        self._covered_call_ids = self.call_ids
        self._summary = done.summary
        self.rows, self._row_tokens, self._characters = [], [], 0
        self.add(done.rows)
        return done.kept_rows, done.summary
