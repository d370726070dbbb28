"""Sans-IO: hints about a text that was not found in a file."""

from sessions.values.spelling import similar_words

_MAX_LINES = 3_000  # for the comparison by similarity
_MAX_LINE_LENGTH = 300
_MAX_EXCERPT_LINES = 20


def explain_mismatch(text: str, wanted: str) -> str:
    """Return a likely reason why `wanted` is not in the text; empty if nothing is similar."""
    if wanted.replace("\r\n", "\n") in text.replace("\r\n", "\n"):
        ends = r"\r\n" if "\r\n" in text else r"\n"
        return f"The lines of the file end in {ends}; the lines of `old` must, too."
    if wanted.strip() and wanted.strip() in text:
        return "The file contains `old` without the white space around it."
    lines = text.split("\n")
    wanted_lines = wanted.strip("\n").split("\n")
    at = _find_ignoring_blanks(lines, wanted_lines)
    if at is not None:
        excerpt = _format_excerpt(lines, at, len(wanted_lines))
        return f"A text with other white space is there. {excerpt}"
    at = _find_by_similarity(lines, wanted_lines)
    if at is None:
        return ""
    return f"This text is the most similar. {_format_excerpt(lines, at, len(wanted_lines))}"


def _find_ignoring_blanks(lines: list[str], wanted_lines: list[str]) -> int | None:
    wanted = [" ".join(line.split()) for line in wanted_lines]
    normalized = [" ".join(line.split()) for line in lines]
    for at in range(len(normalized) - len(wanted) + 1):
        if normalized[at : at + len(wanted)] == wanted:
            return at
    return None


def _find_by_similarity(lines: list[str], wanted_lines: list[str]) -> int | None:
    """Find the place by the longest of the wanted lines, which is the most distinctive."""
    longest = max(range(len(wanted_lines)), key=lambda number: len(wanted_lines[number].strip()))
    wanted = wanted_lines[longest].strip()[:_MAX_LINE_LENGTH]
    if not wanted:
        return None
    known = {line.strip()[:_MAX_LINE_LENGTH]: at for at, line in enumerate(lines[:_MAX_LINES])}
    matches = similar_words(wanted, known, most=1)
    return max(0, known[matches[0]] - longest) if matches else None


def _format_excerpt(lines: list[str], at: int, count: int) -> str:
    excerpt = "\n".join(
        line[:_MAX_LINE_LENGTH] for line in lines[at : at + min(count, _MAX_EXCERPT_LINES)]
    )
    return f"From line {at + 1}:\n{excerpt}"
