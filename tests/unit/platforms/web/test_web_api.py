"""HTTP endpoints of the page, over a real server."""

import asyncio
from typing import Any

import httpx2
import pytest

from platforms.core.contract import (
    Accepted,
    Address,
    Ask,
    Button,
    File,
    InboundAction,
    InboundMessage,
    Live,
    Post,
    React,
    Repeat,
    Surroundings,
)
from platforms.core.errors import ChatGone, Rejected
from platforms.web import SPEC, WebAdapter, WebConfig
from tests.e2e.page_kit import Stage
from tests.fakes.http_client import local_client

MESSAGES = "/web/chats/chat1/messages"
MESSAGE = {"id": "message-1", "text": "say hello"}


def error_of(answer: httpx2.Response) -> str:
    """Return the sentence of a refusal; every refusal has one."""
    error = answer.json()["error"]
    assert error["type"]
    assert error["message"].endswith(".")
    return str(error["message"])


# --- sign-in -----------------------------------------------------------------------------------


async def test_without_a_cookie_the_front_page_explains_the_sign_in(stage: Stage) -> None:
    async with local_client(stage.url) as stranger:
        answer = await stranger.get("/")
    assert answer.status_code == 200
    assert "holdfast link" in answer.text
    assert "composer" not in answer.text


async def test_a_link_becomes_a_cookie_that_scripts_and_other_sites_cannot_use(
    stage: Stage,
) -> None:
    async with local_client(stage.url) as visitor:
        answer = await visitor.get(await stage.link())
        assert answer.status_code == 303
        assert answer.headers["location"] == "/"
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert f"max-age={90 * 24 * 3600}" in cookie
        assert "secure" not in cookie  # over plain http a browser would discard a secure cookie
        assert "composer" in (await visitor.get("/")).text


async def test_a_link_signs_in_only_its_first_visitor(stage: Stage) -> None:
    link = await stage.link()
    async with local_client(stage.url) as first:
        await first.get(link)
        assert (await first.get(link)).status_code == 303  # the owner may open the link again
    async with local_client(stage.url) as second:
        answer = await second.get(link)
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers
        assert "holdfast link" in answer.text
        assert (await second.get("/web/chats")).status_code == 401


async def test_a_link_preview_does_not_use_up_the_link(stage: Stage) -> None:
    link = await stage.link()
    async with local_client(stage.url) as visitor:
        assert "set-cookie" not in (await visitor.head(link)).headers
        assert (await visitor.get(link)).status_code == 303


async def test_behind_tls_the_cookie_is_secure(stage: Stage) -> None:
    async with local_client(stage.url) as visitor:
        answer = await visitor.get(await stage.link(), headers={"X-Forwarded-Proto": "https"})
        assert "secure" in answer.headers["set-cookie"].lower()


async def test_a_link_that_still_works_is_not_logged(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """The link can still be used."""
    link = await stage.link()
    token = link.rpartition("/")[2]
    async with local_client(stage.url) as visitor:
        stage.shelf.broken = True
        assert (await visitor.get(link)).status_code == 500
        assert "GET /enter/*** failed" in caplog.text
        assert token not in caplog.text
        stage.shelf.broken = False
        assert (await visitor.get(link)).status_code == 303


async def test_a_link_is_neither_cached_nor_sent_as_referrer(stage: Stage) -> None:
    link = await stage.link()
    async with local_client(stage.url) as visitor:
        for status in (303, 303):
            answer = await visitor.get(link)
            assert answer.status_code == status
            assert answer.headers["cache-control"] == "no-store"
            assert answer.headers["referrer-policy"] == "no-referrer"
        visitor.cookies.clear()
        spent = await visitor.get(link)
    assert spent.status_code == 403
    assert spent.headers["referrer-policy"] == "no-referrer"
    assert link.rpartition("/")[2] not in spent.text


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/web/session"),
        ("DELETE", "/web/session"),
        ("GET", "/web/chats"),
        ("GET", "/web/chats/chat1/rows"),
        ("GET", "/web/chats/chat1/events"),
        ("POST", MESSAGES),
        ("POST", "/web/chats/chat1/actions"),
    ],
)
@pytest.mark.parametrize("cookie", ["none", "guessed", "another name"])
async def test_every_endpoint_requires_the_cookie(
    stage: Stage, method: str, path: str, cookie: str
) -> None:
    async with local_client(stage.url) as stranger:
        name = next(iter((await stranger.get(await stage.link())).cookies))
        value = stranger.cookies[name]
        stranger.cookies.clear()
        if cookie == "guessed":
            stranger.cookies.set(name, "x" * 43)
        if cookie == "another name":
            stranger.cookies.set("holdfast_00000000", value)
        answer = await stranger.request(method, path)
    assert answer.status_code == 401
    assert "holdfast link" in error_of(answer)
    assert not stage.received


