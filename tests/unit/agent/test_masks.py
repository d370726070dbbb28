"""Secrets that the model cannot see stay in the files that it changes."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.errors import ToolError
from agent.tools.drafts import DraftStore
from agent.tools.files.reading import read_file
from agent.tools.files.searching import search
from agent.tools.files.writing import edit_file, write_file, write_file_continue
from agent.tools.masks import mask_lines, replace_masked, restore_secrets
from agent.tools.run import CallContext
from gateway.observe.redact import Redactor
from sessions.values.clock import SystemClock
from sessions.values.masks import PLACEHOLDER, MaskedText
from sessions.values.secret import Secret

OWN = "hunter2 or so"
KEY = "sk-" + "a1b2c3d4" * 4
OTHER = "ghp_" + "Z9" * 16
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKC\n  AQEA7bq9\n-----END RSA PRIVATE KEY-----"
SECRETS = [
    OWN,
    KEY,
    OTHER,
    PEM,
    "secret-",
    "postgres://ann:pw1@db/x",
    f"Bearer {OTHER[4:]}",
    f"://x:{KEY}@h",
    "123456789:AAF-abcdefghij0123456789ABCDEFGHIJ",
]
PLAIN = "see ***secret-abcdefghij\n"  # a placeholder as text
REDACTOR = Redactor([Secret(OWN), Secret("secret-")])
TEXT = f"# one\nKEY={KEY}\nCOLOUR=red\nTOKEN={OTHER}\n{PEM}\nlast\n"


def shown(text: str = TEXT) -> MaskedText:
    return REDACTOR.mask(text)


def name_of(secret: str) -> str:
    masked = shown(f"KEY={secret}\n").text
    return str(PLACEHOLDER.findall(masked)[0])


# --- masking -------------------------------------------------------------------------------------

_line = st.sampled_from(
    [*SECRETS, "a=b", "***", "***bold***", "", "  x", "-----", "\r", name_of(KEY)]
)
_texts = st.lists(st.lists(_line, max_size=3).map(" ".join), max_size=6).map("\n".join)


@settings(deadline=None)
@given(_texts)
def test_a_masked_text_has_no_secret_and_the_same_lines(text: str) -> None:
    masked = shown(text)
    assert masked.text.count("\n") == text.count("\n")
    plain = PLACEHOLDER.sub("", masked.text)
    assert REDACTOR.redact(plain) == plain
    for secret in ("MIIEowIBAAKC", "AQEA7bq9", "a1b2c3d4", OWN):
        assert secret not in masked.text


@settings(deadline=None)
@given(_texts)
def test_masking_twice_is_masking_once(text: str) -> None:
    assert shown(shown(text).text).text == shown(text).text


def test_a_placeholder_is_shown_to_people_as_a_mask() -> None:
    assert REDACTOR.redact(shown().text).count("***secret") == 0
    assert f"KEY=*** {REDACTOR.redact(KEY)}" == REDACTOR.redact(f"KEY={name_of(KEY)} {KEY}")


def test_two_processes_have_different_placeholders() -> None:
    assert Redactor().mask(KEY).text != Redactor().mask(KEY).text


@pytest.mark.parametrize("lines", [10, 1_000, 100_000])
def test_a_part_of_a_file_is_masked_like_the_whole(lines: int) -> None:
    text = ("x = 1\n" * lines + TEXT) * 2
    whole, raw = shown(text).text.split("\n"), text.split("\n")
    for start in range(lines, lines + 10):
        assert mask_lines(raw, start, start + 3, REDACTOR.mask) == whole[start : start + 3]


def test_only_the_surroundings_of_a_part_are_masked() -> None:
    masked: list[int] = []

    def count(text: str) -> MaskedText:
        masked.append(len(text))
        return MaskedText(text)

    mask_lines(["x" * 100] * 100_000 + ["y" * 10_000_000], 50_000, 50_010, count)
    mask_lines(["x" * 100] * 10 + ["y" * 10_000_000], 10, 11, count)
    assert max(masked) < 100_000


# --- writing back --------------------------------------------------------------------------------


@settings(deadline=None)
@given(_texts.filter(lambda text: not PLACEHOLDER.search(text)))
def test_an_unchanged_masked_text_gives_the_original(text: str) -> None:
    assert restore_secrets("f", shown(text).text, shown(text)) == text


@settings(deadline=None)
@given(
    st.lists(_line.filter(lambda line: not PLACEHOLDER.search(line)), min_size=1, max_size=6),
    st.data(),
)
def test_a_change_of_one_line_keeps_the_secrets_of_the_others(
    lines: list[str], data: st.DataObject
) -> None:
    text = "\n".join(lines)
    masked = shown(text)
    all_shown, all_original = masked.text.split("\n"), text.split("\n")
    at = data.draw(st.integers(0, len(all_shown) - 1))
    for changed in (["new"], ["new", all_shown[at]], []):
        original = [all_original[at] if line == all_shown[at] else line for line in changed]
        written = "\n".join([*all_shown[:at], *changed, *all_shown[at + 1 :]])
        wanted = "\n".join([*all_original[:at], *original, *all_original[at + 1 :]])
        assert restore_secrets("f", written, masked) == wanted


def swap(text: str) -> str:
    """Swap the values of the two keys."""
    return (
        text.replace(name_of(KEY), "#1")
        .replace(name_of(OTHER), name_of(KEY))
        .replace("#1", name_of(OTHER))
    )


RESTORED: dict[str, tuple[Callable[[str], str], str]] = {
    "nothing changed": (lambda text: text, TEXT),
    "another line changed": (
        lambda text: text.replace("=red", "=blue"),
        TEXT.replace("=red", "=blue"),
    ),
    "the line of a secret renamed": (
        lambda text: text.replace("KEY=", "API_KEY=", 1),
        TEXT.replace("KEY=", "API_KEY=", 1),
    ),
    "a secret removed": (
        lambda text: text.replace(f"TOKEN={name_of(OTHER)}\n", ""),
        TEXT.replace(f"TOKEN={OTHER}\n", ""),
    ),
    "a secret twice": (
        lambda text: f"{text}COPY={name_of(KEY)}\n",
        f"{TEXT}COPY={KEY}\n",
    ),
    "two secrets swapped": (
        swap,
        TEXT.replace(KEY, "#1").replace(OTHER, KEY).replace("#1", OTHER),
    ),
    "a short mask in a line that is otherwise the same": (
        lambda text: text.replace(name_of(KEY), "***"),
        TEXT,
    ),
    "short masks in two different lines": (
        lambda text: text.replace(name_of(KEY), "***").replace(name_of(OTHER), "***"),
        TEXT,
    ),
    "bold words and all secrets": (
        lambda text: f"***bold***\n***\n{text}",
        f"***bold***\n***\n{TEXT}",
    ),
}


@pytest.mark.parametrize("case", RESTORED)
def test_secrets_are_put_back(case: str) -> None:
    change, wanted = RESTORED[case]
    assert restore_secrets("f", change(shown().text), shown()) == wanted


REFUSED: dict[str, tuple[Callable[[str], str], str]] = {
    "a short mask in a changed line": (
        lambda text: text.replace(f"KEY={name_of(KEY)}", "API_KEY=***"),
        "Write ***secret-",
    ),
    "short masks in place of a whole key": (
        lambda text: text.replace("\n".join(shown(PEM).text.split("\n")), "***"),
        "Write ***secret-",
    ),
    "a secret of another file": (
        lambda text: text + name_of(OWN),
        f"{name_of(OWN)} stands for",
    ),
    "a placeholder of an earlier start": (
        lambda _text: Redactor().mask(TEXT).text,
        "Read f again",
    ),
    "a broken placeholder": (
        lambda text: text.replace(name_of(KEY), name_of(KEY)[:-2]),
        "does not contain it now",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_lost_secret_is_refused(case: str) -> None:
    change, hint = REFUSED[case]
    with pytest.raises(ToolError) as refused:
        restore_secrets("f", change(shown().text), shown())
    assert str(refused.value).startswith("Nothing was written")
    assert hint in str(refused.value)


def test_a_placeholder_that_the_file_contains_as_text_stays() -> None:
    text = f"see {name_of(KEY)}\n"
    assert restore_secrets("f", f"{text}more", shown(text)) == f"{text}more"


def test_stars_replace_a_placeholder_that_the_file_contains_as_text() -> None:
    assert restore_secrets("f", "look ***\n", Redactor().mask(PLAIN)) == "look ***\n"


def test_a_file_with_a_secret_and_its_placeholder_as_text_is_refused() -> None:
    text = f"see {name_of(KEY)}\nKEY={KEY}\n"
    with pytest.raises(ToolError, match="as text as well"):
        restore_secrets("f", shown(text).text, shown(text))


@pytest.mark.parametrize("text", ["***", "***bold***", "a *** b", "****"])
def test_stars_are_ordinary_text_where_nothing_is_hidden(text: str) -> None:
    assert restore_secrets("f", text, MaskedText("")) == text
    assert restore_secrets("f", text, shown("plain\n")) == text


# --- edits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"),
    [("***", ""), ("secret", "x"), ("***secret-", "***"), (name_of(KEY)[:-1], "k"), ("s", "ss")],
)
def test_a_part_of_a_placeholder_cannot_be_replaced(old: str, new: str) -> None:
    count = shown().text.count(old)
    with pytest.raises(ToolError, match="whole, such as"):
        replace_masked("f", shown(), old, new, count)


def test_an_edit_cannot_change_the_hidden_characters() -> None:
    text = f"a1b2\nKEY={KEY}\n"
    assert replace_masked("f", shown(text), "a1b2", "c3", 1) == f"c3\nKEY={KEY}\n"


def test_the_refusal_of_a_broken_placeholder_shows_a_whole_one() -> None:
    example = min(shown().secrets)
    with pytest.raises(ToolError, match=rf"such as {re.escape(example)}\.$"):
        replace_masked("f", shown(), "***", "", shown().text.count("***"))


def test_a_part_of_a_placeholder_without_a_secret_cannot_be_replaced_either() -> None:
    with pytest.raises(ToolError, match=r"whole, such as \*\*\*secret-…"):
        replace_masked("f", Redactor().mask(PLAIN), "***", "", 1)


def test_an_edit_cannot_bring_a_secret_from_another_file() -> None:
    masked = shown("COLOUR=red\n")
    with pytest.raises(ToolError, match="hidden from you, and f does not contain it now"):
        replace_masked("f", masked, "red", name_of(KEY), 1)


# --- the tools -----------------------------------------------------------------------------------


class Desk:
    """The file tools over a workspace with one file."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "work"
        self.root.mkdir()
        self.file = self.root / ".env"
        self.file.write_text(TEXT)
        self._folder = folder
        self._calls = 0

    def context(self) -> CallContext:
        self._calls += 1
        clock = SystemClock()
        return CallContext(
            clock=clock,
            workspace=self.root,
            idempotency_key=f"c{self._calls}",
            drafts=DraftStore(self._folder / "drafts", clock),
            mask=REDACTOR.mask,
        )

    async def read(self, **window: int) -> str:
        arguments = read_file.arguments(path=".env", **window)
        return str(await read_file.call(arguments, self.context())).partition("\n")[2]

    async def write(self, content: str, path: str = ".env") -> str:
        arguments = write_file.arguments(path=path, content=content)
        return str(await write_file.call(arguments, self.context()))

    async def edit(self, old: str, new: str, *, every: bool = False) -> str:
        arguments = edit_file.arguments(path=".env", old=old, new=new, all=every)
        return str(await edit_file.call(arguments, self.context()))

    async def search(self, pattern: str) -> list[str]:
        return (await search(self.root, pattern, ".", "*", mask=REDACTOR.mask)).split("\n")[1:]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


