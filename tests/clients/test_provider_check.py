"""trustedrouter-provider-check as a judge of the chat API: every check of its six tiers."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.clients.kit import python_program, run
from tests.clients.scripted import Request, results
from tests.e2e.api_kit import KEY, daemon_for
from tests.fakes.model_script import Script, calls, ok, steps
from tests.fakes.model_server import ModelServer

BENCHMARK_WORDS = 200
LONG = " ".join(['T"benchmark "'] * BENCHMARK_WORDS)


@pytest.fixture(scope="module")
def checker() -> Path:
    package = "trustedrouter-provider-check==0.1.8"
    return python_program("provider-check", package) / "trustedrouter-provider-check"


def filled(schema: dict[str, Any]) -> Any:
    """Return a value that fits a simple schema."""
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type"):
        case "object":
            return {name: filled(each) for name, each in schema.get("properties", {}).items()}
        case "integer" | "number":
            return 2
        case _:
            return "Athens"


def obedient(request: Request) -> Script:
    """Do as the checker says: call all tools at once, write JSON, or a long text, or PONG."""
    asked = [each["content"] for each in request["messages"] if each["role"] == "user"][-1]
    if results(request):
        return ok("It is sunny in Athens.")
    functions = [each["function"] for each in request.get("tools") or ()]
    if named := [each for each in functions if each["name"] in asked]:
        arguments = [json.dumps(filled(each["parameters"])) for each in named]
        return calls(*((f"c{n}", each["name"], arguments[n]) for n, each in enumerate(named)))
    if "JSON" in asked:
        return ok('{"answer": "PONG", "count": 2}')
    if "benchmark" in asked:
        return steps(f"H {LONG} F stop U({BENCHMARK_WORDS}) D")
    return ok("PONG")


async def test_every_check_of_all_tiers_passes(checker: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    async with ModelServer(obedient) as server:
        daemon = daemon_for(tmp_path / "home", server)
        async with daemon:
            ended = await run(
                *(checker, "--base-url", f"{daemon.url}/v1", "--model", "scripted"),
                *("--tier", "6", "--json", report),
                env={"TR_PROVIDER_API_KEY": KEY},
            )
    assert ended.code == 0, ended.all
    checks = json.loads(report.read_text())["checks"]
    assert {each["tier"] for each in checks} == {1, 2, 3, 4, 5, 6}
    other = {each["id"]: each["status"] for each in checks if each["status"] != "pass"}
    # Only the public catalog of a marketplace is not judged: the gateway publishes none.
    assert other == {"catalog.declared-v2": "skip"}, ended.out
