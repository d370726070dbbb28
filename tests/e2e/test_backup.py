"""Backup of a running daemon, restore, and the result for people."""

import asyncio
import io
import json
import re
import tarfile
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from gateway.errors import HoldfastError
from gateway.operate.backup.manifest import Manifest
from gateway.operate.backup.restoring import apply_restore, prepare_restore
from gateway.operate.backup.writing import BackupSource, write_backup_file
from gateway.operate.cli import root
from gateway.process.lock import hold_state_folder
from platforms.core.contract import Address, InboundMessage, Sender, Text
from sessions.changes import PutItem, SetInbox, SetItem, SetSession
from sessions.records import (
    InboxState,
    ItemKind,
    ItemState,
    OutboxItem,
    SessionReason,
    SessionState,
)
from sessions.settings import SessionSettings
from sessions.store import after_restore
from sessions.store.after_restore import ClosedWork
from sessions.store.store import SessionStore
from sessions.values.clock import SystemClock
from tests.e2e.api_kit import KEY
from tests.e2e.gateway_kit import GatewayKit, Screen, gateway, talkative
from tests.fakes.model_server import ModelServer

CHAT = "1001"
DAY = 86_400_000


def url(home: Path) -> str:
    return f"sqlite:///{home / 'holdfast.db'}"


async def backed_up(home: Path, file: Path) -> Manifest:
    source = BackupSource(
        home=home, store_url=url(home), version="1.0", made_at="2027-01-15T08:00:00.000Z"
    )
    return await asyncio.to_thread(write_backup_file, source, file)


def put_back(file: Path, home: Path, *, moved: bool = False) -> ClosedWork:
    with hold_state_folder(home):
        ready = prepare_restore(file, home, url(home), SystemClock().now(), moved=moved)
        apply_restore(ready)
    return ready.ended_work


def store_of(kit: GatewayKit) -> SessionStore:
    assert kit.runner._store
    return kit.runner._store


async def until(read: Callable[[], Awaitable[object]], *, wanted: bool = True) -> None:
    async with asyncio.timeout(8):
        while bool(await read()) is not wanted:
            pass


async def test_a_backup_of_a_running_gateway_is_restored_and_nothing_happens_twice(
    tmp_path: Path,
) -> None:
    """One chat has a running turn and a waiting message; others are constantly active."""
    here, there, file = tmp_path / "here", tmp_path / "there", tmp_path / "b.tar.gz"
    async with ModelServer(talkative) as model:
        async with gateway(here, model, allow=("memory:*",)) as kit:
            screen, store = kit.screen, store_of(kit)
            await screen.say(CHAT, "remember the elderberries")
            await screen.shows(CHAT, "echo: remember")
            await screen.say(CHAT, "hang on this")
            await screen.shows(CHAT, "so far")
            await screen.say(CHAT, "and this waits")
            unsent = OutboxItem(
                id="x1",
                address=Address("memory", CHAT),
                kind=ItemKind.NOTICE,
                state=ItemState.PENDING,
                body=b"{}",
                created_at=1,
            )
            address = (await store.sessions.list())[0].address
            await store.apply(
                PutItem(
                    msgspec.structs.replace(unsent, address=address, body=b'{"text":"sent since"}')
                )
            )
            done = asyncio.Event()

            async def chatter(chat: str) -> None:
                number = 0
                while not done.is_set():
                    number += 1
                    await screen.say(chat, f"word {number}")
                    await screen.shows(chat, f"echo: word {number}")

            async with asyncio.TaskGroup() as others:
                for chat in ("2001", "2002", "2003"):
                    others.create_task(chatter(chat))
                await screen.shows("2003", "echo: word 2")
                manifest = await backed_up(here, file)
                done.set()
            assert manifest.schema
            assert await store.find_problems() == ()
        over = put_back(file, there)
        assert over.turns >= 1
        assert over.held >= 1
        assert over.unsent >= 1
        asked_before = len(model.requests)
        screen = Screen()
        async with gateway(there, model, screen, allow=("memory:*",)) as kit:
            store = store_of(kit)
            assert await store.find_problems() == ()
            assert len(model.requests) == asked_before
            assert screen.screen(CHAT) == []
            await screen.say(CHAT, "/resume", event="later")
            await screen.shows(CHAT, "Back in the earlier conversation", "echo: and this waits")
            asked = [str(each["content"]) for each in await kit.asked(len(model.requests))]
            assert asked[0] == "remember the elderberries"
            assert any("hang on this" in each for each in asked)
            assert not any("sent since" in each for each in screen.screen(CHAT))


