from pathlib import Path

import pytest

from gateway.errors import ConfigError
from gateway.operate.setup.asking import AnswerError, SetupQuestion
from gateway.operate.setup.flags import FlagPrompter, read_secret
from tests.unit.gateway.setup.setup_kit import Person

NAME = SetupQuestion(key="name", prompt="Name", missing_message="Give --name NAME.")


def ignore(_: str) -> None:
    pass


def test_a_flag_answers_without_asking_the_person() -> None:
    person = Person()
    assert FlagPrompter({"name": "x"}, ignore, person).ask(NAME) == "x"
    assert person.asked == []


def test_questions_without_a_flag_go_to_the_person() -> None:
    person = Person("y")
    assert FlagPrompter({}, ignore, person).ask(NAME) == "y"


def test_without_a_person_the_default_is_used_or_the_missing_flag_named() -> None:
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


def test_a_rejected_flag_ends_the_setup_and_a_person_is_asked_again() -> None:
    error = ConfigError("refused")
    person = Person()
    with pytest.raises(ConfigError):
        FlagPrompter({"name": "x"}, ignore, person).reject(NAME, error)
    with pytest.raises(ConfigError):
        FlagPrompter({}, ignore).reject(NAME, error)
    FlagPrompter({}, ignore, person).reject(NAME, error)
    assert person.refused == ["refused"]


def test_say_writes_a_line_to_the_output() -> None:
    said: list[str] = []
    FlagPrompter({}, said.append).say("hello")
    assert said == ["hello"]


def fetch(written: str, said: str = "", **environ: str) -> str:
    return read_secret("--telegram-token", written, environ, lambda: said)


def test_a_secret_is_read_from_the_environment_a_file_or_standard_input(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("two\n")
    assert fetch("env:TOKEN", TOKEN="one") == "one"
    assert fetch(f"file:{tmp_path / 'token'}") == "two\n"
    assert fetch("-", said="three\n") == "three\n"


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("env:TOKEN", "--telegram-token env:TOKEN: TOKEN is not set."),
        ("-", "--telegram-token -: standard input is empty."),
        ("file:/nowhere/at/all", "names /nowhere/at/all, which cannot be read"),
    ],
)
def test_a_missing_secret_is_reported_in_one_sentence(written: str, told: str) -> None:
    with pytest.raises(AnswerError) as caught:
        fetch(written)
    assert told in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_secret_on_the_command_line_is_refused_without_repeating_it() -> None:
    with pytest.raises(AnswerError, match="never the secret itself") as caught:
        fetch("123456789:AAsecret")
    assert "AAsecret" not in str(caught.value)
