import stat
from pathlib import Path

import pytest

from gateway.config.loader import ConfigOptions, load
from gateway.errors import CannotStart, ConfigError
from gateway.operate.setup.asking import AnswerError, SetupStopped
from gateway.operate.setup.flags import FlagPrompter
from gateway.operate.setup.model import RequestedModel
from gateway.operate.setup.places import ConfigTarget
from gateway.operate.setup.wizard import ask_all, read_draft, write_config
from platforms.core.probed import ProbeResult
from platforms.core.registry import load_specs
from tests.unit.gateway.setup.setup_kit import TELEGRAM, Answers, Person, place_in

KNOWN = load_specs()
BOTS = {TELEGRAM: ProbeResult("Ada", "@ada_bot")}
OPENAI = "sk-0123456789"
BROKEN = "# mine\n[http]\nprot = 1\n"


def existing(folder: Path, text: str, mode: int = 0o600) -> ConfigTarget:
    place = place_in(folder)
    place.path.parent.mkdir(parents=True)
    place.path.write_text(text)
    place.path.chmod(mode)
    return place


def files(place: ConfigTarget) -> dict[str, str]:
    folder = place.path.parent
    return {str(each.relative_to(folder)): each.read_text() for each in folder.rglob("*.*")}


# --- the questions -------------------------------------------------------------------------------


def test_platforms_tokens_and_model_are_asked_in_this_order(tmp_path: Path) -> None:
    place, person = place_in(tmp_path), Person("", TELEGRAM, OPENAI, "")
    draft = read_draft(place, KNOWN)
    found = ask_all(person, place, draft, Answers(BOTS), KNOWN, RequestedModel())
    assert person.words[:3] == [
        "Platforms (telegram, discord, slack, or none)",
        "Telegram bot token",
        "Key of OpenAI, Anthropic, OpenRouter …, or address of a server (http://…)",
    ]
    assert [bot.platform for bot in found.bots] == ["telegram"]
    assert found.model.checked
    assert person.said[0] == f"The configuration will be written to {place.path}."


def test_the_existing_configuration_is_shown_with_its_problems(tmp_path: Path) -> None:
    place = existing(tmp_path, "[platforms.discord]\n[http]\nprot = 1\n")
    person = Person("yes", "none", "")
    found = ask_all(person, place, read_draft(place, KNOWN), Answers(), KNOWN, RequestedModel())
    assert "exists, with discord. Settings that you do not change are kept." in person.said[0]
    assert "unknown key http.prot" in person.screen
    assert person.words[0] == "Go on (no: stop and correct the file)"
    assert len(found.known_problems) == 2  # the token is missing, too


def test_a_person_can_stop_because_of_the_problems(tmp_path: Path) -> None:
    place, person = existing(tmp_path, BROKEN), Person("no")
    with pytest.raises(SetupStopped, match="Nothing was changed"):
        ask_all(person, place, read_draft(place, KNOWN), Answers(), KNOWN, RequestedModel())
    assert files(place) == {"holdfast.toml": BROKEN}


@pytest.mark.parametrize(
    ("model", "label"),
    [
        (
            'provider = "openai"\nbase_url = "http://10.0.0.5:8000/v1"\nname = "qwen"',
            "openai/qwen",
        ),
        (f'provider = "openai"\napi_key = "{OPENAI}"', "openai/gpt"),
        ('base_url = "http://10.0.0.5:8000/v1"', "openai/its first model"),
        ('provider = "openai"\nname = 7\ntemprature = 0.5', "the section [model] of the file"),
    ],
)
def test_a_problem_elsewhere_does_not_wipe_the_model(
    tmp_path: Path, model: str, label: str
) -> None:
    before = f"{BROKEN}\n[model]  # mine\n{model}\n"
    place, person = existing(tmp_path, before), Person("yes", "none", "", "")
    draft = read_draft(place, KNOWN)
    found = ask_all(person, place, draft, Answers(), KNOWN, RequestedModel())
    assert f"   1  as it is: {label}" in person.screen
    assert draft.render() == before
    assert not write_config(place, draft, KNOWN, found.known_problems).changed


