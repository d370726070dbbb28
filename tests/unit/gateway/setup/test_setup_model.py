from collections.abc import Mapping
from pathlib import Path

import pytest

from agent.probe import ProbedModel
from agent.settings import ANTHROPIC_MODEL, OPENAI_MODEL, ModelSettings, TargetSettings
from gateway.errors import CannotStart, ConfigError
from gateway.operate.setup.asking import AnswerError, Prompter
from gateway.operate.setup.draft import ConfigDraft
from gateway.operate.setup.flags import FlagPrompter
from gateway.operate.setup.local_servers import LocalModelServer
from gateway.operate.setup.model import ChosenModel, ModelSetup, RequestedModel
from sessions.values.finding import fail, ok, warn
from sessions.values.secret import Secret
from tests.unit.gateway.setup.setup_kit import (
    Answers,
    Person,
    broken,
    draft_of,
    place_in,
    works,
)

OPENAI, ANTHROPIC, ROUTER = "sk-0123456789", "sk-ant-0123456789", "sk-or-0123456789"
OLLAMA = LocalModelServer("Ollama", "http://127.0.0.1:11434/v1", ("qwen3:8b",))
STUDIO = LocalModelServer("LM Studio", "http://127.0.0.1:1234/v1", ("nomic-embed", "gemma", "qwen"))
SEVERAL = ("embed-1", "alpha", "beta", *(f"model-{number}" for number in range(20)))


def choose(
    asker: Prompter,
    folder: Path,
    checks: Answers | None = None,
    draft: ConfigDraft | None = None,
    wanted: RequestedModel | None = None,
    present: TargetSettings | None = None,
    environ: Mapping[str, str] | None = None,
) -> tuple[ChosenModel, ConfigDraft]:
    draft = draft or draft_of()
    model = ModelSetup(asker, draft, checks or Answers(), place_in(folder, **(environ or {})))
    return model.choose(wanted or RequestedModel(), present), draft


def written(draft: ConfigDraft) -> dict[str, object]:
    found: dict[str, object] = draft.get(("model",)) or {}
    return found


def lists(*models: str) -> Answers:
    """A server with several models and without a key."""

    def model(settings: TargetSettings) -> ProbedModel:
        if settings.name is None:
            return ProbedModel(
                "openai/a model", None, models, (fail("model", "no name", "Set it."),)
            )
        return works(settings)

    return Answers(model=model)


def wants_key(key: str) -> Answers:
    def model(settings: TargetSettings) -> ProbedModel:
        shown = settings.api_key.reveal() if settings.api_key else ""
        return works(settings) if shown == key else broken("key", "the service does not accept it")

    return Answers(model=model)


# --- found automatically -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "expected", "secrets"),
    [
        pytest.param(
            {"OPENAI_API_KEY": OPENAI},
            {"provider": "openai", "name": OPENAI_MODEL, "api_key": "credential:OPENAI_API_KEY"},
            {"OPENAI_API_KEY": OPENAI},
            id="a key of OpenAI",
        ),
        pytest.param(
            {"ANTHROPIC_API_KEY": ANTHROPIC},
            {
                "provider": "anthropic",
                "name": ANTHROPIC_MODEL,
                "api_key": "credential:ANTHROPIC_API_KEY",
            },
            {"ANTHROPIC_API_KEY": ANTHROPIC},
            id="a key of Anthropic",
        ),
        pytest.param(
            {"OPENAI_BASE_URL": "http://10.0.0.5:8000/v1"},
            {"provider": "openai", "name": "the-only-one", "base_url": "http://10.0.0.5:8000/v1"},
            {},
            id="an address",
        ),
    ],
)
def test_a_key_in_the_environment_is_used_without_asking(
    tmp_path: Path, environ: dict[str, str], expected: dict[str, str], secrets: dict[str, str]
) -> None:
    chosen, draft = choose(Person(), tmp_path, environ=environ)
    assert chosen.checked
    assert written(draft) == expected
    assert draft.secrets == secrets


