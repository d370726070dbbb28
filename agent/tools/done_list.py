"""Sans-IO: what was done in a turn, in a few words for people."""

from collections import Counter
from collections.abc import Sequence

_MOST_OF_A_TOOL = 3  # calls of one tool that are named one by one
_LONGEST = 40
_TIMES = "\N{MULTIPLICATION SIGN}"


def tally(done: Sequence[tuple[str, str]]) -> list[str]:
    """Sum up calls, each a tool and the label of its arguments."""
    labels: dict[str, Counter[str]] = {}
    for tool, label in done:
        labels.setdefault(tool, Counter())[label] += 1
    forms: list[str] = []
    for tool, counted in labels.items():
        if len(counted) > _MOST_OF_A_TOOL:
            forms.append(_times(tool, counted.total()))
        else:
            forms.extend(_times(f"{tool} {_short(at)}".rstrip(), n) for at, n in counted.items())
    return forms


def _times(what: str, times: int) -> str:
    return what if times == 1 else f"{what} {_TIMES}{times}"


def _short(label: str) -> str:
    return label if len(label) <= _LONGEST else f"{label[: _LONGEST - 1]}…"
