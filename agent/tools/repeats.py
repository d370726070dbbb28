"""Sans-IO: what the calls of a turn came to, so that none takes effect twice by mistake.

A model whose answer broke off often begins anew and makes calls again that were carried out
already. In the first answer after such a break a call like an earlier one is therefore not
carried out again. What was carried out is taken from the record of what was begun, never from the
words of a result: a tool may say whatever it likes.
"""

import msgspec

from agent.tools.gate import CallIdentity
from sessions.records import ToolRun

UNKNOWN_PREFIX = "UNKNOWN"
"""Begins the result of every call that may or may not have had its effect."""


class EarlierCall(msgspec.Struct, frozen=True):
    """An earlier call."""

    id: str
    result: str
    outcome_unknown: bool = False  # whether it had its effect is not known

    @property
    def repeat_result(self) -> str:
        """What a call like it gets for a result instead of being carried out."""
        return f"already done in this turn (call {self.id}): {self.result}"


class RepeatedCalls:
    """The calls of one turn that were carried out; only those with side effects belong here."""

    def __init__(self) -> None:
        self._latest: dict[CallIdentity, EarlierCall] = {}

    def add(self, call: CallIdentity, earlier: EarlierCall) -> None:
        """Remember a call; of several like it the last one counts."""
        self._latest[call] = earlier

    def get(self, call: CallIdentity) -> EarlierCall | None:
        """Find the earlier call that was like this one."""
        return self._latest.get(call)

    def record_late_result(self, call: CallIdentity, earlier: EarlierCall) -> None:
        """A call whose time had run out came to a result, unless another one is in its place."""
        known = self._latest.get(call)
        if known is not None and known.id == earlier.id:
            self._latest[call] = earlier


def earlier_call_from(run: ToolRun) -> EarlierCall:
    """Read a record: what was begun and never finished may have had its effect.

    So may what was given up, of which the record says only that it failed; there the result is
    our own, or that of a tool which says itself that it does not know.
    """
    if run.result is None:
        return EarlierCall(run.call_id, "", outcome_unknown=True)
    doubtful = run.ok is False and run.result.startswith(UNKNOWN_PREFIX)
    return EarlierCall(run.call_id, run.result, doubtful)
