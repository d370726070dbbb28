"""Sans-IO: token estimates without the model's tokenizer.

Tokenizers split text in similar ways: a word, up to three digits, or a run of punctuation is one
token. Counting those is accurate enough for prose and code in most languages; the remaining error
of each model is learned from the counts that its service reports (`agent.model.learned`).
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
_SYMBOLS = re.compile("[\U00010000-\U0001ffff]+")  # mainly emoji
_LONG_RUNS = re.compile(r"[A-Za-z0-9+/]{24,}")
_DIGIT = re.compile("[0-9]")

_TOKENS_PER_CJK = 0.72
_TOKENS_PER_SYMBOL = 1.0
_TOKENS_PER_OTHER = 0.27
_TOKENS_PER_RANDOM_CHARACTER = 1 / 1.5
_MAX_WORD_LENGTH = 40

_TOKENS_PER_REQUEST = 3
_TOKENS_PER_MESSAGE = 4  # role and delimiters
_TOKENS_PER_CALL = 8  # id and delimiters
_TOKENS_PER_TOOL = 8
_TOKENS_PER_PICTURE = 1_600  # for one megapixel; services scale larger pictures down to that


def estimate_tokens(text: str) -> int:
    """Estimate the number of tokens in a text."""
    text, tokens = _strip_random_runs(text)
    tokens += len(_PIECES.findall(text))
    if not text.isascii():
        cjk, symbols = _total_length(_CJK_RUNS, text), _total_length(_SYMBOLS, text)
        others = len(text) - len(text.encode("ascii", "ignore")) - cjk - symbols
        tokens += cjk * _TOKENS_PER_CJK + symbols * _TOKENS_PER_SYMBOL + others * _TOKENS_PER_OTHER
    return math.ceil(tokens)


def _strip_random_runs(text: str) -> tuple[str, float]:
    """Remove keys, hashes and encoded bytes; return the rest and the tokens of the removed part."""
    removed = 0

    def out(match: re.Match[str]) -> str:
        nonlocal removed
        run = match.group()
        if not _is_random_run(run):
            return run
        removed += len(run)
        return " "

    return _LONG_RUNS.sub(out, text), removed * _TOKENS_PER_RANDOM_CHARACTER


def _is_random_run(run: str) -> bool:
    """Distinguish keys, hashes and encoded bytes from words, numbers and paths."""
    digits = _DIGIT.search(run) is not None
    if "/" in run:
        return digits and not run.islower() and not run.isupper()
    return not run.isdigit() and (digits or len(run) > _MAX_WORD_LENGTH)


def _total_length(runs: re.Pattern[str], text: str) -> int:
    return sum(map(len, runs.findall(text)))


def estimate_message(message: Message) -> int:
    """Estimate the tokens of a row as sent: text, files and calls, without reasoning."""
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
    """Estimate the tokens of a tool's definition."""
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
    """Estimate the input tokens of a request."""
    own = _TOKENS_PER_REQUEST + (_TOKENS_PER_MESSAGE + estimate_tokens(system) if system else 0)
    return own + sum(map(estimate_message, messages)) + sum(map(estimate_tool, tools))


def count_characters(message: Message) -> int:
    """Return a row's size in characters: a cheap upper bound of its tokens."""
    held = len(message.content)
    if message.files:
        held = len(append_file_lines(message.content, message.files))
        held += count_pictures(message) * _TOKENS_PER_PICTURE
    if not message.tool_calls:
        return held
    return held + sum(len(call.arguments) for call in message.tool_calls)
