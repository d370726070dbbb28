"""Sans-IO: about how many tokens a text is, without the tokenizer of the model that reads it.

Tokenizers cut text much alike: a word, up to three digits, a run of punctuation are a piece each.
Counting those is close for prose and code of most languages; what is off for one model is learned
from the counts that its service reports (`agent.model.learned`).
"""

import math
import re
from collections.abc import Iterable

import msgspec

from agent.model.contract import ToolSchema
from agent.request.file_lines import append_file_lines
from agent.request.pictures import count_pictures
from sessions.records import Message

_CJK = "\u2e80-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff"
_PIECES = re.compile(r"[A-Za-z]{1,40}|[0-9]{1,3}|[!-/:-@\[-`{-~]{1,16}|\s{4,64}")
_CJK_RUNS = re.compile(f"[{_CJK}]+")
_SYMBOLS = re.compile("[\U00010000-\U0001ffff]+")  # above all emoji
_LONG_RUNS = re.compile(r"[A-Za-z0-9+/]{24,}")
_DIGIT = re.compile("[0-9]")

_TOKENS_PER_CJK = 0.72
_TOKENS_PER_SYMBOL = 1.0
_TOKENS_PER_OTHER = 0.27
_TOKENS_PER_RANDOM_CHARACTER = 1 / 1.5
_MAX_WORD_LENGTH = 40

_TOKENS_PER_REQUEST = 3
_TOKENS_PER_MESSAGE = 4  # its role, and the marks around it
_TOKENS_PER_CALL = 8  # its id, and the marks around it
_TOKENS_PER_TOOL = 8
_TOKENS_PER_PICTURE = 1_600  # of about a megapixel, which is what services make of larger ones


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text."""
    text, tokens = _strip_random_runs(text)
    tokens += len(_PIECES.findall(text))
    if not text.isascii():
        cjk, symbols = _total_length(_CJK_RUNS, text), _total_length(_SYMBOLS, text)
        others = len(text) - len(text.encode("ascii", "ignore")) - cjk - symbols
        tokens += cjk * _TOKENS_PER_CJK + symbols * _TOKENS_PER_SYMBOL + others * _TOKENS_PER_OTHER
    return math.ceil(tokens)


def _strip_random_runs(text: str) -> tuple[str, float]:
    """Take out what no tokenizer knows, and count it."""
    mixed = 0

    def out(run: re.Match[str]) -> str:
        nonlocal mixed
        found = run.group()
        if not _is_random_run(found):
            return found
        mixed += len(found)
        return " "

    return _LONG_RUNS.sub(out, text), mixed * _TOKENS_PER_RANDOM_CHARACTER


def _is_random_run(run: str) -> bool:
    """Tell keys, hashes and encoded bytes from words, numbers and paths."""
    digits = _DIGIT.search(run) is not None
    if "/" in run:
        return digits and not run.islower() and not run.isupper()
    return not run.isdigit() and (digits or len(run) > _MAX_WORD_LENGTH)


def _total_length(runs: re.Pattern[str], text: str) -> int:
    return sum(map(len, runs.findall(text)))


def estimate_message(message: Message) -> int:
    """Estimate a row as it is sent: its text and its calls, not what was thought with it."""
    calls = sum(
        _TOKENS_PER_CALL + estimate_tokens(call.name) + estimate_tokens(call.arguments)
        for call in message.tool_calls
    )
    shown = count_pictures(message) * _TOKENS_PER_PICTURE if message.files else 0
    return (
        _TOKENS_PER_MESSAGE
        + estimate_tokens(append_file_lines(message.content, message.files))
        + calls
        + shown
    )


def estimate_tool(tool: ToolSchema) -> int:
    """Estimate what offering a tool costs."""
    schema = msgspec.json.encode(tool.parameters).decode()
    return (
        _TOKENS_PER_TOOL
        + estimate_tokens(tool.name)
        + estimate_tokens(tool.description)
        + estimate_tokens(schema)
    )


def estimate_request(
    system: str, messages: Iterable[Message], tools: Iterable[ToolSchema] = ()
) -> int:
    """Estimate the input of a whole request."""
    own = _TOKENS_PER_REQUEST + (_TOKENS_PER_MESSAGE + estimate_tokens(system) if system else 0)
    return own + sum(map(estimate_message, messages)) + sum(map(estimate_tool, tools))


def count_characters(message: Message) -> int:
    """Count what a row holds; quicker than an estimate, and never less than its tokens."""
    held = len(message.content)
    if message.files:
        held = len(append_file_lines(message.content, message.files))
        held += count_pictures(message) * _TOKENS_PER_PICTURE
    if not message.tool_calls:
        return held
    return held + sum(len(call.arguments) for call in message.tool_calls)
