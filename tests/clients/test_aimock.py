"""aimock as the model, which fails by chance and breaks its streams off."""

import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.clients.kit import Started, free_port, node_program
from tests.clients.model_services import DIALECTS, gateway_for, model_settings

STORY = (
    "This is a long story about a lighthouse, a fox and a very patient whale, which all met one"
    " evening at the end of the pier and talked until the lamp went out."
)
FAST = ("model.timeouts.backoff=0.2", "model.timeouts.first_token=5")
CHAOS = {
    "half": {"dropRate": 0.2, "malformedRate": 0.15, "disconnectRate": 0.15, "rateLimitRate": 0.1},
    "most": {"dropRate": 0.35, "malformedRate": 0.3, "disconnectRate": 0.35},
}
"""Probabilities of faults; each request draws them one after the other."""

Fixture = dict[str, Any]


@contextlib.asynccontextmanager
async def aimock(folder: Path, fixtures: Sequence[Fixture]) -> AsyncIterator[str]:
    bin_ = node_program("aimock", "@copilotkit/aimock@1.43.0")
    path = folder / "fixtures.json"
    path.write_text(json.dumps({"fixtures": list(fixtures)}))
    port = str(free_port())
    options: list[str | Path] = [
        "--port",
        port,
        "--fixtures",
        path,
        "--log-level",
        "info",
        "--chunk-size",
        "7",
    ]
    program = (bin_ / "node", bin_.parent / "@copilotkit/aimock/dist/cli.js")
    async with Started(*program, *options) as started:
        await started.says("listening on")
        yield f"http://127.0.0.1:{port}"


def base(provider: str, address: str) -> str:
    return address if provider == "anthropic" else f"{address}/v1"


def settings(provider: str, address: str) -> list[str]:
    # The service of this name continues an answer that it is given; aimock does not.
    name = "claude-3-opus-20240229" if provider == "anthropic" else "gpt-4o"
    return [*model_settings(provider, base(provider, address), name), *FAST]


async def control(address: str, path: str, body: Any = None) -> Any:
    """Use aimock's own control."""
    method = "GET" if body is None else "POST"
    async with (
        aiohttp.ClientSession() as http,
        http.request(method, f"{address}/__aimock/{path}", json=body) as answer,
    ):
        assert answer.status == 200, await answer.text()
        return await answer.json()


@pytest.mark.parametrize("provider", DIALECTS)
async def test_answers_under_chaos_are_whole_or_honest_errors(
    provider: str, tmp_path: Path
) -> None:
    found: Counter[str] = Counter()
    async with (
        aimock(tmp_path, [{"match": {}, "response": {"content": STORY}}]) as address,
        gateway_for(tmp_path / "home", *settings(provider, address)) as api,
    ):
        for chaos in CHAOS.values():
            await control(address, "chaos", chaos)
            for number in range(12):
                answer = await api.ask(f"Tell me story {number}.", stream=number % 2 == 0)
                assert answer.is_honest, answer
                if answer.is_whole:
                    assert answer.text == STORY
                else:
                    assert answer.text in STORY
                found["whole" if answer.is_whole else "error"] += 1
        journal = await control(address, "journal")
    assert found["whole"] >= 6, found
    assert found.total() == 24
    assert len(journal) > found.total(), "no fault was met"


@pytest.mark.parametrize("provider", DIALECTS)
@pytest.mark.parametrize("chunks", [2, 5, 9, 15])
async def test_a_broken_answer_is_continued_without_a_repeat(
    provider: str, chunks: int, tmp_path: Path
) -> None:
    story = {"response": {"content": STORY}, "latency": 10}
    first = {"match": {"sequenceIndex": 0}, "truncateAfterChunks": chunks, **story}
    rest = {"match": {}, **story}
    async with (
        aimock(tmp_path, [first, rest]) as address,
        gateway_for(tmp_path / "home", *settings(provider, address)) as api,
    ):
        answer = await api.ask("Tell me a story.", stream=True)
        made = [each for each in await control(address, "journal") if each["method"] == "POST"]
    assert answer.is_whole, answer
    assert answer.text == STORY
    assert len(made) >= 2
