"""`holdfast sessions`: reads conversations from the store, and controls them through the daemon."""

from typing import Any

import click
import msgspec
from msgspec import structs

from agent.request.file_lines import append_file_lines
from gateway.config.loader import ConfigOptions, load, read_environment
from gateway.errors import HoldfastError
from gateway.observe.redact import Redactor, find_secrets
from gateway.operate.cli.common import (
    call_daemon,
    config_options,
    json_option,
    print_fields,
    print_json,
    print_table,
    print_text,
    read_store,
)
from platforms.core.registry import load_specs
from sessions.records import Message, Session, Turn
from sessions.store.store import SessionStore
from sessions.values.clock import rfc3339
from sessions.values.text import format_time
from sessions.values.visible_text import visible_line

_LIST_LIMIT = 50


class SessionNotFound(HoldfastError):
    """No session has this id."""


def _redactor(options: ConfigOptions) -> Redactor:
    """Return a redactor with the secrets of the configuration."""
    settings = load(options, read_environment(), load_specs()).settings
    return Redactor(find_secrets(settings))


class SessionExport(msgspec.Struct, frozen=True):
    """A session with history and turns."""

    session: Session
    history: tuple[Message, ...]
    turns: tuple[Turn, ...]


@click.group(help="List, show, stop and restore conversations.")
def sessions() -> None:
    """See the help."""


@sessions.command("list")
@click.option(
    "--all", "every", is_flag=True, help=f"List all sessions, not only the newest {_LIST_LIMIT}."
)
@json_option
@config_options
def list_(options: ConfigOptions, *, as_json: bool, every: bool) -> None:
    """List sessions, newest first."""
    limit = None if as_json or every else _LIST_LIMIT

    async def read(store: SessionStore) -> tuple[Session, ...]:
        return tuple(await store.sessions.list(limit=limit))

    clean = _redactor(options).redact
    found = [
        structs.replace(each, title=each.title and clean(each.title))
        for each in read_store(options, read)
    ]
    if as_json:
        print_json([session_data(session) for session in found])
        return
    print_table(
        ("ID", "STATE", "MESSAGES", "UPDATED", "CONVERSATION", "TITLE"),
        (
            (
                each.id,
                state_text(each),
                each.messages,
                format_time(each.updated_at),
                each.key,
                _title(each),
            )
            for each in found
        ),
        "No sessions yet.",
    )


@sessions.command()
@click.argument("session")
@json_option
@config_options
def show(options: ConfigOptions, session: str, *, as_json: bool) -> None:
    """Show a session with history and turns."""
    whole = _load(options, session)
    if as_json:
        print_json(export_data(whole))
        return
    found = whole.session
    print_fields(
        {
            "session": found.id,
            "conversation": found.key,
            "state": state_text(found),
            "title": _title(found) or "-",
            "created": format_time(found.created_at),
            "updated": format_time(found.updated_at),
        }
    )
    click.echo()
    print_table(
        ("TURN", "STATE", "STARTED", "SECONDS", "ATTEMPTS"),
        (
            (t.id, t.state.value, format_time(t.started_at), _duration_text(t), t.attempts)
            for t in whole.turns
        ),
        "No turns yet.",
    )
    click.echo()
    for message in whole.history:
        print_text(f"{_author(message)}: {_message_text(message)}")


@sessions.command()
@click.argument("session")
@json_option
@config_options
def export(options: ConfigOptions, session: str, *, as_json: bool) -> None:
    """Print a whole session as Markdown, or as JSON with --json."""
    whole = _load(options, session)
    if as_json:
        print_json(export_data(whole))
        return
    found = whole.session
    print_text(f"# {_title(found) or found.key}\n")
    print_text(f"{found.id} · {found.key} · {rfc3339(found.created_at)}")
    for message in whole.history:
        print_text(f"\n## {_author(message)}\n\n{_message_text(message)}")


