"""Origins in the setting `http.cors_origins`."""

import pytest

from gateway.settings import HttpSettings


@pytest.mark.parametrize(
    "text",
    ["https://app.example.org", "http://localhost:3000", "http://[::1]:80", "app://obsidian.md"],
)
def test_origins_are_accepted(text: str) -> None:
    assert not list(HttpSettings(cors_origins=(text,)).conflicts())


@pytest.mark.parametrize(
    "text",
    ["*", "", "null", "app.example.org", "https://app.example.org/", "https://App.example.org"],
)
def test_other_texts_are_refused(text: str) -> None:
    settings = HttpSettings(cors_origins=("https://app.example.org", text))
    ((path, message),) = settings.conflicts()
    assert path == ("cors_origins", 1)
    assert f'"{text}" is not an origin' in message
