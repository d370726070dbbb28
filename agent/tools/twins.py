"""Sans-IO: what the calls of a turn came to, so that none takes effect twice by mistake.

A model whose answer broke off often begins anew and makes calls again that were carried out
already. In the first answer after such a break a call like an earlier one is therefore not
carried out again.
"""

from collections.abc import Iterator, Sequence

import msgspec

from agent.tools.gate import Identity
from sessions.records import Message, ToolCall

UNKNOWN = "UNKNOWN"
"""Begins the result of every call that may or may not have had its effect."""

_NO_RESULT = f"{UNKNOWN}: there is no result."
_ANSWERED = "already done in this turn"
_NOT_RUN = ("Nothing has run", "Not run", _ANSWERED)


class Twin(msgspec.Struct, frozen=True):
    """An earlier call."""

    id: str
    result: str

    @property
    def unknown(self) -> bool:
        """Whether it had its effect is not known."""
        return self.result.startswith(UNKNOWN)

    @property
    def answer(self) -> str:
        """What a call like it gets for a result instead of being carried out."""
        return f"{_ANSWERED} (call {self.id}): {self.result}"


class Twins:
    """The calls of one turn that were carried out; only those with side effects belong here."""

    def __init__(self) -> None:
        self._last: dict[Identity, Twin] = {}

    def add(self, call: Identity, twin: Twin) -> None:
        """Remember a call; of several like it the last one counts."""
        self._last[call] = twin

    def get(self, call: Identity) -> Twin | None:
        """Find the earlier call that was like this one."""
        return self._last.get(call)


def carried_out(rows: Sequence[Message]) -> Iterator[tuple[ToolCall, str]]:
    """Give the calls of these rows that were begun, each with its result.

    A call without a result was begun for all we know.
    """
    results = {row.tool_call_id: row.content for row in rows if row.role == "tool"}
    for row in rows:
        for call in row.tool_calls:
            result = results.get(call.id, _NO_RESULT)
            if not result.startswith((*_NOT_RUN, f"{call.name} has NOT run")):
                yield call, result
