"""Settings that connect the agent's tests to a scripted server."""

import pytest

from tests.fakes.agent_kit import SCALED, openai_settings, settings_for
from tests.fakes.dialects.steps import ProtocolName
from tests.fakes.model_server import ModelServer


@pytest.mark.parametrize(
    ("protocol", "provider", "base_url"),
    [
        ("chat", "openai", "http://127.0.0.1:1/v1"),
        ("anthropic", "anthropic", "http://127.0.0.1:1"),
        ("responses", "openai-responses", "http://127.0.0.1:1/v1"),
    ],
)
def test_settings_contain_the_provider_of_the_protocol(
    protocol: ProtocolName, provider: str, base_url: str
) -> None:
    settings = settings_for(protocol, ModelServer(port=1).url)
    assert (settings.provider, settings.base_url) == (provider, base_url)
    assert settings.timeouts == SCALED


def test_openai_settings_equal_the_settings_of_the_chat_protocol() -> None:
    assert openai_settings("http://x/v1") == settings_for("chat", "http://x/v1")
