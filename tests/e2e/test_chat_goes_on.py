"""`holdfast chat` beside a daemon that ends and comes back: nothing said is lost, or said twice."""

import asyncio
import contextlib
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from gateway.config.loader import read_environment
from tests.e2e.daemon import NO_FILE, PATIENCE, Daemon
from tests.e2e.house import talkative
from tests.e2e.test_mishaps import KEY, settings
from tests.fakes.dialects.requests import last_user_text
from tests.fakes.model_server import ModelServer
from tests.fakes.seat import Seat, seated

HOLDFAST = Path(sys.executable).with_name("holdfast")


def surroundings(home: Path) -> dict[str, str]:
    usual = {name: value for name, value in read_environment().items() if name in {"PATH", "LANG"}}
    return {**usual, **NO_FILE, "HOME": str(home), "HOLDFAST_HOME": str(home), "TERM": "xterm"}


@contextlib.asynccontextmanager
async def somebody_at(daemon: Daemon) -> AsyncIterator[Seat]:
    env = surroundings(daemon.home)
    async with seated(HOLDFAST, "chat", env=env, folder=daemon.home) as seat:
        await seat.sees("Ctrl-D leaves")
        yield seat


async def asking_script(home: Path) -> asyncio.subprocess.Process:
    """Pipe a question into the chat, as a script does."""
    script = await asyncio.create_subprocess_exec(
        HOLDFAST,
        "chat",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=surroundings(home),
    )
    assert script.stdin
    script.stdin.write(b"a question\n")
    script.stdin.close()
    return script


def kept(home: Path) -> bool:
    """Tell whether the store has some of an answer that is being written."""
    with contextlib.closing(sqlite3.connect(home / "holdfast.db", timeout=20)) as store:
        return any(text for (text,) in store.execute("SELECT partial FROM turns"))


def asked(model: ModelServer) -> list[str]:
    return [last_user_text(request.body) for request in model.requests]


async def test_a_terminal_waits_for_a_daemon_that_died_and_goes_on_with_the_next(
    tmp_path: Path,
) -> None:
    async with ModelServer(talkative) as model:
        async with (
            Daemon(tmp_path, *settings(model), env=KEY) as daemon,
            somebody_at(daemon) as seat,
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


async def test_what_a_daemon_had_not_read_yet_is_said_again_to_the_next_and_answered_once(
    tmp_path: Path,
) -> None:
    async with ModelServer(talkative) as model:
        async with (
            Daemon(tmp_path, *settings(model), env=KEY) as daemon,
            somebody_at(daemon) as seat,
        ):
            seat.types("hello\n")
            await seat.sees("echo: hello\n")
            daemon.signal(signal.SIGSTOP)  # takes what it is sent, and reads none of it
            seat.types("is anybody there?\n")
            await seat.sees(r"there\?\n")
            await daemon.kill()
            await seat.sees("Holdfast has stopped")
            await daemon.start()
            await seat.sees("echo: is anybody there")
            seat.types("\x04")
            assert await seat.ends() == 0
        assert asked(model) == ["hello", "is anybody there?"]


async def test_a_terminal_may_leave_while_nobody_is_there(tmp_path: Path) -> None:
    async with (
        ModelServer(talkative) as model,
        Daemon(tmp_path, *settings(model), env=KEY) as daemon,
        somebody_at(daemon) as seat,
    ):
        await daemon.kill()
        await seat.sees("Holdfast has stopped")
        seat.types("\x04")
        assert await seat.ends() == 0


async def test_what_was_shown_of_an_answer_is_not_shown_again_after_the_daemon_died(
    tmp_path: Path,
) -> None:
    half = "half of it, " * 100 + "no more"
    async with ModelServer(lambda _: f'H T"{half}" W30 T"never" F stop D') as model:
        async with Daemon(tmp_path, *settings(model), env=KEY) as daemon:
            script = await asking_script(tmp_path)
            assert script.stdout
            async with asyncio.timeout(PATIENCE):
                before = await script.stdout.readexactly(len(half))
                while not kept(tmp_path):  # noqa: ASYNC110 - the store tells nobody
                    await asyncio.sleep(0.02)
                await daemon.kill()
                await daemon.start()
                after = (await script.stdout.read()).decode()  # until all that is owed is shown
        assert before.decode() == half
        assert await script.wait() == 0
        assert "I was restarted" in after
        assert "half of it" not in after


async def test_a_script_gets_its_answer_though_the_daemon_dies_over_it(tmp_path: Path) -> None:
    slow = 'H W30 T"never" F stop D'
    scripts = iter((slow, 'H T"here it is" F stop D'))
    async with ModelServer(lambda _: next(scripts)) as model:
        resuming = (*settings(model), "sessions.on_interrupted=resume")
        async with Daemon(tmp_path, *resuming, env=KEY) as daemon:
            script = await asking_script(tmp_path)
            await model.request(1)
            await daemon.kill()
            await daemon.start()
            async with asyncio.timeout(PATIENCE):
                said, _ = await script.communicate()
        assert script.returncode == 0
        assert said.decode().splitlines()[-1] == "here it is"
        assert asked(model) == ["a question", "a question"]
