import tomllib

import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import ConfigError
from gateway.settings import KeyPath
from tests.unit.gateway.setup.setup_kit import draft_of

WRITTEN = """\
# ours
[http]   # the port
port = 8421

[platforms.discord]
token = "env:X"  # theirs

[limits.users."telegram:1001"]
messages_per_minute = 5
"""


def test_an_unchanged_document_keeps_every_byte() -> None:
    draft = draft_of(WRITTEN)
    draft.put(("http", "port"), 8421)
    draft.remove(("model", "name"))
    assert draft.render() == WRITTEN


def test_comments_and_order_survive_a_change() -> None:
    draft = draft_of(WRITTEN)
    draft.put_secret(("platforms", "telegram", "token"), "TELEGRAM_BOT_TOKEN", "1:a")
    draft.put(("http", "port"), 8422)
    draft.put(("limits", "all", "usd_per_day"), 5)
    text = draft.render()
    assert draft.secrets == {"TELEGRAM_BOT_TOKEN": "1:a"}
    assert "# ours\n[http]   # the port\nport = 8422\n" in text
    assert 'token = "env:X"  # theirs' in text
    found = tomllib.loads(text)
    assert found["platforms"]["telegram"] == {"token": "credential:TELEGRAM_BOT_TOKEN"}
    assert found["limits"] == {
        "users": {"telegram:1001": {"messages_per_minute": 5}},
        "all": {"usd_per_day": 5},
    }


def test_a_new_file_has_a_header() -> None:
    draft = draft_of()
    draft.put(("model", "name"), "x")
    assert draft.render().startswith("# Created by `holdfast setup`")
    assert "[model]\n" in draft.render()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty file"),
        pytest.param('[model]\nname = "x"\n', id="after a table"),
        pytest.param('[model]\nname = "x"\n\n', id="after a blank line"),
        pytest.param('[[mcp]]\nname = "old"\ncommand = "y"\n', id="after one of its kind"),
        pytest.param('[[mcp]]\nname = "old"\nurl = "u"\n[http]\nport = 1\n', id="apart"),
    ],
)
def test_new_entries_of_an_array_begin_after_a_blank_line(text: str) -> None:
    draft = draft_of(text)
    draft.add_table("mcp", {"name": "a", "command": "a"})
    draft.add_table("mcp", {"name": "b", "command": "b"})
    lines = draft.render().splitlines()
    headers = [number for number, line in enumerate(lines) if line == "[[mcp]]"][-2:]
    assert [lines[number + 1] for number in headers] == ['name = "a"', 'name = "b"']
    for number in headers:
        assert number == 0 or (lines[number - 1] == "" and (number == 1 or lines[number - 2]))


def test_new_sections_begin_after_a_blank_line() -> None:
    draft = draft_of()
    draft.put_secret(("platforms", "telegram", "token"), "T", "1:a")
    draft.put_secret(("platforms", "slack", "bot_token"), "S", "xoxb-1")
    draft.put(("model", "name"), "x")
    draft.put(("model", "price", "input"), 2)
    draft.put(("limits", "all", "usd_per_day"), 5)
    _, body = draft.render().split("check`.\n\n")
    assert (
        body
        == """\
[platforms.telegram]
token = "credential:T"

[platforms.slack]
bot_token = "credential:S"

[model]
name = "x"

[model.price]
input = 2

[limits.all]
usd_per_day = 5
"""
    )


def test_removing_a_value_removes_its_line() -> None:
    draft = draft_of(WRITTEN)
    draft.remove(("platforms", "discord", "token"))
    assert draft.get(("platforms", "discord", "token")) is None
    assert "theirs" not in draft.render()
    assert draft.get(("platforms", "discord")) == {}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('platforms.discord.token = "x"\n', id="dotted keys"),
        pytest.param('platforms = { discord = { token = "x" } }\n', id="inline tables"),
        pytest.param('[platforms]\ndiscord.token = "x"\n', id="dotted below a header"),
        pytest.param('[platforms.discord]\ntoken = "x"\n[http]\n[platforms.slack]\n', id="apart"),
        pytest.param('[[mcp]]\nname = "a"\ncommand = "b"\n', id="a list of tables"),
        pytest.param("", id="nothing"),
        pytest.param("[platforms]\n", id="an empty table"),
        pytest.param("\r\n[http]\r\nport = 1\r\n", id="line ends of Windows"),
    ],
)
def test_a_value_can_be_added_to_any_form_of_table(text: str) -> None:
    draft = draft_of(text)
    path: KeyPath = ("platforms", "telegram", "token")
    draft.put(path, "y")
    wanted = tomllib.loads(text)
    wanted.setdefault("platforms", {})["telegram"] = {"token": "y"}
    assert tomllib.loads(draft.render()) == wanted
    again = draft_of(draft.render())
    again.put(path, "y")
    assert again.render() == draft.render()


def test_a_value_that_is_not_a_table_is_not_overwritten() -> None:
    draft = draft_of("[[platforms]]\nx = 1\n")
    with pytest.raises(ConfigError, match="Edit it by hand"):
        draft.put(("platforms", "telegram", "token"), "y")


KEYS = st.sampled_from(["model", "http", "limits", "users", "telegram:1001", "name", "port"])
LEAVES = st.one_of(st.integers(-9, 9), st.text("ab#\"'=\\\n", max_size=4), st.booleans())
TABLES = st.recursive(LEAVES, lambda below: st.dictionaries(KEYS, below, max_size=3), max_leaves=8)


@given(
    document=st.dictionaries(KEYS, TABLES, max_size=4),
    path=st.lists(KEYS, min_size=1, max_size=3).map(tuple),
    value=st.one_of(st.integers(0, 9), st.text('ab#"\\', max_size=4)),
)
def test_an_edited_document_contains_exactly_the_change_or_is_refused(
    document: dict[str, object], path: tuple[str, ...], value: int | str
) -> None:
    text = tomlkit.dumps(document)
    draft = draft_of(text)
    wanted = tomllib.loads(text)
    try:
        draft.put(path, value)
        edited = draft.render()
    except ConfigError:
        return
    table = wanted
    for part in path[:-1]:
        table = table.setdefault(part, {})
    table[path[-1]] = value
    assert tomllib.loads(edited) == wanted
