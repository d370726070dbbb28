"""Sans-IO: prompts of servers as commands: their words, and arguments as people write them."""

import re
from collections.abc import Collection, Iterable, Sequence

import msgspec

from agent.tools.mcp.contract import ListedPrompt, PromptArgument

_MAX_WORD_LENGTH = 32  # of a command, in the menus of all platforms
_NOT_IN_WORDS = re.compile(r"[^a-z0-9]+")
_VALUE = r"(?:\"(?P<double>[^\"]*)\"|“(?P<typographic>[^”]*)”|'(?P<single>[^']*)'|(?P<plain>\S*))"

PromptSource = tuple[str, str]
"""A server, and a prompt's name at that server."""


class OfferedPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt with its command words; the first one is shown."""

    words: tuple[str, ...]
    server: str
    prompt: ListedPrompt


class ParsedArguments(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of a prompt as a person wrote them."""

    values: dict[str, str]
    extra: str = ""  # words that belong to no argument
    missing: tuple[str, ...] = ()  # required arguments without a value


def assign_words(
    sources: Iterable[PromptSource], taken: Collection[str] = ()
) -> dict[PromptSource, tuple[str, ...]]:
    """Give each prompt its command words, none of which is in `taken`.

    The first word is the name of the prompt, if no other command and no earlier prompt has it. Each
    prompt has a word with the name of its server, too.
    """
    words: dict[PromptSource, list[str]] = {source: [] for source in sources}
    used = set(taken)

    def assign(source: PromptSource, word: str) -> None:
        if word and word not in used:
            used.add(word)
            words[source].append(word)

    for source in words:
        assign(source, _to_word(source[1]))
    for source in words:
        assign(source, _to_word(f"{source[0]}_{_to_word(source[1]) or 'prompt'}"))
    for source, found in words.items():
        number = 2
        while not found:
            suffix = f"_{number}"
            base = _to_word(f"{source[0]}_{source[1]}")[: _MAX_WORD_LENGTH - len(suffix)]
            assign(source, f"{base}{suffix}")
            number += 1
    return {source: tuple(found) for source, found in words.items()}


def parse_arguments(text: str, arguments: Sequence[PromptArgument]) -> ParsedArguments:
    """Read arguments as people write them: `style=short THE TEXT` or `THE TEXT style=short`.

    Named values stand at the beginning or at the end; a value with spaces is in quotes. The other
    words are the first required argument without a name. If all required arguments are named, the
    other words belong to the named value before them, or else to the first optional argument.
    """
    names = {argument.name.casefold(): argument.name for argument in arguments}
    values: dict[str, str] = {}
    rest, last = text.strip(), ""
    if names:
        named = rf"(?P<name>{'|'.join(map(re.escape, names))})={_VALUE}"
        first = re.compile(rf"{named}(?:\s+|\Z)", re.IGNORECASE)
        final = re.compile(rf"(?:\A|\s){named}\s*\Z", re.IGNORECASE)
        while found := first.match(rest):
            last = names[found["name"].casefold()]
            values[last] = _value_of(found)
            rest = rest[found.end() :]
        while found := final.search(rest):
            values.setdefault(names[found["name"].casefold()], _value_of(found))
            rest = rest[: found.start()].rstrip()
    required = [argument.name for argument in arguments if argument.required]
    extra = ""
    if rest:
        unnamed = [name for name in required if name not in values]
        optional = [argument.name for argument in arguments if argument.name not in values]
        if unnamed:
            values[unnamed[0]] = rest
        elif last:
            values[last] = f"{values[last]} {rest}".strip()
        elif optional:
            values[optional[0]] = rest
        else:
            extra = rest
    missing = tuple(name for name in required if not values.get(name))
    return ParsedArguments(values=values, extra=extra, missing=missing)


def describe_usage(prompt: ListedPrompt) -> str:
    """Return the arguments of a prompt for people: `TEXT [style=STYLE]`."""
    required = [argument.name for argument in prompt.arguments if argument.required]
    optional = [argument.name for argument in prompt.arguments if not argument.required]
    shown = [
        f"{name}={name.upper()}" if number else name.upper() for number, name in enumerate(required)
    ]
    shown += [
        f"[{name.upper()}]" if not required and number == 0 else f"[{name}={name.upper()}]"
        for number, name in enumerate(optional)
    ]
    return " ".join(shown)


def _value_of(found: re.Match[str]) -> str:
    values = (found[kind] for kind in ("double", "typographic", "single", "plain"))
    return next((value for value in values if value is not None), "")


def _to_word(name: str) -> str:
    word = _NOT_IN_WORDS.sub("_", name.lower()).strip("_")
    if word and not word[0].isalpha():
        word = f"p_{word}"
    return word[:_MAX_WORD_LENGTH].rstrip("_")
