"""Sans-IO: the usage table of `/usage`."""

from collections.abc import Callable, Sequence

from sessions.records import UsageTotals
from sessions.values.text import format_minutes

_COLUMN_WIDTH = 9
_LABEL_WIDTH = 10
_EXACT_UP_TO = 10_000
_SMALLEST_SHOWN = 0.0001
_WHOLE_DOLLARS_FROM = 1000

_ROWS: tuple[tuple[str, Callable[[UsageTotals], float]], ...] = (
    ("requests", lambda spent: spent.requests),
    ("tokens in", lambda spent: spent.input_tokens),
    ("  cached", lambda spent: spent.cached_tokens),
    ("tokens out", lambda spent: spent.output_tokens),
)


def format_usage(last: UsageTotals, here: UsageTotals, today: UsageTotals) -> str:
    """Return the table; rows without any value are left out."""
    columns = (last, here, today)
    lines = [_format_line("", ("last", "here", "today"))]
    for label, value in _ROWS:
        numbers = [value(spent) for spent in columns]
        if any(numbers) or not label.startswith(" "):
            lines.append(_format_line(label, [format_count(int(number)) for number in numbers]))
    if any(spent.cost is not None for spent in columns):
        lines.append(_format_line("dollars", [_format_cost(spent) for spent in columns]))
    shown = "\n".join(lines)
    text = (
        f"```text\n{shown}\n```\nlast: the newest answer · here: this conversation · "
        "today: all your messages since midnight"
    )
    return f"{text} · ≥: some prices are unknown" if "≥" in shown else text


def format_allowance(left: Sequence[str], seconds: int) -> str:
    """Return the line with the remaining budgets of today; empty without a limit."""
    if not left:
        return ""
    return f"\nleft for today: {' · '.join(left)}; limits reset in {format_minutes(seconds)}"


def _format_cost(spent: UsageTotals) -> str:
    if spent.cost is None or not spent.unpriced:
        return format_dollars(spent.cost)
    if spent.cost < _SMALLEST_SHOWN:  # "≥0" has no information
        return "?"
    return f"≥{format_dollars(spent.cost)}"


def _format_line(label: str, cells: Sequence[str]) -> str:
    return f"{label:<{_LABEL_WIDTH}}" + "".join(f"{cell:>{_COLUMN_WIDTH}}" for cell in cells)


def format_count(number: int) -> str:
    """Format a number in few characters: 9,999, 12.3k, 4.6M."""
    if number < _EXACT_UP_TO:
        return f"{number:,}"
    for unit, size in (("k", 1_000), ("M", 1_000_000)):
        if round(number / size, 1) < 1000:  # noqa: PLR2004 - from there on the next unit
            return f"{number / size:.1f}{unit}"
    return f"{number / 1_000_000_000:.1f}G"


def format_dollars(cost: float | None) -> str:
    """Format an amount in dollars, with more digits for smaller amounts."""
    if cost is None:
        return "?"
    if cost >= 1:
        return f"{cost:,.0f}" if cost >= _WHOLE_DOLLARS_FROM else f"{cost:.2f}"
    return f"{cost:.4f}" if cost >= _SMALLEST_SHOWN or cost == 0 else f"<{_SMALLEST_SHOWN}"
