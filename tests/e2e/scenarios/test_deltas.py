"""Deltas of an answer: display, progress and timeouts."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from platforms.core.contract import Edit, Live, Post, Repeat
from sessions.records import TurnState
from tests.e2e.gateway_kit import Screen
from tests.e2e.scenarios.scenario_kit import CHAT, SCALED, Stage, now, stage
from tests.fakes.dialects.steps import PROTOCOLS, ProtocolName
from tests.fakes.model_script import Script

OK = 'H T"done" F stop U D EOF'
each_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


def begun(scene: Stage) -> int:
    """Return how often the gateway recorded the first text of a turn."""
    figure = scene.kit.runner._metrics.first_text_seconds
    return sum(sum(counts) for _, counts, _ in figure.read())


@each_protocol
async def test_deltas_are_shown_in_order_and_the_first_one_starts_the_answer(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    pieces = [f"{number} and " for number in range(6)]
    said = " ".join(f'T"{piece}" W.1' for piece in pieces)
    async with stage(tmp_path, protocol, f'H {said} T"done." F stop U D') as scene:
        await scene.go()
        whole = "".join((*pieces, "done."))
        assert await scene.history() == ["U:go", f"A:{whole}"]
        seen = [op.text for op in scene.kit.screen.ops if isinstance(op, Post | Edit)]
        assert len(seen) >= 3
        assert all(whole.startswith(text) for text in seen)
        assert begun(scene) == 1
        await scene.check()


async def test_a_second_request_does_not_start_the_answer_again(tmp_path: Path) -> None:
    scripts = ('H T"The quick brown " RST', 'H T"fox jumps." F stop D')
    async with stage(tmp_path, "chat", *scripts) as scene:
        await scene.go()
        assert begun(scene) == 1
        await scene.check()


ALIVE: dict[str, Script] = {
    "text": 'H [T"x" W.5]*4 F stop D',
    "thoughts": 'H [R"x" W.5]*4 T"xxxx" F stop D',
    "thoughts, then text": 'H R"hm" W.7 T"xx" W.5 T"xx" F stop D',
    "the reason to stop": 'H T"xxxx" W.5 F stop W1.2 D',
}


@each_protocol
@pytest.mark.parametrize("script", ALIVE.values(), ids=ALIVE)
async def test_every_delta_resets_the_gap_timeout(
    tmp_path: Path, protocol: ProtocolName, script: Script
) -> None:
    """Gaps may last 0.6 s in text and 0.8 s in reasoning; the whole answer takes longer."""
    async with stage(tmp_path, protocol, script) as scene:
        turn = await scene.go()
        assert turn.attempts == 1
        assert await scene.history() == ["U:go", "A:xxxx"]
        await scene.check()


@each_protocol
async def test_every_delta_of_a_call_resets_the_gap_timeout(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    script = "H C(0,c1,pay,-) W.7 C(0,-,-,'{\"amo') W.7 C(0,-,-,'unt\": 5}') W.7 F tool_calls D"
    async with stage(tmp_path, protocol, script, OK) as scene:
        turn = await scene.go()
        assert turn.attempts == 2
        assert scene.desk.ran == ["pay 5"]
        await scene.check()


async def test_an_answer_is_streamed_even_if_the_chat_shows_only_the_final_text(
    tmp_path: Path,
) -> None:
    screen = Screen(live=Live.NONE, repeat=Repeat.ALWAYS)
    async with stage(tmp_path, "chat", 'H [T"x" W.5]*4 F stop D', screen=screen) as scene:
        await scene.go()
        assert scene.requests[0].stream
        assert [op.text for op in screen.ops if isinstance(op, Post | Edit)] == ["xxxx"]
        assert begun(scene) == 1
        await scene.check()


IN_WORDS = 'H J{"error":{"message":"Network connection lost."}}'
BROKEN: list[tuple[ProtocolName, str]] = [
    ("chat", IN_WORDS),
    *((protocol, "H RST") for protocol in PROTOCOLS),
]


@pytest.mark.parametrize(("protocol", "broken"), BROKEN)
async def test_a_failing_network_is_tried_three_times(
    tmp_path: Path, protocol: ProtocolName, broken: str
) -> None:
    async with stage(tmp_path, protocol, *[broken] * 3) as scene:
        turn = await scene.go()
        assert turn.state is TurnState.FAILED
        assert len(scene.requests) == 3
        (notice,) = scene.shown()
        assert "connection drops" in notice
        assert all(request.closed.is_set() for request in scene.requests)
        assert await scene.history() == ["U:go"]
        await scene.check()


@each_protocol
async def test_a_service_that_ends_three_streams_at_once_is_asked_without_a_stream(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    async with stage(tmp_path, protocol, *["H FIN"] * 3, OK) as scene:
        turn = await scene.go()
        assert turn.state is TurnState.DONE
        assert [request.stream for request in scene.requests] == [True, True, True, False]
        await scene.check()


@each_protocol
async def test_a_stop_before_the_first_request_ends_the_turn(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    async with stage(tmp_path, protocol, "HANG", OK) as scene:
        await scene.say()
        await scene.stop()
        turn = await scene.ends()
        assert turn.state is TurnState.STOPPED
        asked = len(scene.requests)
        assert asked <= 1
        await scene.go("and now this")
        assert len(await scene.sessions()) == 2
        assert await scene.history(back=1) == ["U:go"]
        await scene.check()


PATIENT = msgspec.structs.replace(SCALED, gap_text=60.0, lifetime=60.0, notice_after=60.0)


@pytest.mark.parametrize(
    ("size", "least", "most"), [(100, 0.4, 1.2), (1023, 0.4, 1.2), (1024, 0.0, 0.35)]
)
async def test_visible_text_is_checkpointed_within_a_second_or_after_a_kilobyte(
    tmp_path: Path, size: int, least: float, most: float
) -> None:
    async with stage(tmp_path, "chat", f'W.5 H T"{"x" * size}" HANG', timeouts=PATIENT) as scene:
        await scene.say()
        await scene.kit.screen.shows(CHAT, "xxx")
        began = now()
        async with asyncio.timeout(10):
            while not (await scene.turns())[0].partial:  # noqa: ASYNC110 - the store sends no notification
                await asyncio.sleep(0.1)
        assert least <= now() - began <= most
        assert (await scene.turns())[0].partial == "x" * size
        await scene.stop()
        await scene.check()
