"""A text that grows with every token is assembled only when it can be shown."""

import asyncio

from platforms.core.contract import Live
from tests.unit.delivery.simulation import (
    CHAT,
    Platform,
    Store,
    World,
    item,
    put,
    running,
    simulated,
)


@simulated
async def test_a_growing_text_is_read_only_when_it_can_be_shown(world: World, store: Store) -> None:
    platform = Platform(clock=world, live=Live.EDIT, live_interval=1.0)
    tokens: list[str] = []
    reads: list[int] = []

    def text() -> str:
        reads.append(len(tokens))
        return "".join(tokens)

    async with running(store, platform) as delivery:
        answer = delivery.start_live(item("a_1", final=False))
        for number in range(300):
            tokens.append(f"{number} ")
            answer.follow(text)
            await asyncio.sleep(0.01)
        assert 3 <= len(reads) <= 12  # three seconds
        answer.close()
        await put(store, delivery, item("a_1", text()))
        await delivery.flush(10)
    assert platform.screen(CHAT) == [" ".join(map(str, range(300)))]


@simulated
async def test_the_newest_text_is_shown_instead_of_the_one_of_the_last_call(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world, live=Live.EDIT, live_interval=1.0)
    tokens = ["one "]
    async with running(store, platform) as delivery:
        answer = delivery.start_live(item("a_1", final=False))
        answer.follow(lambda: "".join(tokens))
        tokens.append("two")
        await asyncio.sleep(0.5)
        assert platform.screen(CHAT) == ["one two"]
        answer.update("anew")
        await asyncio.sleep(2)
        assert platform.screen(CHAT) == ["anew"]
