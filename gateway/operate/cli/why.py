"""`holdfast why`: a message's way through the gateway, with times, and what it waits for."""

from collections.abc import Iterator, Mapping
from typing import Any

import click
import msgspec

from gateway.config.loader import Options
from gateway.delivery.outbox import read_pauses
from gateway.errors import HoldfastError
from gateway.inbound.decisions import CORRECTIONS
from gateway.operate.cli.common import as_json, configured, control_socket, print_json, read_store
from gateway.operate.why import chats, story
from gateway.operate.why.facts import Daemon, Way
from gateway.operate.why.standing import waits
from gateway.process.control_socket import EXPECTED, NotRunning, ask
from sessions.records import InboxEntry, Item
from sessions.store.store import SessionStore
from sessions.values.clock import SystemClock, rfc3339

_IGNORED = 5


class Unknown(HoldfastError):
    """Nothing was received that is called so."""


class _Found(msgspec.Struct, frozen=True):
    ways: tuple[Way, ...]
    item: Item | None = None  # that answers nothing that was received
    last: tuple[InboxEntry, ...] = ()
    ignored: tuple[InboxEntry, ...] = ()


@click.command(
    help="Show the way of a message, or of the latest messages of CHAT, and why it waits. MESSAGE: the "
    "platform's id of it or ours, or the id of its turn, of its answer or of its session."
)
@click.argument("what", metavar="CHAT|MESSAGE")
@as_json
@configured
def why(options: Options, what: str, *, as_json: bool) -> None:
    """See the help."""
    daemon = _daemon()
    now = SystemClock().now()

    async def read(store: SessionStore) -> _Found:
        pauses = await read_pauses(store)
        traced = await store.trace(what)
        if traced:
            ways = [
                Way(each, await store.around(each.entry, CORRECTIONS), now, daemon, pauses)
                for each in traced
            ]
            return _Found(tuple(ways))
        if item := await store.item(what):
            return _Found((), item)
        platform = chats.platform_of(what)
        if platform is None:
            return _Found(())
        last = await store.newest(platform, 1)
        ignored = await store.newest(platform, _IGNORED, ignored=True)
        return _Found((), None, last, ignored)

    found = read_store(options, read)
    if not found.ways and found.item is None:
        raise Unknown("\n".join(chats.nothing(what, daemon, found.last, found.ignored)))
    if as_json:
        print_json([data(each) for each in found.ways])
        return
    for line in _lines(what, found):
        click.echo(line)


def _daemon() -> Daemon | None:
    """How the gateway that runs stands; one that does not answer counts as none."""
    try:
        found = ask(control_socket(), "status")
    except NotRunning:
        return None
    except EXPECTED:
        return Daemon()
    return Daemon(found.get("state") == "stopping", found.get("platforms", {}))


def _lines(what: str, found: _Found) -> Iterator[str]:
    if found.item:
        yield chats.lone(found.item)
    if chats.platform_of(what):
        yield f"{what}: {chats.summary(found.ways)}"
    for each in found.ways:
        yield from lines(each)


def lines(each: Way) -> Iterator[str]:
    """Tell a message's way, one line per step, and how it stands."""
    yield story.headline(each)
    for at, what in story.steps(each):
        yield f"  {rfc3339(at)[:-1].replace('T', ' ')}  {what}"
    stands = waits(each)
    yield f"  now: {stands.now}"
    if stands.then:
        yield f"  goes on when: {stands.then}"


def data(each: Way) -> dict[str, Any]:
    """Write a way for programs."""
    entry, turn, stands = each.entry, each.traced.turn, waits(each)
    return {
        "message": entry.event,
        "id": entry.id,
        "key": entry.key,
        "state": entry.state.value,
        "decision": entry.decision,
        "now": stands.now,
        "goes_on_when": stands.then or None,
        "received_at": rfc3339(entry.received_at),
        "settled_at": _maybe(entry.settled_at),
        "session": entry.session_id,
        "turn": turn
        and {
            "id": turn.id,
            "state": turn.state.value,
            "started_at": rfc3339(turn.started_at),
            "finished_at": _maybe(turn.finished_at),
            "attempts": turn.attempts,
            "cause": turn.cause,
        },
        "items": [_item_data(item) for item in each.traced.items],
    }


def _item_data(item: Item) -> Mapping[str, Any]:
    return {
        "id": item.id,
        "kind": item.kind,
        "state": item.state.value,
        "created_at": rfc3339(item.created_at),
        "settled_at": _maybe(item.settled_at),
        "tries": item.tries,
        "error": item.error,
    }


def _maybe(milliseconds: int | None) -> str | None:
    return rfc3339(milliseconds) if milliseconds is not None else None
