"""Crashes and platform failures at every point where an answer could be lost or duplicated."""

import asyncio
import random

import pytest

from gateway.delivery.outbox import Delivery
from gateway.delivery.view import DUPLICATE_MARK, ShownState, read_shown, render_final
from platforms.core.contract import Live, Repeat
from sessions.records import OutboxItem
from tests.fakes import memory
from tests.unit.delivery.simulation import (
    Crash,
    Platform,
    Store,
    World,
    item,
    put,
    running,
    simulate,
)

WORDS = " ".join(f"word{number}" for number in range(60))
TEXTS = {
    "short": "A short answer.",
    "long": "\n\n".join(f"Paragraph {number}. {WORDS}" for number in range(4)),
}
SAFE = [Repeat.ALWAYS, Repeat.NONCE, Repeat.LOOKUP]


class Conversation:
    """One turn with its answer, and the recovery after a crash."""

    def __init__(
        self, world: World, store: Store, platform: Platform, number: int, text: str
    ) -> None:
        self.world = world
        self.id = f"a_{number}"
        self.chat = f"chat {number}"
        self.store = store
        self.platform = platform
        self.text = text
        self.doubts = 0  # creating ops with an unknown outcome
        self._begun = False
        self._committed = False

    async def live_and_die(self, at: int | None) -> bool:
        """Die at a point, start again and finish; return False if there are fewer points."""
        self.store.crash = self.platform.crash = Crash(at)
        died = await self._life()
        if died:
            self.store.crash = self.platform.crash = Crash(None)
            await asyncio.sleep(1)
            await self._look()
            assert not await self._life()
        await asyncio.sleep(memory.DRAFT_LIFETIME_SECONDS * 2)
        assert await self.store.outbox.undelivered() == ()
        return died

    async def _life(self) -> bool:
        """Run the gateway until its work is done or it dies; return True if it died."""
        async with asyncio.TaskGroup() as group, running(self.store, self.platform) as delivery:
            work = group.create_task(self._turn(delivery))
            death = group.create_task(self.store.crash.happened.wait())
            await asyncio.wait({work, death}, return_when=asyncio.FIRST_COMPLETED)
            died = not work.done()
            work.cancel()
            death.cancel()
        return died

    async def _turn(self, delivery: Delivery) -> None:
        """Write an answer, commit it, and wait for its delivery."""
        if not self._begun:
            self._begun = True
            answer = delivery.start_live(self._item("", final=False))
            for end in range(0, len(self.text), 97):
                answer.update(self.text[:end])
                await asyncio.sleep(0.12)
            answer.close()
        if not self._committed:
            await put(self.store, delivery, self._item(self.text))
        await delivery.flush(1_000_000)

    async def _look(self) -> None:
        """Recover the state that the dead process left in the store."""
        with self.world.busy():
            rows = await self.store.timeline(self._item("").address, 0, 10)
        finals = [row for row in rows if isinstance(row, OutboxItem)]
        self._committed = bool(finals)
        found = [*await self.store.outbox.undelivered(), *finals]
        self.doubts += any(
            part.fate is ShownState.TRYING for each in found for part in read_shown(each).parts
        )

    def _item(self, text: str, *, final: bool = True) -> OutboxItem:
        return item(self.id, text, chat=self.chat, final=final)

    def assert_shown_once(self) -> None:
        """Assert that an idempotent platform shows every message exactly once."""
        assert self.platform.screen(self.chat) == self._expected()
        assert self._violations() == []

    def assert_marked_when_in_doubt(self) -> None:
        """Assert that every message is shown, once without a mark, and marked only if in doubt."""
        screen = self.platform.screen(self.chat)
        marks = [text for text in screen if text.startswith(DUPLICATE_MARK)]
        plain = [text for text in screen if not text.startswith(DUPLICATE_MARK)]
        whole = [text for text in plain if text in self._expected()]
        assert len(set(whole)) == len(whole)
        assert len(marks) <= self.doubts
        unmarked = [text.removeprefix(DUPLICATE_MARK).strip() for text in screen]
        assert set(self._expected()) <= set(unmarked)
        # Other messages are the beginnings of a live answer whose message id was lost.
        torn = [text for text in plain if text not in self._expected()]
        assert len(torn) <= self.doubts
        assert all(any(each.startswith(text) for each in self._expected()) for text in torn)
        if not self.doubts:
            assert self._violations() == []

    def _violations(self) -> list[str]:
        return [
            violation
            for violation in self.platform.violations()
            if not (self.store.forgot and "Retry-After" in violation)
        ]

    def _expected(self) -> list[str]:
        return list(render_final(self.text, self.platform.capabilities))


def _platform(world: World, live: Live, repeat: Repeat) -> Platform:
    return Platform(clock=world, live=live, repeat=repeat, text_limit=500)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("repeat", SAFE)
@pytest.mark.parametrize("live", Live)
def test_after_a_crash_at_any_point_the_answer_is_shown_exactly_once(
    live: Live, repeat: Repeat, text: str
) -> None:
    async def scene(world: World, store: Store) -> None:
        at, died = 0, True
        while died:
            at += 1
            talk = Conversation(world, store, _platform(world, live, repeat), at, TEXTS[text])
            died = await talk.live_and_die(at)
            talk.assert_shown_once()
        assert at > 5

    simulate(scene)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("live", Live)
def test_without_idempotent_sends_only_an_op_in_doubt_is_repeated_with_a_mark(
    live: Live, text: str
) -> None:
    async def scene(world: World, store: Store) -> None:
        at, died, doubts = 0, True, 0
        while died:
            at += 1
            talk = Conversation(world, store, _platform(world, live, Repeat.MARK), at, TEXTS[text])
            died = await talk.live_and_die(at)
            talk.assert_marked_when_in_doubt()
            doubts += talk.doubts
        assert doubts > 2
        assert at - doubts > 4

    simulate(scene)


def _faults(dice: random.Random) -> list[memory.DeliveryFault]:
    choices = [
        memory.connection_lost_before(),
        memory.connection_lost_after(),
        memory.hanging(),
        memory.hanging(carried_out=True),
        memory.unavailable(),
        memory.rate_limited(dice.choice([0.5, 3.0, 40.0])),
    ]
    return [dice.choice(choices) for _ in range(dice.randrange(6))]


@pytest.mark.parametrize("repeat", Repeat)
@pytest.mark.parametrize("live", Live)
def test_with_random_failures_and_crashes_exactly_one_answer_is_shown(
    live: Live, repeat: Repeat
) -> None:
    async def scene(world: World, store: Store) -> None:
        for seed in range(25):
            dice = random.Random(f"{live}{repeat}{seed}")  # noqa: S311 - repeatable
            platform = _platform(world, live, repeat)
            text = TEXTS[dice.choice(list(TEXTS))]
            talk = Conversation(world, store, platform, seed, text)
            faults = _faults(dice)
            for fault in faults:
                platform.fail(fault)
            await talk.live_and_die(dice.choice([None, dice.randrange(1, 40)]))
            if repeat is Repeat.MARK:
                talk.doubts += len(faults)
                talk.assert_marked_when_in_doubt()
            else:
                talk.assert_shown_once()

    simulate(scene)
