import itertools
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent.answer.seam import Seam, TextUpdate

REPEATED = 40  # characters that a model is asked to repeat

MARKDOWN = """# Naïve façades 🏛️

The explanation is simple: the cache was **never** cleared, and *each* request paid for it.
It was seen first on Tuesday (see `cache.py`), then every day after that, and then on Sunday.

## What to do

1. Clear the cache.
2. Restart the service, and wait until it says “ready”.
3. Look at the log:

```python
def clear(cache: dict[str, bytes]) -> None:
    for key in list(cache):
        if key.startswith("tmp/"):
            del cache[key]

    print("done", len(cache))
```

> Anything else is left as it is — 3.14159 times out of 4.
> It was seen first on Tuesday, then every day after that.

| Name  | Before | After |
|-------|--------|-------|
| alpha | 12 ms  | 3 ms  |
| beta  | 12 ms  | 4 ms  |

- 缓存从未被清除，每个请求都为此付出代价。
- Команда уже знает об этом; 👩‍👩‍👧‍👦 and 👍🏽 agree.

It was seen first on Tuesday, then every day after that, but never again since the restart. Done!
"""  # noqa: RUF001 - other scripts


def joined(old: str, *pieces: str, may_replace: bool = True) -> tuple[str, Seam]:
    """Return the final visible text, and the seam."""
    seam = Seam(old, may_replace=may_replace)
    shown = old
    for joint in [*map(seam.feed, pieces), seam.close()]:
        shown = joint.text if joint.replaces else shown + joint.text
    return shown, seam


def follow(old: str, *pieces: str) -> str:
    """Return the visible text when new text follows a complete one."""
    seam = Seam(old, new_paragraph=True)
    return old + "".join(joint.text for joint in [*map(seam.feed, pieces), seam.close()])


def result(old: str, new: str, *, may_replace: bool = True) -> str:
    return joined(old, new, may_replace=may_replace)[0]


def overlap_of(old: str, new: str) -> int:
    """Reference implementation: the longest old suffix that is a prefix of the new text."""
    if new.startswith(old):
        return len(old)
    sizes = range(min(len(old), len(new), 4000), 0, -1)
    least = 12
    return next(
        (n for n in sizes if old.endswith(new[:n]) and (n >= least or n == len(new))),
        0,
    )


# --- overlap, restart, or plain continuation ----------------------------------------------------


@pytest.mark.parametrize("extra", [1, 13, 300], ids=["letters", "words", "lines"])
def test_the_overlap_is_trimmed_at_any_cut(extra: int) -> None:
    for cut in range(1, len(MARKDOWN)):
        new = MARKDOWN[max(0, cut - REPEATED) :]
        pieces = [new[at : at + extra] for at in range(0, len(new), extra)]
        assert joined(MARKDOWN[:cut], *pieces)[0] == MARKDOWN, cut


@pytest.mark.parametrize("may_replace", [True, False])
def test_a_restarted_answer_is_shown_once_at_any_cut(may_replace: bool) -> None:
    for cut in range(1, len(MARKDOWN)):
        shown, seam = joined(MARKDOWN[:cut], MARKDOWN, may_replace=may_replace)
        assert shown == MARKDOWN, cut
        assert seam.restarted
        assert not seam.added_nothing or not MARKDOWN[cut:].strip()


@pytest.mark.parametrize(("said", "restarted"), [(47, False), (48, True)])
def test_forty_eight_repeated_leading_characters_count_as_a_restart(
    said: int, restarted: bool
) -> None:
    new = MARKDOWN[:said] + "\u2026 and something else"
    shown, seam = joined(MARKDOWN, new)
    assert seam.restarted is restarted
    assert shown == (new if restarted else MARKDOWN + new)


def test_a_continuation_without_overlap_is_joined_exactly_at_unambiguous_cuts() -> None:
    told = 0
    for cut in range(1, len(MARKDOWN)):
        old, new = MARKDOWN[:cut], MARKDOWN[cut:]
        plain = old[-1].isspace() or new[0].isspace() or new[0].islower() or new[0] in ".,;:!?)"
        if plain and not old.endswith("```") and not overlap_of(old, new):
            told += 1
            assert result(old, new) == MARKDOWN, cut
    assert told > 800