@pytest.mark.parametrize("token", [None, "", "x" * 64])
@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", MESSAGES), ("POST", "/web/chats/chat1/actions"), ("DELETE", "/web/session")],
)
async def test_nothing_changes_without_the_csrf_token(
    stage: Stage, client: httpx2.AsyncClient, method: str, path: str, token: str | None
) -> None:
    del client.headers["X-Holdfast-CSRF"]
    headers = {} if token is None else {"X-Holdfast-CSRF": token}
    answer = await client.request(method, path, json=MESSAGE, headers=headers)
    assert answer.status_code == 403
    assert "reload the page" in error_of(answer)
    assert not stage.received
    assert (await client.get("/web/session")).status_code == 200


async def test_the_csrf_token_of_one_visitor_is_worthless_to_another(
    stage: Stage, client: httpx2.AsyncClient
) -> None:
    async with local_client(stage.url) as other:
        await other.get(await stage.link())
        stolen = {"X-Holdfast-CSRF": client.headers["X-Holdfast-CSRF"]}
        assert (await other.post(MESSAGES, json=MESSAGE, headers=stolen)).status_code == 403


async def test_signing_out_invalidates_the_cookie(client: httpx2.AsyncClient) -> None:
    kept = dict(client.cookies)
    answer = await client.delete("/web/session")
    assert answer.status_code == 204
    client.cookies.update(kept)  # a browser that kept its cookie
    assert (await client.get("/web/chats")).status_code == 401


async def test_visits_survive_a_restart(stage: Stage, client: httpx2.AsyncClient) -> None:
    await stage.restart()
    assert (await client.post(MESSAGES, json=MESSAGE)).status_code == 202


# --- messages ----------------------------------------------------------------------------------


async def test_a_message_is_received_as_the_owner(stage: Stage, client: httpx2.AsyncClient) -> None:
    answer = await client.post(MESSAGES, json={"id": "message-1", "text": "  a\r\nb\0 "})
    assert answer.status_code == 202
    [message] = stage.received
    assert isinstance(message, InboundMessage)
    assert message.id == "message-1"
    assert message.address == Address("web", "chat1")
    assert message.sender.id == "owner"
    assert (message.direct, message.addressed) == (True, True)
    assert message.text == "  a\nb\ufffd "
    assert message.at > 1_600_000_000_000