def test_one_of_two_keys_in_the_environment_is_chosen(tmp_path: Path) -> None:
    person = Person("2")
    environ = {"OPENAI_API_KEY": OPENAI, "ANTHROPIC_API_KEY": ANTHROPIC}
    _, draft = choose(person, tmp_path, environ=environ)
    assert written(draft)["provider"] == "anthropic"
    assert "   1  OpenAI (from OPENAI_API_KEY)" in person.said


def test_enter_selects_a_local_model_server(tmp_path: Path) -> None:
    person = Person("")
    chosen, draft = choose(person, tmp_path, Answers(servers=(OLLAMA, STUDIO)))
    assert written(draft) == {
        "provider": "openai",
        "name": "the-only-one",
        "base_url": OLLAMA.base_url,
    }
    assert not chosen.is_paid
    assert person.said[1] == "   1  Ollama on this machine, qwen3:8b"
    assert "  ✓ openai/the-only-one answers." in person.said


@pytest.mark.parametrize(("typed", "provider"), [("3", "demo"), ("2", "openai")])
def test_the_list_also_offers_another_model_and_the_demo(
    tmp_path: Path, typed: str, provider: str
) -> None:
    chosen, _ = choose(Person(typed, OPENAI), tmp_path, Answers(servers=(OLLAMA,)))
    assert chosen.settings.provider == provider


# --- entered -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pasted", "provider", "base_url", "variable"),
    [
        (OPENAI, "openai", None, "OPENAI_API_KEY"),
        (f" {ANTHROPIC}\n", "anthropic", None, "ANTHROPIC_API_KEY"),
        (ROUTER, "openai", "https://openrouter.ai/api/v1", "OPENAI_API_KEY"),
    ],
)
def test_a_key_is_enough(
    tmp_path: Path, pasted: str, provider: str, base_url: str | None, variable: str
) -> None:
    person = Person(pasted)
    chosen, draft = choose(person, tmp_path)
    assert (chosen.settings.provider, chosen.settings.base_url) == (provider, base_url)
    assert draft.secrets == {variable: pasted.strip()}
    assert person.asked[0].is_secret
    assert chosen.is_paid


def test_an_unknown_key_needs_the_url_of_its_service(tmp_path: Path) -> None:
    person = Person("0123456789abcdef", "example", "https://api.example.org")
    _, draft = choose(person, tmp_path)
    assert written(draft)["base_url"] == "https://api.example.org/v1"
    assert draft.secrets == {"OPENAI_API_KEY": "0123456789abcdef"}
    assert len(person.refused) == 1


def test_a_url_is_enough_for_a_server_without_a_key(tmp_path: Path) -> None:
    _, draft = choose(Person("http://10.0.0.5:8000"), tmp_path)
    assert written(draft)["base_url"] == "http://10.0.0.5:8000/v1"
    assert draft.secrets == {}


def test_a_server_that_needs_a_key_asks_for_it(tmp_path: Path) -> None:
    person = Person("http://10.0.0.5:8000", "no key", "the-right-key")
    _, draft = choose(person, tmp_path, wants_key("the-right-key"))
    assert draft.secrets == {"OPENAI_API_KEY": "the-right-key"}
    assert person.refused == ["the service does not accept it.", "This is not a key."]


def test_enter_instead_of_another_key_leads_to_another_service(tmp_path: Path) -> None:
    person = Person(OPENAI, "", ROUTER)
    chosen, draft = choose(person, tmp_path, wants_key(ROUTER))
    assert chosen.settings.base_url == "https://openrouter.ai/api/v1"
    assert draft.secrets == {"OPENAI_API_KEY": ROUTER}