async def test_a_part_of_a_private_key_is_masked(desk: Desk) -> None:
    assert "AQEA7bq9" not in await desk.read(offset=7)
    assert "MIIEowIBAAKC" not in await desk.read(offset=6, limit=1)


async def test_a_written_file_keeps_its_secrets(desk: Desk) -> None:
    content = await desk.read()
    await desk.write(content.replace("=red", "=blue") + "\n")
    assert desk.file.read_text() == TEXT.replace("=red", "=blue")


async def test_a_file_written_in_parts_keeps_its_secrets(desk: Desk) -> None:
    content = await desk.read()
    began = await write_file.call(
        write_file.arguments(path=".env", content=content[:40], more=True), desk.context()
    )
    draft = str(began).split()[1]
    await write_file_continue.call(
        write_file_continue.arguments(draft_id=draft, content=content[40:] + "\n", final=True),
        desk.context(),
    )
    assert desk.file.read_text() == TEXT


async def test_a_secret_does_not_move_to_another_file(desk: Desk) -> None:
    content = await desk.read()
    with pytest.raises(ToolError, match="does not contain it"):
        await desk.write(content, "copy.env")
    assert not (desk.root / "copy.env").exists()


async def test_a_refused_write_leaves_the_file_as_it_is(desk: Desk) -> None:
    with pytest.raises(ToolError, match="Nothing was written"):
        await desk.write("KEY: ***\n")
    assert desk.file.read_text() == TEXT


