"""Prompts of servers as commands: their words, arguments as people write them, and usage."""

import pytest

from agent.tools.mcp.contract import ListedPrompt, PromptArgument
from agent.tools.mcp.prompts import assign_words, describe_usage, parse_arguments

TEXT = PromptArgument(name="text", required=True)
LANGUAGE = PromptArgument(name="Language", required=True)
STYLE = PromptArgument(name="style")
DEPTH = PromptArgument(name="depth")


@pytest.mark.parametrize(
    ("sources", "taken", "words"),
    [
        ([("notes", "summarize")], (), {"summarize": ("notes", "summarize")}),
        ([("notes", "stop")], ("stop",), {"notes_stop": ("notes", "stop")}),
        (
            [("a", "plan"), ("b", "plan")],
            (),
            {"plan": ("a", "plan"), "a_plan": ("a", "plan"), "b_plan": ("b", "plan")},
        ),
        ([("my-wiki", "Code Review!")], (), {"code_review": ("my-wiki", "Code Review!")}),
        ([("7up", "99")], (), {"p_99": ("7up", "99")}),
        ([("notes", "日本")], (), {"notes_prompt": ("notes", "日本")}),
    ],
)
def test_a_prompt_has_its_name_as_command_word_unless_another_command_has_it(
    sources: list[tuple[str, str]], taken: tuple[str, ...], words: dict[str, tuple[str, str]]
) -> None:
    assigned = assign_words(sources, taken)
    found = {word: source for source, each in assigned.items() for word in each}
    assert words.items() <= found.items()
    assert not set(taken) & set(found)


def test_every_prompt_also_has_a_word_with_the_name_of_its_server() -> None:
    assert assign_words([("notes", "summarize")]) == {
        ("notes", "summarize"): ("summarize", "notes_summarize")
    }


def test_words_are_unique_and_fit_into_the_menus_of_all_platforms() -> None:
    sources = [("server", "x" * 40 + end) for end in "ab"] + [("s", "a-b"), ("s", "a_b")]
    words = [word for each in assign_words(sources).values() for word in each]
    assert len(words) == len(set(words))
    assert all(each for each in assign_words(sources).values())
    assert max(map(len, words)) <= 32


@pytest.mark.parametrize(
    ("arguments", "written", "given", "extra"),
    [
        ((TEXT, STYLE), "a long text", {"text": "a long text"}, ""),
        ((TEXT, STYLE), "style=short a text", {"style": "short", "text": "a text"}, ""),
        (
            (TEXT, STYLE),
            "a text\nof lines style=short",
            {"text": "a text\nof lines", "style": "short"},
            "",
        ),
        ((TEXT, STYLE), 'style="very short" a', {"style": "very short", "text": "a"}, ""),
        ((TEXT, STYLE), "style=“very short” a", {"style": "very short", "text": "a"}, ""),
        ((TEXT, STYLE), "STYLE=short a", {"style": "short", "text": "a"}, ""),
        ((TEXT, STYLE), "a = b, style=1 is code", {"text": "a = b, style=1 is code"}, ""),
        ((TEXT, STYLE), "other=1 a", {"text": "other=1 a"}, ""),
        ((TEXT, STYLE), "text=hello big world", {"text": "hello big world"}, ""),
        ((TEXT, LANGUAGE), "hello language=de", {"text": "hello", "Language": "de"}, ""),
        ((STYLE, DEPTH), "short", {"style": "short"}, ""),
        ((STYLE,), "", {}, ""),
        ((), "in German, please", {}, "in German, please"),
    ],
)
def test_named_values_stand_first_or_last_and_the_rest_is_the_first_required_argument(
    arguments: tuple[PromptArgument, ...], written: str, given: dict[str, str], extra: str
) -> None:
    parsed = parse_arguments(written, arguments)
    assert parsed.values == given
    assert parsed.extra == extra
    assert parsed.missing == ()


def test_missing_required_arguments_are_named() -> None:
    assert parse_arguments("", (TEXT, STYLE)).missing == ("text",)
    assert parse_arguments("hello", (TEXT, LANGUAGE)).missing == ("Language",)
    assert parse_arguments("style=short", (TEXT, STYLE)).missing == ("text",)
    assert parse_arguments('text=""', (TEXT,)).missing == ("text",)


def test_the_usage_shows_what_is_required_and_what_is_not() -> None:
    def usage(*arguments: PromptArgument) -> str:
        return describe_usage(ListedPrompt(name="x", description="", arguments=arguments))

    assert usage() == ""
    assert usage(TEXT, STYLE) == "TEXT [style=STYLE]"
    assert usage(STYLE, TEXT, LANGUAGE) == "TEXT Language=LANGUAGE [style=STYLE]"
    assert usage(STYLE, DEPTH) == "[STYLE] [depth=DEPTH]"
