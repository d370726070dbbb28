"""Progress of a long operation: written by the operation, read by the thread that shows it."""

from collections.abc import Callable

from msgspec import Struct

from sessions.values.size import format_size
from sessions.values.text import format_seconds

_BAR_COLUMNS = 20
_MIN_SHARE = 0.05  # before that, an estimate of the remaining time is a guess


class ProgressStep(Struct, frozen=True):
    """One step of an operation."""

    label: str
    total_bytes: int = 0  # 0: unknown
    measure: Callable[[], int] | None = None  # bytes done, if `advance` is not called
    began: float = 0.0


class Progress:
    """Current step, and the bytes that are done."""

    def __init__(self, clock: Callable[[], float] = lambda: 0.0) -> None:
        self._clock = clock
        self._step = ProgressStep("")
        self._done_bytes = 0

    def begin(
        self, label: str, total_bytes: int = 0, measure: Callable[[], int] | None = None
    ) -> None:
        """Begin the next step."""
        self._done_bytes = 0
        self._step = ProgressStep(label, total_bytes, measure, self._clock())

    def advance(self, count: int) -> None:
        """Count bytes of this step."""
        self._done_bytes += count

    def line(self) -> str:
        """Return the line to show now."""
        step = self._step
        done = step.measure() if step.measure else self._done_bytes
        return progress_line(step.label, done, step.total_bytes, self._clock() - step.began)


def progress_line(label: str, done: int, total: int, seconds: float) -> str:
    """Return a line with size and time; with a bar and the remaining time if these are known.

    A step that cannot be measured has a total and nothing done: only its size is shown.
    """
    if not total or not done:
        size = done or total
        return f"{label}: {f'{format_size(size)}, ' if size else ''}{format_seconds(seconds)}"
    share = min(done / total, 1.0)
    filled = int(share * _BAR_COLUMNS)
    bar = f"[{'#' * filled}{'-' * (_BAR_COLUMNS - filled)}]"
    line = f"{label}: {bar} {format_size(min(done, total))} of {format_size(total)}, "
    line += format_seconds(seconds)
    if _MIN_SHARE <= share < 1:
        line += f", {format_seconds(seconds * (1 - share) / share)} left"
    return line
