"""Defaults of the model, and the addresses to which keys may be sent."""

from pathlib import Path
from typing import Any

import pytest

from agent.settings import SERVICES, ModelSettings
from gateway.config.loader import ConfigOptions, check, load
from tests.fakes.distribution import write_distribution

OPENAI = "openai-key"
ANTHROPIC = "anthropic-key"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def model(*sets: str, **environ: str) -> ModelSettings:
    return load(ConfigOptions(None, sets), {"HOME": "/nowhere", **environ}, {}).settings.model


def problems(*sets: str, **environ: str) -> tuple[str, ...]:
    return check(ConfigOptions(None, sets), {"HOME": "/nowhere", **environ}, {}).problems


def summary(found: Any) -> tuple[str, str | None, str | None, str | None]:
    key = found.api_key.reveal() if found.api_key else None
    return found.provider, found.name, found.base_url, key


GPT = SERVICES["openai"].model
CLAUDE = SERVICES["anthropic"].model


@pytest.mark.parametrize(
    ("sets", "environ", "expected"),
    [
        ([], {}, ("demo", "demo", None, None)),
        ([], {"OPENAI_API_KEY": OPENAI}, ("openai", GPT, None, OPENAI)),
        ([], {"OPENAI_BASE_URL": "http://x/v1"}, ("openai", None, "http://x/v1", None)),
        ([], {"ANTHROPIC_API_KEY": ANTHROPIC}, ("anthropic", CLAUDE, None, ANTHROPIC)),
        (
            [],
            {"OPENAI_API_KEY": OPENAI, "ANTHROPIC_API_KEY": ANTHROPIC},
            ("openai", GPT, None, OPENAI),
        ),
        ([], {"OPENAI_API_KEY": ""}, ("demo", "demo", None, None)),
        (["model.api_key=k"], {}, ("openai", GPT, None, "k")),
        (["model.api_key=k"], {"ANTHROPIC_API_KEY": ANTHROPIC}, ("openai", GPT, None, "k")),
        (["model.base_url=http://x"], {}, ("openai", None, "http://x", None)),
        (
            ["model.base_url=http://x"],
            {"OPENAI_API_KEY": OPENAI},
            ("openai", None, "http://x", OPENAI),
        ),
        (
            ["model.base_url=http://x", "model.name=m", "model.api_key=k"],
            {"OPENAI_API_KEY": OPENAI, "OPENAI_BASE_URL": "http://y"},
            ("openai", "m", "http://x", "k"),
        ),
        (
            ["model.provider=anthropic"],
            {"OPENAI_API_KEY": OPENAI, "ANTHROPIC_API_KEY": ANTHROPIC},
            ("anthropic", CLAUDE, None, ANTHROPIC),
        ),
        (
            ["model.provider=openai-responses"],
            {"OPENAI_API_KEY": OPENAI},
            ("openai-responses", GPT, None, OPENAI),
        ),
        (["model.provider=demo"], {"OPENAI_API_KEY": OPENAI}, ("demo", "demo", None, None)),
        (["model.provider=demo", "model.name=demo"], {}, ("demo", "demo", None, None)),
        (['model.provider="openai"'], {"OPENAI_API_KEY": OPENAI}, ("openai", GPT, None, OPENAI)),
        (["model.name=m"], {"OPENAI_API_KEY": OPENAI}, ("openai", "m", None, OPENAI)),
    ],
)
def test_provider_is_derived_from_keys_and_variables(
    sets: list[str], environ: dict[str, str], expected: tuple[str | None, ...]
) -> None:
    assert summary(model(*sets, **environ)) == expected


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        (
            ["model.provider=openai"],
            "--set model.provider: model.api_key is missing; set it, or OPENAI_API_KEY",
        ),
        (
            ["model.provider=anthropic"],
            "--set model.provider: model.api_key is missing; set it, or ANTHROPIC_API_KEY",
        ),
        (
            ["model.provider=opnai"],
            (
                '--set model.provider=opnai: model.provider must be one of "openai", "openai-responses",'
                ' "anthropic", "demo", not "opnai" (did you mean openai?)'
            ),
        ),
        (["model=3"], "--set model=3: model must be a table ([model]), not a whole number"),
        (
            [
                "model.base_url=http://x",
                "model.fallback=[{provider='openai', base_url='http://y'}]",
            ],
            "--set model.fallback: model.fallback[0] needs a name",
        ),
        (
            ["model.base_url=http://x", "model.fallback=[{name='m', provider='anthropic'}]"],
            (
                "--set model.fallback: model.fallback[0].api_key is missing; set it, "
                "or ANTHROPIC_API_KEY"
            ),
        ),
        (
            ["model.base_url=http://x", "model.fallback=[{name='m', fallback=[]}]"],
            "--set model.fallback: unknown key model.fallback[0].fallback",
        ),
        (
            ["model.base_url=http://x", "model.fallback=[3]"],
            "--set model.fallback=[3]: model.fallback[0] must be a table",
        ),
    ],
)
def test_incomplete_model_is_an_error(sets: list[str], expected: str) -> None:
    (found,) = problems(*sets)
    assert found.startswith(expected)


