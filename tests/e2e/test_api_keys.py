"""Several API keys: each has its own conversations and answers, and the authority of its person."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import jwt
import msgspec
import openai
import pytest
from openai import AsyncOpenAI

from gateway.inbound.reader import read_event
from gateway.inbound.request_options import decode_options
from gateway.process.operations import OperationRefused
from gateway.settings import LimitSettings
from platforms.core.contract import InboundMessage
from sessions.records import InboxEntry, InboxState
from sessions.store.store import SessionStore
from sessions.values.clock import SystemClock
from sessions.values.secret import Secret
from tests.e2e.api_kit import HTTP, KEY, ApiKit, Wire, events, finish_of, served, text_of, user, why
from tests.e2e.gateway_kit import opened, talkative
from tests.fakes.agent_kit import Workshop
from tests.fakes.http_client import library_client
from tests.fakes.model_script import calls, ok, status
from tests.fakes.model_server import ModelServer

SESSION = {"X-Holdfast-Session": "mine"}


async def add(api: ApiKit, name: str, **more: Any) -> str:
    """Add a key as `holdfast keys add` does, and return its text."""
    added = await api.kit.runner.operations["keys_add"](name=name, **more)
    assert isinstance(added, dict)
    return str(added["key"])


@contextlib.asynccontextmanager
async def client_with(api: ApiKit, key: str) -> AsyncIterator[AsyncOpenAI]:
    async with library_client(api.wire.base, key) as client:
        yield client


@contextlib.asynccontextmanager
async def wire_with(api: ApiKit, key: str) -> AsyncIterator[Wire]:
    wire = Wire(api.wire.base, key)
    try:
        yield wire
    finally:
        await wire.close()


# --- isolation -------------------------------------------------------------------------------

Attempt = Callable[[AsyncOpenAI, str], Awaitable[object]]

ATTEMPTS: dict[str, Attempt] = {
    "retrieve": lambda client, id_: client.responses.retrieve(id_),
    "delete": lambda client, id_: client.responses.delete(id_),
    "cancel": lambda client, id_: client.responses.cancel(id_),
    "input items": lambda client, id_: client.responses.input_items.list(id_),
    "continue": lambda client, id_: client.responses.create(
        model="", input="What did I say?", previous_response_id=id_
    ),
}


async def test_key_reaches_no_answer_of_another_key_by_its_id(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, served(tmp_path, model) as api:
        keys = [KEY, await add(api, "one"), await add(api, "two")]
        async with contextlib.AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(client_with(api, key)) for key in keys]
            answers = [await each.responses.create(model="", input="secret") for each in clients]
            for client in clients:
                for other, answer in zip(clients, answers, strict=True):
                    if other is client:
                        continue
                    for name, attempt in ATTEMPTS.items():
                        with pytest.raises(openai.APIStatusError) as refused:
                            await attempt(client, answer.id)
                        assert refused.value.code in {
                            "response_not_found",
                            "previous_response_not_found",
                        }, name
            for client, answer in zip(clients, answers, strict=True):
                assert (await client.responses.retrieve(answer.id)).output_text == "echo: secret"
            asked = [request.body["messages"] for request in model.requests]
            assert len(asked) == len(keys)


async def test_running_answer_of_another_key_cannot_be_cancelled(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, served(tmp_path, model) as api:
        keys = [await add(api, "one"), await add(api, "two")]
        async with client_with(api, keys[0]) as one, client_with(api, keys[1]) as two:
            stream = await one.responses.create(model="", input="hang", stream=True)
            created = await anext(aiter(stream))
            assert created.type == "response.created"
            with pytest.raises(openai.NotFoundError):
                await two.responses.cancel(created.response.id)
            assert (await one.responses.retrieve(created.response.id)).status == "in_progress"
            assert (await one.responses.cancel(created.response.id)).status == "cancelled"
            await stream.close()


async def test_keys_with_the_same_session_name_have_separate_sessions(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, served(tmp_path, model) as api:
        for number, key in enumerate((KEY, await add(api, "one"), await add(api, "two")), 1):
            async with client_with(api, key) as client:
                answer = await client.chat.completions.with_raw_response.create(
                    model="", messages=user(f"number {number}"), extra_headers=SESSION
                )
            assert answer.headers["x-session-state"] == "new"
            assert [row["content"] for row in await api.kit.asked(number)] == [f"number {number}"]
        assert await api.sessions("api:mine") == [("active", None)]
        assert len(await api.sessions()) == 3


async def test_keys_with_the_same_idempotency_key_get_separate_answers(tmp_path: Path) -> None:
    once = {"Idempotency-Key": "once"}
    scripts = (ok("first"), ok("second"), ok("third"))
    async with ModelServer(*scripts) as model, served(tmp_path, model) as api:
        texts = []
        for key in (KEY, await add(api, "one"), await add(api, "two")):
            async with wire_with(api, key) as wire:
                for headers in (once, once):
                    _, _, answer = await wire.ask("same", headers=headers)
                    texts.append(answer["choices"][0]["message"]["content"])
        assert texts == ["first", "first", "second", "second", "third", "third"]


async def test_new_key_with_the_name_of_a_revoked_one_sees_nothing_of_it(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, served(tmp_path, model) as api:
        async with client_with(api, await add(api, "one")) as client:
            answer = await client.responses.create(model="", input="secret", extra_headers=SESSION)
        await api.kit.runner.operations["keys_revoke"](name="one")
        async with client_with(api, await add(api, "one")) as client:
            with pytest.raises(openai.NotFoundError):
                await client.responses.retrieve(answer.id)
            await client.responses.create(model="", input="hello", extra_headers=SESSION)
        assert [row["content"] for row in await api.kit.asked(2)] == ["hello"]


# --- revoking --------------------------------------------------------------------------------


async def test_revoked_key_is_refused_at_once_and_after_a_restart(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model:
        async with served(tmp_path, model) as api:
            gone, kept = await add(api, "gone"), await add(api, "kept")
            async with client_with(api, gone) as client:
                await client.models.list()
                await api.kit.runner.operations["keys_revoke"](name="gone")
                with pytest.raises(openai.AuthenticationError) as refused:
                    await client.models.list()
                assert refused.value.code == "invalid_api_key"
        async with served(tmp_path, model) as api:
            async with client_with(api, gone) as client:
                with pytest.raises(openai.AuthenticationError):
                    await client.chat.completions.create(model="", messages=user("hi"))
            async with client_with(api, kept) as client:
                answer = await client.chat.completions.create(model="", messages=user("hi"))
            assert answer.choices[0].message.content == "echo: hi"


@pytest.mark.parametrize("person", ["", "memory:1001"], ids=["own person", "person of a platform"])
async def test_revoking_a_key_stops_its_running_and_queued_work(
    tmp_path: Path, person: str
) -> None:
    async with ModelServer(talkative) as model, served(tmp_path, model) as api:
        key = await add(api, "one", person=person)
        async with (
            wire_with(api, key) as wire,
            api.wire.opened("hang", headers=SESSION) as other,
            wire.opened("hang", headers=SESSION) as running,
            asyncio.TaskGroup() as group,
        ):
            await model.request(2)
            queued = group.create_task(wire.stream("queued", headers=SESSION))
            await until_waiting(api, 1)
            found = await api.kit.runner.operations["keys_revoke"](name="one")
            assert isinstance(found, dict)
            assert finish_of([event async for event in events(running)]) == ["error"]
            assert finish_of(await queued) == ["error"]
            first = model.requests[0]
            assert not first.closed.is_set()  # the turn of the configured key goes on
            other.close()
        assert [each.last_user_text for each in model.requests] == ["hang", "hang"]


@pytest.mark.parametrize("person", ["", "memory:1001"], ids=["own person", "person of a platform"])
async def test_request_held_with_a_stopped_session_is_dropped_with_its_key(
    tmp_path: Path, person: str
) -> None:
    async with ModelServer(talkative) as model, served(tmp_path, model) as api:
        key = await add(api, "one", person=person)
        store = api.kit.runner._store
        assert store
        async with (
            wire_with(api, key) as wire,
            wire.opened("hang", headers=SESSION),
            asyncio.TaskGroup() as group,
        ):
            await model.request(1)
            queued = group.create_task(wire.ask("queued", headers=SESSION))
            await until_waiting(api, 1)
            (session,) = await store.sessions.list()
            await api.kit.runner.operations["stop"](session=session.id)
        assert queued.result()[0] == 409
        await api.kit.runner.operations["keys_revoke"](name="one")
        (row, _) = await store.inbox.newest("api", 10)
        assert row.state is InboxState.IGNORED
        await api.kit.runner.operations["resume"](session=session.id)
        await api.wire.ask("hi")
        assert [each.last_user_text for each in model.requests] == ["hang", "hi"]


async def test_request_whose_key_is_revoked_while_it_is_stored_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ModelServer(talkative) as model, served(tmp_path, model) as api:
        key = await add(api, "one", person="memory:1001")
        store = api.kit.runner._store
        assert store
        accept = store.accept
        begun, go = asyncio.Event(), asyncio.Event()

        async def slowly(entry: InboxEntry) -> bool:
            begun.set()
            await go.wait()
            return await accept(entry)

        monkeypatch.setattr(store, "accept", slowly)
        async with wire_with(api, key) as wire, asyncio.TaskGroup() as group:
            asked = group.create_task(wire.ask("hi"))
            await begun.wait()
            await api.kit.runner.operations["keys_revoke"](name="one")
            go.set()
        status, _, body = asked.result()
        assert (status, body["error"]["code"]) == (403, "not_allowed")
        assert model.requests == []
        (row,) = await store.inbox.newest("api", 10, ignored_only=True)
        assert row.state is InboxState.IGNORED


@pytest.mark.parametrize("person", ["", "memory:1001"], ids=["own person", "person of a platform"])
async def test_queued_request_of_a_key_revoked_while_stopped_does_not_run(
    tmp_path: Path, person: str
) -> None:
    async with ModelServer(talkative) as model:
        async with served(tmp_path, model) as api:
            key = await add(api, "one", person=person)
            async with (
                wire_with(api, key) as wire,
                wire.opened("hang", headers=SESSION),
                asyncio.TaskGroup() as group,
            ):
                await model.request(1)
                once = {"Idempotency-Key": "once", **SESSION}
                queued = group.create_task(wire.ask("queued", headers=once))
                await until_waiting(api, 1)
                api.kit.runner.stopping.set()
            status, _, body = queued.result()
            assert (status, body["error"]["code"]) == (503, "restarting")
        store = await SessionStore.open(
            f"sqlite:///{tmp_path / 'holdfast.db'}", clock=SystemClock()
        )
        await store.put_value("api_keys", (await only_name(store)), None)
        await store.close()
        async with served(tmp_path, model) as api:
            await api.wire.ask("hi")
        assert [each.last_user_text for each in model.requests] == ["hang", "hi"]


async def only_name(store: SessionStore) -> str:
    """Return the id of the only stored key."""
    (name,) = await store.values("api_keys")
    return name


async def until_waiting(api: ApiKit, number: int) -> None:
    """Wait until so many requests are queued."""
    store = api.kit.runner._store
    assert store
    async with asyncio.timeout(8):
        while True:
            waiting = [row for row in await store.inbox.unanswered() if row.state == "waiting"]
            if len(waiting) == number:
                return
            await asyncio.sleep(0.01)


async def test_person_without_access_has_no_key_either(tmp_path: Path) -> None:
    """The key works again as soon as the person has access again."""
    async with ModelServer(talkative) as model:
        async with served(tmp_path, model) as api:
            key = await add(api, "one", person="memory:1001")
            async with client_with(api, key) as client:
                answer = await client.responses.create(model="", input="hi")
        async with (
            served(tmp_path, model, allow=("memory:2002",)) as api,
            client_with(api, key) as client,
        ):
            attempts: list[Callable[[], Awaitable[object]]] = [
                lambda: client.chat.completions.create(model="", messages=user("hi")),
                lambda: client.responses.retrieve(answer.id),
                client.models.list,
            ]
            for attempt in attempts:
                with pytest.raises(openai.PermissionDeniedError) as refused:
                    await attempt()
                assert refused.value.code == "not_allowed"
        async with served(tmp_path, model) as api, client_with(api, key) as client:
            await client.chat.completions.create(model="", messages=user("hi"))


# --- authority -------------------------------------------------------------------------------


async def test_turn_of_a_key_uses_the_workspace_of_its_person(tmp_path: Path) -> None:
    write = calls(("c1", "write_file", '{"path": "note.txt", "content": "hello"}'))
    scripts = (write, ok("done"), write, ok("done"))
    async with ModelServer(*scripts) as model, served(tmp_path, model) as api:
        for key in (await add(api, "ann", person="memory:1001"), await add(api, "own")):
            async with wire_with(api, key) as wire:
                assert (await wire.ask("write"))[0] == 200
    found = {file.parent.name for file in (tmp_path / "workspace").rglob("note.txt")}
    assert found == {"memory%3A1001", "api%3Aown"}


async def test_turn_of_a_guest_key_has_no_tools(tmp_path: Path) -> None:
    shop = Workshop()
    async with ModelServer(talkative) as model, served(tmp_path, model, tools=shop.tools()) as api:
        for role, offered in (("guest", False), ("member", True)):
            async with wire_with(api, await add(api, role, role=role)) as wire:
                await wire.ask("hi")
            assert ("tools" in model.requests[-1].body) is offered


async def test_errors_for_guests_name_no_settings(tmp_path: Path) -> None:
    async with ModelServer(lambda _: (status(401),)) as model, served(tmp_path, model) as api:
        shown = {}
        keys = {role: await add(api, role, role=role) for role in ("guest", "member")}
        for role, key in (keys | {"admin": KEY}).items():
            async with client_with(api, key) as client:
                with pytest.raises(openai.InternalServerError) as failed:
                    await client.chat.completions.create(model="", messages=user("hi"))
                with pytest.raises(openai.InternalServerError) as kept:
                    await client.responses.create(model="", input="hi")
                shown[role] = f"{failed.value.message} {kept.value.message}"
        assert [role for role in shown if "model.api_key" in shown[role]] == ["admin"]
        assert "cannot be used right now" in shown["guest"]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        pytest.param({"name": "key"}, "configuration", id="reserved name"),
        pytest.param({"name": "a", "person": "memory:9"}, "no access", id="a stranger"),
        pytest.param(
            {"name": "a", "person": "memory:1001", "role": "admin"},
            "only a member",
            id="more than the person may do",
        ),
        pytest.param({"name": "a", "role": "owner"}, "role", id="unknown role"),
        pytest.param({"name": "a", "limits": {"tokens_per_day": -1}}, "0", id="limit"),
        pytest.param({"name": "taken"}, "already", id="taken name"),
    ],
)
async def test_keys_that_cannot_be_added(
    tmp_path: Path, given: dict[str, Any], problem: str
) -> None:
    async with ModelServer(talkative) as model, served(tmp_path, model) as api:
        await add(api, "taken")
        with pytest.raises(OperationRefused, match=problem):
            await api.kit.runner.operations["keys_add"](**given)


# --- limits ----------------------------------------------------------------------------------


async def codes(wire: Wire, count: int, **headers: str) -> list[str]:
    """Ask some questions; return the codes of the errors, or "" for an answer."""
    answers = [(await wire.ask("hi", headers=headers))[2] for _ in range(count)]
    return [answer.get("error", {}).get("code", "") for answer in answers]


async def test_messages_of_a_key_are_limited_apart_from_other_keys(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, served(tmp_path, model) as api:
        few = await add(api, "few", limits={"messages_per_minute": 2})
        bound = await add(api, "bound", person="memory:1001", limits={"messages_per_minute": 1})
        async with wire_with(api, few) as wire, wire_with(api, bound) as other:
            assert await codes(wire, 3) == ["", "", "rate_limit_exceeded"]
            assert await codes(other, 2) == ["", "rate_limit_exceeded"]
        assert await codes(api.wire, 3) == ["", "", ""]


async def test_key_and_chat_of_a_person_share_the_limit_of_the_person(tmp_path: Path) -> None:
    limits = LimitSettings(messages_per_minute=2)
    async with ModelServer(talkative) as model, served(tmp_path, model, limits=limits) as api:
        key = await add(api, "ann", person="memory:1001")
        await api.kit.screen.say("1001", "hello")
        await api.kit.screen.shows("1001", "echo: hello")
        async with wire_with(api, key) as wire:
            assert await codes(wire, 2) == ["", "rate_limit_exceeded"]


CLOCK: Any = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object"}}}


def results_of(call: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        *user("hi"),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": "noon"},
    ]


async def test_results_of_a_clients_tool_are_no_messages_for_the_limit_of_a_key(
    tmp_path: Path,
) -> None:
    call = calls(("c1", "clock", "{}"))
    async with ModelServer(call, call, ok("done")) as model, served(tmp_path, model) as api:
        key = await add(api, "few", limits={"messages_per_minute": 1})
        async with wire_with(api, key) as wire:
            _, _, first = await wire.ask("hi", tools=[CLOCK])
            messages = user("hi")
            answer = first["choices"][0]["message"]
            for _ in range(2):
                (asked,) = answer["tool_calls"]
                messages += results_of(asked)[1:]
                status, _, body = await wire.ask("", messages=messages, tools=[CLOCK])
                assert status == 200, body
                answer = body["choices"][0]["message"]
            assert answer["content"] == "done"
            assert await codes(wire, 1) == ["rate_limit_exceeded"]


async def test_results_that_continue_no_waiting_call_are_messages_for_the_limit_of_a_key(
    tmp_path: Path,
) -> None:
    call = calls(("c1", "clock", "{}"))
    async with ModelServer(call, ok("one"), ok("two")) as model, served(tmp_path, model) as api:
        key = await add(api, "few", limits={"messages_per_minute": 2})
        async with wire_with(api, key) as wire:
            _, _, first = await wire.ask("hi", tools=[CLOCK])
            (asked,) = first["choices"][0]["message"]["tool_calls"]
            again = results_of(asked)
            other = results_of({**asked, "id": "call_of_another_server"})
            found = []
            for messages in (again, again, other):
                status, _, _ = await wire.ask("", messages=messages, tools=[CLOCK])
                found.append(status)
    assert found == [200, 200, 429]


@pytest.mark.parametrize("person", ["", "memory:1001"], ids=["own person", "person of a platform"])
async def test_tokens_of_a_key_are_limited(tmp_path: Path, person: str) -> None:
    async with ModelServer(talkative) as model, served(tmp_path, model) as api:
        key = await add(api, "few", person=person, limits={"tokens_per_day": 0})
        async with wire_with(api, key) as wire:
            status, _, body = await wire.ask("hi")
        assert (status, body["error"]["code"]) == (429, "insufficient_quota")
        assert "this API key" in body["error"]["message"]
        assert await codes(api.wire, 1) == [""]


async def test_dollars_of_a_key_are_limited_at_the_configured_price(tmp_path: Path) -> None:
    async with (
        ModelServer(talkative) as model,
        served(tmp_path, model) as api,
        wire_with(api, await add(api, "none", limits={"usd_per_day": 0.0})) as wire,
    ):
        assert await codes(wire, 1) == [""]  # a model on this machine costs nothing


async def test_users_of_a_key_are_limited_apart_where_their_header_is_trusted(
    tmp_path: Path,
) -> None:
    limits = LimitSettings(messages_per_minute=1)
    trusting = msgspec.structs.replace(HTTP, trust_user_header=True)
    async with ModelServer(talkative) as model:
        async with served(tmp_path / "a", model, limits=limits, http=trusting) as api:
            for user_id in ("ada", "eve"):
                header = {"X-OpenWebUI-User-Id": user_id}
                assert await codes(api.wire, 2, **header) == ["", "rate_limit_exceeded"]
            status, _, _ = await api.wire.ask("hi", user="ada")
            assert status == 429
            status, _, _ = await api.wire.ask("hi", user="ann")
            assert status == 200
            assert await codes(api.wire, 3) == ["", "", ""]  # without a user: the owner
        async with served(tmp_path / "b", model, limits=limits) as api:
            header = {"X-OpenWebUI-User-Id": "ada"}
            assert await codes(api.wire, 3, **header) == ["", "", ""]


async def test_a_signed_user_is_limited_and_an_invalid_token_is_refused(tmp_path: Path) -> None:
    limits, secret = LimitSettings(messages_per_minute=1), "a-secret-of-both-programs-0123456789"
    signing = msgspec.structs.replace(
        HTTP, trust_user_header=True, user_token_secret=Secret(secret)
    )
    async with (
        ModelServer(talkative) as model,
        served(tmp_path, model, limits=limits, http=signing) as api,
    ):
        token, until = "", api.kit.runner._clock.now() // 1000 + 300
        for user_id in ("ada", "eve"):
            token = jwt.encode({"sub": user_id, "exp": until}, secret, algorithm="HS256")
            header = {"X-OpenWebUI-User-Jwt": token}
            assert await codes(api.wire, 2, **header) == ["", "rate_limit_exceeded"]
        assert await codes(api.wire, 2, **{"X-OpenWebUI-User-Id": "ada"}) == ["", ""]
        status, _, body = await api.wire.ask("hi", headers={"X-OpenWebUI-User-Jwt": token[:-3]})
        assert (status, body["error"]["code"]) == (400, "invalid_user_token")
        assert "signature" in body["error"]["message"]


async def test_names_of_a_client_are_shown_by_why_and_counted_without_a_label(
    tmp_path: Path,
) -> None:
    headers = {"X-OpenWebUI-User-Id": "ada-17", "X-OpenWebUI-Chat-Id": "chat-9", **SESSION}
    async with ModelServer(talkative) as model, served(tmp_path, model) as api:
        async with wire_with(api, await add(api, "front")) as wire:
            await wire.ask("hi", headers=headers)
        await api.wire.ask("hi")
        assert api.kit.runner._store
        newest, first = await api.kit.runner._store.inbox.newest("api", 10)
        base = api.wire.base.removesuffix("/v1")
        async with api.wire._http.get(
            f"{base}/metrics", headers={"authorization": f"Bearer {KEY}"}
        ) as response:
            page = await response.text()
    assert 'holdfast_api_requests_total{key="front",user="named"} 1' in page
    assert 'holdfast_api_requests_total{key="configured",user="none"} 1' in page
    assert "ada-17" not in page
    assert "the API key of the configuration" in await asyncio.to_thread(why, tmp_path, newest.id)
    shown = await asyncio.to_thread(why, tmp_path, first.id)
    assert "with the API key front" in shown
    assert "user ada-17, chat chat-9, as the client says" in shown
    (report,) = json.loads(await asyncio.to_thread(why, tmp_path, first.id, "--json"))
    key = report["client"].pop("key")
    assert key.startswith("front.")
    assert report["client"] == {
        "person": "api:front",
        "user": "ada-17",
        "chat": "chat-9",
        "continues": None,
    }


# --- the rest of the port --------------------------------------------------------------------


async def test_store_has_no_text_of_a_key(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, served(tmp_path, model) as api:
        key = await add(api, "one")
        async with wire_with(api, key) as wire:
            await wire.ask("hi")
    contents = await asyncio.to_thread(contents_below, tmp_path)
    assert any(b"api_keys" in content for content in contents)
    assert not any(key.encode() in content for content in contents)


def contents_below(folder: Path) -> list[bytes]:
    return [file.read_bytes() for file in folder.rglob("*") if file.is_file()]


async def test_list_shows_use_and_access_but_no_key(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, served(tmp_path, model) as api:
        key = await add(api, "one", person="memory:1001", limits={"messages_per_minute": 5})
        (row,) = await listed(api)
        assert (row["name"], row["person"], row["role"]) == ("one", "memory:1001", "member")
        assert (row["access"], row["last_used_at"]) == ("member", None)
        assert row["limits"]["messages_per_minute"] == 5
        assert "digest" not in row
        async with wire_with(api, key) as wire:
            await wire.ask("hi")
        (row,) = await listed(api)
        assert row["last_used_at"] is not None


async def listed(api: ApiKit) -> list[dict[str, Any]]:
    found = await api.kit.runner.operations["keys_list"]()
    assert isinstance(found, list)
    return found


async def test_metrics_need_the_configured_key(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, served(tmp_path, model) as api:
        key = await add(api, "one", role="admin")
        base = api.wire.base.removesuffix("/v1")
        for shown, status in ((key, 401), (KEY, 200)):
            async with api.wire._http.get(
                f"{base}/metrics", headers={"authorization": f"Bearer {shown}"}
            ) as response:
                assert response.status == status


async def test_stored_answers_of_the_configured_key_stay_readable(tmp_path: Path) -> None:
    """Rows of earlier versions have the sender `key` and no requester."""
    async with ModelServer(talkative) as model:
        async with served(tmp_path, model) as api:
            first = await api.client.responses.create(model="", input="one", store=True)
            found = await api.wire.stream("two", headers=SESSION)
            assert text_of(found) == "echo: two"
        async with opened(tmp_path) as store:
            for row in await store.inbox.newest("api", 10):
                event = read_event(row)
                assert isinstance(event, InboundMessage)
                assert event.sender.id == "key"
                assert decode_options(event.wishes).requester is None
        async with served(tmp_path, model) as api:
            again = await api.client.responses.retrieve(first.id)
            assert again.output_text == "echo: one"
