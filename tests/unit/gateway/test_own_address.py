"""A model service at the address of the gateway itself."""

from pathlib import Path

import pytest

from gateway.config.loader import ConfigOptions, load
from gateway.config.own_address import is_own_address, refuse_own_address
from gateway.errors import ConfigError
from gateway.settings import HttpSettings


@pytest.mark.parametrize(
    ("url", "http", "own"),
    [
        ("http://127.0.0.1:8420/v1", HttpSettings(), True),
        ("http://localhost:8420/v1", HttpSettings(), True),
        ("http://[::1]:8420", HttpSettings(), True),
        ("http://0.0.0.0:8420/v1", HttpSettings(), True),
        ("http://127.0.0.1:11434/v1", HttpSettings(), False),
        ("http://10.0.0.5:8420/v1", HttpSettings(), False),
        ("http://10.0.0.5:8420/v1", HttpSettings(host="10.0.0.5"), True),
        ("http://127.0.0.1:8420/v1", HttpSettings(host="10.0.0.5"), False),
        ("http://127.0.0.1:8420/v1", HttpSettings(host="0.0.0.0"), True),  # noqa: S104 - not bound
        ("http://localhost/v1", HttpSettings(port=80), True),
        ("https://localhost/v1", HttpSettings(port=80), False),
        ("http://localhost/v1", HttpSettings(port=0), False),
        ("http://localhost:99999/v1", HttpSettings(), False),
    ],
)
def test_only_the_gateway_s_own_port_is_its_own_address(
    url: str, http: HttpSettings, own: bool
) -> None:
    assert is_own_address(url, http) is own


def _refusal(tmp_path: Path, *settings: str, **environ: str) -> str:
    loaded = load(ConfigOptions(None, settings), {"HOME": str(tmp_path), **environ}, {})
    with pytest.raises(ConfigError) as refused:
        refuse_own_address(loaded)
    return str(refused.value)


def test_a_variable_exported_for_a_client_is_named(tmp_path: Path) -> None:
    text = _refusal(tmp_path, OPENAI_BASE_URL="http://127.0.0.1:8420/v1", OPENAI_API_KEY="hf-none")
    assert text.startswith(
        "OPENAI_BASE_URL: model.base_url http://127.0.0.1:8420/v1 is the address"
    )
    assert text.endswith("unset OPENAI_BASE_URL")


def test_a_fallback_at_the_own_address_is_refused(tmp_path: Path) -> None:
    fallback = 'model.fallback=[{name="m", provider="openai", base_url="http://localhost:8420/v1"}]'
    text = _refusal(tmp_path, fallback, OPENAI_API_KEY="sk-none")
    assert "model.fallback[0].base_url" in text
    assert text.endswith("set the address of a model service")


def test_another_service_is_accepted(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "OPENAI_BASE_URL": "http://127.0.0.1:11434/v1"}
    refuse_own_address(load(ConfigOptions(None, ()), environ, {}))
