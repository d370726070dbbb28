"""Files and speech of API requests, over a whole gateway."""

import base64
import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.api_kit import ApiKit, served
from tests.fakes.model_script import ok
from tests.fakes.model_server import ModelServer

PDF = b"%PDF-1.7 a report"
DATA = base64.b64encode(PDF).decode()
URL = f"data:application/pdf;base64,{DATA}"
CHAT = {"type": "file", "file": {"file_data": URL, "filename": "report.pdf"}}
RESPONSE = {"type": "input_file", "file_data": DATA, "filename": "report.pdf"}
SOURCE = {"type": "base64", "media_type": "application/pdf", "data": DATA}
MESSAGE = {"type": "document", "title": "report.pdf", "source": SOURCE}


async def ask(api: ApiKit, path: str, content: Any) -> tuple[int, Any]:
    name = "input" if path == "/responses" else "messages"
    body = json.dumps({name: [{"role": "user", "content": content}]}).encode()
    status, _, found = await api.wire.send("POST", path, data=io.BytesIO(body))
    return status, found


def received(home: Path, name: str) -> list[Path]:
    return list(home.rglob(f"received/*/{name}"))


@pytest.mark.parametrize(
    ("path", "part"),
    [("/chat/completions", CHAT), ("/responses", RESPONSE), ("/messages", MESSAGE)],
)
async def test_a_file_lies_in_the_workspace(tmp_path: Path, path: str, part: Any) -> None:
    async with ModelServer(ok("Read.")) as model, served(tmp_path, model) as api:
        status, found = await ask(api, path, [part])
        assert status == 200, found
        assert "report.pdf" in json.dumps(await api.kit.asked(1))
        (file,) = received(tmp_path, "report.pdf")
        assert file.read_bytes() == PDF
        if path == "/responses":
            listed = await api.client.responses.input_items.list(found["id"])
            assert "input_file" in listed.to_json()


async def test_speech_is_an_attachment(tmp_path: Path) -> None:
    speech = {"type": "input_audio", "input_audio": {"data": DATA, "format": "wav"}}
    async with ModelServer(ok("Heard."), ok("Heard.")) as model, served(tmp_path, model) as api:
        for path in ("/chat/completions", "/responses"):
            status, found = await ask(api, path, [speech])
            assert status == 200, found
        assert len(received(tmp_path, "file-1.wav")) == 2


async def test_a_picture_of_15_megabytes_fits(tmp_path: Path) -> None:
    content = b"\x89PNG\r\n\x1a\n" + bytes(14_999_992)
    url = f"data:image/png;base64,{base64.b64encode(content).decode()}"
    part = {"type": "image_url", "image_url": {"url": url}}
    async with ModelServer(ok("Seen.")) as model, served(tmp_path, model) as api:
        status, found = await ask(api, "/chat/completions", [part])
        assert status == 200, found
        (file,) = received(tmp_path, "picture-1.png")
        assert file.stat().st_size == 15_000_000


@pytest.mark.parametrize(
    ("path", "part", "param"),
    [
        (
            "/chat/completions",
            {"type": "file", "file": {"file_data": "?"}},
            "messages[0].content[0].file.file_data",
        ),
        (
            "/chat/completions",
            {"type": "file", "file": {"file_id": "f"}},
            "messages[0].content[0].file.file_data",
        ),
        ("/responses", {"type": "input_file", "file_id": "f"}, "input[0].content[0]"),
        ("/responses", {**RESPONSE, "file_data": ""}, "input[0].content[0].file_data"),
        (
            "/messages",
            {**MESSAGE, "source": {**SOURCE, "data": "?"}},
            "messages[0].content[0].source.data",
        ),
    ],
)
async def test_wrong_files_are_refused(tmp_path: Path, path: str, part: Any, param: str) -> None:
    async with ModelServer() as model, served(tmp_path, model) as api:
        status, found = await ask(api, path, [part])
        assert (status, found["error"]["param"]) == (400, param)