@sessions.command()
@click.argument("session", required=False)
@click.option("--all", "every", is_flag=True, help="Stop every running task.")
@json_option
def stop(session: str | None, *, every: bool, as_json: bool) -> None:
    """Stop the running task of one session, or all running tasks.

    The stop is announced in each chat.
    """
    if every == bool(session):
        msg = "Name one session, or use --all."
        raise click.UsageError(msg)
    if every:
        found = call_daemon("stop_all")
        if as_json:
            print_json(found)
            return
        count = found["stopped"]
        tasks = "1 task" if count == 1 else f"{count} tasks"
        click.echo(f"Stopped {tasks}." if count else "Nothing was running.")
        return
    found = call_daemon("stop", session=session)
    if as_json:
        print_json(found | {"stopped": int(found["stopped"])})
        return
    click.echo(f"{'Stopped' if found['stopped'] else 'Nothing was running in'} {found['id']}.")


@sessions.command()
@click.argument("session")
@json_option
def resume(session: str, *, as_json: bool) -> None:
    """Make an earlier session the current one of its conversation again."""
    found = call_daemon("resume", session=session)
    if as_json:
        print_json(found)
        return
    click.echo(f"Resumed {found['id']}.")


@sessions.command()
@click.argument("session")
@json_option
def delete(session: str, *, as_json: bool) -> None:
    """Close a session permanently, and delete its text."""
    found = call_daemon("delete", session=session)
    if as_json:
        print_json(found)
        return
    click.echo(f"Deleted {found['id']}.")


def _load(options: ConfigOptions, session_id: str) -> SessionExport:
    async def read(store: SessionStore) -> SessionExport | None:
        found = await store.sessions.find(session_id)
        if found is None:
            return None
        history = await store.sessions.history(found.id)
        return SessionExport(found, tuple(history), tuple(await store.turns.of_session(found.id)))

    whole = read_store(options, read)
    if whole is None:
        msg = f"No session has the id {session_id}. List them with: holdfast sessions list --all"
        raise SessionNotFound(msg)
    title = whole.session.title and _redactor(options).redact(whole.session.title)
    return structs.replace(whole, session=structs.replace(whole.session, title=title))


# --- JSON ------------------------------------------------------------------------------------


def session_data(session: Session) -> dict[str, Any]:
    """Return a session as JSON data."""
    return {
        "id": session.id,
        "key": session.key,
        "state": session.state.value,
        "reason": session.reason.value if session.reason else None,
        "title": session.title,
        "messages": session.messages,
        "created_at": rfc3339(session.created_at),
        "updated_at": rfc3339(session.updated_at),
    }


def export_data(export: SessionExport) -> dict[str, Any]:
    """Return a session with history and turns as JSON data."""
    return {
        **session_data(export.session),
        "history": [_message_data(message) for message in export.history],
        "turns": [_turn_data(turn) for turn in export.turns],
    }


def _message_data(message: Message) -> dict[str, Any]:
    data: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        data["tool_calls"] = [
            {"id": call.id, "name": call.name, "arguments": call.arguments}
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        data["tool_call_id"] = message.tool_call_id
    if message.interrupted is not None:
        data["interrupted"] = message.interrupted
    return data


def _turn_data(turn: Turn) -> dict[str, Any]:
    return {
        "id": turn.id,
        "state": turn.state.value,
        "started_at": rfc3339(turn.started_at),
        "finished_at": rfc3339(turn.finished_at) if turn.finished_at is not None else None,
        "attempts": turn.attempts,
    }


# --- text ------------------------------------------------------------------------------------


def state_text(session: Session) -> str:
    """Return a session's state, with the reason in parentheses."""
    return (
        f"{session.state.value} ({session.reason.value})" if session.reason else session.state.value
    )


def _title(session: Session) -> str:
    return visible_line(session.title or "")


def _duration_text(turn: Turn) -> str:
    if turn.finished_at is None:
        return "-"
    return f"{(turn.finished_at - turn.started_at) / 1000:.1f}"


def _author(message: Message) -> str:
    # A line break in a name must not begin the message of another author.
    return visible_line(f"{message.role} {message.sender}") if message.sender else message.role


def _message_text(message: Message) -> str:
    calls = [f"[{call.name} {call.arguments}]" for call in message.tool_calls]
    broken = [f"[interrupted: {message.interrupted}]"] if message.interrupted else []
    text = append_file_lines(message.content, message.files)
    return "\n".join(part for part in (text, *calls, *broken) if part)
