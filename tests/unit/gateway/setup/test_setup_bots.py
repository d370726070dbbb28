import json
from pathlib import Path

import pytest

from gateway.errors import CannotStart, ConfigError
from gateway.operate.setup.asking import AnswerError
from gateway.operate.setup.bots import BotSetup
from gateway.operate.setup.draft import ConfigDraft
from gateway.operate.setup.flags import FlagPrompter
from platforms.core.contract import PlatformSpec
from platforms.core.errors import Unauthorized, Unavailable
from platforms.core.probed import ProbeResult
from platforms.core.registry import PlatformNotInstalled, load_specs
from platforms.slack.manifest import manifest
from sessions.values.finding import ok, warn
from tests.unit.gateway.setup.setup_kit import (
    OTHER,
    TELEGRAM,
    Answers,
    Person,
    draft_of,
    place_in,
)

KNOWN = load_specs()
ADA = ProbeResult("Ada's bot", "@ada_bot", "https://t.me/ada_bot", (ok("token", "fine"),))
REFUSED = Unauthorized("Telegram does not accept the token")
SLACK = {"xoxb-1": ProbeResult("holdfast", "@holdfast")}


def bots(
    person: Person | FlagPrompter,
    folder: Path,
    checks: Answers | None = None,
    draft: ConfigDraft | None = None,
    known: dict[str, PlatformSpec] | None = None,
    **environ: str,
) -> BotSetup:
    place = place_in(folder, **environ)
    return BotSetup(person, draft or draft_of(), checks or Answers(), place, known or KNOWN)


# --- choosing platforms --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "chosen"),
    [
        ("", ("telegram",)),
        ("none", ()),
        ("t", ("telegram",)),
        ("Slack, discord", ("slack", "discord")),
        ("tele slack telegram", ("telegram", "slack")),
    ],
)
def test_platform_names_can_be_abbreviated(
    tmp_path: Path, typed: str, chosen: tuple[str, ...]
) -> None:
    assert bots(Person(typed), tmp_path).choose_platforms() == chosen


def test_enter_selects_configured_platforms_and_those_with_a_token(tmp_path: Path) -> None:
    draft = draft_of("[platforms.discord]\n")
    person = Person("")
    chosen = bots(person, tmp_path, draft=draft, SLACK_BOT_TOKEN="xoxb-1").choose_platforms()
    assert chosen == ("discord", "slack")
    assert person.asked[0].default == "discord, slack"
    assert person.words == ["Platforms (telegram, discord, slack, or none)"]


def test_an_unknown_platform_is_asked_again(tmp_path: Path) -> None:
    person = Person("irc", "telegram")
    assert bots(person, tmp_path).choose_platforms() == ("telegram",)
    assert person.refused == [
        "There is no platform 'irc'. Choose from telegram, discord, slack, or none."
    ]


def test_a_misspelt_platform_is_not_corrected_silently(tmp_path: Path) -> None:
    person = Person("telegrm", "telegram")
    assert bots(person, tmp_path).choose_platforms() == ("telegram",)
    assert person.refused[0].startswith(
        "There is no platform 'telegrm' (did you mean telegram?). Choose from"
    )


def test_an_empty_answer_instead_of_a_token_is_answered_with_a_sentence(tmp_path: Path) -> None:
    person = Person("", TELEGRAM)
    bots(person, tmp_path, Answers({TELEGRAM: ADA})).set_up("telegram")
    assert person.refused == ["Telegram needs a bot token. Ctrl-C stops setup and changes nothing."]


def test_a_platform_without_its_library_shows_what_to_install(tmp_path: Path) -> None:
    def find(name: str) -> PlatformSpec:
        msg = f"{name} needs slack_sdk, which is not installed; install holdfast[{name}]."
        raise PlatformNotInstalled(msg)

    known = {name: each for name, each in KNOWN.items() if name != "slack"}
    person = Person("slack", "none")
    asking = BotSetup(person, draft_of(), Answers(), place_in(tmp_path), known, find)
    assert asking.choose_platforms() == ()
    assert "install holdfast[slack]" in person.refused[0]


def test_a_script_must_name_a_platform(tmp_path: Path) -> None:
    with pytest.raises(AnswerError, match="use --platform NAME"):
        bots(FlagPrompter({}, print), tmp_path).choose_platforms()
    set_up = bots(FlagPrompter({}, print), tmp_path, TELEGRAM_BOT_TOKEN=TELEGRAM)
    assert set_up.choose_platforms() == ("telegram",)


# --- one platform --------------------------------------------------------------------------------


def test_the_bots_name_is_shown_and_its_token_stored(tmp_path: Path) -> None:
    person, draft = Person(TELEGRAM), draft_of()
    found = bots(person, tmp_path, Answers({TELEGRAM: ADA}), draft).set_up("telegram")
    assert found.probed == ADA
    assert "  ✓ This is @ada_bot (Ada's bot) on Telegram." in person.said
    assert "BotFather" in person.screen
    assert person.asked[0].is_secret
    assert draft.secrets == {"TELEGRAM_BOT_TOKEN": TELEGRAM}
    assert draft.get(("platforms", "telegram", "token")) == "credential:TELEGRAM_BOT_TOKEN"
    assert TELEGRAM not in person.screen