async def test_a_repeated_message_keeps_its_id(stage: Stage, client: httpx2.AsyncClient) -> None:
    assert (await client.post(MESSAGES, json=MESSAGE)).status_code == 202
    again = await client.post(MESSAGES, json=MESSAGE)
    assert (again.status_code, again.json()) == (200, {"accepted": "duplicate"})
    assert [row.text for row in stage.archive.of("chat1") if row.author == "user"] == ["say hello"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"[]", 400),
        (b"{", 400),
        (b'{"id":"message-1"}', 400),
        (b'{"id":"short","text":"x"}', 400),
        (b'{"id":"has spaces","text":"x"}', 400),
        (b'{"id":"message-1","text":" \\n"}', 400),
        (b'{"id":"message-1","text":"\xff"}', 400),
        (b'{"id":"message-1","text":"' + b"x" * 1_000_000 + b'"}', 413),
    ],
    ids=lambda value: repr(value)[:40],
)
async def test_an_invalid_message_is_refused_with_a_sentence(
    stage: Stage, client: httpx2.AsyncClient, body: bytes, status: int
) -> None:
    answer = await client.post(MESSAGES, content=body)
    assert answer.status_code == status
    error_of(answer)
    assert not stage.received


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("type", "image/png\n"),
        ("type", "imäge/png"),
        ("ref", ""),
        ("id", "message-1\n"),
    ],
)
async def test_ids_and_media_types_of_another_form_are_refused(
    stage: Stage, client: httpx2.AsyncClient, field: str, value: str
) -> None:
    uploaded = await client.post("/web/chats/chat1/files", content=b"a picture")
    file = {"ref": uploaded.json()["ref"], "name": "a.png", "type": "image/png"}
    body: dict[str, Any] = {"id": "message-1", "text": "hi", "files": [file]}
    if field == "ref":
        value = f"{file['ref']}\n"
    (body if field == "id" else file)[field] = value
    answer = await client.post(MESSAGES, json=body)
    assert answer.status_code == 400
    assert not stage.received


async def test_a_body_without_content_length_is_limited_too(
    stage: Stage, client: httpx2.AsyncClient
) -> None:
    async def endless() -> Any:
        for _ in range(40):
            yield b"x" * 50_000

    assert (await client.post(MESSAGES, content=endless())).status_code == 413
    assert not stage.received


@pytest.mark.parametrize("chat", ["abc", "x" * 41, "a.b.c", "%2e%2e%2f%2e%2e", "a b c d"])
async def test_invalid_conversation_names_are_not_found(
    client: httpx2.AsyncClient, chat: str
) -> None:
    answer = await client.post(f"/web/chats/{chat}/messages", json=MESSAGE)
    assert answer.status_code == 404
    error_of(answer)