def test_an_answer_that_is_neither_key_nor_url_is_asked_again(tmp_path: Path) -> None:
    person = Person("hm", OPENAI)
    choose(person, tmp_path)
    assert person.refused[0].startswith("This is neither a key nor an address")
    assert "hm" not in person.refused[0]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("127.0.0.1:11434", "http://127.0.0.1:11434/v1"),
        ("localhost:1234/v1/", "http://localhost:1234/v1"),
        ("api.example.com/v1", "https://api.example.com/v1"),
    ],
)
def test_an_address_without_http_is_completed_with_a_sentence(
    tmp_path: Path, typed: str, meant: str
) -> None:
    person = Person(typed)
    chosen, draft = choose(person, tmp_path)
    assert chosen.settings.base_url == meant
    assert draft.secrets == {}
    assert person.said[0] == f"  The address is taken as {meant}."


def test_the_address_of_the_gateway_itself_is_no_model(tmp_path: Path) -> None:
    draft = draft_of("[http]\nport = 9000\n")
    person = Person("localhost:9000", "http://10.0.0.5:8000")
    choose(person, tmp_path, draft=draft)
    assert person.refused == [
        "http://localhost:9000/v1 is the address of this gateway, which would ask itself."
    ]
    assert written(draft)["base_url"] == "http://10.0.0.5:8000/v1"


def test_an_address_is_no_key(tmp_path: Path) -> None:
    person = Person("http://10.0.0.5:8000", "10.0.0.6:8000", "another-key")
    _, draft = choose(person, tmp_path, wants_key("another-key"))
    assert person.refused[-1] == "This is not a key."
    assert draft.secrets == {"OPENAI_API_KEY": "another-key"}


def test_a_service_needs_an_address_and_a_model_needs_a_name(tmp_path: Path) -> None:
    person = Person("0123456789abcdef", "", "10.0.0.5:8000", "", "alpha")
    _, draft = choose(person, tmp_path, lists())
    assert written(draft)["base_url"] == "http://10.0.0.5:8000/v1"
    assert written(draft)["name"] == "alpha"
    assert person.refused == [
        "This is not an address such as https://openrouter.ai/api/v1.",
        "The name of the model is needed.",
    ]


def test_with_the_demo_nothing_is_written(tmp_path: Path) -> None:
    chosen, draft = choose(Person(""), tmp_path)
    assert not chosen.is_paid
    assert written(draft) == {}


# --- choosing among several ----------------------------------------------------------------------


def test_one_of_several_models_is_chosen_by_number(tmp_path: Path) -> None:
    person = Person("http://10.0.0.5:8000", "2")
    _, draft = choose(person, tmp_path, lists("embed-1", "alpha", "beta"))
    assert written(draft)["name"] == "embed-1"
    assert person.said == [
        *("  The server has 3 models:", "   1  alpha", "   2  embed-1", "   3  beta"),
        "  ✓ openai/embed-1 answers.",
    ]


@pytest.mark.parametrize(("typed", "name"), [("", "alpha"), ("model-19", "model-19")])
def test_enter_selects_a_chat_model_and_hidden_models_can_be_named(
    tmp_path: Path, typed: str, name: str
) -> None:
    person = Person("http://10.0.0.5:8000", typed)
    _, draft = choose(person, tmp_path, lists(*SEVERAL))
    assert written(draft)["name"] == name
    assert person.words[-1] == "Number or its name"
    assert "model-19" not in person.screen.replace(f"✓ openai/{name}", "")


def test_a_server_without_a_model_list_asks_for_the_name(tmp_path: Path) -> None:
    person = Person("http://10.0.0.5:8000", "alpha")
    _, draft = choose(person, tmp_path, lists())
    assert written(draft)["name"] == "alpha"


# --- failures ------------------------------------------------------------------------------------


def test_an_unreachable_service_can_be_used_unchecked(tmp_path: Path) -> None:
    away = Answers(model=lambda _: broken("service", "it cannot be reached"))
    person = Person("http://10.0.0.5:8000", "")
    chosen, draft = choose(person, tmp_path, away)
    assert not chosen.checked
    assert written(draft) == {"provider": "openai", "base_url": "http://10.0.0.5:8000/v1"}
    assert person.refused[0].startswith("it cannot be reached. Mend it.")