async def test_a_moved_gateway_continues_its_work(tmp_path: Path) -> None:
    here, there, file = tmp_path / "here", tmp_path / "there", tmp_path / "b.tar"
    async with ModelServer(talkative) as model:
        async with gateway(here, model) as kit:
            await kit.screen.say(CHAT, "hang on this")
            await kit.screen.shows(CHAT, "so far")
            await kit.crash()
        await backed_up(here, file)
        assert put_back(file, there, moved=True) == ClosedWork()
        async with gateway(there, model, screen := Screen()) as kit:
            await screen.shows(CHAT, "I was restarted while working on “hang on this”")
            assert await store_of(kit).get_value(after_restore.SHELF, after_restore.MOMENT) is None


async def test_unknown_messages_from_before_a_restore_are_not_answered(tmp_path: Path) -> None:
    """A platform that re-reads missed messages delivers messages answered after the backup."""
    here, file = tmp_path / "here", tmp_path / "b.tar"
    async with ModelServer(talkative) as model:
        async with gateway(here, model) as kit:
            await kit.screen.say(CHAT, "known", event="e1")
            await kit.screen.shows(CHAT, "echo: known")
        await backed_up(here, file)
        before = SystemClock().now() - 1000
        put_back(file, here)
        async with gateway(here, model, screen := Screen()) as kit:
            for event, text in (("e1", "known"), ("e2", "answered since"), ("e3", "/stop")):
                await screen.inject(message(event, text, before))
            await screen.say(CHAT, "new", event="e4")
            await screen.shows(CHAT, "restored from a backup", "echo: new")
            assert len([each for each in screen.screen(CHAT) if "restored" in each]) == 1
            assert not any("No active task" in each for each in screen.screen(CHAT))
        assert len(model.requests) == 2


def message(event: str, text: str, at: int) -> InboundMessage:
    place, sender = Address("memory", CHAT), Sender(id=CHAT, name="Somebody")
    parts = (Text(text),)
    return InboundMessage(
        event, at, address=place, sender=sender, parts=parts, direct=True, addressed=True
    )


# --- retention -------------------------------------------------------------------------------


