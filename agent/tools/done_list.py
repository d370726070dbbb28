"""Sans-IO: a short summary of completed tool calls for people."""

from collections import Counter
from collections.abc import Sequence

from sessions.values.text import shorten

_MAX_LABELS_PER_TOOL = 3  # with more labels only the number of calls is shown
_MAX_LABEL_LENGTH = 40
_TIMES_SIGN = "\N{MULTIPLICATION SIGN}"


def summarize_calls(done: Sequence[tuple[str, str]]) -> list[str]:
    """Summarize calls, given as pairs of tool and label."""
    labels: dict[str, Counter[str]] = {}
    for tool, label in done:
        labels.setdefault(tool, Counter())[label] += 1
    entries: list[str] = []
    for tool, counts in labels.items():
        if len(counts) > _MAX_LABELS_PER_TOOL:
            entries.append(_with_count(tool, counts.total()))
        else:
            entries.extend(
                _with_count(f"{tool} {shorten(label, _MAX_LABEL_LENGTH)}".rstrip(), n)
                for label, n in counts.items()
            )
    return entries


def _with_count(entry: str, times: int) -> str:
    return entry if times == 1 else f"{entry} {_TIMES_SIGN}{times}"