def test_a_text_longer_than_the_overlap_window_is_joined() -> None:
    chance = random.Random(5)  # noqa: S311 - deterministic
    text = " ".join(str(chance.randrange(10**6)) for _ in range(3000))
    assert result(text[:15_000], text[15_000 - REPEATED :]) == text
    assert result(text[:15_000], text[15_000 - 4000 :]) == text
    pieces = [text[at : at + 5] for at in range(0, len(text), 5)]
    shown, seam = joined(text[:15_000], *pieces)
    assert shown == text
    assert seam.restarted


PHRASES = (
    *("the ", "cache ", "is ", "empty", "Nothing ", "- item ", "\n", "\n\n", "# Head\n", "`x`"),
    *(". ", " 7", "**", "```\ncode(1)\n```\n", "| a | b |\n", "👩\u200d👧 ", "缓存"),
    "The same sentence again. ",
)
TEXTS = st.lists(st.sampled_from(PHRASES), min_size=1, max_size=60).map("".join)


@given(TEXTS, st.data())
def test_the_overlap_is_trimmed_in_any_text(text: str, data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, len(text)))
    old, new = text[:cut], text[max(0, cut - REPEATED) :]
    # In a text of equal pieces the apparent overlap may be longer; all of it is trimmed.
    assert result(old, new) == old + new[overlap_of(old, new) :]
    if overlap_of(old, new) == min(cut, REPEATED):
        assert result(old, new) == text


@given(TEXTS, st.data())
def test_any_restarted_text_is_shown_once(text: str, data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, len(text)))
    assert result(text[:cut], text) == text


@given(
    st.one_of(TEXTS, st.text("ab \n", max_size=200)),
    st.one_of(TEXTS, st.text("ab \n", max_size=200)),
    st.integers(0, 400),
    st.lists(st.integers(0, 600), max_size=12),
    st.booleans(),
)
def test_the_result_does_not_depend_on_how_the_continuation_is_split(
    old: str, new: str, repeated: int, cuts: list[int], may_replace: bool
) -> None:
    new = old[repeated:] + new
    edges = [0, *sorted(min(cut, len(new)) for cut in cuts), len(new)]
    pieces = [new[start:end] for start, end in itertools.pairwise(edges)]
    whole, plain = joined(old, new, may_replace=may_replace)
    shown, seam = joined(old, *pieces, may_replace=may_replace)
    assert shown == whole
    assert joined(old, *new, may_replace=may_replace)[0] == whole
    assert (seam.added_nothing, seam.restarted) == (plain.added_nothing, plain.restarted)


@given(TEXTS, TEXTS, st.booleans())
def test_the_visible_text_only_grows_unless_it_is_replaced(
    old: str, new: str, may_replace: bool
) -> None:
    seam = Seam(old, may_replace=may_replace)
    joints = [seam.feed(piece) for piece in new] + [seam.close()]
    replaced = [joint for joint in joints if joint.replaces]
    assert len(replaced) <= may_replace
    added = "".join(joint.text for joint in joints)
    if replaced:
        assert added == new
    assert seam.added_nothing is not bool(added.strip())
    assert new.endswith(added.lstrip())  # at most a separator is added
    overlap = overlap_of(old, new)
    if overlap:
        assert added == new[overlap:]


# --- holding back -------------------------------------------------------------------------------


def test_text_that_cannot_be_an_overlap_is_shown_at_once() -> None:
    seam = Seam("The quick brown ")
    assert seam.feed("fox") == TextUpdate("fox")
    assert seam.feed(" jumps.") == TextUpdate(" jumps.")
    assert seam.close() == TextUpdate()


def test_an_overlap_is_held_back_until_it_ends() -> None:
    seam = Seam("The quick brown ")
    assert [seam.feed(piece) for piece in ("The", " quick", " brown ")] == [TextUpdate()] * 3
    assert seam.feed("fox") == TextUpdate("fox")


def test_without_old_text_everything_is_shown_at_once() -> None:
    seam = Seam("")
    assert seam.feed("The") == TextUpdate("The")
    assert seam.close() == TextUpdate()
    assert not seam.added_nothing
    assert not seam.restarted


def test_an_overlap_may_be_longer_than_a_line() -> None:
    text = "".join(f"line {number} of a long answer\n" for number in range(200))
    cut = len(text) - 1000
    seam = Seam(text[:cut])
    for at in range(cut - 1000, cut, 10):
        assert seam.feed(text[at : at + 10]) == TextUpdate()
    assert seam.feed(text[cut : cut + 20]) == TextUpdate(text[cut : cut + 20])