def test_a_kept_model_changes_no_byte(tmp_path: Path) -> None:
    before = f'[model]\nprovider = "openai"\napi_key = "{OPENAI}"\ncontext_window = 5000\n'
    place, person = existing(tmp_path, before), Person("none", "", "")
    draft = read_draft(place, KNOWN)
    ask_all(person, place, draft, Answers(), KNOWN, RequestedModel())
    assert draft.render() == before


def test_variables_in_effect_are_named(tmp_path: Path) -> None:
    place, person = place_in(tmp_path, HOLDFAST_HTTP__PORT="1"), Person("none", "")
    ask_all(person, place, read_draft(place, KNOWN), Answers(), KNOWN, RequestedModel())
    assert "from the environment: HOLDFAST_HTTP__PORT." in person.screen


def test_a_configured_model_can_be_kept(tmp_path: Path) -> None:
    place = existing(tmp_path, f'[model]\nprovider = "openai"\napi_key = "{OPENAI}"\n')
    person = Person("none", "", "")  # and no limit
    ask_all(person, place, read_draft(place, KNOWN), Answers(), KNOWN, RequestedModel())
    assert "   1  as it is: openai/gpt" in person.screen


def test_a_script_gets_all_missing_answers_at_once(tmp_path: Path) -> None:
    place = place_in(tmp_path)
    flags = FlagPrompter({"platforms": "telegram slack"}, print)
    with pytest.raises(AnswerError) as caught:
        ask_all(flags, place, read_draft(place, KNOWN), Answers(), KNOWN, RequestedModel())
    told = caught.value.lines
    assert [line.partition(":")[0] for line in told] == [
        "Telegram needs its bot token",
        "Slack needs its bot token",
        "No model is given",
    ]


# --- writing -------------------------------------------------------------------------------------


def test_a_new_configuration_is_private(tmp_path: Path) -> None:
    place = place_in(tmp_path)
    draft = read_draft(place, KNOWN)
    draft.put_secret(("platforms", "telegram", "token"), "TELEGRAM_BOT_TOKEN", TELEGRAM)
    found = write_config(place, draft, KNOWN)
    assert (found.changed, found.backup, found.warnings) == (True, "", ())
    secret = place.credentials_folder / "TELEGRAM_BOT_TOKEN"
    assert secret.read_text() == f"{TELEGRAM}\n"
    rights = [each.stat().st_mode for each in (place.path, secret, place.credentials_folder)]
    assert [stat.S_IMODE(each) for each in rights] == [0o600, 0o600, 0o700]
    assert TELEGRAM not in place.path.read_text()


def test_the_previous_file_is_kept_with_its_mode(tmp_path: Path) -> None:
    before = "[http]\nport = 1  # mine\n"
    place = existing(tmp_path, before, 0o640)
    draft = read_draft(place, KNOWN)
    draft.put(("http", "port"), 2)
    found = write_config(place, draft, KNOWN)
    kept = place.path.with_name("holdfast.toml.bak")
    assert found.backup == str(kept)
    assert kept.read_text() == before
    assert place.path.read_text() == "[http]\nport = 2  # mine\n"
    assert {stat.S_IMODE(each.stat().st_mode) for each in (kept, place.path)} == {0o640}


def test_without_a_change_nothing_is_written(tmp_path: Path) -> None:
    place = existing(tmp_path, "[http]\nport = 1\n")
    assert not write_config(place, read_draft(place, KNOWN), KNOWN).changed
    assert files(place) == {"holdfast.toml": "[http]\nport = 1\n"}


def test_only_a_different_secret_is_a_change(tmp_path: Path) -> None:
    place = place_in(tmp_path)
    for text, changed in (("1:a", True), ("1:a", False), ("1:b", True)):
        draft = read_draft(place, KNOWN)
        draft.put_secret(("platforms", "telegram", "token"), "TELEGRAM_BOT_TOKEN", text)
        assert write_config(place, draft, KNOWN).changed is changed
    assert (place.credentials_folder / "TELEGRAM_BOT_TOKEN").read_text() == "1:b\n"


