"""Sans-IO: recognition of "too long" errors, and of the limit that they mention.

Either the input exceeds the context window, or the requested output limit exceeds what the model
can produce. When only their sum is too large, the output limit is lowered if that leaves enough
room for an answer.
"""

import re

from agent.errors import ContextTooLong, OutputTooLong

_MIN_ANSWER_TOKENS = 512
"""Minimum room for an answer, in tokens; with less room the conversation has to be shortened."""

_COUNT = r"(\d[\d,._]*)"
_THEN = r"\D{0,3}" + _COUNT  # a count after a colon, a bracket, a quote or just a space
_OUTPUT_NAME = r"max_(?:completion_|output_|new_)?tokens"

# All patterns expect lower-case text; the first group is the limit.
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
    r"context[ _]?(?:length|window|size|limit)|exceeds? the available context|context the overflows"
    r"|exceeded max context|exceed_context|maximum context|maximum (?:prompt|model|input) length"
    r"|max_prompt_tokens|maximum number of tokens|too many (?:input )?tokens|token limit"
    r"|(?:prompt|input|conversation|request|entity)(?: \w+){0,2} (?:is |was )?too (?:long|large)"
    r"|(?:prompt|request|entity) too (?:long|large)|too large for model|range of input length"
    r"|reduce the length|prompt token count|`inputs` (?:tokens|must have)"
    r"|tokens to keep from the initial prompt|max_(?:completion_)?tokens must be at least 1, got -"
)
_RATE_PATTERN = re.compile(r"rate.?limit|quota|per (?:minute|day|hour|min)\b")


def classify_too_long(search_text: str, summary: str) -> ContextTooLong | OutputTooLong | None:
    """Return the error for an input or output that is too long; None for any other message.

    `search_text` is in lower case; `summary` becomes the message of the error.
    """
    sum_error = _classify_sum(search_text, summary)
    if sum_error is not None:
        return sum_error
    for pattern in _OUTPUT_PATTERNS:
        match = pattern.search(search_text)
        if match:
            return OutputTooLong(summary, _parse_number(match[1]) if pattern.groups else None)
    # Tokens per minute are a rate limit, unless a single request exceeds that limit.
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
        room //= 2  # the service stopped counting there, so the input may be longer
    return (
        ContextTooLong(summary, window)
        if room < _MIN_ANSWER_TOKENS
        else OutputTooLong(summary, room)
    )


def _read_window_and_sent(search_text: str) -> tuple[int | None, int | None]:
    added = _SUM.search(search_text)
    if added:
        return _parse_number(added[2]), _parse_number(added[1])
    matches = (pattern.search(search_text) for pattern in _SENT_PATTERNS)
    sent = next((match for match in matches if match), None)
    if sent is None or not _ASKED.search(search_text):
        return None, None
    return _first_number((_WINDOW,), search_text), sum(
        _parse_number(count) for count in sent.groups() if count
    )


def _first_number(patterns: tuple[re.Pattern[str], ...], search_text: str) -> int | None:
    matches = (pattern.search(search_text) for pattern in patterns)
    match = next((match for match in matches if match), None)
    return _parse_number(match[1]) if match else None


def _parse_number(written: str) -> int:
    return int(re.sub(r"\D", "", written))