def test_held_text_is_released_on_close() -> None:
    seam = Seam("It was cold, and it was dark, and")
    assert seam.feed(" it was") == TextUpdate()
    assert seam.close() == TextUpdate(" it was")
    assert seam.close() == TextUpdate()


# --- overlaps -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "shown"),
    [
        pytest.param("one two three four", "o three four five", "one two three four five", id="12"),
        pytest.param("a four", " four five", "a four four five", id="too short"),
        pytest.param("one two three", "three", "one two three", id="short, but all there is"),
        pytest.param("I", "I think", "I think", id="repeats all of a short text"),
        pytest.param("Is", "It", "Is It", id="repeats part of a short text"),
        pytest.param(
            "say: abababababab", "abababababababab!", "say: abababababababab!", id="equal pieces"
        ),
        pytest.param(
            "a " + "xy" * 10, "xy" * 8 + "!", "a " + "xy" * 10 + "!", id="longest of several"
        ),
        pytest.param("=" * 20, "=" * 30, "=" * 30, id="horizontal rule that looks like a restart"),
        pytest.param(
            "x" + "=" * 20, "=" * 15, "x" + "=" * 20, id="horizontal rule is never extended"
        ),
        pytest.param("the end.", "", "the end.", id="nothing"),
    ],
)
def test_the_longest_overlap_is_trimmed(old: str, new: str, shown: str) -> None:
    assert result(old, new) == shown


def test_an_overlap_beyond_the_window_is_not_trimmed() -> None:
    old = "".join(f"{number:05}," for number in range(1000))
    assert result(old, old[-4000:] + "end") == old + "end"
    assert result(old, old[-4001:] + "end") == f"{old} {old[-4001:]}end"


# --- restarts -----------------------------------------------------------------------------------

OLD = "The answer has five parts, and each of them matters. The first is that nothing is lost."


@pytest.mark.parametrize(
    ("new", "shown", "no_op", "restarted"),
    [
        pytest.param(OLD[:60], OLD, True, True, id="ends within the old text"),
        pytest.param(OLD[:12], OLD, True, True, id="ends early within it"),
        pytest.param(OLD[:11], OLD + " " + OLD[:11], False, False, id="too short to tell"),
        pytest.param(OLD, OLD, True, True, id="ends with it"),
        pytest.param(
            OLD + " More.", OLD + " More.", False, True, id="continues after the old text"
        ),
        pytest.param(
            OLD[:75] + "; more.", OLD + "; more.", False, True, id="other words near the end"
        ),
        pytest.param(OLD[:75] + "So", OLD + " So", False, True, id="other words, and a blank"),
        pytest.param(OLD[:60] + "XYZ", OLD[:60] + "XYZ", False, True, id="other words before"),
        pytest.param(
            OLD[:47] + "#",
            OLD + " " + OLD[:47] + "#",
            False,
            False,
            id="shorter than the restart threshold",
        ),
    ],
)
def test_a_restarted_answer_is_joined(new: str, shown: str, no_op: bool, restarted: bool) -> None:
    found, seam = joined(OLD, new)
    assert found == shown
    assert (seam.added_nothing, seam.restarted) == (no_op, restarted)


def test_a_different_restart_is_ignored_when_text_cannot_be_replaced() -> None:
    seam = Seam(OLD, may_replace=False)
    assert [seam.feed(OLD[:60]), seam.feed("XYZ"), seam.feed(" and more")] == [TextUpdate()] * 3
    assert seam.close() == TextUpdate()
    assert seam.added_nothing
    assert seam.restarted


def test_text_is_appended_after_a_replacement() -> None:
    seam = Seam(OLD)
    assert seam.feed(OLD[:60]) == TextUpdate()
    assert seam.feed("XYZ") == TextUpdate(OLD[:60] + "XYZ", replaces=True)
    assert seam.feed(" and more") == TextUpdate(" and more")
    assert not seam.added_nothing


def test_repeating_most_of_a_short_text_counts_as_a_restart() -> None:
    assert result("Let me have a look at it", "Let me have a look at that") == (
        "Let me have a look at itthat"
    )
    assert result("Let me have a look at it", "Let me have it") == (
        "Let me have a look at it Let me have it"
    )