async def test_deleting_a_session_deletes_its_text(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, gateway(tmp_path, model) as kit:
        store = store_of(kit)
        await kit.screen.say(CHAT, "my elderberries")
        await kit.screen.shows(CHAT, "echo: my elderberries")
        (session,) = await store.sessions.list()
        await kit.runner.operations["delete"](session=session.id)
        (left,) = await store.sessions.list()
        assert (left.reason, left.title, left.messages) == (SessionReason.DELETED, None, 0)
        assert await store.sessions.history(session.id) == ()
        address = session.address
        assert await store.timeline(address, 0, 10) == ()
        assert [turn.request for turn in await store.turns.of_session(session.id)] == [""]
        assert (await store.spending.totals(session_id=session.id)).requests == 1
        assert await store.find_problems() == ()
        await kit.screen.say(CHAT, "again")
        await kit.screen.shows(CHAT, "echo: again")


async def test_text_stored_by_a_running_turn_after_the_deletion_is_deleted_later(
    tmp_path: Path,
) -> None:
    async with ModelServer(talkative) as model, gateway(tmp_path, model) as kit:
        store = store_of(kit)
        await kit.screen.say(CHAT, "hang on")
        await kit.screen.shows(CHAT, "so far")
        (session,) = await store.sessions.list()
        await kit.runner.operations["delete"](session=session.id)
        await until(store.turns.running, wanted=False)  # the turn is still ending
        await kit.conversations.retention.run_once()
        assert await store.data_removal.uncleared_sessions() == ()
        assert await store.sessions.history(session.id) == ()


async def test_old_conversations_are_deleted_and_used_ones_stay(tmp_path: Path) -> None:
    keep, everybody = SessionSettings(keep_days=1), ("memory:*",)
    async with ModelServer(talkative) as model:
        async with gateway(tmp_path, model, allow=everybody) as kit:
            for chat in ("closed", "suspended", "active", "young"):
                await kit.screen.say(chat, f"hello from {chat}")
                await kit.screen.shows(chat, "echo: hello")
            store = store_of(kit)
            by_key = {each.key.partition(":")[2]: each.id for each in await store.sessions.list()}
            now = SystemClock().now()
            long_ago = now - 2 * DAY
            await store.apply(
                SetSession(by_key["closed"], SessionState.CLOSED, SessionReason.NEW, long_ago),
                SetSession(
                    by_key["suspended"], SessionState.SUSPENDED, SessionReason.STOP, long_ago
                ),
                SetSession(by_key["active"], SessionState.ACTIVE, None, long_ago),
                SetSession(by_key["young"], SessionState.CLOSED, SessionReason.NEW, now),
            )
        async with gateway(tmp_path, model, allow=everybody, sessions=keep) as kit:
            store, screen = store_of(kit), kit.screen

            async def left() -> bool:
                return len(await store.sessions.list()) > 2

            await until(left, wanted=False)  # the cleanup runs right after the start
            assert {each.id for each in await store.sessions.list()} == {
                by_key["active"],
                by_key["young"],
            }
            assert await store.turns.of_session(by_key["closed"]) == ()
            assert await store.find_problems() == ()
            await screen.say("suspended", "/resume")
            await screen.shows("suspended", "no earlier conversation to return to")
            await screen.say("active", "and on")
            await screen.shows("active", "echo: and on")
            assert len(await kit.asked(5)) == 3


async def test_a_conversation_resumed_during_the_deletion_stays(tmp_path: Path) -> None:
    """The store considers a session idle although its actor is using it."""
    keep = SessionSettings(keep_days=1)
    async with ModelServer(talkative) as model, gateway(tmp_path, model, sessions=keep) as kit:
        store = store_of(kit)
        await kit.screen.say(CHAT, "hello")
        await kit.screen.shows(CHAT, "echo: hello")
        (session,) = await store.sessions.list()
        await store.apply(SetSession(session.id, SessionState.SUSPENDED, SessionReason.STOP, 1))
        await kit.conversations.retention.run_once()
        assert len(await store.sessions.history(session.id)) == 2


async def test_without_keep_days_nothing_is_deleted(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, gateway(tmp_path, model) as kit:
        store = store_of(kit)
        await kit.screen.say(CHAT, "hello")
        await kit.screen.shows(CHAT, "echo: hello")
        (session,) = await store.sessions.list()
        await store.apply(SetSession(session.id, SessionState.CLOSED, SessionReason.NEW, 1))
        await kit.conversations.retention.run_once()
        assert len(await store.sessions.list()) == 1


# --- the command -----------------------------------------------------------------------------


class Shell:
    """Run the command on temporary state folders, in this process for speed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, home: str, *words: str, said: str | None = None) -> tuple[int, bytes, str]:
        """Return exit code, stdout and stderr."""
        places = {"HOME": str(self.folder), "HOLDFAST_HOME": str(self.folder / home)}
        with ThreadPoolExecutor(1) as aside:  # the command runs its own event loop
            done = aside.submit(CliRunner().invoke, root, words, env=places, input=said).result()
        error = done.exception
        if isinstance(error, HoldfastError):
            lines = "".join(f"holdfast: {line}\n" for line in error.lines)
            return error.exit_code, done.stdout_bytes, done.stderr + lines
        assert error is None or isinstance(error, SystemExit), done.exc_info
        return done.exit_code, done.stdout_bytes, done.stderr

    def says(self, code: int, home: str, *words: str) -> str:
        words = tuple(str(self.folder / w) if w.endswith((".tgz", ".tar")) else w for w in words)
        found, printed, said = self.run(home, *words)
        text = printed.decode() + said
        assert found == code, text
        return text


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


async def test_the_commands_report_success_and_failures_in_one_sentence(
    shell: Shell, tmp_path: Path
) -> None:
    says: Callable[..., str] = shell.says
    assert "There is nothing to back up" in says(1, "a", "backup", "b.tgz")
    async with ModelServer(talkative) as model, gateway(tmp_path / "a", model) as kit:
        await kit.screen.say(CHAT, "hello")
        await kit.screen.shows(CHAT, "echo: hello")
        (tmp_path / "a" / "api_key").write_text(KEY)
        (tmp_path / "a" / "workspace").mkdir()
        (tmp_path / "a" / "workspace" / "a.txt").write_text("words")
        said = await asyncio.to_thread(says, 0, "a", "backup", "b.tgz")
        assert re.match(r".*/b.tgz holds the database and 1 file, .* The file was read back", said)
        assert "Not included: api_key: a secret (--secrets includes it)." in said
        check = await asyncio.to_thread(says, 0, "a", "db", "check")
        assert check == "No damage found in the database.\n"
    assert "b.tgz already exists" in says(1, "a", "backup", "b.tgz")
    data: dict[str, Any] = json.loads(
        says(0, "a", "backup", "c.tar", "--json", "--secrets", "--set", "agent.workspace=/srv/x")
    )
    assert (data["files"], data["secrets"], data["elsewhere"]) == (2, True, "/srv/x")
    outside = says(0, "a", "backup", "e.tar", "--set", "agent.workspace=/srv/x")
    assert "Not included: /srv/x (agent.workspace), outside the state folder." in outside
    _, printed, said = shell.run("a", "backup", "-")
    (tmp_path / "d.tgz").write_bytes(printed)
    assert said == "holdfast: the backup was written, but could not be read back to verify it.\n"

    assert "Use --yes to move its contents aside" in says(2, "a", "restore", "b.tgz")
    with hold_state_folder(tmp_path / "a"):
        assert "Another Holdfast (pid" in says(1, "a", "restore", "b.tgz", "--yes")
    (tmp_path / "cut.tgz").write_bytes((tmp_path / "b.tgz").read_bytes()[:3000])
    damaged = says(1, "a", "restore", "cut.tgz", "--yes")
    assert damaged.count("\n") == 1
    assert "it is damaged" in damaged

    said = says(0, "a", "restore", "b.tgz", "--yes")
    assert "Restored the backup of 20" in said
    assert f"The previous contents are in {tmp_path / 'a' / 'before-restore-'}" in said
    assert said.endswith("No damage found in the database.\n")
    for file in ("c.tar", "d.tgz"):
        home = f"new-{file}"
        data = json.loads(says(0, home, "restore", file, "--json"))
        assert (data["aside"], data["findings"]) == (None, [])
        (listed,) = json.loads(says(0, home, "sessions", "list", "--json"))
        assert listed["title"] == "hello"
    assert (tmp_path / "new-c.tar" / "api_key").read_text() == KEY
    assert says(0, "a", "db", "upgrade").startswith("The database is up to date.")


def test_a_backup_of_a_newer_version_exits_with_78(shell: Shell, tmp_path: Path) -> None:
    shell.says(0, "a", "db", "upgrade")
    shell.says(0, "a", "backup", "b.tar")
    with tarfile.open(tmp_path / "b.tar") as old, tarfile.open(tmp_path / "n.tar", "w") as new:
        for info in old:
            content = old.extractfile(info)
            text = content.read() if content else b""
            if info.name == "holdfast-backup.json":
                text = text.replace(b'"schema": "', b'"schema": "9')
                info.size = len(text)
            new.addfile(info, io.BytesIO(text))
    said = shell.says(78, "fresh", "restore", "n.tar")
    assert "newer version of Holdfast" in said
    assert not (tmp_path / "fresh" / "holdfast.db").exists()


async def test_unfinished_work_ended_by_a_restore_is_counted(shell: Shell, tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, gateway(tmp_path / "a", model) as kit:
        store = store_of(kit)
        await kit.screen.say(CHAT, "hang on")
        await kit.screen.shows(CHAT, "so far")
        await kit.screen.say(CHAT, "then this")
        await until(store.inbox.waiting_keys)
        await asyncio.to_thread(shell.says, 0, "a", "backup", "b.tgz")
    said = shell.says(0, "b", "restore", "b.tgz")
    assert (
        "Not repeated, because it may have been done after the backup: 1 running answer was ended, "
        in said
    )
    assert "1 waiting message is kept for /resume" in said
    assert "restore it again with --moved" in said
    said = shell.says(0, "b", "restore", "b.tgz", "--moved", "--yes")
    assert "Not repeated" not in said


async def test_db_check_reports_damage(shell: Shell, tmp_path: Path) -> None:
    store = await SessionStore.open(url(tmp_path / "a"), clock=SystemClock())
    lost = msgspec.structs.replace(
        OutboxItem(
            id="x1",
            address=Address("memory", CHAT),
            kind=ItemKind.NOTICE,
            state=ItemState.PENDING,
            body=b"{}",
            created_at=1,
        ),
        turn_id="t_none",
    )
    await store.apply(PutItem(lost), SetItem(id="x1", state=ItemState.UNKNOWN, at=2))
    await store.apply(SetInbox(ids=(), state=InboxState.DONE, at=1))
    await store.close()
    said = shell.says(1, "a", "db", "check")
    assert "Undelivered items belong to a turn that does not exist: x1." in said
    assert "restore FILE" in said
