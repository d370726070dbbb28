from pathlib import Path

import pytest

from gateway.errors import ConfigError
from gateway.operate.setup.asking import AnswerError, SetupQuestion
from gateway.operate.setup.flags import FlagPrompter, read_secret
from tests.unit.gateway.setup.setup_kit import Person

NAME = SetupQuestion(key="name", prompt="Name", missing_message="Give --name NAME.")


def ignore(_: str) -> None:
    pass


def test_a_flag_answers_and_nobody_is_asked() -> None:
    person = Person()
    assert FlagPrompter({"name": "x"}, ignore, person).ask(NAME) == "x"
    assert person.asked == []


def test_what_no_flag_answers_a_person_is_asked() -> None:
    person = Person("y")
    assert FlagPrompter({}, ignore, person).ask(NAME) == "y"


def test_with_nobody_there_a_default_counts_or_the_missing_flag_is_named() -> None:
    flags = FlagPrompter({}, ignore)
    assert flags.ask(SetupQuestion(key="a", prompt="A", default="usual")) == "usual"
    for question in (
        NAME,
        SetupQuestion(
            key="a",
            prompt="A",
            default="usual",
            missing_message="Give --name NAME.",
            must_be_given=True,
        ),
    ):
        with pytest.raises(AnswerError, match="Give --name NAME"):
            flags.ask(question)


def test_a_flag_that_does_not_do_ends_it_and_a_person_is_asked_again() -> None:
    error = ConfigError("refused")
    person = Person()
    with pytest.raises(ConfigError):
        FlagPrompter({"name": "x"}, ignore, person).reject(NAME, error)
    with pytest.raises(ConfigError):
        FlagPrompter({}, ignore).reject(NAME, error)
    FlagPrompter({}, ignore, person).reject(NAME, error)
    assert person.refused == ["refused"]


def test_what_is_said_is_shown() -> None:
    said: list[str] = []
    FlagPrompter({}, said.append).say("hello")
    assert said == ["hello"]


def fetch(written: str, said: str = "", **environ: str) -> str:
    return read_secret("--telegram-token", written, environ, lambda: said)


def test_a_secret_comes_from_the_environment_a_file_or_the_input(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("two\n")
    assert fetch("env:TOKEN", TOKEN="one") == "one"
    assert fetch(f"file:{tmp_path / 'token'}") == "two\n"
    assert fetch("-", said="three\n") == "three\n"


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("env:TOKEN", "--telegram-token env:TOKEN: TOKEN is not set."),
        ("-", "--telegram-token -: nothing came in."),
        ("file:/nowhere/at/all", "names /nowhere/at/all, which cannot be read"),
    ],
)
def test_a_secret_that_is_not_there_is_one_sentence(written: str, told: str) -> None:
    with pytest.raises(AnswerError) as caught:
        fetch(written)
    assert told in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_secret_on_the_command_line_is_refused_and_not_repeated() -> None:
    with pytest.raises(AnswerError, match="never the secret itself") as caught:
        fetch("123456789:AAsecret")
    assert "AAsecret" not in str(caught.value)
