"""Sans-IO: what was measured beside what it should be, as lines of a table."""

import statistics
from collections.abc import Sequence
from typing import Literal

import msgspec

_WIDTHS = (52, 18, 18, 8, 30)
_HEADS = ("", "ours", "floor", "ratio", "goal")


class Goal(msgspec.Struct, frozen=True):
    """What must hold: of the ratio to the floor, or of our own figure."""

    limit: float
    of: Literal["ratio", "ours"] = "ratio"
    at_least: bool = False  # else at most

    def met(self, figure: float) -> bool:
        """Tell whether a figure is good enough."""
        return figure >= self.limit if self.at_least else figure <= self.limit


class Row(msgspec.Struct, frozen=True):
    """A line: the figures of both, and how they compare."""

    what: str
    ours: float
    floor: float | None
    unit: str
    goal: Goal | None
    ratio: float | None = None
    digits: int = 1
    besides: bool = True  # other things that had to be so, such as: every message answered
    remark: str = ""

    @property
    def met(self) -> bool:
        """Tell whether the goal is met."""
        if self.goal is None:
            return self.besides
        figure = self.ratio if self.goal.of == "ratio" else self.ours
        return self.besides and figure is not None and self.goal.met(figure)


def ratio(pairs: Sequence[tuple[float, float]]) -> float:
    """Ours against the floor: the middle of what the rounds say."""
    return statistics.median(ours / floor if floor else float("inf") for ours, floor in pairs)


def compared(
    what: str,
    unit: str,
    pairs: Sequence[tuple[float, float]],
    goal: Goal | None,
    *,
    digits: int = 1,
    besides: bool = True,
    remark: str = "",
) -> Row:
    """Make a row of rounds in which both ran one after the other."""
    return Row(
        what,
        statistics.median(ours for ours, _ in pairs),
        statistics.median(floor for _, floor in pairs),
        unit,
        goal,
        ratio(pairs),
        digits,
        besides,
        remark,
    )


def heading() -> str:
    """Name the columns."""
    return _line(_HEADS)


def written(row: Row) -> str:
    """Write one row."""
    figures = [f"{row.ours:.{row.digits}f} {row.unit}"]
    figures.append("-" if row.floor is None else f"{row.floor:.{row.digits}f} {row.unit}")
    figures.append("-" if row.ratio is None else f"{row.ratio:.2f}")
    line = _line((row.what, *figures, _verdict(row)))
    return f"{line}\n    {row.remark}" if row.remark else line


def _verdict(row: Row) -> str:
    said = "goal met" if row.met else "NOT met"
    if row.goal is None:
        return "" if row.met else said
    sign = ">=" if row.goal.at_least else "<="
    unit = "x floor" if row.goal.of == "ratio" else row.unit
    return f"{said} ({sign} {row.goal.limit:g} {unit})"


def _line(cells: Sequence[str]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(cells, _WIDTHS, strict=True))
    return " ".join(padded).rstrip()