async def test_a_file_that_is_not_utf8_keeps_its_secrets(desk: Desk) -> None:
    desk.file.write_bytes(f"KEY={KEY}\nb\xe4r\n".encode("latin-1"))
    await desk.write(f"KEY={name_of(KEY)}\nbär\n")
    assert desk.file.read_text() == f"KEY={KEY}\nbär\n"


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ("=red", "=blue", TEXT.replace("=red", "=blue")),
        (f"KEY={name_of(KEY)}", f"KEY2={name_of(KEY)}", TEXT.replace("KEY=", "KEY2=", 1)),
        (f"KEY={name_of(KEY)}\n", "", TEXT.replace(f"KEY={KEY}\n", "")),
        # The person has given the model the old and the new key.
        (KEY, "sk-new", TEXT.replace(KEY, "sk-new")),
        (f"KEY={KEY}\nCOLOUR", "COLOUR", TEXT.replace(f"KEY={KEY}\n", "")),
    ],
)
async def test_an_edit_keeps_the_secrets(desk: Desk, old: str, new: str, wanted: str) -> None:
    await desk.edit(old, new)
    assert desk.file.read_text() == wanted


@pytest.mark.parametrize("old", ["a1b2", "sk-a", "MIIEow"])
async def test_characters_of_a_secret_are_not_found_by_an_edit(desk: Desk, old: str) -> None:
    with pytest.raises(ToolError, match="was not found") as refused:
        await desk.edit(old, "x", every=True)
    assert KEY not in str(refused.value)
    assert desk.file.read_text() == TEXT


@pytest.mark.parametrize("pattern", ["a1b2", "^KEY=sk", "MIIE", "AQEA[0-9]"])
async def test_characters_of_a_secret_are_not_found_by_a_search(desk: Desk, pattern: str) -> None:
    assert await desk.search(pattern) == []


@pytest.mark.parametrize("pattern", ["KEY", "^KEY=.*"])
async def test_a_search_shows_lines_with_placeholders(desk: Desk, pattern: str) -> None:
    (desk.root / "b.txt").write_text("KEY: none\n")
    found = await desk.search(pattern)
    assert f".env:2: KEY={name_of(KEY)}" in found
    assert ("b.txt:1: KEY: none" in found) == (pattern == "KEY")
