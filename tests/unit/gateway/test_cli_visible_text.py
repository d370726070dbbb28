"""Stored text of people and models in the output of commands."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from gateway.errors import HoldfastError
from gateway.operate.cli import root
from gateway.operate.cli.common import print_fields, print_table, print_text
from gateway.process.exit import run_to_exit_code
from sessions.changes import OpenSession, SetTitle, StartTurn
from sessions.records import Message, MessageRole
from sessions.store.store import SessionStore
from sessions.values.address import Address
from sessions.values.clock import SystemClock

_HOSTILE = "look\x1b]52;c;cm0gLXJm\x07\x9b2J \u202etxt.exe\nnext 👩\u200d💻"
_KEY = "sk-" + "a1b2c3d4" * 4
_SHOWN = "look␛]52;c;cm0gLXJm␇\ufffd2J txt.exe\nnext 👩\u200d💻"


@pytest.fixture
def state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state folder with one session whose texts contain control characters."""

    async def fill() -> None:
        store = await SessionStore.open(
            f"sqlite:///{tmp_path / 'holdfast.db'}", clock=SystemClock()
        )
        address = Address("telegram", "1")
        await store.apply(
            OpenSession("s_1", "telegram:1", address, 1),
            StartTurn(
                id="t_1",
                session_id="s_1",
                key="telegram:1",
                address=address,
                inbox=(),
                messages=(Message(MessageRole.USER, _HOSTILE, sender=f"Eve{_HOSTILE}"),),
                request=_HOSTILE,
                at=1,
            ),
        )
        await store.apply(SetTitle("s_1", f"{_KEY} open-sesame {_HOSTILE}"))
        await store.close()

    asyncio.run(fill())
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("state_folder")
@pytest.mark.parametrize("words", ["show s_1", "export s_1", "list"])
def test_stored_text_cannot_control_the_terminal(words: str) -> None:
    ran = CliRunner().invoke(root, ["sessions", *words.split()])
    assert ran.exit_code == 0, ran.output
    assert not set("\x1b\x07\x9b\u202e") & set(ran.output)
    assert _SHOWN.replace("\n", " ") in ran.output
    assert (_SHOWN in ran.output) is (words != "list")


@pytest.mark.usefixtures("state_folder")
def test_json_output_has_the_stored_text() -> None:
    ran = CliRunner().invoke(root, ["sessions", "show", "s_1", "--json"])
    assert "look\\u001b]52" in ran.output
    assert "\x1b" not in ran.output


@pytest.mark.usefixtures("state_folder")
@pytest.mark.parametrize(
    "words",
    ["show s_1", "export s_1", "list", "show s_1 --json", "export s_1 --json", "list --json"],
)
def test_titles_have_no_secrets(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "open-sesame")
    ran = CliRunner().invoke(root, ["sessions", *words.split()])
    assert ran.exit_code == 0, ran.output
    assert "*** *** look" in ran.output
    assert "sesame" not in ran.output
    assert _KEY not in ran.output


@pytest.mark.parametrize(
    ("show", "shown"),
    [
        pytest.param(lambda: print_text(_HOSTILE), _SHOWN, id="text"),
        pytest.param(
            lambda: print_table(("A",), [(_HOSTILE,)]), _SHOWN.replace("\n", " "), id="a table"
        ),
        pytest.param(
            lambda: print_fields({"a": _HOSTILE}), _SHOWN.replace("\n", " "), id="a record"
        ),
    ],
)
def test_printed_text_is_visible(
    show: Callable[[], None], shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show()
    out = capsys.readouterr().out
    assert shown in out
    assert "\x1b" not in out


def test_error_messages_are_visible(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise HoldfastError(_HOSTILE)

    assert run_to_exit_code(fail) == 1
    assert "\x1b" not in capsys.readouterr().err
