"""Tests of the aiohttp request backend for the library."""

import asyncio
from pathlib import Path

import pytest
from telegram import InputFile
from telegram.error import NetworkError, TimedOut
from telegram.request import RequestData
from telegram.request._requestparameter import RequestParameter

from gateway.operate.selftest.plain_http import Connection, serve
from platforms.core.errors import PlatformError, Unavailable, Unconfirmed
from platforms.telegram.errors import translate_errors
from platforms.telegram.http import AiohttpRequest, TooManyRequests
from sessions.values.clock import SystemClock

URL = "http://telegram.invalid/bot1:secret/getMe"


def given(**parameters: object) -> RequestData:
    return RequestData([RequestParameter.from_input(*each) for each in parameters.items()])


async def test_requests_use_the_proxy_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def handle(connection: Connection, path: str, _body: bytes) -> None:
        asked.append(path)
        connection.answer(b'{"ok": true, "result": 1}')

    for name in ("no_proxy", "NO_PROXY", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    async with serve(handle) as port:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        connections = AiohttpRequest(trusted=False, now=SystemClock().monotonic)
        assert await connections.do_request(URL, "POST") == (200, b'{"ok": true, "result": 1}')
        await connections.shutdown()
    assert asked == [URL]


async def test_texts_are_sent_as_a_form_and_files_as_multipart(tmp_path: Path) -> None:
    bodies: list[bytes] = []

    def handle(connection: Connection, _path: str, body: bytes) -> None:
        bodies.append(body)
        connection.answer(b"{}")

    file = tmp_path / "file"
    file.write_bytes(b"the content")
    name = 'a "b"\r\nü.txt'
    async with serve(handle) as port:
        connections = AiohttpRequest(trusted=False, now=SystemClock().monotonic)
        url = f"http://127.0.0.1:{port}/x"
        await connections.do_request(url, "POST", given(chat_id=7, text="a & ü", menu=["x"]))
        with file.open("rb") as handed:
            upload = InputFile(handed, filename=name, attach=False, read_file_handle=False)
            await connections.do_request(url, "POST", given(chat_id=7, document=upload))
        await connections.shutdown()
    form, parts = bodies
    assert form == b"chat_id=7&text=a+%26+%C3%BC&menu=%5B%22x%22%5D"
    assert b'name="chat_id"' in parts
    assert 'name="document"; filename="a %22b%22%0D%0Aü.txt"'.encode() in parts
    assert b"the content" in parts


async def test_redirects_are_not_followed() -> None:
    def handle(connection: Connection, _path: str, _body: bytes) -> None:
        connection.write(
            b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
        )

    async with serve(handle) as port:
        connections = AiohttpRequest(trusted=False, now=SystemClock().monotonic)
        status, _ = await connections.do_request(f"http://127.0.0.1:{port}/x", "POST")
        await connections.shutdown()
    assert status == 302


async def test_a_429_carries_its_retry_after() -> None:
    def handle(connection: Connection, _path: str, _body: bytes) -> None:
        connection.answer(b'{"ok": false, "parameters": {"retry_after": 7}}', 429)

    async with serve(handle) as port:
        connections = AiohttpRequest(trusted=False, now=SystemClock().monotonic)
        with pytest.raises(TooManyRequests) as caught:
            await connections.do_request(f"http://127.0.0.1:{port}/x", "POST")
        await connections.shutdown()
    assert caught.value.seconds == 7


def _silent(_connection: Connection, _path: str, _body: bytes) -> None:
    pass


def _cut(connection: Connection, _path: str, _body: bytes) -> None:
    connection.close()


def _half(connection: Connection, _path: str, _body: bytes) -> None:
    connection.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{")
    connection.close()


@pytest.mark.parametrize(
    ("handle", "raised"),
    [
        pytest.param(_silent, TimedOut, id="no response"),
        pytest.param(_cut, NetworkError, id="connection closed"),
        pytest.param(_half, NetworkError, id="truncated response"),
    ],
)
async def test_a_request_that_may_have_arrived_is_unconfirmed(
    handle: object, raised: type[NetworkError]
) -> None:
    asked: list[str] = []

    def counted(connection: Connection, path: str, body: bytes) -> None:
        asked.append(path)
        assert callable(handle)
        handle(connection, path, body)

    async with serve(counted) as port:
        connections = AiohttpRequest(trusted=False, now=SystemClock().monotonic)
        url = f"http://127.0.0.1:{port}/secret"
        with pytest.raises(raised) as caught:
            await connections.do_request(url, "POST", read_timeout=0.1)
        with pytest.raises(Unconfirmed) as told, translate_errors():
            raise caught.value
        await connections.shutdown()
    assert asked == ["/secret"]  # the request is not repeated
    assert "secret" not in f"{caught.value} {told.value}"


async def test_a_request_that_was_never_sent_is_unavailable() -> None:
    async with serve(_silent) as port:
        pass
    connections = AiohttpRequest(trusted=False, now=SystemClock().monotonic)
    with pytest.raises(PlatformError) as told, translate_errors():
        await connections.do_request(f"http://127.0.0.1:{port}/secret", "POST")
    await connections.shutdown()
    assert type(told.value) is Unavailable
    assert "secret" not in str(told.value)


async def test_waiting_for_a_free_connection_times_out_as_unavailable() -> None:
    asked = asyncio.Event()

    def handle(_connection: Connection, _path: str, _body: bytes) -> None:
        asked.set()

    async with serve(handle) as port:
        connections = AiohttpRequest(trusted=False, now=SystemClock().monotonic, most=1)
        url = f"http://127.0.0.1:{port}/x"
        async with asyncio.TaskGroup() as group:
            first = group.create_task(connections.do_request(url, "POST"))
            await asked.wait()
            with pytest.raises(Unavailable), translate_errors():
                await connections.do_request(url, "POST", pool_timeout=0.05)
            first.cancel()
        await connections.shutdown()
