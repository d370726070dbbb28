"""Kills of the daemon at each point of a turn that its journal records, each with a restart.

With `resume` the turn continues by itself; with `suspend` the user gets a notice and resumes it.
"""

import zlib
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.turns.crash_recovery import CRASHED_NOT_RUN, CRASHED_UNKNOWN
from sessions.records import Message, TurnState
from tests.e2e.daemon import answers, notices
from tests.fakes.dialects.requests import Asked
from tests.fakes.dialects.steps import PROTOCOLS, ProtocolName
from tests.fakes.model_script import Script
from tests.faults.journal_kills import (
    BEGUN,
    MODES,
    PAID,
    STORY,
    TOLD,
    UNSURE,
    Mode,
    Scene,
    Site,
    kill_at_random,
    results_in,
    staged,
)

NOT_SURE = "pay({", "I don't know whether it finished"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "site")


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> Mode:
    chosen: Mode = request.param
    return chosen


@pytest.fixture
def protocol(request: pytest.FixtureRequest, mode: Mode) -> ProtocolName:
    """Model protocol, spread over the tests; the two modes of a test use different ones."""
    number = zlib.crc32(request.node.originalname.encode()) + MODES.index(mode)
    return PROTOCOLS[number % len(PROTOCOLS)]


@pytest.fixture
async def scene(
    tmp_path: Path, site: Site, mode: Mode, protocol: ProtocolName
) -> AsyncIterator[Scene]:
    async with staged(tmp_path / "home", site, mode, protocol) as made:
        yield made


async def go_on(scene: Scene, mode: Mode, *told: str) -> None:
    """Start the daemon again and wait until the turn has ended."""
    await scene.daemon.start()
    if mode == "suspend":
        await scene.take_up(*told)
    rows = await scene.ended()
    tellings = [text for text in notices(rows) if TOLD in text]
    assert len(tellings) == (mode == "suspend")


def short(history: list[Message]) -> list[str]:
    return [
        f"{row.role[0]}:{row.content}{'+' * len(row.tool_calls)}{'!' * bool(row.interrupted)}"
        for row in history
    ]


def continued(mode: Mode) -> list[str]:
    """Texts that the user sent in the middle of the turn."""
    return ["u:continue"] if mode == "suspend" else []


@pytest.mark.parametrize(
    ("moment", "effects"), [("before-5", {}), ("after-5", {"pay 5": 1})], ids=["before", "after"]
)
async def test_a_kill_around_the_effect_of_a_tool_leaves_its_result_unknown_and_runs_it_at_most_once(
    scene: Scene, site: Site, mode: Mode, moment: str, effects: dict[str, int]
) -> None:
    site.switch(moment)
    await scene.say("pay 5")
    await scene.dies()
    await go_on(scene, mode, *NOT_SURE)
    history, turns = await scene.stop()
    assert site.effects == Counter(effects)
    assert short(history) == [
        "u:pay 5",
        f"a:{BEGUN}+",
        f"t:{CRASHED_UNKNOWN}",
        *continued(mode),
        f"a:{UNSURE}",
    ]
    assert turns[-1].state is TurnState.DONE
    assert [turn.resumed for turn in turns] == ([1] if mode == "resume" else [0, 0])


async def test_a_kill_after_a_tool_finished_keeps_its_result(
    scene: Scene, site: Site, mode: Mode
) -> None:
    def kill(asked: Asked) -> Script | None:
        if not results_in(asked):
            return None
        scene.model.meanwhile = None
        scene.kill()
        return "HANG"

    scene.model.meanwhile = kill
    await scene.say("pay 5")
    await scene.dies()
    await go_on(scene, mode)
    history, _ = await scene.stop()
    assert site.effects == {"pay 5": 1}
    assert short(history) == [
        "u:pay 5",
        f"a:{BEGUN}+",
        "t:paid 5",
        *continued(mode),
        f"a:{PAID}",
    ]


