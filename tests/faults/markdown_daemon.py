"""The text that leaves a daemon: answers of the API, exported sessions, and the terminal."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from gateway.config.loader import read_environment
from tests.e2e.api_kit import Wire, daemon_for, text_of
from tests.e2e.daemon import PATIENCE, Daemon
from tests.fakes.model_script import Script, ok
from tests.fakes.model_server import ModelServer


async def texts_of_daemon(home: Path, answer: str) -> dict[str, str]:
    """Let a model give an answer; return the answer as each surface prints it."""

    def say(body: dict[str, Any]) -> Script:  # noqa: ARG001 - the same answer to everything
        return ok(answer)

    async with ModelServer(say) as model, daemon_for(home, model) as daemon:
        wire = Wire(f"{daemon.url}/v1")
        named = {"x-holdfast-session": "formulas"}
        _, _, whole = await wire.ask("one", headers=named)
        streamed = text_of(await wire.stream("two"))
        _, _, made = await wire.send(
            "POST", "/responses", json={"model": "scripted", "input": "three"}
        )
        await wire.close()
        chat = await _chat(daemon)
        (session,) = [
            each
            for each in json.loads(await daemon.run("sessions", "list", "--all", "--json"))
            if each["key"] == "api:formulas"
        ]
        history = json.loads(await daemon.run("sessions", "export", session["id"], "--json"))
        return {
            "API": whole["choices"][0]["message"]["content"],
            "API, streamed": streamed,
            "API, Responses": made["output"][-1]["content"][0]["text"],
            "sessions export": await daemon.run("sessions", "export", session["id"]),
            "sessions export --json": history["history"][-1]["content"],
            "holdfast chat": chat,
        }


async def _chat(daemon: Daemon) -> str:
    """Return the output of a terminal that asks once, on plain pipes."""
    asked = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).with_name("holdfast")),
        "chat",
        env={**read_environment(), "HOLDFAST_HOME": str(daemon.home)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(PATIENCE):
        said, _ = await asked.communicate(b"four\n")
    return said.decode()
