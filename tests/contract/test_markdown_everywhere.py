"""Markdown from models arrives complete and formatted on every platform.

This is the short form of `make markdown`, which tests thousands of texts and every prefix.
"""

import pytest

from tests.faults.markdown import (
    STAGES,
    Tally,
    judge,
    try_beginnings,
    try_cuts,
    try_refusals,
    try_streams,
    try_texts,
    try_wire,
)
from tests.faults.markdown_seen import discord, slack, telegram_rich, telegram_text
from tests.faults.markdown_signs import Dialect, Sign
from tests.faults.markdown_stages import FULL
from tests.faults.markdown_texts import NASTY, text_of

TEXTS = 60
STEP = 17
"""Characters between the tested prefixes of a sample."""


def _good(tally: Tally) -> None:
    assert tally.texts
    assert tally.good, f"{tally}\n" + "\n".join(tally.violations[:10] + tally.examples[:10])


@pytest.mark.parametrize("platform", STAGES)
async def test_texts_arrive_complete_and_formatted(platform: str) -> None:
    _good(await try_texts(platform, range(100, 100 + TEXTS)))


@pytest.mark.parametrize("platform", STAGES)
async def test_prefixes_arrive_complete_and_formatted(platform: str) -> None:
    for tally in await try_beginnings(platform, NASTY, STEP):
        _good(tally)


async def test_slack_streams_only_grow_and_end_complete() -> None:
    _good(await try_streams(NASTY, STEP))


async def test_a_refused_format_falls_back_to_a_plainer_one_without_loss() -> None:
    texts = {str(seed): text_of(seed) for seed in range(200, 230)}
    for tally in await try_refusals(texts):
        _good(tally)


def test_cuts_at_any_limit_lose_nothing_and_render_correctly() -> None:
    _good(try_cuts({str(seed): text_of(seed) for seed in range(300, 340)}))


async def test_real_adapters_send_the_same_text() -> None:
    _good(await try_wire(range(10)))


# --- the judge itself --------------------------------------------------------------------------

PLAIN = Dialect()


@pytest.mark.parametrize(
    ("md", "shown", "complaint"),
    [
        ("all **of** it", "all **of**", "lost"),
        ("all **of** it", "all of it", "plain: bold"),
        ("a *b* c", "a \\*b\\* c", "plain: italic"),
        ("a b", "a \\*b", "literal"),
        ("one\n\ntwo", "onetwo", "joined"),
        ("```py\nx\n```", "```js\nx\n```", "plain: ('pre', 'py')"),
        ("```\n  x\n```", "```\nx\n```", "lost: blank space"),
        ("[a](https://e.org)", "a", "lost: the address"),
        ("[a](https://e.org)", "a https://e.org", "plain: ('link'"),
        ("## a", "# a", "plain: ('heading', '2')"),
        ("> a", "a", "plain: quote"),
        ("3. a", "4. a", "lost: '3'"),
        ("|a|b|\n|-|-|\n|c|d|", "a b\nc d", "plain: cell"),
        ("👩\u200d🚀", "👩🚀", "lost"),
    ],
)
def test_the_judge_detects_rendering_errors(md: str, shown: str, complaint: str) -> None:
    assert any(each.startswith(complaint) for each in judge(md, PLAIN, slack(shown)))
    assert list(judge(md, PLAIN, slack(md))) == []


@pytest.mark.parametrize(
    ("md", "shown"),
    [
        ("x[^1]\r\n\r\n[^1]: y\r\n\r\n1. a\r\n     - b", "x[1]\n\n[1]: y\n\n1. a\n   - b"),
        ("- [x] <br> a", "- ☑ a"),
        ("a | b\n--|--\nc | d\ne", "a | b\n--|--\nc | d\n\ne"),
        ("the [a](tel:1) the a, the b", "the a (tel:1) the a, the b"),
        ("![a](https://e.org) ab", "[🖼 a](https://e.org) ab"),
        ("every x the every y", "every one\ntwo the ev every x the every y"),
    ],
)
def test_the_judge_accepts_the_same_meaning_in_other_words(md: str, shown: str) -> None:
    assert list(judge(md, FULL, slack(shown))) == []


def _read(signs: list[Sign]) -> list[tuple[str, set[object]]]:
    found: list[tuple[str, set[object]]] = []
    for sign in signs:
        looks: set[object] = {each for each in sign.looks if not str(each).startswith("imitated")}
        if found and not sign.gap and found[-1][1] == looks:
            found[-1] = (found[-1][0] + sign.char, looks)
        else:
            found.append((sign.char, looks))
    return found


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("**a** ** b **", [("a", {"bold"}), ("b", {"bold"})]),
        ("***a***", [("a", {"bold", "italic"})]),
        ("2*3*4", [("2", set()), ("3", {"italic"}), ("4", set())]),
        ("snake_case_x _y_", [("snake_case_x", set()), ("y", {"italic"})]),
        ("a_b c_日", [("a", set()), ("b", {"italic"}), ("c", {"italic"}), ("日", set())]),
        ("\\*a\\* `*`", [("*a*", set()), ("*", {"code"})]),
        ("#### a", [("####", set()), ("a", set())]),
        ("## a", [("a", {("heading", "2")})]),
        ("> a\n> b", [("a", {"quote"}), ("b", {"quote"})]),
        ("- a\n1. b", [("•", set()), ("a", set()), ("1", set()), ("b", set())]),
        ("```py\na\n```", [("a", {("pre", "py")})]),
        ("[a](https://e.org/(x))", [("a", {("link", "https://e.org/(x)")})]),
        ("||a||~~b~~", [("a", {"spoiler"}), ("b", {"strike"})]),
        ("<https://e.org/_a_>", [("https://e.org/_a_", set())]),
    ],
)
def test_the_judge_reads_discord_markdown_like_discord(
    text: str, seen: list[tuple[str, set[object]]]
) -> None:
    assert _read(discord(text)[0]) == seen


@pytest.mark.parametrize(
    ("text", "named"),
    [("hi @everyone", ["@everyone"]), ("<@1> <@&2>", ["<@1>", "<@&2>"]), ("\\<@1> `<@1>`", [])],
)
def test_the_judge_sees_mentions_on_discord(text: str, named: list[str]) -> None:
    assert discord(text)[1] == named


def test_the_judge_ignores_entities_after_the_hundredth() -> None:
    entities = [{"type": "bold", "offset": place, "length": 1} for place in range(101)]
    looks = [sign.looks for sign in telegram_text("x" * 101, entities)]
    assert "bold" in looks[99]
    assert "bold" not in looks[100]


def test_the_judge_reads_rich_messages() -> None:
    html = '<h2>a</h2><ol start="3"><li>b</li><li><input type="checkbox" checked>c</li></ol>'
    assert _read(telegram_rich(html)) == [
        ("a", {("heading", "2")}),
        *(("3", set()), ("b", set()), ("4", set()), ("☑", set()), ("c", set())),
    ]
