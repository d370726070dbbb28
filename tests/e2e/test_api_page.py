"""`docs/api.md`: its examples run, and every route is documented."""

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

from tests.e2e.api_kit import KEY, served
from tests.e2e.gateway_kit import talkative
from tests.fakes.model_script import Script, calls, words
from tests.fakes.model_server import ModelServer

CITY = '{"city": "Madrid", "people": 3300000}'
PAGE = (Path(__file__).parents[2] / "docs/api.md").read_text(encoding="utf-8")


def reader_of_the_page(body: dict[str, Any]) -> Script:
    """Call the tool of the example, answer in the format of the example, and else echo."""
    last = body["messages"][-1]
    if last["role"] == "tool":
        return words(f"In Berlin the sky is {json.loads(last['content'])['sky']}.")
    if "weather" in str(last["content"]):
        return calls(("c1", "weather", '{"city": "Berlin"}'))
    return words(CITY) if "Spain" in str(last["content"]) else talkative(body)


async def test_python_examples_run(tmp_path: Path) -> None:
    examples = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    async with ModelServer(reader_of_the_page) as model, served(tmp_path, model) as api:
        said = {"GATEWAY_URL": api.wire.base, "GATEWAY_KEY": KEY}
        running = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            "\n".join(examples),
            env=said,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(30):
            shown, trouble = await running.communicate()
    assert running.returncode == 0, trouble.decode()
    assert shown.decode().splitlines() == [
        "echo: Good morning!echo: What is my name?",
        "echo: Count to three.completed",
        "echo: Good morning!",
        "echo: Good morning!In Berlin the sky is clear.",
        CITY,
    ]


async def test_every_route_is_documented(tmp_path: Path) -> None:
    async with ModelServer() as model, served(tmp_path, model) as api:
        served_paths = [getattr(route, "path", "") for route in api.kit.routes]
        paths = {path.replace(":path", "") for path in served_paths if path.startswith("/v1/")}
        assert "/v1/responses/{id}/cancel" in paths
        assert {path for path in paths if f"{path}`" not in PAGE} == set()