def test_findings_about_a_bot_are_shown_with_their_fix(tmp_path: Path) -> None:
    odd = ProbeResult("x", "@x", findings=(warn("webhook", "a webhook is set", "Remove it."),))
    person = Person(TELEGRAM)
    bots(person, tmp_path, Answers({TELEGRAM: odd})).set_up("telegram")
    assert "  ! a webhook is set. Remove it." in person.said


@pytest.mark.parametrize(
    "pasted",
    [
        pytest.param(f"  {TELEGRAM}\r\n", id="with blanks around it"),
        pytest.param(f"{TELEGRAM[:20]}\n  {TELEGRAM[20:]}\n", id="broken over lines"),
        pytest.param(f"Use this token:\n{TELEGRAM}\nKeep it secure", id="with words around it"),
    ],
)
def test_a_token_is_extracted_from_pasted_text(tmp_path: Path, pasted: str) -> None:
    draft = draft_of()
    bots(Person(pasted), tmp_path, Answers({TELEGRAM: ADA}), draft).set_up("telegram")
    assert draft.secrets == {"TELEGRAM_BOT_TOKEN": TELEGRAM}


def test_an_invalid_token_is_asked_again_without_a_request(tmp_path: Path) -> None:
    person, checks = Person("xoxb-123", TELEGRAM), Answers({TELEGRAM: ADA})
    bots(person, tmp_path, checks).set_up("telegram")
    (told,) = person.refused
    assert told.startswith("This is not a Telegram bot token, which looks like 123456789:AAE")
    assert "xoxb-123" not in told
    assert len(checks.configs) == 1


def test_a_refused_token_shows_the_steps_and_is_asked_again(tmp_path: Path) -> None:
    person, draft = Person(OTHER, TELEGRAM), draft_of()
    bots(person, tmp_path, Answers({OTHER: REFUSED, TELEGRAM: ADA}), draft).set_up("telegram")
    assert person.refused == ["Telegram does not accept the token."]
    assert person.screen.count("BotFather") == 2
    assert draft.secrets == {"TELEGRAM_BOT_TOKEN": TELEGRAM}


def test_an_unreachable_telegram_can_be_skipped(tmp_path: Path) -> None:
    away = Unavailable("Telegram did not answer within 8 s")
    person, draft = Person(TELEGRAM, ""), draft_of()
    found = bots(person, tmp_path, Answers({TELEGRAM: away}), draft).set_up("telegram")
    assert found.probed is None
    assert "did not answer" in person.refused[0]
    assert draft.secrets == {"TELEGRAM_BOT_TOKEN": TELEGRAM}


def test_an_unreachable_telegram_can_be_retried_with_the_same_token(tmp_path: Path) -> None:
    away = Unavailable("away")
    person = Person(TELEGRAM, "no", "", "yes")
    bots(person, tmp_path, Answers({TELEGRAM: away})).set_up("telegram")
    assert person.words.count("Continue without the check") == 2
    assert person.asked[2].shown_default == "keep it"


def test_a_token_from_the_environment_is_used_without_asking(tmp_path: Path) -> None:
    person, draft = Person(), draft_of()
    asking = bots(person, tmp_path, Answers({TELEGRAM: ADA}), draft, TELEGRAM_BOT_TOKEN=TELEGRAM)
    asking.set_up("telegram")
    assert "Telegram bot token: taken from TELEGRAM_BOT_TOKEN." in person.said
    assert draft.secrets == {"TELEGRAM_BOT_TOKEN": TELEGRAM}


def test_a_refused_token_from_the_environment_leads_to_a_question(tmp_path: Path) -> None:
    person, draft = Person(TELEGRAM), draft_of()
    checks = Answers({OTHER: REFUSED, TELEGRAM: ADA})
    bots(person, tmp_path, checks, draft, TELEGRAM_BOT_TOKEN=OTHER).set_up("telegram")
    assert draft.secrets == {"TELEGRAM_BOT_TOKEN": TELEGRAM}


def test_enter_keeps_the_configured_token_and_changes_nothing(tmp_path: Path) -> None:
    text = f'[platforms.telegram]\ntoken = "{TELEGRAM}"\n'
    person, draft = Person(""), draft_of(text)
    bots(person, tmp_path, Answers({TELEGRAM: ADA}), draft).set_up("telegram")
    assert "@ada_bot" in person.screen
    assert (draft.secrets, draft.render()) == ({}, text)


