"""The work between a message and the first request of its turn: nothing is read or parsed twice."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.inbound import reader, routing
from gateway.turns.models import Models
from sessions.store.readers import SessionReader, TurnReader
from sessions.store.store import SessionStore
from tests.e2e.gateway_kit import gateway, talkative
from tests.fakes.model_server import ModelServer

CHAT = "7"
COUNTED: dict[str, tuple[object, str]] = {
    "load of the conversation": (SessionStore, "conversation"),
    "read of the history": (SessionReader, "context"),
    "read of the turn": (TurnReader, "get"),
    "decoded message": (reader, "read_event"),
    "parsed command": (routing, "parse_command"),
    "setting": (Models, "turn_setting"),
}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Calls of each counted function since the last `clear`."""
    counts = Counter[str]()

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            counts[name] += 1
            return function(*args, **options)

        return call

    for name, (owner, attribute) in COUNTED.items():
        monkeypatch.setattr(owner, attribute, counted(name, getattr(owner, attribute)))
    return counts


async def test_a_turn_start_repeats_no_read_decoding_or_parsing(
    tmp_path: Path, calls: Counter[str]
) -> None:
    async with ModelServer(talkative) as model, gateway(tmp_path, model) as kit:
        calls.clear()
        await kit.screen.say(CHAT, "hello")
        await kit.screen.shows(CHAT, "echo: hello")
        # A conversation that is not in memory is loaded with its waiting message. The history of a
        # new session consists of the rows of this start, so it is not read.
        on_load = Counter(
            {"load of the conversation": 1, "decoded message": 1, "parsed command": 1}
        )
        assert calls == on_load + Counter({"parsed command": 1, "setting": 1})
        calls.clear()
        await kit.screen.say(CHAT, "again")
        await kit.screen.shows(CHAT, "echo: again")
        assert calls == {"read of the history": 1, "parsed command": 1, "setting": 1}
        assert await kit.asked(2) == [
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": "echo: hello"},
            {"role": "user", "content": "again"},
        ]


async def test_a_command_is_parsed_once(tmp_path: Path, calls: Counter[str]) -> None:
    async with ModelServer(talkative) as model, gateway(tmp_path, model) as kit:
        calls.clear()
        await kit.screen.say(CHAT, "/help")
        await kit.screen.shows(CHAT, "/status")
        assert calls == {"parsed command": 1}