async def test_a_message_that_was_not_stored_is_not_acknowledged(
    stage: Stage, client: httpx2.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    stage.broken = True
    answer = await client.post(MESSAGES, json=MESSAGE)
    assert answer.status_code == 503
    assert "send it again" in error_of(answer)
    assert "the disk is full" in caplog.text
    stage.broken = False
    assert (await client.post(MESSAGES, json=MESSAGE)).status_code == 202


async def test_a_disallowed_owner_gets_an_explanation(
    stage: Stage, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ignoring(_: object) -> Accepted:
        return Accepted.IGNORED

    monkeypatch.setattr(stage.adapter._api, "_inbox", ignoring)
    answer = await client.post(MESSAGES, json=MESSAGE)
    assert answer.status_code == 403
    assert "configuration" in error_of(answer)


async def test_messages_are_refused_while_the_adapter_is_not_running(
    stage: Stage, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage.adapter._api, "_inbox", None)
    for answer in (
        await client.post(MESSAGES, json=MESSAGE),
        await client.get("/web/chats/chat1/events"),
    ):
        assert answer.status_code == 503
        assert "in a moment" in error_of(answer)


async def test_a_pressed_button_is_received_as_an_action(
    stage: Stage, client: httpx2.AsyncClient
) -> None:
    body = {"id": "press-001", "action": "/resume", "message": "i_1"}
    assert (await client.post("/web/chats/chat1/actions", json=body)).status_code == 202
    [action] = stage.received
    assert isinstance(action, InboundAction)
    assert (action.action, action.message, action.sender.id) == ("/resume", "i_1", "owner")


# --- rows and conversations --------------------------------------------------------------------


async def test_conversations_are_listed_by_last_use(
    stage: Stage, client: httpx2.AsyncClient
) -> None:
    stage.archive.say("first", "m1", "one", at=1)
    stage.archive.say("second", "m2", "two", at=2)
    stage.archive.say("no", "m3", "a name the page cannot open", at=3)
    listed = (await client.get("/web/chats")).json()["chats"]
    assert listed == [
        {"id": "second", "title": "two", "at": 2},
        {"id": "first", "title": "one", "at": 1},
    ]


@pytest.mark.parametrize(
    ("query", "count"), [("", 100), ("?limit=150", 150), ("?limit=x", 100), ("?limit=-5", 100)]
)
async def test_the_rows_endpoint_returns_the_newest_rows(
    stage: Stage, client: httpx2.AsyncClient, query: str, count: int
) -> None:
    for number in range(200):
        stage.archive.put("chat1", f"i{number}", str(number), buttons=(Button("Go", "go"),))
    rows = (await client.get(f"/web/chats/chat1/rows{query}")).json()["rows"]
    assert [row["text"] for row in rows] == [str(number) for number in range(200 - count, 200)]
    assert rows[0]["buttons"] == [{"label": "Go", "action": "go"}]


# --- files -------------------------------------------------------------------------------------


async def test_the_policy_allows_only_own_files_and_nothing_inline(
    client: httpx2.AsyncClient,
) -> None:
    answer = await client.get("/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    for forbidden in (" style=", "javascript:", " onclick=", "<style", "http://", "https://"):
        assert forbidden not in answer.text.replace("http://www.w3.org/2000/svg", "")


@pytest.mark.parametrize(
    ("name", "kind"),
    [("app.js", "text/javascript"), ("style.css", "text/css"), ("icon.svg", "image/svg+xml")],
)
async def test_static_files_are_revalidated(
    client: httpx2.AsyncClient, name: str, kind: str
) -> None:
    answer = await client.get(f"/web/static/{name}")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith(kind)
    again = await client.get(
        f"/web/static/{name}", headers={"If-None-Match": answer.headers["etag"]}
    )
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    "name", ["index.html", "nothing.js", "..%2fadapter.py", "%2e%2e/adapter.py", "../adapter.py"]
)
async def test_no_other_static_file_can_be_requested(client: httpx2.AsyncClient, name: str) -> None:
    assert (await client.get(f"/web/static/{name}")).status_code == 404


# --- the adapter -------------------------------------------------------------------------------


async def test_ops_the_page_cannot_show_are_refused(stage: Stage) -> None:
    address = Address("web", "chat1")
    with pytest.raises(Rejected):
        await stage.adapter.deliver(React("o", address, "m", "👍"))
    with pytest.raises(ChatGone):
        await stage.adapter.deliver(Post("o", Address("web", "a b"), "text"))
    with pytest.raises(Rejected):
        await anext(stage.adapter.fetch(File("a.txt", "text/plain", "ref")))


async def test_a_receipt_names_the_op(stage: Stage) -> None:
    receipt = await stage.adapter.deliver(
        Ask("x.0", Address("web", "chat1"), text="May I?", buttons=())
    )
    assert receipt.message == "x.0"


async def test_a_link_is_created_below_the_given_base_url(stage: Stage) -> None:
    for base in ("http://127.0.0.1:8420", "http://127.0.0.1:8420/"):
        link = await stage.adapter.new_link(base)
        assert link.startswith("http://127.0.0.1:8420/enter/")
        assert len(link.rsplit("/", 1)[1]) >= 40


async def test_the_adapter_can_run_again_after_it_was_stopped(stage: Stage) -> None:
    adapter = stage.adapter

    async def taking(_: object) -> Accepted:
        return Accepted.STORED

    for _ in range(2):
        ready = asyncio.Event()
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            task = group.create_task(adapter.run(taking, ready.set))
            await ready.wait()
            task.cancel()


def test_the_registry_finds_the_web_platform(stage: Stage) -> None:
    surroundings = Surroundings(stage._clock, stage._ids, shelf=stage.shelf, archive=stage.archive)
    adapter = SPEC.build(WebConfig(), surroundings)
    assert isinstance(adapter, WebAdapter)
    assert SPEC.name == adapter.name == "web"
    assert adapter.capabilities.live is Live.DRAFT
    assert adapter.capabilities.repeat is Repeat.ALWAYS