@pytest.mark.parametrize("typed", ["10.0.0.6:8000", "http://10.0.0.6:8000/v1"])
def test_another_address_answers_the_question_about_an_unreachable_one(
    tmp_path: Path, typed: str
) -> None:
    def model(settings: TargetSettings) -> ProbedModel:
        here = settings.base_url == "http://10.0.0.6:8000/v1"
        return works(settings) if here else broken("service", "it cannot be reached")

    person = Person("http://10.0.0.5:8000", "perhaps", typed)
    chosen, draft = choose(person, tmp_path, Answers(model=model))
    assert chosen.checked
    assert written(draft)["base_url"] == "http://10.0.0.6:8000/v1"
    assert person.refused[1] == "Please answer yes or no, or enter another address."


def test_a_model_that_does_not_answer_is_not_used_by_default(tmp_path: Path) -> None:
    def model(settings: TargetSettings) -> ProbedModel:
        return works(settings) if settings.base_url else broken("answer", "the account is empty")

    person = Person(OPENAI, "", ROUTER)
    chosen, _ = choose(person, tmp_path, Answers(model=model))
    assert person.words[1] == "Use it anyway, or enter another address"
    assert chosen.settings.base_url


def test_warnings_about_the_model_are_shown(tmp_path: Path) -> None:
    warned = warn("tool call", "it calls no tools", "Choose another.")
    found = ProbedModel("openai/x", "x", ("x",), (ok("answer", "streams"), warned))
    person = Person(OPENAI)
    choose(person, tmp_path, Answers(model=lambda _: found))
    assert person.said == ["  ✓ openai/x answers.", "  ! it calls no tools. Choose another."]


# --- an existing configuration -------------------------------------------------------------------

PRESENT = """\
[model]
provider = "openai"
api_key = "env:MY_KEY"  # mine
name = "gpt-4.1"
context_window = 1000000
price = { input = 2, output = 8 }
temperature = 0.5
"""
CONFIGURED = ModelSettings(provider="openai", name="gpt-4.1", api_key=Secret(OPENAI))


def test_enter_keeps_the_configured_model(tmp_path: Path) -> None:
    person = Person("")
    chosen, draft = choose(person, tmp_path, draft=draft_of(PRESENT), present=CONFIGURED)
    assert chosen.checked
    assert person.said[1] == "   1  as it is: openai/gpt-4.1"
    assert (draft.render(), draft.secrets) == (PRESENT, {})


def test_another_service_replaces_the_old_one_and_keeps_other_settings(tmp_path: Path) -> None:
    person = Person("2", ROUTER, "alpha")
    draft = draft_of(PRESENT)
    choose(person, tmp_path, lists("alpha", "beta"), draft, present=CONFIGURED)
    assert written(draft) == {
        "provider": "openai",
        "api_key": "credential:OPENAI_API_KEY",
        "name": "alpha",
        "temperature": 0.5,
        "base_url": "https://openrouter.ai/api/v1",
    }


def test_replacing_a_model_by_the_demo_removes_its_key(tmp_path: Path) -> None:
    draft = draft_of('[model]\nprovider = "openai"\napi_key = "x"\nname = "y"\n')
    choose(Person("3"), tmp_path, draft=draft, present=CONFIGURED)
    assert written(draft) == {"provider": "demo"}


def test_a_refused_configured_key_is_replaced(tmp_path: Path) -> None:
    draft = draft_of(PRESENT)
    choose(Person("", ROUTER), tmp_path, wants_key(ROUTER), draft, present=CONFIGURED)
    assert draft.secrets == {"OPENAI_API_KEY": ROUTER}
    assert written(draft)["name"] == "gpt-4.1"


