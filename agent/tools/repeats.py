"""Sans-IO: earlier calls of a turn, so that no call takes effect twice by mistake.

After an interrupted answer a model often starts over and repeats calls that have already run. In
the first answer after an interruption such a repeated call is therefore not run again. The record
of the start decides whether a call has run, never the text of the result, because a tool may return
any text.
"""

import msgspec

from agent.tools.gate import CallIdentity
from sessions.records import ToolRun

UNKNOWN_PREFIX = "UNKNOWN"
"""Prefix of the result of a call whose effect is unknown."""


class EarlierCall(msgspec.Struct, frozen=True):
    """An earlier call of the turn."""

    id: str
    result: str
    outcome_unknown: bool = False  # the call may or may not have had its effect

    @property
    def repeat_result(self) -> str:
        """Result of a repeated call, which does not run."""
        return f"already done in this turn (call {self.id}): {self.result}"


class RepeatedCalls:
    """The calls of one turn that have run and have side effects."""

    def __init__(self) -> None:
        self._latest: dict[CallIdentity, EarlierCall] = {}

    def add(self, call: CallIdentity, earlier: EarlierCall) -> None:
        """Remember a call, in place of an earlier call with the same identity."""
        self._latest[call] = earlier

    def get(self, call: CallIdentity) -> EarlierCall | None:
        """Return the last earlier call with this identity."""
        return self._latest.get(call)

    def record_late_result(self, call: CallIdentity, earlier: EarlierCall) -> None:
        """Store the late result of a timed-out call, unless the call has been replaced."""
        known = self._latest.get(call)
        if known is not None and known.id == earlier.id:
            self._latest[call] = earlier


def earlier_call_from(run: ToolRun) -> EarlierCall:
    """Read a record from the journal.

    The outcome is unknown for a call that started and never finished, and for a failed call whose
    result begins with `UNKNOWN_PREFIX`: the call was abandoned at the deadline, or the tool itself
    reported an unknown outcome.
    """
    if run.result is None:
        return EarlierCall(run.call_id, "", outcome_unknown=True)
    outcome_unknown = run.ok is False and run.result.startswith(UNKNOWN_PREFIX)
    return EarlierCall(run.call_id, run.result, outcome_unknown)