def test_a_configuration_that_would_not_work_is_not_written(tmp_path: Path) -> None:
    before = "[http]\nprot = 1\n"
    place = existing(tmp_path, before)
    draft = read_draft(place, KNOWN)
    draft.put_secret(("platforms", "telegram", "token"), "TELEGRAM_BOT_TOKEN", TELEGRAM)
    with pytest.raises(ConfigError) as caught:
        write_config(place, draft, KNOWN)
    first, last = caught.value.lines
    assert first.startswith(f"{place.path}:2: unknown key http.prot")
    assert last == "The new configuration would not work; nothing was changed."
    assert files(place) == {"holdfast.toml": before}


def test_answers_are_written_beside_problems_that_were_accepted(tmp_path: Path) -> None:
    place = existing(tmp_path, BROKEN)
    problem = f"{place.path}:3: unknown key http.prot (did you mean port?)"
    draft = read_draft(place, KNOWN)
    draft.put_secret(("platforms", "telegram", "token"), "TELEGRAM_BOT_TOKEN", TELEGRAM)
    found = write_config(place, draft, KNOWN, (problem,))
    assert found.problems == (problem,)
    assert place.path.read_text().startswith(BROKEN)
    assert "[platforms.telegram]" in place.path.read_text()


def test_a_new_problem_is_refused_beside_accepted_ones(tmp_path: Path) -> None:
    place = existing(tmp_path, BROKEN)
    draft = read_draft(place, KNOWN)
    draft.put(("http", "port"), 99999)
    with pytest.raises(ConfigError, match="nothing was changed"):
        write_config(
            place, draft, KNOWN, (f"{place.path}:3: unknown key http.prot (did you mean port?)",)
        )
    assert files(place) == {"holdfast.toml": BROKEN}
    assert not place.credentials_folder.exists()


def test_warnings_name_the_final_path(tmp_path: Path) -> None:
    place = existing(tmp_path, '[http]\napi_key = "secret"\n', 0o644)
    draft = read_draft(place, KNOWN)
    draft.put(("http", "port"), 2)
    (warning,) = write_config(place, draft, KNOWN).warnings
    assert warning.startswith(f"{place.path}:2: http.api_key is a secret in a file")


def test_a_linked_configuration_stays_a_link(tmp_path: Path) -> None:
    place = ConfigTarget(tmp_path / "link/holdfast.toml", {"HOME": str(tmp_path)}, 1000)
    place.path.parent.mkdir()
    real = tmp_path / "real/holdfast.toml"
    real.parent.mkdir()
    real.write_text("")
    place.path.symlink_to(real)
    draft = read_draft(place, KNOWN)
    draft.put_secret(("platforms", "telegram", "token"), "TELEGRAM_BOT_TOKEN", TELEGRAM)
    write_config(place, draft, KNOWN)
    assert place.path.is_symlink()
    assert 'token = "file:credentials/TELEGRAM_BOT_TOKEN"' in real.read_text()
    loaded = load(ConfigOptions(place.path), place.environ, KNOWN)
    assert "telegram" in loaded.settings.platforms


def test_an_unwritable_path_is_reported_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file where a folder should be")
    place = place_in(tmp_path)
    with pytest.raises(CannotStart, match=r"cannot be written: Not a directory; nothing was"):
        write_config(place, read_draft(place_in(tmp_path / "other"), KNOWN), KNOWN)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        pytest.param(b"[http\n", "is not TOML", id="no TOML"),
        pytest.param(b"\xff\xfe", "is not UTF-8", id="no text"),
    ],
)
def test_an_unreadable_configuration_is_left_alone(
    tmp_path: Path, content: bytes, told: str
) -> None:
    place = existing(tmp_path, "")
    place.path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_draft(place, KNOWN)
    assert told in caught.value.lines[0]
    assert caught.value.lines[-1] == "Fix or move the file; nothing was changed."
    assert place.path.read_bytes() == content
