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
from agent.request.file_lines import with_files
from agent.request.pictures import count as pictures_in
from sessions.records import Message

_CJK = "\u2e80-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff"
_PIECES = re.compile(r"[A-Za-z]{1,40}|[0-9]{1,3}|[!-/:-@\[-`{-~]{1,16}|\s{4,64}")
_CJK_RUNS = re.compile(f"[{_CJK}]+")
_SYMBOLS = re.compile("[\U00010000-\U0001ffff]+")  # above all emoji
_LONG_RUNS = re.compile(r"[A-Za-z0-9+/]{24,}")
_DIGIT = re.compile("[0-9]")

_PER_CJK = 0.72
_PER_SYMBOL = 1.0
_PER_OTHER = 0.27
_PER_MIXED = 1 / 1.5
_LONGEST_WORD = 40

_PER_REQUEST = 3
_PER_MESSAGE = 4  # its role, and the marks around it
_PER_CALL = 8  # its id, and the marks around it
_PER_TOOL = 8
_PER_PICTURE = 1_600  # of about a megapixel, which is what services make of larger ones


def estimate(text: str) -> int:
    """Estimate the tokens of a text."""
    text, tokens = _without_mixed(text)
    tokens += len(_PIECES.findall(text))
    if not text.isascii():
        cjk, symbols = _length(_CJK_RUNS, text), _length(_SYMBOLS, text)
        others = len(text) - len(text.encode("ascii", "ignore")) - cjk - symbols
        tokens += cjk * _PER_CJK + symbols * _PER_SYMBOL + others * _PER_OTHER
    return math.ceil(tokens)


def _without_mixed(text: str) -> tuple[str, float]:
    """Take out what no tokenizer knows, and count it."""
    mixed = 0

    def out(run: re.Match[str]) -> str:
        nonlocal mixed
        found = run.group()
        if not _is_mixed(found):
            return found
        mixed += len(found)
        return " "

    return _LONG_RUNS.sub(out, text), mixed * _PER_MIXED


def _is_mixed(run: str) -> bool:
    """Tell keys, hashes and encoded bytes from words, numbers and paths."""
    digits = _DIGIT.search(run) is not None
    if "/" in run:
        return digits and not run.islower() and not run.isupper()
    return not run.isdigit() and (digits or len(run) > _LONGEST_WORD)


def _length(runs: re.Pattern[str], text: str) -> int:
    return sum(map(len, runs.findall(text)))


def estimate_message(message: Message) -> int:
    """Estimate a row as it is sent: its text and its calls, not what was thought with it."""
    calls = sum(
        _PER_CALL + estimate(call.name) + estimate(call.arguments) for call in message.tool_calls
    )
    shown = pictures_in(message) * _PER_PICTURE if message.files else 0
    return _PER_MESSAGE + estimate(with_files(message.content, message.files)) + calls + shown


def estimate_tool(tool: ToolSchema) -> int:
    """Estimate what offering a tool costs."""
    schema = msgspec.json.encode(tool.parameters).decode()
    return _PER_TOOL + estimate(tool.name) + estimate(tool.description) + estimate(schema)


def estimate_request(
    system: str, messages: Iterable[Message], tools: Iterable[ToolSchema] = ()
) -> int:
    """Estimate the input of a whole request."""
    own = _PER_REQUEST + (_PER_MESSAGE + estimate(system) if system else 0)
    return own + sum(map(estimate_message, messages)) + sum(map(estimate_tool, tools))


def characters(message: Message) -> int:
    """Count what a row holds; quicker than an estimate, and never less than its tokens."""
    held = len(message.content)
    if message.files:
        held = len(with_files(message.content, message.files))
        held += pictures_in(message) * _PER_PICTURE
    if not message.tool_calls:
        return held
    return held + sum(len(call.arguments) for call in message.tool_calls)
