"""`docs/api.md`: its examples run, and every route is documented."""

import asyncio
import re
import sys
from pathlib import Path

from tests.e2e.api_kit import KEY, served
from tests.e2e.gateway_kit import talkative
from tests.fakes.model_server import ModelServer

PAGE = (Path(__file__).parents[2] / "docs/api.md").read_text(encoding="utf-8")


async def test_python_examples_run(tmp_path: Path) -> None:
    examples = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    async with ModelServer(talkative) as model, served(tmp_path, model) as api:
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
    words = ("Good morning!", "What is my name?\n", "Count to three.", "completed\n")
    assert shown.decode() == f"echo: {words[0]}echo: {words[1]}echo: {words[2]}{words[3]}"


async def test_every_route_is_documented(tmp_path: Path) -> None:
    async with ModelServer() as model, served(tmp_path, model) as api:
        served_paths = [getattr(route, "path", "") for route in api.kit.routes]
        paths = {path.replace(":path", "") for path in served_paths if path.startswith("/v1/")}
        assert "/v1/responses/{id}/cancel" in paths
        assert {path for path in paths if f"{path}`" not in PAGE} == set()