def test_the_same_key_in_the_environment_is_not_a_second_choice(tmp_path: Path) -> None:
    person = Person("")
    environ = {"OPENAI_API_KEY": OPENAI}
    choose(person, tmp_path, draft=draft_of(PRESENT), present=CONFIGURED, environ=environ)
    assert "OPENAI_API_KEY" not in person.screen


# --- by flags ------------------------------------------------------------------------------------


def flags() -> FlagPrompter:
    return FlagPrompter({}, print)


@pytest.mark.parametrize(
    ("wanted", "environ", "expected"),
    [
        pytest.param(
            RequestedModel(key=f"{ROUTER}\n", name="x/y"),
            {},
            ("openai", "x/y", "https://openrouter.ai/api/v1"),
            id="a key",
        ),
        pytest.param(
            RequestedModel(base_url="http://10.0.0.5:8000", name="x"),
            {},
            ("openai", "x", "http://10.0.0.5:8000/v1"),
            id="an address",
        ),
        pytest.param(
            RequestedModel(provider="anthropic"),
            {"ANTHROPIC_API_KEY": ANTHROPIC},
            ("anthropic", ANTHROPIC_MODEL, None),
            id="a provider whose key is set",
        ),
        pytest.param(RequestedModel(provider="demo"), {}, ("demo", None, None), id="the demo"),
        pytest.param(
            RequestedModel(provider="openai-responses", key=OPENAI),
            {},
            ("openai-responses", OPENAI_MODEL, None),
            id="another protocol",
        ),
        pytest.param(
            RequestedModel(name="alpha"),
            {"OPENAI_API_KEY": OPENAI},
            ("openai", "alpha", None),
            id="a name alone",
        ),
    ],
)
def test_flags_select_a_model(
    tmp_path: Path,
    wanted: RequestedModel,
    environ: dict[str, str],
    expected: tuple[str, str | None, str | None],
) -> None:
    chosen, _ = choose(flags(), tmp_path, wanted=wanted, environ=environ)
    settings = chosen.settings
    assert (settings.provider, settings.name, settings.base_url) == expected


@pytest.mark.parametrize(
    ("wanted", "checks", "told"),
    [
        pytest.param(
            RequestedModel(), Answers(), "No model is given: use --model-key", id="nothing"
        ),
        pytest.param(
            RequestedModel(provider="anthropic"),
            Answers(),
            "anthropic needs a key: use --model-key env:NAME, file:PATH or -, "
            "or set ANTHROPIC_API_KEY.",
            id="a provider without its key",
        ),
        pytest.param(
            RequestedModel(base_url="http://10.0.0.5:8000"),
            lists("alpha", "beta"),
            "The server has several models, use --model NAME: alpha, beta.",
            id="a server with several",
        ),
        pytest.param(
            RequestedModel(base_url="http://10.0.0.5:8000"),
            lists(),
            "The server does not list its models: use --model NAME.",
            id="a server without a list",
        ),
    ],
)
def test_missing_flags_are_reported_in_one_sentence(
    tmp_path: Path, wanted: RequestedModel, checks: Answers, told: str
) -> None:
    with pytest.raises(AnswerError) as caught:
        choose(flags(), tmp_path, checks, wanted=wanted)
    assert str(caught.value).startswith(told)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        (broken("key", "refused"), ConfigError),
        (broken("service", "away"), CannotStart),
        (broken("answer", "empty"), CannotStart),
    ],
)
def test_a_script_fails_if_the_model_does_not_answer(
    tmp_path: Path, found: ProbedModel, kind: type[Exception]
) -> None:
    with pytest.raises(kind):
        choose(
            flags(),
            tmp_path,
            Answers(model=lambda _: found),
            wanted=RequestedModel(key=OPENAI),
        )


def test_without_checks_any_model_is_accepted(tmp_path: Path) -> None:
    unchecked = Answers(model=lambda _: None)
    chosen, draft = choose(flags(), tmp_path, unchecked, wanted=RequestedModel(key=OPENAI))
    assert not chosen.checked
    assert written(draft)["name"] == OPENAI_MODEL
