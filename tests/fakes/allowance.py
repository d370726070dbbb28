"""What a platform lets a bot show live, and how much of that was used.

A scope is what the platform counts together: a chat, a route in a channel, a method. The server
notes every call that was carried out; a test says from when to when something live was to be shown
in a scope. What was granted is then what the documented pace gives in that time: what a bot may
take at once after a silence is not counted, so more than all can be used. Where a platform counts
by the minute, what ended the answers before still counts in the first minute of the next ones, and
is taken off for as long as it does.
"""

from collections import Counter, defaultdict
from typing import NamedTuple

Span = tuple[float, float]


class Share(NamedTuple):
    """What came of it, over all scopes in which something live was to be shown."""

    granted: float
    used: int
    least: float  # the share of the scope that used the least of its own
    refused: int  # 429s, whenever they were

    @property
    def used_part(self) -> float:
        return self.used / self.granted if self.granted else 0.0


class Allowance:
    """Kept by a server, read by a test."""

    def __init__(self, overall: float = float("inf")) -> None:
        self._overall = overall  # calls a second in all scopes together
        self._paces: dict[str, tuple[float, float]] = {}
        self._calls: dict[str, list[float]] = defaultdict(list)
        self._spans: dict[str, list[Span]] = defaultdict(list)
        self.refused: Counter[str] = Counter()

    def note(self, scope: str, most: float, seconds: float, at: float) -> None:
        """A call was carried out that shows something, in a scope that takes so many in that time."""
        self._paces[scope] = (most, seconds)
        self._calls[scope].append(at)

    def live(self, scope: str, since: float, until: float) -> None:
        """Something live was to be shown in a scope; stretches of time may overlap."""
        self._spans[scope].append((since, until))

    def share(self) -> Share:
        """Compare what was granted and what was used."""
        granted, used, parts = 0.0, 0, []
        for scope, spans in self._spans.items():
            whole = _union(spans)
            mine, taken = self._of(scope, whole)
            granted, used = granted + mine, used + taken
            parts.append(taken / mine if mine else 0.0)
        anything = _union([span for spans in self._spans.values() for span in spans])
        together = sum(end - begin for begin, end in anything) * self._overall
        return Share(min(granted, together), used, min(parts, default=0.0), self.refused.total())

    def _of(self, scope: str, whole: list[Span]) -> tuple[float, int]:
        """What was granted in a scope, and used."""
        most, seconds = self._paces.get(scope, (0.0, 1.0))
        granted, used = sum(end - begin for begin, end in whole) * most / seconds, 0
        for at in self._calls[scope]:
            if any(begin <= at <= end for begin, end in whole):
                used += 1
            else:  # its place is free again after so many seconds
                later = [begin for begin, _ in whole if at < begin < at + seconds]
                granted -= (at + seconds - later[0]) / seconds if later else 0.0
        return granted, used


def _union(spans: list[Span]) -> list[Span]:
    """The same stretches of time, none of them counted twice."""
    found: list[Span] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found