def test_an_overlap_takes_precedence_over_a_restart() -> None:
    line = "- name: value of the setting, unit of the setting, default\n"
    old = line + "- other\n" + line[:50]
    new = line[:50] + " and more of it than there was before"
    shown, seam = joined(old, new)
    assert shown == old + new[50:]
    assert not seam.restarted


def test_a_continuation_of_blanks_adds_nothing() -> None:
    shown, seam = joined(OLD, OLD[-REPEATED:] + "\n")
    assert shown == OLD + "\n"
    assert seam.added_nothing


# --- without an overlap -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "between"),
    [
        pytest.param("Update DC ", "Bugs", "", id="blank before"),
        pytest.param("Update DC", " Bugs", "", id="blank after"),
        pytest.param("Update DC\n", "Bugs", "", id="line feed before"),
        pytest.param("Update DC", "\n\nBugs", "", id="line feeds after"),
        pytest.param("Update DC", "Bugs", " ", id="a new word"),
        pytest.param("the expla", "nation", "", id="inside a word"),
        pytest.param("the end", ". Then", "", id="closing mark"),
        pytest.param("he said", "” Then", "", id="closing quote"),
        pytest.param("in brackets (", "As here)", "", id="after an opening mark"),
        pytest.param("about 3.1", "4159", "", id="inside a number"),
        pytest.param("version", "2", " ", id="number after a word"),
        pytest.param("缓存从", "未被清除", "", id="letters without case"),
        pytest.param("Уже зн", "ает", "", id="lower-case letters of any script"),
        pytest.param("👩", "\u200d👧", "", id="inside an emoji"),
        pytest.param("👩\u200d", "👧", "", id="inside an emoji, after the joiner"),
        pytest.param("👍", "🏽", "", id="skin tone of an emoji"),
        pytest.param("It is **bold", "** and", "", id="closing marks of bold words"),
        pytest.param("It is", "**bold**", " ", id="opening marks of bold words"),
        pytest.param("the `code", "` is", "", id="closing mark of code"),
        pytest.param("- Update DC", "Bugs", "\n", id="list item"),
        pytest.param("  12. Update DC", "Bugs", "\n", id="numbered item"),
        pytest.param("text\n## Update DC", "Bugs", "\n", id="heading"),
        pytest.param("> Update DC", "Bugs", "\n", id="quote"),
        pytest.param("| a | b |", "Bugs", "\n", id="table row"),
        pytest.param("- Update\n\nThen", "Bugs", " ", id="after a list"),
        pytest.param("- Update the expla", "nation", "", id="inside a word of a list item"),
        pytest.param("#hashtag", "Bugs", " ", id="no heading"),
        pytest.param("```py\nprint(X", "Y)", "", id="code"),
        pytest.param("```py\n- item", "Y)", "", id="code that looks like a list"),
        pytest.param("```", "Python", "", id="the first line of code"),
        pytest.param("~~~~\n~~~\nprint(X", "Y)", "", id="code with a shorter fence in it"),
        pytest.param("```\n~~~\nprint(X", "Y)", "", id="code with another fence in it"),
        pytest.param("```\n```py\nprint(X", "Y)", "", id="code with an opening fence in it"),
        pytest.param("1. a\n   ```\n   print(X", "Y)", "", id="code in a list"),
        pytest.param("```\nx\n```\nUpdate DC", "Bugs", " ", id="after code"),
        pytest.param("```\nx\n```", "Then", "\n", id="directly after code"),
        pytest.param("```\nx\n```", "then", "\n", id="lower-case letters directly after code"),
        pytest.param("```x``` is DC", "Bugs", " ", id="code in a line"),
    ],
)
def test_texts_without_an_overlap_are_joined_with_the_right_separator(
    old: str, new: str, between: str
) -> None:
    assert result(old, new) == old + between + new
    assert joined(old, *new)[0] == old + between + new


# --- cost ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("=" * 20_000, "=" * 20_000, id="one character"),
        pytest.param("ab" * 10_000, "ab" * 1999 + "c" + "ab" * 9000, id="one period"),
        pytest.param(("=" * 99 + "\n") * 200, ("=" * 99 + "\n") * 200, id="rules"),
        pytest.param(MARKDOWN * 15, MARKDOWN * 16, id="restarted answer"),
    ],
)
def test_repetitive_texts_can_be_fed_character_by_character(old: str, new: str) -> None:
    assert joined(old, *new)[0] == result(old, new)


