"""Sans-IO: what the calls of a turn came to, so that none takes effect twice by mistake.

A model whose answer broke off often begins anew and makes calls again that were carried out
already. In the first answer after such a break a call like an earlier one is therefore not
carried out again. What was carried out is taken from the record of what was begun, never from the
words of a result: a tool may say whatever it likes.
"""

import msgspec

from agent.tools.gate import Identity
from sessions.records import ToolRun

UNKNOWN = "UNKNOWN"
"""Begins the result of every call that may or may not have had its effect."""


class Twin(msgspec.Struct, frozen=True):
    """An earlier call."""

    id: str
    result: str
    unknown: bool = False  # whether it had its effect is not known

    @property
    def answer(self) -> str:
        """What a call like it gets for a result instead of being carried out."""
        return f"already done in this turn (call {self.id}): {self.result}"


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

    def came_late(self, call: Identity, twin: Twin) -> None:
        """A call whose time had run out came to a result, unless another one is in its place."""
        known = self._last.get(call)
        if known is not None and known.id == twin.id:
            self._last[call] = twin


def recorded(run: ToolRun) -> Twin:
    """Read a record: what was begun and never finished may have had its effect.

    So may what was given up, of which the record says only that it failed; there the result is
    our own, or that of a tool which says itself that it does not know.
    """
    if run.result is None:
        return Twin(run.call_id, "", unknown=True)
    doubtful = run.ok is False and run.result.startswith(UNKNOWN)
    return Twin(run.call_id, run.result, doubtful)
