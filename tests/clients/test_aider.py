"""aider as a client: one edit in a repository, committed, with the key of a guest."""

from pathlib import Path

import pytest

from tests.clients.kit import Ended, python_program, run
from tests.clients.scripted import Request, text_of
from tests.clients.settings_page import command_line, exported, guest_key
from tests.e2e.api_kit import daemon_for
from tests.e2e.daemon import Daemon
from tests.fakes.model_script import Script, ok
from tests.fakes.model_server import ModelServer

_PROGRAM = "greeting.py"
_BEFORE = 'print("Hello")\n'
_AFTER = 'print("Good morning")\n'
_QUIET = "--yes-always --no-check-update --no-show-model-warnings --no-gitignore --no-stream"


@pytest.fixture(scope="module")
def aider() -> Path:
    return python_program("aider", "aider-chat==0.86.2")


def answer(request: Request) -> Script:
    """Rewrite the file, and name the change when asked for a message of a commit."""
    said = "\n".join(text_of(each) for each in request["messages"])
    if "commit message" in said:
        return ok("feat: greet in the morning")
    return ok(f"The greeting is polite now.\n\n{_PROGRAM}\n```\n{_AFTER}```\n")


def write(file: Path) -> None:
    file.parent.mkdir()
    file.write_text(_BEFORE)


async def repository(folder: Path) -> Path:
    """Make a repository with one file."""
    write(folder / _PROGRAM)
    for words in (
        ("init", "-q"),
        ("config", "user.name", "Ada"),
        ("config", "user.email", "ada@example.org"),
        ("add", "."),
        ("commit", "-qm", "Begin"),
    ):
        ended = await run("git", *words, cwd=folder)
        assert ended.code == 0, ended.all
    return folder


async def edit(aider: Path, daemon: Daemon, folder: Path, more: str) -> Ended:
    """Ask aider for one change."""
    env = exported(daemon, await guest_key(daemon)) | {
        "HOME": str(folder),
        "PATH": f"{aider}:/usr/bin:/bin",
    }
    message = f'{_PROGRAM} --message "Greet in the morning." {more}'
    return await run(*command_line("aider", "aider", message), env=env, cwd=folder)


@pytest.mark.parametrize("more", [_QUIET, _QUIET.replace("--no-stream", "")])
async def test_aider_edits_a_file_and_commits_it(aider: Path, tmp_path: Path, more: str) -> None:
    async with ModelServer(answer) as model, daemon_for(tmp_path / "home", model) as daemon:
        folder = await repository(tmp_path / "work")
        ended = await edit(aider, daemon, folder, more)
        logged = await run("git", "log", "--format=%s", cwd=folder)
    assert (folder / _PROGRAM).read_text() == _AFTER, ended.all
    assert logged.out.splitlines() == ["feat: greet in the morning", "Begin"], ended.all
    assert "The greeting is polite now." in ended.out
    assert [each.tools for each in model.requests] == [{}, {}]
    assert any(_BEFORE in each["content"] for each in model.requests[0].messages)


async def test_aider_recognizes_a_conversation_that_is_too_long(
    aider: Path, tmp_path: Path
) -> None:
    refusal = 'S400"This model\'s maximum context length is 8192 tokens."'
    async with ModelServer(lambda _: refusal) as model, daemon_for(tmp_path / "home", model) as d:
        folder = await repository(tmp_path / "work")
        ended = await edit(aider, d, folder, _QUIET)
    assert "has hit a token limit!" in ended.out, ended.all
    assert (folder / _PROGRAM).read_text() == _BEFORE
