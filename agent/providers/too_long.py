"""Sans-IO: finds in a service's words that something was too long, and how long it may be.

Two things can be: what was sent, or what was asked for in return. Where both together are more than
the model takes, the output limit is lowered if that leaves room for an answer.
"""

import re

from agent.errors import ContextTooLong, OutputTooLong

_MIN_ANSWER_TOKENS = 512
"""Tokens that an answer needs at the least; with less the conversation has to be shortened."""

_COUNT = r"(\d[\d,._]*)"
_THEN = r"\D{0,3}" + _COUNT  # a count after a colon, a bracket, a quote or just a space
_OUTPUT_NAME = r"max_(?:completion_|output_|new_)?tokens"

# All of these look into lower case; the first group is the limit.
_OUTPUT_PATTERNS = tuple(
    re.compile(pattern)
    for pattern in (
        rf"at most{_THEN} (?:completion|output) tokens",
        rf"{_OUTPUT_NAME}\W{{0,4}}\d+ ?>{_THEN}",
        (
            rf"{_OUTPUT_NAME}\W?(?:\d+ )? ?(?:must|should|cannot) be \D{{0,20}}(?:less|lower|greater)"
            rf"\D{{0,40}}{_COUNT}"
        ),
        rf"{_OUTPUT_NAME}.{{0,60}}range\D{{0,20}}\d+\s*,{_THEN}",
        rf"range of {_OUTPUT_NAME}\D{{0,20}}\d+\s*,{_THEN}",
        rf"{_OUTPUT_NAME}.{{0,60}}<={_THEN}",
        rf"maximum tokens you requested exceeds the model limit of{_THEN}",
        rf"{_OUTPUT_NAME}\W? (?:is )?(?:too (?:large|big|high)|exceeds)\b",
    )
)

_WINDOW = re.compile(
    r"(?:context (?:length|window|size|limit)(?: is| of|:)?(?: only)?|must be <=)" + _THEN
)
_SENT_PATTERNS = tuple(
    re.compile(pattern)
    for pattern in (
        rf"{_COUNT} input tokens",
        rf"{_COUNT} `inputs` tokens",
        rf"{_COUNT} (?:tokens )?(?:in|from) the (?:input )?messages",
        rf"{_COUNT} of text input(?:, {_COUNT} of tool input)?",
    )
)
_AT_LEAST = re.compile(r"at least \d+ input tokens")
_ASKED = re.compile(
    r"\d+ (?:output tokens|in the (?:completion|output)|tokens for the completion"
    r"|`max_new_tokens`)|max_(?:completion_)?tokens"
)
_SUM = re.compile(r"(\d+) \+ \d+ > (\d+)")

_INPUT_LIMIT_PATTERNS = tuple(
    re.compile(pattern)
    for pattern in (
        rf"tokens ?>{_THEN} maximum",
        r"n_ctx\W{1,4}(\d+)",
        rf"exceeds the available context size{_THEN}",
        rf"too large for model with{_THEN}",
        rf"maximum number of tokens allowed{_THEN}",
        rf"maximum (?:prompt|input|model|context) length(?: is| of|:)?(?: only)?{_THEN}",
        rf"context[ _](?:length|window|size|limit)(?: is| of|:)?(?: only)?{_THEN}",
        rf"exceed(?:s|ed)? (?:the |model )?(?:token )?limit(?: of|:){_THEN}",
        rf"must have less than{_THEN}",
        rf"range of input length\D{{0,20}}\d+\s*,{_THEN}",
        rf"cannot exceed{_THEN}",
        rf"\(tpm\): limit{_THEN}",
    )
)
_INPUT_PATTERN = re.compile(
    r"context[ _](?:length|window|size|limit)|exceeds? the available context|context the overflows"
    r"|exceeded max context|exceed_context|maximum context|maximum (?:prompt|model|input) length"
    r"|max_prompt_tokens|maximum number of tokens|too many (?:input )?tokens|token limit"
    r"|(?:prompt|input|conversation|request|entity)(?: \w+){0,2} (?:is |was )?too (?:long|large)"
    r"|(?:prompt|request|entity) too (?:long|large)|too large for model|range of input length"
    r"|reduce the length|prompt token count|`inputs` (?:tokens|must have)"
    r"|tokens to keep from the initial prompt|max_(?:completion_)?tokens must be at least 1, got -"
)
_RATE_PATTERN = re.compile(r"rate.?limit|quota|per (?:minute|day|hour|min)\b")


def classify_too_long(search_text: str, summary: str) -> ContextTooLong | OutputTooLong | None:
    """Say which of the two was too long, if any; `words` are in lower case, `said` is for people."""
    together = _classify_sum(search_text, summary)
    if together is not None:
        return together
    for pattern in _OUTPUT_PATTERNS:
        found = pattern.search(search_text)
        if found:
            return OutputTooLong(summary, _parse_number(found[1]) if pattern.groups else None)
    # A limit on tokens per minute is no matter of length, unless one request alone is above it.
    if "request too large" not in search_text and _RATE_PATTERN.search(search_text):
        return None
    return (
        ContextTooLong(summary, _first_number(_INPUT_LIMIT_PATTERNS, search_text))
        if _INPUT_PATTERN.search(search_text)
        else None
    )


def _classify_sum(search_text: str, summary: str) -> ContextTooLong | OutputTooLong | None:
    window, sent = _read_window_and_sent(search_text)
    if window is None or sent is None:
        return None
    room = window - sent
    if _AT_LEAST.search(search_text):
        room //= 2  # the service stopped counting there; what was sent may well be more
    return (
        ContextTooLong(summary, window)
        if room < _MIN_ANSWER_TOKENS
        else OutputTooLong(summary, room)
    )


def _read_window_and_sent(search_text: str) -> tuple[int | None, int | None]:
    added = _SUM.search(search_text)
    if added:
        return _parse_number(added[2]), _parse_number(added[1])
    sent = next(
        (found for found in (each.search(search_text) for each in _SENT_PATTERNS) if found), None
    )
    if sent is None or not _ASKED.search(search_text):
        return None, None
    return _first_number((_WINDOW,), search_text), sum(
        _parse_number(each) for each in sent.groups() if each
    )


def _first_number(patterns: tuple[re.Pattern[str], ...], search_text: str) -> int | None:
    found = next((each for each in (p.search(search_text) for p in patterns) if each), None)
    return _parse_number(found[1]) if found else None


def _parse_number(written: str) -> int:
    return int(re.sub(r"\D", "", written))
