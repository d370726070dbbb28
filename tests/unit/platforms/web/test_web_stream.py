"""The event stream, read by a real client across interruptions."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from platforms.core.contract import Address, Draft, TranscriptRow
from platforms.web import stream as stream_module
from platforms.web.door import VISIT_LIFETIME_MS
from sessions.values.clock import SystemClock
from tests.e2e.page_kit import Stage, staged
from tests.unit.platforms.web.conftest import signed_in

EVENTS = "/web/chats/chat1/events"


class Reader:
    """Reads events one by one."""

    def __init__(self, response: httpx2.Response) -> None:
        self.response = response
        self._lines = response.aiter_lines()
        self.last_id = ""

    async def next(self) -> tuple[str, dict[str, Any]]:
        """Return the next event; a comment is an event named ":"."""
        name, data = "", "{}"
        async with asyncio.timeout(5):
            async for line in self._lines:
                if line.startswith(":"):
                    name = ":"
                elif line.startswith("id: "):
                    self.last_id = line.removeprefix("id: ")
                elif line.startswith("event: "):
                    name = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    data = line.removeprefix("data: ")
                elif not line:
                    return name, json.loads(data)
        return "", {}  # the stream has ended

    async def until(self, wanted: str) -> list[tuple[str, dict[str, Any]]]:
        events = [await self.next()]
        while events[-1][0] != wanted:
            assert events[-1][0], f"ended before {wanted}: {events}"
            events.append(await self.next())
        return events


@asynccontextmanager
async def reading(
    client: httpx2.AsyncClient, path: str = EVENTS, **headers: str
) -> AsyncIterator[Reader]:
    async with client.stream("GET", path, headers=headers) as response:
        assert response.status_code == 200
        yield Reader(response)


def texts(events: list[tuple[str, dict[str, Any]]]) -> list[str]:
    return [data["text"] for name, data in events if name == "row"]


async def wait_until_unwatched(stage: Stage) -> None:
    async with asyncio.timeout(5):
        while stage.adapter._hub._watchers:  # noqa: ASYNC110 - there is no notification for the end of a watcher
            await asyncio.sleep(0)


async def test_the_headers_forbid_proxy_buffering(client: httpx2.AsyncClient) -> None:
    async with reading(client) as reader:
        headers = reader.response.headers
        assert headers["content-type"].startswith("text/event-stream")
        assert headers["cache-control"] == "no-cache"
        assert headers["x-accel-buffering"] == "no"


async def test_a_new_page_gets_the_newest_rows_and_then_live_events(
    stage: Stage, client: httpx2.AsyncClient
) -> None:
    for number in range(150):
        await stage.post("chat1", str(number))
    async with reading(client) as reader:
        assert texts(await reader.until("ready")) == [str(number) for number in range(50, 150)]
        await stage.post("chat1", "news")
        assert texts(await reader.until("row")) == ["news"]
        assert reader.last_id == "151"


async def test_an_answer_goes_from_draft_to_row_and_its_message_to_done(
    client: httpx2.AsyncClient,
) -> None:
    async with reading(client) as reader:
        await reader.until("ready")
        body = {"id": "message-1", "text": "say one two three four five six"}
        await client.post("/web/chats/chat1/messages", json=body)
        drafted = ""
        states: list[str] = []
        answers: list[str] = []
        while not (answers and states[-1] == "done"):
            name, data = await reader.next()
            if name == "draft" and "gone" not in data:
                drafted = data.get("text", drafted + data.get("add", ""))
            if name == "row" and data["author"] == "user":
                states.append(data["state"])
            if name == "row" and data["author"] == "answer":
                answers.append(data["text"])
        assert answers == ["one two three four five six"]
        assert answers[0].startswith(drafted)
        assert drafted
        assert states[-2:] == ["running", "done"]


@pytest.mark.parametrize("by", ["header", "query"])
@pytest.mark.parametrize("missed", [1, 99, 100, 101, 350])
async def test_a_reconnecting_page_gets_all_missed_rows_in_order(
    stage: Stage, client: httpx2.AsyncClient, missed: int, by: str
) -> None:
    for number in range(1, missed + 11):
        await stage.post("chat1", str(number))
    path = EVENTS if by == "header" else f"{EVENTS}?after=10"
    headers = {"Last-Event-ID": "10"} if by == "header" else {}
    async with reading(client, path, **headers) as reader:
        got = [int(text) for text in texts(await reader.until("ready"))]
    assert got == sorted(set(got))
    assert set(got) >= set(range(11, missed + 11))


async def test_a_reconnecting_page_learns_which_newest_rows_exist(
    stage: Stage, client: httpx2.AsyncClient
) -> None:
    items = [await stage.post("chat1", str(number)) for number in range(100)]
    stage.archive.remove("chat1", items[-2])
    async with reading(client, f"{EVENTS}?after=100") as reader:
        events = await reader.until("ready")
    name, data = events[-1]
    assert name == "ready"
    assert data["rows"]["ids"] == [*items[-65:-2], items[-1]]
    assert data["rows"]["first"] == 100 - 64  # of 99 rows, one of 64 is the removed one


async def test_a_page_opened_during_an_answer_gets_the_draft_so_far(
    stage: Stage, client: httpx2.AsyncClient
) -> None:
    draft = Draft("op", Address("web", "chat1"), draft="x", text="half an ans", status="busy")
    await stage.adapter.deliver(draft)
    async with reading(client) as reader:
        events = await reader.until("ready")
        assert events == [
            ("draft", {"id": "x", "status": "busy", "text": "half an ans"}),
            ("ready", {"drafts": ["x"], "rows": {"first": 0, "ids": []}}),
        ]


async def test_a_row_with_an_early_number_shown_late_is_not_lost(
    stage: Stage, client: httpx2.AsyncClient
) -> None:
    await stage.post("chat1", "before")
    number = stage.archive.number()
    async with reading(client) as reader:
        await reader.until("ready")
        await stage.post("chat1", "later number")
        await reader.until("row")
        stage.archive.put("chat1", "slow", "earlier number", seq=number)
        stage.adapter._hub.on_posted("chat1", "slow")
        assert texts(await reader.until("row")) == ["earlier number"]


async def test_edits_and_deletions_reach_the_page(stage: Stage, client: httpx2.AsyncClient) -> None:
    item = await stage.post("chat1", "first words")
    async with reading(client) as reader:
        await reader.until("ready")
        await stage.edit("chat1", item, "better words")
        assert (await reader.until("edit"))[-1][1]["text"] == "better words"
        await stage.delete("chat1", item)
        assert (await reader.until("delete"))[-1][1] == {"id": item}


async def test_other_chats_cause_only_list_events(stage: Stage, client: httpx2.AsyncClient) -> None:
    async with reading(client) as reader:
        await reader.until("ready")
        await stage.post("chat2", "secret of another chat")
        assert await reader.next() == ("chats", {})


async def test_silence_is_filled_with_keepalives() -> None:
    async with (
        staged(keepalive=0.01) as stage,
        signed_in(stage) as client,
        reading(client) as reader,
    ):
        await reader.until("ready")
        assert [(await reader.next())[0] for _ in range(5)] == [":"] * 5
        # Silence is also used to poll for changes that wake no page.
        stage.archive.put("chat1", "quiet", "unannounced")
        assert texts(await reader.until("row")) == ["unannounced"]


async def test_the_state_of_a_waiting_message_is_polled(
    stage: Stage, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "_RUNNING_POLL_SECONDS", 0.01)
    stage.archive.say("chat1", "message-1", "hello", state="running")
    async with reading(client) as reader:
        await reader.until("ready")
        stage.archive.change("chat1", "message-1", state="done")
        assert (await reader.until("row"))[-1][1]["state"] == "done"


async def test_a_stream_ends_when_the_adapter_stops(
    stage: Stage, client: httpx2.AsyncClient
) -> None:
    async with reading(client) as reader:
        await reader.until("ready")
        stage._serving[1].cancel()  # the adapter, not the server
        assert await reader.next() == ("", {})


async def test_signing_out_ends_all_tabs_of_that_visitor_only(
    stage: Stage, client: httpx2.AsyncClient
) -> None:
    async with signed_in(stage) as other, reading(client) as here, reading(other) as there:
        await here.until("ready")
        await there.until("ready")
        assert (await client.delete("/web/session")).status_code == 204
        assert await here.next() == ("", {})
        await stage.post("chat1", "still there?")
        assert texts(await there.until("row")) == ["still there?"]


async def test_a_stream_ends_when_its_visit_expires() -> None:
    async with staged(keepalive=0.05) as stage, signed_in(stage) as client:
        async with reading(client) as reader:
            await reader.until(":")
            stage.adapter._login._clock = ExpiredClock()  # ninety days later
            while (await reader.next())[0] == ":":
                pass
        assert (await client.get("/web/chats")).status_code == 401


class ExpiredClock(SystemClock):
    """A clock past the end of every visit."""

    def now(self) -> int:
        return super().now() + VISIT_LIFETIME_MS + 1


async def test_stopping_does_not_wait_for_open_pages(
    stage: Stage, client: httpx2.AsyncClient
) -> None:
    async with reading(client) as reader:
        await reader.until("ready")
        stage._serving[0].cancel()  # the server stops first, while pages are open
        async with asyncio.timeout(1):  # its grace period for open responses is 2 s
            await asyncio.wait([stage._serving[0]])
        assert await reader.next() == ("", {})


async def test_a_closed_page_is_forgotten(stage: Stage, client: httpx2.AsyncClient) -> None:
    async with reading(client) as reader:
        await reader.until("ready")
        assert stage.adapter._hub._watchers
    await wait_until_unwatched(stage)


async def test_a_stalled_reader_is_disconnected_and_uses_no_memory(
    stage: Stage, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "_SEND_TIMEOUT_SECONDS", 0.2)
    reader, writer = await asyncio.open_connection("127.0.0.1", stage._port, limit=1024)
    cookie = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
    request = f"GET {EVENTS} HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {cookie}\r\n\r\n"
    writer.write(request.encode())
    async with asyncio.timeout(5):
        await reader.readline()  # the stream has begun; nothing more is read
        for number in range(40):
            await stage.post("chat1", str(number) * 300_000)
        reads = stage.archive.reads
    await wait_until_unwatched(stage)
    assert stage.archive.reads <= reads + 1  # the archive was not polled meanwhile
    writer.close()


async def test_a_failing_archive_ends_only_one_stream(
    stage: Stage, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(*_: object) -> list[TranscriptRow]:
        msg = "the disk is gone"
        raise OSError(msg)

    async with reading(client, "/web/chats/chat2/events") as other:
        await other.until("ready")
        with monkeypatch.context() as patch:
            patch.setattr(stage.archive, "transcript", failing)
            with pytest.raises(httpx2.RemoteProtocolError):
                async with reading(client) as reader:
                    await reader.next()
        await stage.post("chat2", "still here")
        assert texts(await other.until("row")) == ["still here"]
