"""Setup guides of the platforms."""

import pytest

from platforms.core.contract import PlatformSpec
from platforms.core.guide import SetupGuide, TokenGuide
from platforms.core.registry import load_specs
from tests.fakes.slack.server import APP_TOKEN, BOT_TOKEN
from tests.fakes.telegram.server import TOKEN

GUIDED = {name: spec for name, spec in load_specs().items() if spec.secrets}


def guide_of(spec: PlatformSpec) -> SetupGuide:
    assert spec.guide
    return spec.guide


def test_every_platform_with_secrets_has_a_guide() -> None:
    assert set(GUIDED) >= {"telegram", "discord", "slack"}
    assert all(spec.guide for spec in GUIDED.values())


@pytest.mark.parametrize("name", sorted(GUIDED))
def test_a_guide_asks_for_the_secrets_in_few_short_lines(name: str) -> None:
    spec = GUIDED[name]
    guide = guide_of(spec)
    assert [token.key for token in guide.tokens] == list(spec.secrets)
    for token in guide.tokens:
        assert 1 <= len(token.steps) <= 3
        assert all(len(step) <= 96 for step in token.steps)


def token(platform: str, key: str) -> TokenGuide:
    return next(each for each in guide_of(GUIDED[platform]).tokens if each.key == key)


@pytest.mark.parametrize(
    ("platform", "key", "text"),
    [
        ("telegram", "token", TOKEN),
        ("slack", "bot_token", BOT_TOKEN),
        ("slack", "app_token", APP_TOKEN),
        ("discord", "token", "MTIzNDU2Nzg5MDEyMzQ1Njc4.GaBcDe." + "Ab-_" * 9),
    ],
)
def test_a_token_is_recognised_by_its_format(platform: str, key: str, text: str) -> None:
    wanted = token(platform, key)
    assert wanted.extract(f" {text[:9]}\n{text[9:]}\n") == text
    assert wanted.extract(f"Here it is:\n{text}\nKeep it.") == text
    assert wanted.extract(f"x{text}!") == ""


@pytest.mark.parametrize(
    ("platform", "key", "text"),
    [
        ("telegram", "token", "123456789"),
        ("telegram", "token", "holdfast_bot"),
        ("slack", "bot_token", APP_TOKEN),
        ("slack", "app_token", BOT_TOKEN),
        ("discord", "token", "123456789012345678"),
        ("discord", "token", "a-client-secret-of-32-characters"),
    ],
)
def test_similar_strings_are_not_taken_for_a_token(platform: str, key: str, text: str) -> None:
    assert token(platform, key).extract(text) == ""
