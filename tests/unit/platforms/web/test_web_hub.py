"""Waking the open pages, and forgetting chats that nobody looks at."""

import pytest

from platforms.web.hub import Hub
from sessions.values.clock import SystemClock


@pytest.fixture
def hub() -> Hub:
    return Hub(SystemClock())


def test_only_pages_of_the_chat_are_woken_by_a_draft(hub: Hub) -> None:
    with hub.opened(), hub.watching("here") as here, hub.watching("there") as there:
        hub.drafted("here", "x", "text", "")
        assert here.news.is_set()
        assert not there.news.is_set()


def test_every_page_is_woken_when_the_list_of_conversations_changes(hub: Hub) -> None:
    with hub.opened(), hub.watching("here") as here, hub.watching("there") as there:
        hub.said("here")
        assert here.news.is_set()
        assert there.news.is_set()
        assert hub.chats == 1


def test_pages_have_to_leave_when_the_adapter_stops(hub: Hub) -> None:
    with hub.opened(), hub.watching("here") as here:
        assert not here.ended
    with hub.opened():
        first = hub.watching("here")
        watcher = first.__enter__()
    assert watcher.ended
    assert watcher.news.is_set()
    first.__exit__(None, None, None)


def test_a_page_that_comes_while_no_adapter_runs_leaves_at_once(hub: Hub) -> None:
    with hub.watching("here") as here:
        assert here.ended


def test_chats_without_pages_and_drafts_are_forgotten(hub: Hub) -> None:
    with hub.opened():
        for number in range(100):
            hub.posted(f"chat{number}", "x")
            hub.typing(f"chat{number}")
            hub.edited(f"chat{number}", "x", "text", ())
            hub.deleted(f"chat{number}", "x")
        assert not hub._scenes
        hub.drafted("kept", "x", "half an answer", "")
        with hub.watching("kept"), hub.watching("looked-at"):
            hub.said("looked-at")
        assert list(hub._scenes) == ["kept"]
        hub.posted("kept", "x")
        assert not hub._scenes
