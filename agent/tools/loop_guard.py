"""Sans-IO: sees when a model goes round in circles with its tools, warns it, then stops it.

Two circles are known: the very same call again and again although its result never changes, and a
tool that is called again and again although it fails each time. One guard watches one turn.
"""

from collections import Counter

from agent.tools.gate import CallIdentity

WARN_AFTER_REPEATS = 2
MAX_REPEATS = 5
WARN_AFTER_FAILURES = 3
MAX_FAILURES = 8


class LoopGuard:
    """What the calls of one turn came to.

    The failures of one answer count once: its calls were made before the model could see that the
    first of them failed.
    """

    def __init__(self) -> None:
        self._repeats: dict[
            CallIdentity, tuple[int, int]
        ] = {}  # hash of the result, times in a row
        self._effective_calls: set[CallIdentity] = set()  # calls that changed something
        self._failures: Counter[str] = Counter()  # answers in a row, by tool
        self._failures_before = self._failures.copy()  # the same, at the end of the answer before

    def begin_answer(self) -> None:
        """The calls that follow stand in a new answer of the model."""
        self._failures_before = self._failures.copy()

    def refusal_reason(self, call: CallIdentity) -> str | None:
        """Say why this call must not run any more; None: it may."""
        tool, _ = call
        if self._failures_before[tool] >= MAX_FAILURES:
            return (
                f"{tool} has NOT run: it failed {MAX_FAILURES} times in a row and stays off for the "
                "rest of this turn. Do without it, or say what is in the way."
            )
        if self._repeat_count(call) >= MAX_REPEATS:
            return (
                f"{tool} has NOT run: this very call gave the same result {MAX_REPEATS} times. "
                "Use what you have, or do something else."
            )
        return None

    def record_result(self, call: CallIdentity, result: str, *, ok: bool, changes: bool) -> str:
        """Note a result; give what the model is to be warned of, if anything.

        A call with a new effect makes others worth repeating: whoever runs the tests after each
        edit does not go round in circles, whatever they say.
        """
        if ok and changes and call not in self._effective_calls:
            self._effective_calls.add(call)
            self._repeats.clear()
        this = hash(result)
        last, times = self._repeats.get(call, (this, 0))
        times = times + 1 if this == last else 1
        self._repeats[call] = this, times
        warnings = []
        if times >= WARN_AFTER_REPEATS:
            warnings.append(
                f"[The same call gave the same result {times} times. Do not repeat it; after "
                f"{MAX_REPEATS} times it is refused.]"
            )
        if ok:
            self._failures[call[0]] = self._failures_before[call[0]] = 0
        elif warning := self.record_failure(call[0]):
            warnings.append(warning)
        return "\n".join(warnings)

    def record_failure(self, tool: str) -> str:
        """Note that a call of this tool failed or was refused; give a warning, if it is time."""
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
