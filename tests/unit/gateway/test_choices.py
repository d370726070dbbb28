import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.turns.choices import ModelChoice, ModelChoices
from sessions.store.store import SessionStore
from sessions.values.clock import SystemClock

KEY = "memory:7"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SessionStore]:
    opened = await SessionStore.open(f"sqlite:///{tmp_path / 'holdfast.db'}", clock=SystemClock())
    yield opened
    await opened.close()


async def read_again(store: SessionStore) -> ModelChoices:
    choices = ModelChoices(store)
    await choices.load()
    return choices


async def test_without_a_choice_the_configuration_applies(store: SessionStore) -> None:
    assert (await read_again(store)).get(KEY) == ModelChoice()


async def test_choices_apply_to_their_conversation_at_once_and_after_a_restart(
    store: SessionStore,
) -> None:
    choices = await read_again(store)
    await choices.set_model(KEY, "large", "openai")
    await choices.set_effort(KEY, "high")
    for each in (choices, await read_again(store)):
        assert each.get(KEY) == ModelChoice("large", "openai", "high")
        assert each.get("memory:8") == ModelChoice()


async def test_resetting_a_choice_keeps_the_other_and_resetting_both_deletes_the_row(
    store: SessionStore,
) -> None:
    choices = await read_again(store)
    await choices.set_model(KEY, "large", "openai")
    await choices.set_effort(KEY, "high")
    await choices.set_model(KEY, None)
    assert choices.get(KEY) == (await read_again(store)).get(KEY) == ModelChoice(effort="high")
    await choices.set_effort(KEY, None)
    assert choices.get(KEY) == ModelChoice()
    assert await store.values("choices") == {}


async def test_two_concurrent_choices_are_both_kept(store: SessionStore) -> None:
    choices = await read_again(store)
    async with asyncio.timeout(5), asyncio.TaskGroup() as both:
        both.create_task(choices.set_model(KEY, "large", "openai"))
        both.create_task(choices.set_effort(KEY, "low"))
    assert (await read_again(store)).get(KEY) == ModelChoice("large", "openai", "low")


async def test_an_unreadable_choice_is_ignored(
    store: SessionStore, caplog: pytest.LogCaptureFixture
) -> None:
    await store.put_value("choices", KEY, "{broken")
    await store.put_value("choices", "memory:8", '{"model":"large"}')
    with caplog.at_level(logging.WARNING):
        choices = await read_again(store)
    assert choices.get(KEY) == ModelChoice()
    assert choices.get("memory:8") == ModelChoice("large")
    assert KEY in caplog.text