@pytest.mark.parametrize(
    ("fallback", "expected"),
    [
        ("name='m'", ("openai", "m", "http://x", "k")),
        ("name='m', provider='openai', base_url='http://x'", ("openai", "m", "http://x", "k")),
        ("name='m', base_url='http://x'", ("openai", "m", "http://x", "k")),
        ("name='m', base_url='http://y'", ("openai", "m", "http://y", None)),
        ("name='m', base_url='http://y', api_key='l'", ("openai", "m", "http://y", "l")),
        ("name='m', provider='openai'", ("openai", "m", None, OPENAI)),
        ("name='m', provider='anthropic'", ("anthropic", "m", None, ANTHROPIC)),
        (
            "name='m', provider='anthropic', base_url='http://x'",
            ("anthropic", "m", "http://x", None),
        ),
        ("name='m', provider='anthropic', api_key='l'", ("anthropic", "m", None, "l")),
        ("provider='demo'", ("demo", None, None, None)),
    ],
)
def test_fallback_inherits_a_key_only_for_the_same_address(
    fallback: str, expected: tuple[str | None, ...]
) -> None:
    found = model(
        "model.base_url=http://x",
        "model.api_key=k",
        f"model.fallback=[{{{fallback}}}]",
        OPENAI_API_KEY=OPENAI,
        ANTHROPIC_API_KEY=ANTHROPIC,
    )
    assert summary(found.fallback[0]) == expected


def test_fallback_on_the_same_service_needs_only_a_name() -> None:
    found = model("model.fallback=[{name='small'}]", OPENAI_API_KEY=OPENAI)
    assert summary(found.fallback[0]) == ("openai", "small", None, OPENAI)


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ("", (4.0, 0.5, 1800.0)),
        (", timeouts={}", (4.0, 0.5, 1800.0)),
        (", timeouts={connect=8}", (8.0, 0.5, 1800.0)),
        (", timeouts={connect=15.0}", (15.0, 0.5, 1800.0)),  # an explicit default
        (", timeouts={lifetime=9}", (4.0, 0.5, 9.0)),
    ],
)
def test_fallback_inherits_timeouts_except_its_own(own: str, expected: tuple[float, ...]) -> None:
    found = model(
        "model.base_url=http://x",
        "model.timeouts.connect=4",
        "model.timeouts.backoff=0.5",
        f"model.fallback=[{{name='m'{own}}}]",
    )
    clocks = found.fallback[0].timeouts
    assert (clocks.connect, clocks.backoff, clocks.lifetime) == expected


def test_timeout_that_contradicts_an_inherited_one_is_an_error() -> None:
    (found,) = problems(
        "model.base_url=http://x",
        "model.timeouts.first_token=9",
        "model.fallback=[{name='m', timeouts={lifetime=5}}]",
    )
    assert "model.fallback[0].timeouts.lifetime must not be shorter than first_token (9 s)" in found


def test_malformed_timeouts_are_reported_by_decoding() -> None:
    (found,) = problems(
        "model.base_url=http://x",
        "model.timeouts.connect=4",
        "model.fallback=[{name='m', timeouts=3}]",
    )
    assert "model.fallback[0].timeouts must be a table" in found


def test_provider_of_an_installed_package_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = ("model.provider=guest", "model.fallback=[{name='m', provider='gest'}]")
    absent = problems(*named)
    assert [each.partition(" must be one of ")[0] for each in absent] == [
        "--set model.provider=guest: model.provider",
        "--set model.fallback: model.fallback[0].provider",
    ]
    write_distribution(
        tmp_path, "guest", "[holdfast.providers]\nguest = agent.providers.demo:build\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert model(named[0]).provider == "guest"
    (left,) = problems(*named)
    assert left.endswith('"demo", "guest", not "gest" (did you mean guest?)')


def test_malformed_provider_name_is_refused_before_the_lookup() -> None:
    (found,) = problems("model.provider='A b'")
    assert "or the name of an installed provider plug-in" in found
