"""Sans-IO: what stands in a file nearest to a text that was not found in it."""

import difflib

_MAX_LINES = 3_000  # compared by likeness
_MAX_LINE_LENGTH = 300  # characters of a line that is compared
_MAX_EXCERPT_LINES = 20  # lines


def explain_mismatch(text: str, wanted: str) -> str:
    """Say why `wanted` may not have been found; empty when nothing resembles it."""
    if wanted.replace("\r\n", "\n") in text.replace("\r\n", "\n"):
        ends = r"\r\n" if "\r\n" in text else r"\n"
        return f"The lines of the file end in {ends}; `old` has to, as well."
    if wanted.strip() and wanted.strip() in text:
        return "It is there without the blanks or line ends around `old`."
    lines = text.split("\n")
    sought = wanted.strip("\n").split("\n")
    at = _find_by_blanks(lines, sought)
    if at is not None:
        return f"It differs in its blanks. {_format_excerpt(lines, at, len(sought))}"
    at = _find_by_similarity(lines, sought)
    return "" if at is None else f"The nearest is this. {_format_excerpt(lines, at, len(sought))}"


def _find_by_blanks(lines: list[str], sought: list[str]) -> int | None:
    plain = [" ".join(line.split()) for line in sought]
    bare = [" ".join(line.split()) for line in lines]
    for at in range(len(bare) - len(plain) + 1):
        if bare[at : at + len(plain)] == plain:
            return at
    return None


def _find_by_similarity(lines: list[str], sought: list[str]) -> int | None:
    """Find the line that resembles the most telling one of those sought."""
    telling = max(range(len(sought)), key=lambda number: len(sought[number].strip()))
    wanted = sought[telling].strip()[:_MAX_LINE_LENGTH]
    if not wanted:
        return None
    known = {line.strip()[:_MAX_LINE_LENGTH]: at for at, line in enumerate(lines[:_MAX_LINES])}
    near = difflib.get_close_matches(wanted, known, n=1, cutoff=0.6)
    return max(0, known[near[0]] - telling) if near else None


def _format_excerpt(lines: list[str], at: int, count: int) -> str:
    excerpt = "\n".join(
        line[:_MAX_LINE_LENGTH] for line in lines[at : at + min(count, _MAX_EXCERPT_LINES)]
    )
    return f"From line {at + 1}:\n{excerpt}"
