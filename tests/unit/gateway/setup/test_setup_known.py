import pytest

from gateway.operate.setup.services import (
    assume_scheme,
    complete_url,
    is_local_network,
    is_url,
    looks_like_key,
    preferred_model,
    service_of_key,
)


@pytest.mark.parametrize(
    ("key", "name", "provider", "base_url"),
    [
        ("sk-ant-api03-x", "Anthropic", "anthropic", None),
        ("sk-or-v1-x", "OpenRouter", "openai", "https://openrouter.ai/api/v1"),
        ("sk-proj-x", "OpenAI", "openai", None),
        ("gsk_x", "Groq", "openai", "https://api.groq.com/openai/v1"),
        ("xai-x", "xAI", "openai", "https://api.x.ai/v1"),
    ],
)
def test_a_key_prefix_identifies_its_service(
    key: str, name: str, provider: str, base_url: str | None
) -> None:
    known = service_of_key(key)
    assert known
    assert (known.name, known.provider, known.base_url) == (name, provider, base_url)


def test_an_unknown_key_prefix_identifies_no_service() -> None:
    assert service_of_key("0123456789abcdef") is None


@pytest.mark.parametrize(
    ("text", "key", "address"),
    [
        ("sk-0123456789", True, False),
        ("http://127.0.0.1:1234", False, True),
        ("https://", False, False),
        ("short", False, False),
        ("two words here", False, False),
        ("schlüssel-0123", False, False),
    ],
)
def test_keys_and_urls_are_distinguished(text: str, key: bool, address: bool) -> None:
    assert looks_like_key(text) is key
    assert is_url(text) is address


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("127.0.0.1", "http://127.0.0.1"),
        ("10.0.0.5:8000/v1", "http://10.0.0.5:8000/v1"),
        ("[::1]:8000", "http://[::1]:8000"),
        ("8.8.8.8:8000", "https://8.8.8.8:8000"),
        ("models:8000", "https://models:8000"),
        ("openrouter.ai/api/v1", "https://openrouter.ai/api/v1"),
        ("sk-0123456789", None),
        ("0123456789abcdef.ABCDEFGH01234567", None),
        ("http://127.0.0.1:1234", None),
        ("demo", None),
        ("", None),
    ],
)
def test_an_address_without_a_scheme_is_recognized(typed: str, meant: str | None) -> None:
    assert assume_scheme(typed) == meant


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("http://127.0.0.1:1234", "http://127.0.0.1:1234/v1"),
        ("http://127.0.0.1:1234/", "http://127.0.0.1:1234/v1"),
        ("https://x.example/api/v1/", "https://x.example/api/v1"),
    ],
)
def test_a_url_without_a_path_is_completed(typed: str, meant: str) -> None:
    assert complete_url(typed) == meant


@pytest.mark.parametrize(
    ("url", "near"),
    [
        ("http://127.0.0.1:11434/v1", True),
        ("http://localhost:8000/v1", True),
        ("http://10.1.2.3/v1", True),
        ("http://192.168.1.4:1234/v1", True),
        ("http://[::1]:8000/v1", True),
        ("https://openrouter.ai/api/v1", False),
        ("http://8.8.8.8/v1", False),
        (None, False),
    ],
)
def test_a_model_on_the_local_network_is_free(url: str | None, near: bool) -> None:
    assert is_local_network(url) is near


@pytest.mark.parametrize(
    ("models", "chosen"),
    [
        (("nomic-embed-text", "qwen3:8b"), "qwen3:8b"),
        (("whisper-1", "tts-1"), "whisper-1"),
        (("a/b", "openrouter/auto"), "openrouter/auto"),
        (("b", "a"), "b"),
    ],
)
def test_the_preferred_model_is_one_that_chats(models: tuple[str, ...], chosen: str) -> None:
    assert preferred_model(models) == chosen
