"""OpenAI's library for Node in a process of its own: told what to do, heard in JSON lines."""

import asyncio
import contextlib
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.e2e.api_kit import KEY, ApiKit

FOLDER = Path(__file__).parents[1] / "node"
PATIENCE = 15.0


def why_not() -> str:
    """What keeps these tests from running; empty: nothing."""
    if shutil.which("node") is None:
        return "node is not installed"
    if not (FOLDER / "node_modules" / "openai").is_dir():
        return "tests/node/node_modules is not there; scripts/node-packages makes it"
    return ""


class Raised(Exception):
    """The library has raised an error; what it told of it."""

    def __init__(self, told: dict[str, Any]) -> None:
        super().__init__(f"{told['name']}: {told['message']}")
        self.told = told
        self.name: str = told["name"]
        self.status: int | None = told.get("status")
        self.code: str | None = told.get("code")


class Node:
    """A program that uses the library."""

    def __init__(self, process: asyncio.subprocess.Process, api: ApiKit) -> None:
        self._process = process
        self._base = api.wire.base
        self.now: list[Any] = []
        """What the case under way has told before its end."""

    async def run(self, case: str, *, key: str = KEY, retries: int = 0, **asked: Any) -> Any:
        """Carry out a case and give its result; raises `Raised` when the library raised."""
        self.now.clear()
        told = {"case": case, "base": self._base, "key": key, "retries": retries, **asked}
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(told).encode() + b"\n")
        async with asyncio.timeout(PATIENCE):
            while line := await self._process.stdout.readline():
                said = json.loads(line)
                if "gave" in said:
                    return said["gave"]
                if "raised" in said:
                    raise Raised(said["raised"])
                self.now.append(said["now"])
        msg = "The program for Node ended."
        raise AssertionError(msg)


@contextlib.asynccontextmanager
async def node(api: ApiKit) -> AsyncIterator[Node]:
    """Start the program; it ends with the block."""
    process = await asyncio.create_subprocess_exec(
        "node",
        "cases.mjs",
        cwd=FOLDER,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield Node(process, api)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
