"""Settings of attachments and voice, and their errors."""

import pytest

from gateway.config.loader import ConfigOptions, check, load
from gateway.config.render import render_documentation
from gateway.settings import Settings
from platforms.telegram.capabilities import MAX_DOWNLOAD_BYTES
from sessions.values.size import format_size


def settings(*sets: str) -> Settings:
    return load(ConfigOptions(None, sets), {"HOME": "/nowhere"}, {}).settings


def problems(*sets: str) -> tuple[str, ...]:
    return tuple(check(ConfigOptions(None, sets), {"HOME": "/nowhere"}, {}).problems)


def test_files_and_voice_have_defaults() -> None:
    found = settings()
    assert (found.media.largest, float(found.media.keep)) == (20_000_000, 30 * 86400)
    assert found.voice.transcription_url is None


def test_the_largest_file_is_described_with_the_limit_of_telegram() -> None:
    described = render_documentation({})  # the settings cannot import an adapter
    limit = format_size(MAX_DOWNLOAD_BYTES)
    assert f"Telegram bots can download at most {limit}." in described


def test_sizes_and_times_can_be_written_with_units() -> None:
    found = settings("media.largest=5 MB", "media.keep=1w")
    assert (found.media.largest, float(found.media.keep)) == (5_000_000, 604_800)


def test_transcription_needs_only_a_url() -> None:
    found = settings("voice.transcription_url=http://127.0.0.1:9/v1")
    assert found.voice.transcription_url == "http://127.0.0.1:9/v1"
    assert found.voice.transcription_model is None


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("media.largest=much", 'media.largest must be an amount such as "20MB"'),
        ("media.largest=-1", "media.largest must be an amount"),
        ("media.keep=long", "media.keep must be a span of time"),
        ("voice.transcription_url=example.org", "must be an http:// or https:// address"),
        ("voice.transcription_model=m", "has no effect without voice.transcription_url"),
        ("voice.speech_url=http://h/", "voice.speech_url"),
    ],
)
def test_invalid_values_are_named(written: str, said: str) -> None:
    (problem,) = problems(written)
    assert said in problem
