"""Notices and lists quote the words of the person, not the prompt around them."""

import itertools
from pathlib import Path

from platforms.core.contract import Address, Forward, InboundMessage, Part, Quote, Sender, Text
from tests.e2e.gateway_kit import Screen, gateway, opened, talkative
from tests.fakes.model_server import ModelServer

ROOM = "7"
_numbers = itertools.count(1)


async def say(screen: Screen, *parts: Part, quoted: bool = False) -> None:
    """Send a message to the room, with earlier messages of others and a quote if asked for."""
    event = InboundMessage(
        f"q{next(_numbers)}",
        2**50,
        address=Address("memory", ROOM),
        sender=Sender("1001", "Ada"),
        parts=parts,
        addressed=True,
        reply_to=Quote("Eve", "an earlier\nmessage") if quoted else None,
        context=(Quote("Eve", "nice weather"), Quote("Bob", "indeed")) if quoted else (),
    )
    await screen.inject(event)


async def test_notices_and_titles_quote_the_words_of_the_person(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, gateway(tmp_path, model) as kit:
        screen = kit.screen
        await say(screen, Text("hang on"), quoted=True)
        await say(screen, Text("and then this"), quoted=True)
        await screen.shows(ROOM, "Working on “hang on”")
        await say(screen, Forward("Eve", "buy\nmilk"))
        await say(screen, Text(""), quoted=True)
        await say(screen, Text("/status"))
        await screen.shows(
            ROOM,
            "⏳ Working on “hang on”.\n1. queued: “and then this”\n2. queued: “buy milk”\n"
            "3. queued: “a quoted message”",
        )
        await say(screen, Text("/stop"))
        await screen.shows(ROOM, "3 queued messages are kept")
        await say(screen, Text("/sessions"))
        await screen.shows(ROOM, "1. hang on · ")
        await say(screen, Text("/resume"))
        await screen.shows(ROOM, "Back in the earlier conversation “hang on”")
        assert "[Forwarded from Eve]\n> buy\n> milk" in str((await kit.asked(3))[-1]["content"])
        await kit.asked(4)
        await say(screen, Text("last"), quoted=True)
        assert "> Bob: indeed\n]\n" in str((await kit.asked(5))[-1]["content"])
        await screen.shows(ROOM, "]\n> an earlier\n> message\nlast")
        await say(screen, Text("/undo"))
        await screen.shows(ROOM, "I removed “last” and its answer")
        shown = [message.text for message in screen.messages(ROOM) if "echo" not in message.text]
    assert [text for text in shown if "Earlier in this room" in text or "In reply to" in text] == []
    async with opened(tmp_path) as store:
        (session,) = await store.sessions.list()
        assert session.title == "hang on"
        assert {turn.request for turn in await store.turns.of_session(session.id)} >= {"hang on"}


async def test_a_restart_quotes_the_words_of_the_person(tmp_path: Path) -> None:
    screen = Screen()
    async with ModelServer(talkative) as model:
        async with gateway(tmp_path, model, screen) as kit:
            await say(screen, Text("hang on"), quoted=True)
            await kit.asked(1)
        async with gateway(tmp_path, model, screen):
            await screen.shows(ROOM, "restarted while working on “hang on”")
