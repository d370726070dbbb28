"""ShellGPT and gptme as clients."""

from pathlib import Path

from tests.clients.kit import python_program, run
from tests.clients.scripted import plausible
from tests.clients.settings_page import command_line, exported, guest_key
from tests.e2e.api_kit import daemon_for
from tests.fakes.model_server import ModelServer


async def test_shellgpt_answers_a_prompt(tmp_path: Path) -> None:
    programs = python_program("shell-gpt", "shell-gpt==1.5.1", "click")  # it forgets click
    async with ModelServer(plausible()) as model, daemon_for(tmp_path / "home", model) as daemon:
        env = exported(daemon) | {
            "HOME": str(tmp_path),
            "PATH": f"{programs}:/usr/bin:/bin",
            "TMPDIR": str(tmp_path),  # it keeps answers there
        }
        ended = await run(*command_line("ShellGPT", "sgpt"), env=env, cwd=tmp_path)
    assert "Hello from afar." in ended.out, ended.all
    assert "Good morning!" in model.requests[0].last_user_text


async def test_gptme_runs_its_own_tool(tmp_path: Path) -> None:
    programs = python_program("gptme", "gptme==0.35.1")
    handler = plausible(
        tools={"shell": {"command": "echo $((21 * 2)) > doubled.txt"}, "complete": {}}
    )
    work = tmp_path / "work"
    work.mkdir()
    async with ModelServer(handler) as model, daemon_for(tmp_path / "home", model) as daemon:
        env = exported(daemon, await guest_key(daemon)) | {
            "HOME": str(tmp_path),
            "PATH": f"{programs}:/usr/bin:/bin",
        }
        line = command_line("gptme", "gptme", "--non-interactive 'Double 21 into doubled.txt.'")
        ended = await run(*line, env=env, cwd=work)
    assert (work / "doubled.txt").read_text() == "42\n", ended.all
    assert "shell" in model.requests[0].tools
    assert "current_time" not in model.requests[0].tools
