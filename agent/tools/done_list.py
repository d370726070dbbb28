"""Sans-IO: what was done in a turn, in a few words for people."""

from collections import Counter
from collections.abc import Sequence

_MAX_LABELS_PER_TOOL = 3  # calls of one tool that are named one by one
_MAX_LABEL_LENGTH = 40
_TIMES_SIGN = "\N{MULTIPLICATION SIGN}"


def summarize_calls(done: Sequence[tuple[str, str]]) -> list[str]:
    """Sum up calls, each a tool and the label of its arguments."""
    labels: dict[str, Counter[str]] = {}
    for tool, label in done:
        labels.setdefault(tool, Counter())[label] += 1
    forms: list[str] = []
    for tool, counted in labels.items():
        if len(counted) > _MAX_LABELS_PER_TOOL:
            forms.append(_with_count(tool, counted.total()))
        else:
            forms.extend(
                _with_count(f"{tool} {_shorten(at)}".rstrip(), n) for at, n in counted.items()
            )
    return forms


def _with_count(what: str, times: int) -> str:
    return what if times == 1 else f"{what} {_TIMES_SIGN}{times}"


def _shorten(label: str) -> str:
    return label if len(label) <= _MAX_LABEL_LENGTH else f"{label[: _MAX_LABEL_LENGTH - 1]}…"
