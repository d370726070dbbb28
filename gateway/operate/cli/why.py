"""`holdfast why`: prints the timeline of a message, and the reason for waiting."""

from collections.abc import Iterator, Mapping
from typing import Any

import click
import msgspec

from agent.client_calls import turn_of_call
from gateway.access.api_keys import Requester
from gateway.config.loader import ConfigOptions
from gateway.delivery.outbox import read_pauses
from gateway.errors import HoldfastError
from gateway.inbound.decisions import CORRECTIONS
from gateway.operate.cli.common import (
    ask_daemon,
    config_options,
    json_option,
    print_json,
    print_text,
    read_store,
)
from gateway.operate.why import chats, story
from gateway.operate.why.facts import MessageReport, RunningGateway, api_options
from gateway.operate.why.standing import wait_status
from gateway.process.control_socket import EXPECTED_ERRORS, NotRunning, ProcessState
from sessions.records import InboxEntry, OutboxItem
from sessions.store.store import SessionStore
from sessions.values.clock import SystemClock, rfc3339

_MAX_IGNORED = 5


class MessageNotFound(HoldfastError):
    """No received message, turn, answer or session has this id."""


class _LookupResult(msgspec.Struct, frozen=True):
    reports: tuple[MessageReport, ...]
    item: OutboxItem | None = None  # sent on its own, not in reply to a message
    newest: tuple[InboxEntry, ...] = ()
    ignored: tuple[InboxEntry, ...] = ()


@click.command(
    help="Trace a message, or the latest messages of CHAT, and explain what each waits for. MESSAGE "
    "is the id of the message (the platform's or Holdfast's), its turn, its answer or its session."
)
@click.argument("what", metavar="CHAT|MESSAGE")
@json_option
@config_options
def why(options: ConfigOptions, what: str, *, as_json: bool) -> None:
    """See the help."""
    daemon = _ask_daemon()
    now = SystemClock().now()

    async def read(store: SessionStore) -> _LookupResult:
        pauses = await read_pauses(store)
        traced = await store.trace(what)
        if traced:
            reports = [
                MessageReport(
                    trace=each,
                    around=await store.entry_context(each.entry, CORRECTIONS),
                    now=now,
                    daemon=daemon,
                    pauses=pauses,
                )
                for each in traced
            ]
            return _LookupResult(tuple(reports))
        if item := await store.outbox.get(what):
            return _LookupResult((), item)
        platform = chats.platform_of(what)
        if platform is None:
            return _LookupResult(())
        last = await store.inbox.newest(platform, 1)
        ignored = await store.inbox.newest(platform, _MAX_IGNORED, ignored_only=True)
        return _LookupResult((), None, last, ignored)

    found = read_store(options, read)
    if not found.reports and found.item is None:
        raise MessageNotFound(
            "\n".join(chats.not_found_lines(what, daemon, found.newest, found.ignored))
        )
    if as_json:
        unrequested = [_unrequested_item_data(found.item)] if found.item else []
        print_json([*map(report_data, found.reports), *unrequested])
        return
    for line in _output_lines(what, found):
        print_text(line)


def _ask_daemon() -> RunningGateway | None:
    """Return the state of the running gateway; None if none runs, empty without an answer."""
    try:
        found = ask_daemon("status")
    except NotRunning:
        return None
    except EXPECTED_ERRORS:
        return RunningGateway()
    return RunningGateway(found.get("state") == ProcessState.STOPPING, found.get("platforms", {}))


def _output_lines(what: str, found: _LookupResult) -> Iterator[str]:
    if found.item:
        yield chats.unrequested_item_line(found.item)
    if chats.platform_of(what):
        yield f"{what}: {chats.chat_summary(found.reports)}"
    for each in found.reports:
        yield from report_lines(each)


def report_lines(report: MessageReport) -> Iterator[str]:
    """Yield the timeline of a message, one line per event, then the current state."""
    yield story.headline(report)
    for at, what in story.timeline(report):
        yield f"  {rfc3339(at)[:-1].replace('T', ' ')}  {what}"
    status = wait_status(report)
    yield f"  now: {status.current}"
    if status.unblocked_by:
        yield f"  continues when: {status.unblocked_by}"


def report_data(report: MessageReport) -> dict[str, Any]:
    """Return a report as JSON data."""
    entry, turn, status = report.entry, report.trace.turn, wait_status(report)
    return {
        "message": entry.event,
        "id": entry.id,
        "key": entry.key,
        "state": entry.state.value,
        "decision": entry.decision,
        "now": status.current,
        "goes_on_when": status.unblocked_by or None,
        "received_at": rfc3339(entry.received_at),
        "settled_at": _format_optional(entry.settled_at),
        "session": entry.session_id,
        "turn": turn
        and {
            "id": turn.id,
            "state": turn.state.value,
            "started_at": rfc3339(turn.started_at),
            "finished_at": _format_optional(turn.finished_at),
            "attempts": turn.attempts,
            "cause": turn.cause,
        },
        "client": _client_data(entry),
        "items": [_item_data(item) for item in report.items],
    }


def _client_data(entry: InboxEntry) -> dict[str, str | None] | None:
    """Return key, person, and the names that the client gives, of an API request.

    `continues` is the turn whose tool calls the client has run.
    """
    options = api_options(entry)
    if options is None:
        return None
    requester = options.requester or Requester()
    return {
        "key": requester.key or None,
        "person": requester.person,
        "user": requester.named_user or None,
        "chat": requester.named_chat or None,
        "continues": turn_of_call(options.tool_call_id) or None,
    }


def _unrequested_item_data(item: OutboxItem) -> dict[str, Any]:
    """Return a message that answers no received message, with the keys of a report."""
    keys = ("message", "id", "key", "state", "decision", "now", "goes_on_when", "received_at")
    absent = dict.fromkeys((*keys, "settled_at", "session", "turn", "client"))
    return {**absent, "items": [_item_data(item)]}


def _item_data(item: OutboxItem) -> Mapping[str, Any]:
    return {
        "id": item.id,
        "kind": item.kind,
        "state": item.state.value,
        "created_at": rfc3339(item.created_at),
        "settled_at": _format_optional(item.settled_at),
        "tries": item.tries,
        "error": item.error,
    }


def _format_optional(milliseconds: int | None) -> str | None:
    return rfc3339(milliseconds) if milliseconds is not None else None
