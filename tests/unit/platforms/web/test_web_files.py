"""Uploads, attachments of messages, and downloads."""

import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from platforms.core.contract import File, InboundMessage, Text
from platforms.core.errors import Rejected
from platforms.web.attachments import MAX_FILE_BYTES, RETENTION_SECONDS, UploadFolder
from sessions.values.clock import SystemClock
from tests.e2e.page_kit import Stage
from tests.fakes.http_client import local_client

FILES = "/web/chats/chat1/files"
MESSAGES = "/web/chats/chat1/messages"


def message(ref: str, text: str = "hang", **file: str) -> dict[str, Any]:
    named = {"ref": ref, "name": "notes.txt", "type": "text/plain"} | file
    return {"id": "message-1", "text": text, "files": [named]}


async def handed_over(client: httpx2.AsyncClient, content: bytes) -> str:
    answer = await client.post(FILES, content=content)
    assert answer.status_code == 201
    assert answer.json()["size"] == len(content)
    return str(answer.json()["ref"])


async def test_an_uploaded_file_reaches_the_gateway_unchanged(
    stage: Stage, client: httpx2.AsyncClient
) -> None:
    content = os.urandom(700_000)
    ref = await handed_over(client, content)
    assert (await client.post(MESSAGES, json=message(ref))).status_code == 202
    (event,) = stage.received
    assert isinstance(event, InboundMessage)
    assert event.parts == (
        Text("hang"),
        File("notes.txt", "text/plain", ref=ref, size=len(content)),
    )
    file = event.parts[1]
    assert isinstance(file, File)
    assert b"".join([piece async for piece in stage.adapter.fetch(file)]) == content


async def test_an_upload_survives_a_concurrent_rename(tmp_path: Path) -> None:
    """A file listed a moment ago may have been renamed since; here it never existed."""
    (tmp_path / "another.part").symlink_to("nowhere")

    async def pieces() -> AsyncIterator[bytes]:
        yield b"words"

    ref, size = await UploadFolder(tmp_path, SystemClock()).save(pieces())
    assert ((tmp_path / ref).read_bytes(), size) == (b"words", 5)


async def test_a_message_may_consist_of_files_only(
    stage: Stage, client: httpx2.AsyncClient
) -> None:
    ref = await handed_over(client, b"words")
    assert (await client.post(MESSAGES, json=message(ref, "  "))).status_code == 202
    (event,) = stage.received
    assert isinstance(event, InboundMessage)
    assert [type(part) for part in event.parts] == [File]


async def test_an_attachment_is_served_only_to_its_owner(
    stage: Stage, client: httpx2.AsyncClient
) -> None:
    ref = await handed_over(client, b"words")
    await client.post(MESSAGES, json=message(ref))
    (row,) = (await client.get("/web/chats/chat1/rows")).json()["rows"]
    (file,) = row["files"]
    assert file == {
        "name": "notes.txt",
        "type": "text/plain",
        "at": "1/0",
        "shown": False,
        "ref": ref,
    }
    given = await client.get(f"{FILES}/{file['at']}")
    assert given.content == b"words"
    assert given.headers["content-disposition"] == 'attachment; filename="notes.txt"'
    assert given.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in given.headers["content-security-policy"]
    async with local_client(stage.url) as stranger:
        assert (await stranger.get(f"{FILES}/{file['at']}")).status_code == 401
        assert (await stranger.post(FILES, content=b"x")).status_code == 401


async def test_a_picture_from_the_agent_is_shown_inline(
    stage: Stage, client: httpx2.AsyncClient
) -> None:
    picture = stage.folder / "chart.png"
    picture.write_bytes(b"\x89PNG")
    await stage.send_file("chat1", picture, "image/png", "The chart")
    (row,) = (await client.get("/web/chats/chat1/rows")).json()["rows"]
    assert row["text"] == "The chart"
    (file,) = row["files"]
    assert file == {"name": "chart.png", "type": "image/png", "at": "1/0", "shown": True}
    given = await client.get(f"{FILES}/1/0")
    assert given.content == b"\x89PNG"
    assert given.headers["content-disposition"].startswith("inline")
    picture.unlink()
    assert (await client.get(f"{FILES}/1/0")).status_code == 404


@pytest.mark.parametrize("place", ["1/1", "2/0", "0/0", "99999999999999999/0"])
async def test_no_other_file_of_a_message_can_be_requested(
    stage: Stage, client: httpx2.AsyncClient, place: str
) -> None:
    ref = await handed_over(client, b"words")
    await client.post(MESSAGES, json=message(ref))
    assert (await client.get(f"{FILES}/{place}")).status_code == 404
    assert (await client.get("/web/chats/chat2/files/1/0")).status_code == 404
    assert stage.received


@pytest.mark.parametrize(
    ("named", "status"),
    [
        (message("0" * 32), 400),
        (message("../../etc/passwd"), 400),
        (message("0" * 32, name=""), 400),
        (message("0" * 32, type="text/html; charset=utf-8"), 400),
        ({"id": "message-1", "text": "x", "files": [message("0" * 32)["files"][0]] * 21}, 400),
    ],
    ids=["missing file", "path instead of reference", "no name", "no type", "too many"],
)
async def test_a_message_may_refer_only_to_uploaded_files(
    stage: Stage, client: httpx2.AsyncClient, named: dict[str, Any], status: int
) -> None:
    answer = await client.post(MESSAGES, json=named)
    assert answer.status_code == status
    assert answer.json()["error"]["message"].endswith(".")
    assert stage.received == []


async def test_a_file_that_is_too_large_is_not_kept(
    stage: Stage, client: httpx2.AsyncClient
) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(MAX_FILE_BYTES // 1_000_000 + 1):
            yield bytes(1_000_000)

    answer = await client.post(FILES, content=endless())
    assert answer.status_code == 413
    assert "15 MB" in answer.json()["error"]["message"]
    assert list((stage.folder / "web").iterdir()) == []


async def test_an_upload_requires_the_csrf_token(stage: Stage, client: httpx2.AsyncClient) -> None:
    del client.headers["X-Holdfast-CSRF"]
    assert (await client.post(FILES, content=b"x")).status_code == 403
    assert not (stage.folder / "web").exists()


async def test_an_unwritable_folder_is_reported_in_a_sentence(
    stage: Stage, client: httpx2.AsyncClient
) -> None:
    (stage.folder / "web").write_text("in the way")
    answer = await client.post(FILES, content=b"x")
    assert answer.status_code == 507
    assert answer.json()["error"]["message"].startswith("The file could not be stored")


async def test_old_files_are_deleted(stage: Stage, client: httpx2.AsyncClient) -> None:
    old = await handed_over(client, b"old")
    folder = stage.folder / "web"
    before = time.time() - RETENTION_SECONDS - 60  # noqa: TID251 - the clock of the file system
    os.utime(folder / old, (before, before))
    new = await handed_over(client, b"new")
    assert [each.name for each in folder.iterdir()] == [new]
    with pytest.raises(Rejected, match=r"notes\.txt is no longer available"):
        _ = [piece async for piece in stage.adapter.fetch(File("notes.txt", "text/plain", old))]
