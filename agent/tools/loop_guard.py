"""Sans-IO: detection of tool call loops; warns the model first, then refuses the calls.

Two kinds of loops are detected: the same call repeated with the same result, and a tool that keeps
failing. There is one guard per turn.
"""

from collections import Counter

from agent.tools.gate import CallIdentity

_WARN_AFTER_REPEATS = 2
MAX_REPEATS = 5
WARN_AFTER_FAILURES = 3
MAX_FAILURES = 8


class LoopGuard:
    """Repeated calls and failures of one turn.

    Several failures of a tool in one answer count once, because the model learns of the first
    failure only after all calls of the answer.
    """

    def __init__(self) -> None:
        # Hash of the last result, and the number of its consecutive occurrences.
        self._repeats: dict[CallIdentity, tuple[int, int]] = {}
        self._effective_calls: set[CallIdentity] = set()  # calls with side effects
        self._failures: Counter[str] = Counter()  # consecutive answers with a failure, by tool
        self._failures_before = self._failures.copy()  # the same before the current answer

    def begin_answer(self) -> None:
        """Start a new answer of the model, to which the next calls belong."""
        self._failures_before = self._failures.copy()

    def refusal_reason(self, call: CallIdentity) -> str | None:
        """Return the reason why a call must not run again, as text for the model, or None."""
        tool, _ = call
        if self._failures_before[tool] >= MAX_FAILURES:
            return (
                f"{tool} has NOT run: it failed {MAX_FAILURES} times in a row and is disabled for "
                "the rest of this turn. Continue without it, or explain what prevents you."
            )
        if self._repeat_count(call) >= MAX_REPEATS:
            return (
                f"{tool} has NOT run: the same call returned the same result {MAX_REPEATS} times. "
                "Use that result, or try something else."
            )
        return None

    def record_result(self, call: CallIdentity, result: str, *, ok: bool, changes: bool) -> str:
        """Record a result; return a warning for the model, or an empty text.

        A call with a new side effect resets the repetitions of all calls, because running the
        tests again after each edit is no loop.
        """
        if ok and changes and call not in self._effective_calls:
            self._effective_calls.add(call)
            self._repeats.clear()
        current = hash(result)
        last, times = self._repeats.get(call, (current, 0))
        times = times + 1 if current == last else 1
        self._repeats[call] = current, times
        warnings = []
        if times >= _WARN_AFTER_REPEATS:
            warnings.append(
                f"[The same call returned the same result {times} times. Do not repeat it; after "
                f"{MAX_REPEATS} times it is refused.]"
            )
        if ok:
            self._failures[call[0]] = self._failures_before[call[0]] = 0
        elif warning := self.record_failure(call[0]):
            warnings.append(warning)
        return "\n".join(warnings)

    def record_failure(self, tool: str) -> str:
        """Record a failed or refused call; return a warning for the model, or an empty text."""
        times = self._failures[tool] = self._failures_before[tool] + 1
        if times < WARN_AFTER_FAILURES:
            return ""
        return (
            f"[{tool} failed {times} times in a row. Find another way; after {MAX_FAILURES} times "
            "it is refused.]"
        )

    def _repeat_count(self, call: CallIdentity) -> int:
        _, times = self._repeats.get(call, (0, 0))
        return times
