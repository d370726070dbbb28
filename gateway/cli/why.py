"""`holdfast why`: a message's way through the gateway, with times."""

from collections.abc import Iterator
from typing import Any

import click

from gateway.cli.common import as_json, configured, moment, print_json, read_store
from gateway.config import Options
from gateway.errors import HoldfastError
from sessions.records import InboxState, Item, ItemState, Traced
from sessions.store import SessionStore
from sessions.values.clock import rfc3339

_STATES = {
    InboxState.WAITING: "waits for its turn",
    InboxState.COMMAND: "is a command that waits to be carried out",
    InboxState.RUNNING: "is being answered",
    InboxState.HELD: "is kept with a suspended session; /resume brings it back",
    InboxState.DONE: "is done",
    InboxState.REFUSED: "was not taken; its sender was told",
    InboxState.IGNORED: "was ignored; its text was not kept",
}


class Unknown(HoldfastError):
    """Nothing was received that is called so."""


@click.command(help="Show the way of MESSAGE, or of the latest messages of CHAT, and why it waits.")
@click.argument("what", metavar="CHAT|MESSAGE")
@as_json
@configured
def why(options: Options, what: str, *, as_json: bool) -> None:
    """See the help."""

    async def read(store: SessionStore) -> tuple[Traced, ...]:
        return tuple(await store.trace(what))

    found = read_store(options, read)
    if not found:
        msg = f"Nothing was received that is called {what}, neither a chat nor a message."
        raise Unknown(msg)
    if as_json:
        print_json([_data(traced) for traced in found])
        return
    for traced in found:
        for line in lines(traced):
            click.echo(line)


def lines(traced: Traced) -> Iterator[str]:
    """Tell a message's way, one line per step."""
    entry, turn = traced.entry, traced.turn
    yield f"message {entry.event} of {entry.key} {_STATES[entry.state]}"
    decision = f" (decision: {entry.decision})" if entry.decision else ""
    steps = [(entry.received_at, f"received and stored as {entry.id}{decision}")]
    if turn:
        steps.append((turn.started_at, f"turn {turn.id} began"))
        if turn.finished_at is not None:
            cause = f": {turn.cause}" if turn.cause else ""
            tries = f"{turn.attempts} request{'' if turn.attempts == 1 else 's'} to the model"
            steps.append((turn.finished_at, f"turn {turn.state.value}, {tries}{cause}"))
    for item in traced.items:
        steps.append((item.created_at, f"{item.kind} {item.id} written"))
        steps.append((item.settled_at or item.created_at, f"{item.kind} {_delivery(item)}"))
    if entry.settled_at is not None:
        steps.append((entry.settled_at, "settled"))
    for at, what in sorted(steps, key=lambda step: step[0]):
        yield f"  {rfc3339(at)[:-1].replace('T', ' ')}  {what}"


def _delivery(item: Item) -> str:
    tries = f" after {item.tries} tries" if item.tries > 1 else ""
    if item.state is ItemState.SENT:
        return f"sent{tries}"
    error = f": {item.error}" if item.error else ""
    waits = f", not before {moment(item.not_before)}" if item.not_before else ""
    return f"is {item.state.value}{tries}{waits}{error}"


def _data(traced: Traced) -> dict[str, Any]:
    entry, turn = traced.entry, traced.turn
    return {
        "message": entry.event,
        "id": entry.id,
        "key": entry.key,
        "state": entry.state.value,
        "decision": entry.decision,
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
        "items": [
            {
                "id": item.id,
                "kind": item.kind,
                "state": item.state.value,
                "created_at": rfc3339(item.created_at),
                "settled_at": _maybe(item.settled_at),
                "tries": item.tries,
                "error": item.error,
            }
            for item in traced.items
        ],
    }


def _maybe(milliseconds: int | None) -> str | None:
    return rfc3339(milliseconds) if milliseconds is not None else None
