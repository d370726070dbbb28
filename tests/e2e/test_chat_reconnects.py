"""`holdfast chat` across restarts of the daemon: no input is lost or sent twice."""

import asyncio
import contextlib
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from gateway.config.loader import read_environment
from tests.e2e.daemon import NO_FILE, PATIENCE, Daemon
from tests.e2e.gateway_kit import talkative
from tests.e2e.test_disk_failures import KEY, settings
from tests.fakes.dialects.requests import last_user_text
from tests.fakes.model_server import ModelServer
from tests.fakes.seat import Seat, seated

HOLDFAST = Path(sys.executable).with_name("holdfast")


def environment(home: Path) -> dict[str, str]:
    usual = {name: value for name, value in read_environment().items() if name in {"PATH", "LANG"}}
    return {**usual, **NO_FILE, "HOME": str(home), "HOLDFAST_HOME": str(home), "TERM": "xterm"}


@contextlib.asynccontextmanager
async def terminal_at(daemon: Daemon) -> AsyncIterator[Seat]:
    env = environment(daemon.home)
    async with seated(HOLDFAST, "chat", env=env, folder=daemon.home) as seat:
        await seat.sees("Ctrl-D leaves")
        await seat.sees("> ")  # readline shows the prompt after it took over the keyboard
        yield seat


async def start_script(home: Path) -> asyncio.subprocess.Process:
    """Pipe a question into the chat, as a script does."""
    script = await asyncio.create_subprocess_exec(
        HOLDFAST,
        "chat",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=environment(home),
    )
    assert script.stdin
    script.stdin.write(b"a question\n")
    script.stdin.close()
    return script


def has_partial_answer(home: Path) -> bool:
    """Return True if the store has a partial answer."""
    with contextlib.closing(sqlite3.connect(home / "holdfast.db", timeout=20)) as store:
        return any(text for (text,) in store.execute("SELECT partial FROM turns"))


def asked(model: ModelServer) -> list[str]:
    return [last_user_text(request.body) for request in model.requests]


async def test_terminal_waits_for_a_dead_daemon_and_continues_with_the_next(
    tmp_path: Path,
) -> None:
    async with ModelServer(talkative) as model:
        async with (
            Daemon(tmp_path, *settings(model), env=KEY, warm=True) as daemon,
            terminal_at(daemon) as seat,
        ):
            seat.types("hello\n")
            await seat.sees("echo: hello\n")
            await daemon.kill()
            await seat.sees("Holdfast has stopped.*Ctrl-D leaves")
            seat.types("said while it was away\n")
            await daemon.start()
            await seat.sees("Holdfast is running again")
            await seat.sees("echo: said while it was away\n")
            seat.types("\x04")
            assert await seat.ends() == 0
        assert asked(model) == ["hello", "said while it was away"]


async def test_unread_input_is_sent_again_to_the_next_daemon_and_answered_once(
    tmp_path: Path,
) -> None:
    async with ModelServer(talkative) as model:
        async with (
            Daemon(tmp_path, *settings(model), env=KEY, warm=True) as daemon,
            terminal_at(daemon) as seat,
        ):
            seat.types("hello\n")
            await seat.sees("echo: hello\n")
            daemon.signal(signal.SIGSTOP)  # its socket accepts input that it does not read
            seat.types("is anybody there?\n")
            await seat.sees(r"there\?\n")
            await daemon.kill()
            await seat.sees("Holdfast has stopped")
            await daemon.start()
            await seat.sees("echo: is anybody there")
            seat.types("\x04")
            assert await seat.ends() == 0
        assert asked(model) == ["hello", "is anybody there?"]


async def test_terminal_can_exit_without_a_daemon(tmp_path: Path) -> None:
    async with (
        ModelServer(talkative) as model,
        Daemon(tmp_path, *settings(model), env=KEY, warm=True) as daemon,
        terminal_at(daemon) as seat,
    ):
        await daemon.kill()
        await seat.sees("Holdfast has stopped")
        seat.types("\x04")
        assert await seat.ends() == 0


async def test_shown_part_of_an_answer_is_not_repeated_after_a_crash(
    tmp_path: Path,
) -> None:
    half = "half of it, " * 100 + "no more"
    async with ModelServer(lambda _: f'H T"{half}" W30 T"never" F stop D') as model:
        async with Daemon(tmp_path, *settings(model), env=KEY, warm=True) as daemon:
            script = await start_script(tmp_path)
            assert script.stdout
            async with asyncio.timeout(PATIENCE):
                before = await script.stdout.readexactly(len(half))
                while not has_partial_answer(tmp_path):  # noqa: ASYNC110 - the store has no event
                    await asyncio.sleep(0.02)
                await daemon.kill()
                await daemon.start()
                after = (await script.stdout.read()).decode()  # until everything pending is shown
        assert before.decode() == half
        assert await script.wait() == 0
        assert "I was restarted" in after
        assert "half of it" not in after


async def test_script_gets_its_answer_after_a_crash_of_the_daemon(tmp_path: Path) -> None:
    slow = 'H W30 T"never" F stop D'
    scripts = iter((slow, 'H T"here it is" F stop D'))
    async with ModelServer(lambda _: next(scripts)) as model:
        resuming = (*settings(model), "sessions.on_interrupted=resume")
        async with Daemon(tmp_path, *resuming, env=KEY, warm=True) as daemon:
            script = await start_script(tmp_path)
            await model.request(1)
            await daemon.kill()
            await daemon.start()
            async with asyncio.timeout(PATIENCE):
                said, _ = await script.communicate()
        assert script.returncode == 0
        assert said.decode().splitlines()[-1] == "here it is"
        assert asked(model) == ["a question", "a question"]
