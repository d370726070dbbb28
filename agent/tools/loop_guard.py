"""Sans-IO: sees when a model goes round in circles with its tools, warns it, then stops it.

Two circles are known: the very same call again and again although its result never changes, and a
tool that is called again and again although it fails each time. One guard watches one turn.
"""

from collections import Counter

from agent.tools.gate import Identity

WARN_SAME = 2
MOST_SAME = 5
WARN_FAILED = 3
MOST_FAILED = 8


class LoopGuard:
    """What the calls of one turn came to.

    The failures of one answer count once: its calls were made before the model could see that the
    first of them failed.
    """

    def __init__(self) -> None:
        self._same: dict[Identity, tuple[int, int]] = {}  # hash of the result, times in a row
        self._effects: set[Identity] = set()  # calls that changed something
        self._failed: Counter[str] = Counter()  # answers in a row, by tool
        self._failed_before = self._failed.copy()  # the same, at the end of the answer before

    def next_answer(self) -> None:
        """The calls that follow stand in a new answer of the model."""
        self._failed_before = self._failed.copy()

    def refusal(self, call: Identity) -> str | None:
        """Say why this call must not run any more; None: it may."""
        tool, _ = call
        if self._failed_before[tool] >= MOST_FAILED:
            return (
                f"{tool} has NOT run: it failed {MOST_FAILED} times in a row and stays off for the "
                "rest of this turn. Do without it, or say what is in the way."
            )
        if self._times(call) >= MOST_SAME:
            return (
                f"{tool} has NOT run: this very call gave the same result {MOST_SAME} times. "
                "Use what you have, or do something else."
            )
        return None

    def ran(self, call: Identity, result: str, *, ok: bool, changes: bool) -> str:
        """Note a result; give what the model is to be warned of, if anything.

        A call with a new effect makes others worth repeating: whoever runs the tests after each
        edit does not go round in circles, whatever they say.
        """
        if ok and changes and call not in self._effects:
            self._effects.add(call)
            self._same.clear()
        this = hash(result)
        last, times = self._same.get(call, (this, 0))
        times = times + 1 if this == last else 1
        self._same[call] = this, times
        warnings = []
        if times >= WARN_SAME:
            warnings.append(
                f"[The same call gave the same result {times} times. Do not repeat it; after "
                f"{MOST_SAME} times it is refused.]"
            )
        if ok:
            self._failed[call[0]] = self._failed_before[call[0]] = 0
        elif warning := self.failed(call[0]):
            warnings.append(warning)
        return "\n".join(warnings)

    def failed(self, tool: str) -> str:
        """Note that a call of this tool failed or was refused; give a warning, if it is time."""
        times = self._failed[tool] = self._failed_before[tool] + 1
        if times < WARN_FAILED:
            return ""
        return (
            f"[{tool} failed {times} times in a row. Find another way; after {MOST_FAILED} times "
            "it is refused.]"
        )

    def _times(self, call: Identity) -> int:
        _, times = self._same.get(call, (0, 0))
        return times
