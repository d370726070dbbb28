"""The contract of adapters, tried on Telegram: the real library, and a Telegram of our own."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from platforms.core.contract import Accepted
from tests.contract.adapter_kit import Stage

# The same bodies as for every other adapter; they are given the stage below.
from tests.contract.test_adapters import (  # noqa: F401
    test_a_deleted_message_is_gone,
    test_a_draft_is_seen_until_it_is_withdrawn_or_its_answer_is_posted,
    test_a_file_that_is_not_there_is_a_platform_error,
    test_a_post_is_seen,
    test_a_repeat_is_shown_twice_only_where_the_capabilities_say_so,
    test_a_text_as_long_as_the_limit_is_taken,
    test_an_answer_being_written_grows_in_its_message,
    test_an_edit_changes_the_message_and_may_be_repeated,
    test_capabilities_leave_room_to_work_with,
    test_equal_texts_of_different_ops_are_different_messages,
    test_typing_leaves_nothing_behind,
    test_what_somebody_says_comes_in_and_is_acknowledged_once_it_is_stored,
)
from tests.fakes.telegram.server import serving
from tests.fakes.telegram.stage import telegram


@contextlib.asynccontextmanager
async def opened(*, rich: bool) -> AsyncIterator[Stage]:
    async with serving(rich=rich) as server, telegram(server) as adapter:

        async def say(text: str) -> Accepted:
            await server.acknowledged(server.say(1001, text))
            return Accepted.STORED

        yield Stage(adapter, "1001", lambda: server.screen(1001), say, server.complaints)


@pytest.fixture(params=[True, False], ids=["rich", "without rich messages"])
async def stage(request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    async with asyncio.timeout(10), opened(rich=request.param) as stage:
        yield stage
        assert stage.violations() == []