# --- the continuation is cut off as well ----------------------------------------------------------


@given(st.integers(50, len(MARKDOWN) - 1), st.integers(1, 200), st.integers(12, 60))
@example(cut=50, said=51, repeated=52)
def test_a_cut_off_overlap_adds_nothing(cut: int, said: int, repeated: int) -> None:
    old, rest = MARKDOWN[:cut], MARKDOWN[max(0, cut - repeated) :][:said]
    seam = Seam(old)
    shown = old + seam.feed(rest).text + seam.close(cut=True).text
    assert MARKDOWN.startswith(shown)
    if said < min(cut, repeated):  # no more than the end of the first text
        assert shown == old


@pytest.mark.parametrize(
    ("new", "alike"),
    [
        pytest.param("and ends here.", True, id="the end"),
        pytest.param("The text begins and ends here.", True, id="all of it"),
        pytest.param("and ends", False, id="a part of the end"),
        pytest.param("The text begins", False, id="the beginning"),
        pytest.param("and ends here. More", False, id="more"),
        pytest.param("", False, id="nothing"),
    ],
)
def test_repeated_ending_is_true_if_only_the_end_was_repeated(new: str, alike: bool) -> None:
    seam = Seam("The text begins and ends here.")
    seam.feed(new)
    seam.close(cut=True)
    assert seam.repeated_ending is alike


# --- text after a complete text -----------------------------------------------------------------------

CHECK = "Sure. Let me check the file."


@pytest.mark.parametrize(
    ("old", "pieces", "shown"),
    [
        pytest.param(CHECK, ["It says 4."], f"{CHECK}\n\nIt says 4.", id="something else"),
        pytest.param(CHECK, ["it says 4."], f"{CHECK}\n\nit says 4.", id="lower-case letter"),
        pytest.param(CHECK, ["\n", "It says 4."], f"{CHECK}\n\nIt says 4.", id="after blanks"),
        pytest.param(
            f"{CHECK}\n", ["It says 4."], f"{CHECK}\n\nIt says 4.", id="after a line feed"
        ),
        pytest.param(f"{CHECK}\n\n", ["It is 4."], f"{CHECK}\n\nIt is 4.", id="after a blank line"),
        pytest.param(CHECK, [CHECK], CHECK, id="the same again"),
        pytest.param(CHECK, ["\n\n", CHECK, "\n"], CHECK, id="the same again between blanks"),
        pytest.param(CHECK, [f"{CHECK} It is 4."], f"{CHECK} It is 4.", id="the same, and more"),
        pytest.param(
            CHECK, [CHECK, "It is 4."], f"{CHECK}\n\nIt is 4.", id="the same, more, no blank"
        ),
        pytest.param(
            CHECK, [CHECK, "\n\n", "It is 4."], f"{CHECK}\n\nIt is 4.", id="the same, a blank, more"
        ),
        pytest.param(f"{CHECK}\n", [CHECK], f"{CHECK}\n", id="the same without the line's end"),
        pytest.param(CHECK, ["Let me check the file."], CHECK, id="last sentence again"),
        pytest.param(
            CHECK,
            ["Sure. Let me check the file now."],
            f"{CHECK}\n\nSure. Let me check the file now.",
            id="nearly the same",
        ),
        pytest.param(CHECK, [" \n"], CHECK, id="blanks only"),
        pytest.param(CHECK, [], CHECK, id="nothing"),
    ],
)
def test_text_after_a_complete_text_starts_a_new_paragraph(
    old: str, pieces: list[str], shown: str
) -> None:
    assert follow(old, *pieces) == shown


@given(
    st.sampled_from([CHECK, f"{CHECK}\n", "Let me look:"]),
    st.lists(st.sampled_from(["\n", " ", "Let me ", "check the file.", CHECK, "It", " says 4."])),
)
def test_a_new_paragraph_does_not_depend_on_how_the_text_is_split(
    old: str, pieces: list[str]
) -> None:
    whole = "".join(pieces)
    shown = follow(old, *pieces)
    assert shown.rstrip() == follow(old, whole).rstrip()
    assert shown.rstrip() == follow(old, *whole).rstrip()
    assert shown.startswith(old)
    assert shown.count("says 4.") == whole.count("says 4.")