async def test_a_kill_during_a_text_keeps_the_checkpoint(scene: Scene, mode: Mode) -> None:
    def half(_: Asked) -> Script:
        scene.model.meanwhile = None
        return 'H T"abc" HANG'

    scene.model.meanwhile = half
    await scene.say("tell me")
    await scene.until("SELECT partial FROM turns", "abc")
    await scene.daemon.kill()
    await go_on(scene, mode)
    shown = answers(await scene.page.rows(scene.chat))
    history, _ = await scene.stop()
    if mode == "resume":
        assert shown == [STORY]
        assert short(history) == ["u:tell me", f"a:{STORY}"]
    else:
        assert "".join(shown) == STORY
        assert short(history) == ["u:tell me", "a:abc!", "u:continue", f"a:{STORY[3:]}"]


async def test_a_kill_before_the_first_checkpoint_repeats_the_text(
    scene: Scene, mode: Mode
) -> None:
    def kill(_: Asked) -> Script:
        scene.model.meanwhile = None
        scene.kill()
        return 'H T"abc" HANG'

    scene.model.meanwhile = kill
    await scene.say("tell me")
    await scene.dies()
    await go_on(scene, mode)
    assert answers(await scene.page.rows(scene.chat)) == [STORY]
    history, _ = await scene.stop()
    said = short(history)
    assert said[0].startswith("u:tell me")
    assert said[1:] == [*continued(mode), f"a:{STORY}"]


async def test_a_call_queued_behind_the_one_that_killed_the_daemon_has_not_run(
    scene: Scene, site: Site, mode: Mode
) -> None:
    site.switch("before-5")
    await scene.say("pay 5 and 6")
    await scene.dies()
    await go_on(scene, mode, *NOT_SURE)
    history, _ = await scene.stop()
    assert site.effects == {"pay 6": 1}
    assert short(history) == [
        "u:pay 5 and 6",
        f"a:{BEGUN}++",
        f"t:{CRASHED_UNKNOWN}",
        f"t:{CRASHED_NOT_RUN}",
        *continued(mode),
        "a:+",
        "t:paid 6",
        f"a:{UNSURE}",
    ]


@pytest.mark.parametrize(
    "seen", [False, True], ids=["before the platform showed it", "after the platform showed it"]
)
async def test_a_kill_during_delivery_shows_the_answer_once(scene: Scene, seen: bool) -> None:
    await scene.say("tell me")
    if seen:
        await scene.shows(STORY)
    else:
        await scene.until("SELECT state FROM turns", "done")
    await scene.daemon.kill()
    await scene.daemon.start()
    rows = await scene.ended()
    assert answers(rows) == [STORY]
    assert notices(rows) == []
    history, turns = await scene.stop()
    assert short(history) == ["u:tell me", f"a:{STORY}"]
    assert [turn.state for turn in turns] == [TurnState.DONE]
    assert len(scene.server.requests) == 1


@pytest.mark.parametrize("mode", ["resume"], indirect=True)
@pytest.mark.parametrize(
    ("word", "effects"), [("/deny", 1), ("/approve", 2)], ids=["denied", "allowed"]
)
async def test_a_call_with_unknown_result_is_repeated_only_after_approval(
    scene: Scene, site: Site, word: str, effects: int
) -> None:
    scene.model.insists = True
    site.switch("after-5")
    await scene.say("pay 5")
    await scene.dies()
    await scene.daemon.start()
    await scene.shows("pay", word)
    assert site.effects == {"pay 5": 1}
    await scene.say(word)
    await scene.ended()
    await scene.stop()
    assert site.effects == {"pay 5": effects}


async def test_kills_at_random_moments_never_pay_twice(tmp_path: Path) -> None:
    counted = await kill_at_random(tmp_path, kills=2, seed=4)
    assert counted["running"] > 0, "no kill hit a running turn: this proves nothing"
