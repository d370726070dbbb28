"""Files with secrets that the model reads, changes and writes back without seeing the secrets."""

import json
from collections.abc import Callable
from pathlib import Path

from platforms.core.contract import Live
from tests.e2e.gateway_kit import ME, Screen, gateway, talkative
from tests.fakes.model_script import Script, calls
from tests.fakes.model_server import ModelServer

KEY = "sk-" + "a1b2c3d4" * 4
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKC\nAQEA7bq9\n-----END RSA PRIVATE KEY-----"
TEXT = f"# settings\nOPENAI_API_KEY={KEY}\nCOLOUR=red\nDB=postgres://ann:pw1@db/x\n{PEM}\n"


def screen() -> Screen:
    return Screen(live=Live.EDIT, live_interval=0.01, burst=1000)


def workspace(home: Path) -> Path:
    folder = home / "workspace" / f"memory%3A{ME}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def editing(*steps: Callable[[str], Script]) -> Callable[[dict[str, object]], Script]:
    """Return a model script whose steps get the last tool result, and which then answers."""
    left = iter(steps)

    def answer(body: dict[str, object]) -> Script:
        rows = body["messages"]
        assert isinstance(rows, list)
        results = [str(row["content"]) for row in rows if row["role"] == "tool"]
        step = next(left, None)
        return step(results[-1] if results else "") if step else talkative(body)

    return answer


def read(_result: str) -> Script:
    return calls(("c1", "read_file", json.dumps({"path": ".env"})))


def write_changed(result: str) -> Script:
    _, _, shown = result.partition("\n")
    content = shown.replace("COLOUR=red", "COLOUR=blue") + "\n"
    return calls(("c2", "write_file", json.dumps({"path": ".env", "content": content})))


async def test_a_masked_file_that_is_written_back_keeps_its_secrets(tmp_path: Path) -> None:
    file = workspace(tmp_path) / ".env"
    file.write_text(TEXT)
    async with (
        ModelServer(editing(read, write_changed)) as model,
        gateway(tmp_path, model, screen()) as kit,
    ):
        await kit.screen.say(ME, "make it blue")
        await kit.screen.shows(ME, "echo: make it blue")
        sent = json.dumps(await kit.asked(3))
    assert file.read_text() == TEXT.replace("COLOUR=red", "COLOUR=blue")
    for secret in (KEY, "pw1", "MIIEowIBAAKC", "AQEA7bq9"):
        assert secret not in sent
