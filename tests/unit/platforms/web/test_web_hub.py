"""Waking open pages, and dropping unused chat states."""

import pytest

from platforms.web.hub import PageHub
from sessions.values.clock import SystemClock


@pytest.fixture
def hub() -> PageHub:
    return PageHub(SystemClock())


def test_a_draft_wakes_only_pages_of_its_chat(hub: PageHub) -> None:
    with hub.accepting_watchers(), hub.watch("here") as here, hub.watch("there") as there:
        hub.on_draft("here", "x", "text", "")
        assert here.wakeup.is_set()
        assert not there.wakeup.is_set()


def test_a_changed_conversation_list_wakes_every_page(hub: PageHub) -> None:
    with hub.accepting_watchers(), hub.watch("here") as here, hub.watch("there") as there:
        hub.on_user_message("here")
        assert here.wakeup.is_set()
        assert there.wakeup.is_set()
        assert hub.chats_version == 1


def test_watchers_end_when_the_adapter_stops(hub: PageHub) -> None:
    with hub.accepting_watchers(), hub.watch("here") as here:
        assert not here.has_ended
    with hub.accepting_watchers():
        first = hub.watch("here")
        watcher = first.__enter__()
    assert watcher.has_ended
    assert watcher.wakeup.is_set()
    first.__exit__(None, None, None)


def test_a_watcher_without_a_running_adapter_ends_at_once(hub: PageHub) -> None:
    with hub.watch("here") as here:
        assert here.has_ended


def test_chats_without_pages_and_drafts_are_dropped(hub: PageHub) -> None:
    with hub.accepting_watchers():
        for number in range(100):
            hub.on_posted(f"chat{number}", "x")
            hub.on_typing(f"chat{number}")
            hub.on_edited(f"chat{number}", "x", "text", ())
            hub.on_deleted(f"chat{number}", "x")
        assert not hub._states
        hub.on_draft("kept", "x", "half an answer", "")
        with hub.watch("kept"), hub.watch("looked-at"):
            hub.on_user_message("looked-at")
        assert list(hub._states) == ["kept"]
        hub.on_posted("kept", "x")
        assert not hub._states