def test_a_configured_token_with_a_missing_file_can_be_replaced(tmp_path: Path) -> None:
    draft = draft_of('[platforms.telegram]\ntoken = "file:/nowhere/token"\n')
    person = Person("", TELEGRAM)
    bots(person, tmp_path, Answers({TELEGRAM: ADA}), draft).set_up("telegram")
    assert "cannot be read" in person.refused[0]
    assert draft.get(("platforms", "telegram", "token")) == "credential:TELEGRAM_BOT_TOKEN"


def test_other_platform_settings_apply_to_the_check(tmp_path: Path) -> None:
    checks = Answers({TELEGRAM: ADA})
    draft = draft_of('[platforms.telegram]\nbase_url = "http://127.0.0.1:8081"\n')
    bots(Person(TELEGRAM), tmp_path, checks, draft).set_up("telegram")
    assert checks.configs[0].base_url == "http://127.0.0.1:8081"
    bots(
        Person(TELEGRAM),
        tmp_path,
        checks,
        HOLDFAST_PLATFORMS__TELEGRAM__BASE_URL="http://127.0.0.1:8082",
    ).set_up("telegram")
    assert checks.configs[1].base_url == "http://127.0.0.1:8082"


# --- Slack and Discord ---------------------------------------------------------------------------


def test_slack_needs_two_tokens_and_enter_prints_the_manifest(tmp_path: Path) -> None:
    person, draft = Person("", "xoxb-1", "xapp-1"), draft_of()
    bots(person, tmp_path, Answers(dict(SLACK)), draft).set_up("slack")
    assert person.words == ["Slack bot token", "Slack bot token", "Slack app token"]
    printed = [said for said in person.said if said.startswith("{")]
    assert [json.loads(each) for each in printed] == [manifest()]
    assert draft.secrets == {"SLACK_BOT_TOKEN": "xoxb-1", "SLACK_APP_TOKEN": "xapp-1"}


def test_slack_in_http_mode_needs_no_app_token(tmp_path: Path) -> None:
    draft = draft_of('[platforms.slack]\nmode = "http"\nsigning_secret = "abc"\n')
    person = Person("xoxb-1")
    bots(person, tmp_path, Answers(dict(SLACK)), draft).set_up("slack")
    assert draft.secrets == {"SLACK_BOT_TOKEN": "xoxb-1"}


def test_after_a_refusal_by_slack_both_tokens_are_asked_again(tmp_path: Path) -> None:
    checks = Answers({"xoxb-0": Unauthorized("Slack says invalid_auth"), **SLACK})
    person, draft = Person("xoxb-0", "xapp-1", "xoxb-1", ""), draft_of()
    bots(person, tmp_path, checks, draft).set_up("slack")
    assert draft.secrets == {"SLACK_BOT_TOKEN": "xoxb-1", "SLACK_APP_TOKEN": "xapp-1"}


def test_discord_shows_the_invite_link(tmp_path: Path) -> None:
    token = "MTIzNDU2Nzg5MDEyMzQ1Njc4.GaBcDe." + "x" * 38
    person = Person("client-secret-32-characters-long", token)
    checks = Answers({token: ProbeResult("Ada", "@ada", "https://discord.com/oauth2/x")})
    bots(person, tmp_path, checks).set_up("discord")
    assert "  Add the bot to one of your servers: https://discord.com/oauth2/x" in person.said
    assert "Message Content Intent" in person.screen
    assert len(person.refused) == 1


def test_a_platform_without_a_guide_is_asked_for_its_secrets(
    tmp_path: Path,
) -> None:
    telegram = KNOWN["telegram"]
    plain = PlatformSpec(
        "irc", telegram.config, build=telegram.build, secrets={"token": "IRC_PASSWORD"}
    )
    person, draft = Person("", "hunter2"), draft_of()
    bots(person, tmp_path, draft=draft, known={"irc": plain}).set_up("irc")
    assert draft.secrets == {"IRC_PASSWORD": "hunter2"}
    assert person.words[0] == "Irc token"


# --- without a person ----------------------------------------------------------------------------


def test_a_script_without_a_token_is_told_the_flag(tmp_path: Path) -> None:
    with pytest.raises(AnswerError) as caught:
        bots(FlagPrompter({}, print), tmp_path).set_up("slack")
    assert str(caught.value) == (
        "Slack needs its bot token: use --slack-bot-token env:NAME, file:PATH or -, "
        "or set SLACK_BOT_TOKEN."
    )


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        pytest.param(REFUSED, ConfigError, id="refused"),
        pytest.param(Unavailable("away"), CannotStart, id="unreachable"),
    ],
)
def test_a_script_fails_if_a_token_does_not_work(
    tmp_path: Path, answer: Exception, kind: type[Exception]
) -> None:
    flags = FlagPrompter({"telegram.token": TELEGRAM}, print)
    with pytest.raises(kind):
        bots(flags, tmp_path, Answers({TELEGRAM: answer})).set_up("telegram")


def test_a_malformed_token_from_a_script_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(AnswerError, match="This is not a Telegram bot token"):
        bots(FlagPrompter({"telegram.token": "x"}, print), tmp_path).set_up("telegram")
