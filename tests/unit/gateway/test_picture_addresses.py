"""Addresses in the setting `http.fetch_pictures_from`."""

import pytest

from gateway.settings import HttpSettings


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("10.0.0.5:8080", ("10.0.0.5", 8080)),
        ("[FD00::5]:80", ("fd00::5", 80)),
        ("fd00:0::5:80", ("fd00::5", 80)),  # the last colon counts
    ],
)
def test_address_with_port_is_accepted(text: str, place: tuple[str, int]) -> None:
    settings = HttpSettings(fetch_pictures_from=(text,))
    assert settings.picture_addresses == (place,)
    assert list(settings.conflicts()) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10.0.0.5",
        "pictures:80",
        "10.0.0.5:",
        "10.0.0.5:0",
        "10.0.0.5:65536",
        "10.0.0.0/8:80",
        "10.0.0.5:²",
    ],
)
def test_other_text_is_reported_as_an_error(text: str) -> None:
    settings = HttpSettings(fetch_pictures_from=("10.0.0.5:80", text))
    ((path, problem),) = settings.conflicts()
    assert path == ("fetch_pictures_from", 1)
    assert f'"{text}" is not an address and a port' in problem
