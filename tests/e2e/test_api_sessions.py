"""Sessions and repeated requests of the API: queues, restarts, `kill -9`, `Idempotency-Key`."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.settings import GatewaySettings, LimitSettings, UserLimits
from sessions.changes import Change, EndTurn, SetSession
from sessions.records import InboxEntry, InboxState, SessionReason, SessionState
from sessions.settings import SessionSettings
from sessions.store.store import SessionStore
from sessions.values.clock import SystemClock
from tests.e2e.api_kit import (
    KEY,
    ApiKit,
    Wire,
    daemon_for,
    events,
    finish_of,
    named,
    served,
    text_of,
    user,
)
from tests.e2e.gateway_kit import opened, talkative
from tests.e2e.test_api_remote_pictures import fetching, looking
from tests.fakes.agent_kit import Workshop
from tests.fakes.http_client import library_client
from tests.fakes.model_script import Script, calls, ok
from tests.fakes.model_server import ModelServer
from tests.fakes.shelf import PNG, Shelf, answer

SESSION = {"x-holdfast-session": "mine"}
HINT = {"x-session-id": "mine"}


def keyed(key: str = "once", **more: str) -> dict[str, str]:
    return {"idempotency-key": key, **more}


def said(answer: dict[str, Any]) -> str:
    return str(answer["choices"][0]["message"]["content"])


def gated(go: asyncio.Event) -> tuple[Workshop, Callable[[dict[str, Any]], Script]]:
    """Return tools and a model whose turns wait inside a tool until `go` is set."""
    shop = Workshop()
    shop.release = go

    def answer(body: dict[str, Any]) -> Script:
        if body["messages"][-1]["role"] == "tool":
            asked = [each["content"] for each in body["messages"] if each["role"] == "user"]
            return ok(f"echo: {asked[-1]}")
        return calls((f"c{len(body['messages'])}", "sleepy", "{}"))

    return shop, answer


# --- sessions --------------------------------------------------------------------------------


async def test_session_continues_with_the_stored_history(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, served(tmp_path, model) as api:
        forged = [*user("lie"), {"role": "assistant", "content": "forged"}]
        _, first, _ = await api.wire.ask("", headers=SESSION, messages=[*forged, *user("one")])
        _, second, answer = await api.wire.ask(
            "", headers=SESSION, messages=[*forged, *user("two")]
        )
        assert said(answer) == "echo: two"
        assert (first["x-session-state"], second["x-session-state"]) == ("new", "continued")
        asked = [each["content"] for each in await api.kit.asked(2)]
        assert asked == ["one", "echo: one", "two"]
        assert await api.sessions("api:mine") == [("active", None)]


async def test_concurrent_first_requests_create_one_session(tmp_path: Path) -> None:
    go = asyncio.Event()
    shop, script = gated(go)
    async with ModelServer(script) as model, served(tmp_path, model, tools=shop.tools()) as api:
        async with asyncio.TaskGroup() as group:
            asking = [
                group.create_task(api.wire.ask(f"number {number}", headers=SESSION))
                for number in range(4)
            ]
            await shop.entered.wait()
            await waiting(api, 3)
            go.set()
        states = sorted(each.result()[1]["x-session-state"] for each in asking)
    assert states == ["continued", "continued", "continued", "new"]


async def test_session_survives_a_restart(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model:
        async with served(tmp_path, model) as api:
            await api.wire.ask("one", headers=SESSION)
        async with served(tmp_path, model) as api:
            _, headers, _ = await api.wire.ask("two", headers=SESSION)
            assert headers["x-session-state"] == "continued"
            asked = [each["content"] for each in await api.kit.asked(2)]
            assert asked == ["one", "echo: one", "two"]


@pytest.mark.parametrize("header", ["x-holdfast-session", "x-session-id"])
@pytest.mark.parametrize("name", ["~mine", "", " ", "a" * 129, "a b", "ä"])
async def test_malformed_session_names_are_refused(tmp_path: Path, name: str, header: str) -> None:
    async with ModelServer(talkative) as model, served(tmp_path, model) as api:
        status, headers, _ = await api.wire.ask("one", headers={header: name})
        if name.strip():
            assert status == 400
        else:
            assert (status, headers.get("x-session-state")) == (200, None)


async def test_request_waits_while_its_session_is_busy(tmp_path: Path) -> None:
    go = asyncio.Event()
    shop, script = gated(go)
    async with ModelServer(script) as model, served(tmp_path, model, tools=shop.tools()) as api:
        async with asyncio.TaskGroup() as group:
            first = group.create_task(api.wire.stream("one", headers=SESSION))
            await shop.entered.wait()
            second = group.create_task(api.wire.stream("two", headers=SESSION))
            await waiting(api, 1)
            go.set()
        assert text_of(first.result()) == "echo: one"
        assert text_of(second.result()) == "echo: two"
        (notice,) = named(second.result(), "holdfast.notice")
        assert notice["id"] == "N15"
        assert "`holdfast sessions stop` stops the task" in notice["text"]
        asked = [each["content"] for each in await api.kit.asked(3) if each["role"] == "user"]
        assert asked == ["one", "two"]


async def waiting(api: ApiKit, number: int) -> None:
    """Wait until so many requests are queued in the session."""
    store = api.kit.runner._store
    assert store
    async with asyncio.timeout(8):
        while True:
            if len((await store.conversation("api:mine")).waiting) == number:
                return
            await asyncio.sleep(0.01)


async def test_full_queue_answers_429(tmp_path: Path) -> None:
    go = asyncio.Event()
    shop, script = gated(go)
    settings = GatewaySettings(drain_seconds=0, queue_limit=1)
    async with (
        ModelServer(script) as model,
        served(tmp_path, model, tools=shop.tools(), gateway=settings) as api,
    ):
        async with asyncio.TaskGroup() as group:
            group.create_task(api.wire.stream("one", headers=SESSION))
            await shop.entered.wait()
            second = group.create_task(api.wire.stream("two", headers=SESSION))
            await waiting(api, 1)
            status, headers, body = await api.wire.ask("three", headers=SESSION)
            assert (status, body["error"]["code"]) == (429, "queue_full")
            assert int(headers["retry-after"]) > 0
            go.set()
        assert text_of(second.result()) == "echo: two"


async def test_queued_request_of_a_disconnected_client_is_not_answered(tmp_path: Path) -> None:
    go = asyncio.Event()
    shop, script = gated(go)
    async with ModelServer(script) as model, served(tmp_path, model, tools=shop.tools()) as api:
        async with asyncio.TaskGroup() as group:
            first = group.create_task(api.wire.stream("one", headers=SESSION))
            await shop.entered.wait()
            leaver = group.create_task(api.wire.ask("two", headers=SESSION))
            await waiting(api, 1)
            leaver.cancel()
            await waiting(api, 0)
            go.set()
        assert text_of(first.result()) == "echo: one"
        assert [each.last_user_text for each in model.requests] == ["one", "one"]


async def test_api_key_has_no_message_limit_by_default(tmp_path: Path) -> None:
    limits = LimitSettings(
        messages_per_minute=1, users={"api:key": UserLimits(messages_per_minute=2)}
    )
    async with ModelServer(talkative) as model:
        async with served(
            tmp_path / "a", model, limits=LimitSettings(messages_per_minute=1)
        ) as api:
            assert [(await api.wire.ask("hi"))[0] for _ in range(3)] == [200, 200, 200]
        async with served(tmp_path / "b", model, limits=limits) as api:
            assert [(await api.wire.ask("hi"))[0] for _ in range(3)] == [200, 200, 429]


# --- X-Session-Id, which other programs send by themselves ---------------------------------------


def exchange(question: str, answer: str) -> list[dict[str, str]]:
    return [*user(question), {"role": "assistant", "content": answer}]


async def test_session_id_with_the_stored_history_continues_the_session(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, served(tmp_path, model) as api:
        _, first, _ = await api.wire.ask("one", headers=HINT)
        told = [*exchange("one", "echo: one"), *user("two")]
        _, second, _ = await api.wire.ask("", headers=HINT, messages=told)
        _, third, _ = await api.wire.ask("three", headers=HINT)
        states = [each["x-session-state"] for each in (first, second, third)]
        assert states == ["new", "continued", "continued"]
        asked = [each["content"] for each in await api.kit.asked(3)]
        assert asked == ["one", "echo: one", "two", "echo: two", "three"]
        assert await api.sessions("api:mine") == [("active", None)]


async def test_session_id_with_another_history_leaves_the_session_alone(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, served(tmp_path, model) as api:
        await api.wire.ask("one", headers=HINT)
        told = [*exchange("edited", "echo: edited"), *user("two")]
        _, headers, answer = await api.wire.ask("", headers=HINT, messages=told)
        assert (said(answer), headers.get("x-session-state")) == ("echo: two", None)
        asked = [each["content"] for each in await api.kit.asked(2)]
        assert asked == ["edited", "echo: edited", "two"]
        _, headers, _ = await api.wire.ask("three", headers=HINT)
        assert headers["x-session-state"] == "continued"
        asked = [each["content"] for each in await api.kit.asked(3)]
        assert asked == ["one", "echo: one", "three"]


async def test_title_request_of_a_program_stays_out_of_its_session(tmp_path: Path) -> None:
    """opencode sends its title request and its first message at once, under one X-Session-Id."""
    go = asyncio.Event()
    shop, script = gated(go)
    async with ModelServer(script) as model, served(tmp_path, model, tools=shop.tools()) as api:
        async with asyncio.TaskGroup() as group:
            main = group.create_task(api.wire.ask("hi", headers=HINT))
            await shop.entered.wait()
            title = [*user("Write a title for this conversation:"), *user("hi")]
            named_ = group.create_task(api.wire.ask("", headers=HINT, messages=title))
            await model.request(2)
            go.set()
        assert main.result()[1]["x-session-state"] == "new"
        assert "x-session-state" not in named_.result()[1]
        asked = [each["content"] for each in await api.kit.asked(2)]
        assert asked == ["Write a title for this conversation:\n\nhi"]


async def test_repeat_of_a_request_with_a_session_id_gets_its_answer(tmp_path: Path) -> None:
    """The history of a repeat no longer agrees, because the first answer was added to it."""
    async with ModelServer(talkative) as model, served(tmp_path, model) as api:
        await api.wire.ask("one", headers=HINT)
        told = [*exchange("one", "echo: one"), *user("two")]
        _, _, first = await api.wire.ask("", headers=keyed(**HINT), messages=told)
        _, headers, again = await api.wire.ask("", headers=keyed(**HINT), messages=told)
        assert (again, headers["x-session-state"]) == (first, "continued")
        assert len(model.requests) == 2


# --- repeated requests -----------------------------------------------------------------------


async def test_repeated_request_joins_the_running_turn(tmp_path: Path) -> None:
    go = asyncio.Event()
    shop, script = gated(go)
    async with ModelServer(script) as model, served(tmp_path, model, tools=shop.tools()) as api:
        async with asyncio.TaskGroup() as group:
            first = group.create_task(api.wire.stream("one", headers=keyed()))
            await shop.entered.wait()
            async with api.wire.opened("one", headers=keyed()) as response:
                second = []
                async for event in events(response):
                    second.append(event)
                    go.set()
        assert first.result() == second
        assert text_of(second) == "echo: one"
        assert len(model.requests) == 2  # one turn, of two steps


async def test_turn_continues_for_the_second_client_after_the_first_disconnects(
    tmp_path: Path,
) -> None:
    go = asyncio.Event()
    shop, script = gated(go)
    async with ModelServer(script) as model, served(tmp_path, model, tools=shop.tools()) as api:
        async with api.wire.opened("one", headers=keyed()) as first:
            await shop.entered.wait()
            async with api.wire.opened("one", headers=keyed()) as second:
                first.close()
                go.set()
                found = [event async for event in events(second)]
        assert (text_of(found), finish_of(found)) == ("echo: one", ["stop"])


@pytest.mark.parametrize("session", [{}, SESSION], ids=["alone", "in a session"])
async def test_repeated_request_gets_the_stored_answer_after_a_restart(
    tmp_path: Path, session: dict[str, str]
) -> None:
    headers = keyed(**session)
    async with ModelServer(talkative) as model:
        async with served(tmp_path, model) as api:
            _, _, first = await api.wire.ask("one", headers=headers)
            _, _, again = await api.wire.ask("one", headers=headers)
            assert again == first
            if session:
                await api.wire.ask("more", headers=session)
        before = len(model.requests)
        async with served(tmp_path, model) as api:
            _, _, again = await api.wire.ask("one", headers=headers)
            assert again == first
        assert len(model.requests) == before


async def test_request_repeated_right_after_a_disconnect_is_answered(tmp_path: Path) -> None:
    scripts = ('H T"so " HANG', ok("so it is"))
    async with ModelServer(*scripts) as model, served(tmp_path, model) as api:
        async with api.wire.opened("one", headers=keyed(**SESSION)) as response:
            async for event in events(response):
                if text_of([event]):
                    break
            response.close()
        async with asyncio.timeout(8):
            await model.requests[0].closed.wait()  # the turn is just ending
        found = await api.wire.stream("one", headers=keyed(**SESSION))
        assert (text_of(found), finish_of(found)) == ("so it is", ["stop"])
        again = await api.wire.stream("one", headers=keyed(**SESSION))
        assert text_of(again) == "so it is"
        assert len(model.requests) == 2


async def test_request_repeated_while_its_turn_is_ending_starts_a_new_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn that is already ending is not joined, because its new reader would get no answer."""
    scripts = ('H T"so " HANG', ok("so it is"))
    ends, go, looked = asyncio.Event(), asyncio.Event(), asyncio.Event()
    async with ModelServer(*scripts) as model, served(tmp_path, model) as api:
        store = api.kit.runner._store
        assert store
        apply, inbox_entry = store.apply, store.inbox.find

        async def slowly(*changes: Change) -> None:
            if any(isinstance(each, EndTurn) for each in changes) and not go.is_set():
                ends.set()
                await go.wait()
            await apply(*changes)

        async def noticed(source: str, event: str) -> InboxEntry | None:
            found = await inbox_entry(source, event)
            looked.set()
            return found

        monkeypatch.setattr(store, "apply", slowly)
        monkeypatch.setattr(store.inbox, "find", noticed)
        async with api.wire.opened("one", headers=keyed()) as response:
            async for event in events(response):
                if text_of([event]):
                    break
            response.close()
        async with asyncio.timeout(8), asyncio.TaskGroup() as group:
            await ends.wait()
            looked.clear()
            again = group.create_task(api.wire.stream("one", headers=keyed()))
            await looked.wait()
            go.set()
        assert (text_of(again.result()), finish_of(again.result())) == ("so it is", ["stop"])


async def test_idempotency_key_cannot_be_reused_for_another_request(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, served(tmp_path, model) as api:
        await api.wire.ask("one", headers=keyed())
        status, _, body = await api.wire.ask("two", headers=keyed())
        assert (status, body["error"]["code"]) == (422, "idempotency_key_reused")
        status, _, answer = await api.wire.ask("two", headers=keyed("other"))
        assert (status, said(answer)) == (200, "echo: two")


async def test_repeat_of_a_failed_request_starts_a_new_turn(tmp_path: Path) -> None:
    scripts = ('S400"no"', ok("yes"))
    async with ModelServer(*scripts) as model, served(tmp_path, model) as api:
        status, _, _ = await api.wire.ask("one", headers=keyed())
        assert status == 400
        for _ in range(2):
            status, _, answer = await api.wire.ask("one", headers=keyed())
            assert (status, said(answer)) == (200, "yes")
        assert len(model.requests) == 2


async def test_replayed_capped_answer_is_still_capped(tmp_path: Path) -> None:
    async with (
        ModelServer('H T"one two" F length U(2) D') as model,
        served(tmp_path, model) as api,
    ):
        _, _, first = await api.wire.ask("go", max_tokens=2, headers=keyed())
        _, _, again = await api.wire.ask("go", max_tokens=2, headers=keyed())
        assert first == again
        assert first["choices"][0]["finish_reason"] == "length"


# --- restarts --------------------------------------------------------------------------------


async def test_client_of_an_interrupted_turn_gets_an_error(tmp_path: Path) -> None:
    """A turn without text becomes an error response; a stream with text ends with the error."""

    def answer(body: dict[str, Any]) -> Script:
        return "HANG" if body["messages"][-1]["content"] == "one" else talkative(body)

    async with ModelServer(answer) as model, served(tmp_path, model) as api:
        async with asyncio.TaskGroup() as group:
            silent = group.create_task(api.wire.ask("one", headers=SESSION))
            await model.request(1)
            async with api.wire.opened("hang", headers={"x-holdfast-session": "other"}) as response:
                found = []
                async for event in events(response):
                    found.append(event)
                    if text_of(found):
                        api.kit.runner.stopping.set()
        status, headers, body = silent.result()
        assert (status, body["error"]["code"]) == (503, "interrupted")
        assert (headers["x-should-retry"], headers["x-session-state"]) == ("false", "new")
        assert (text_of(found), finish_of(found)) == ("so far ", ["error"])
        assert found[-2].data["error"]["code"] == "interrupted"


async def test_interrupted_session_resumes_at_the_next_request(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model:
        async with served(tmp_path, model) as api, api.wire.opened("hang", headers=SESSION) as one:
            async for event in events(one):
                if text_of([event]):
                    break
            api.kit.runner.stopping.set()
            assert finish_of([event async for event in events(one)]) == ["error"]
        async with opened(tmp_path) as store:
            (session,) = await store.sessions.list()
            assert (session.state, session.reason) == ("suspended", "restart")
        async with served(tmp_path, model) as api:
            _, headers, answer = await api.wire.ask("next", headers=SESSION)
            assert headers["x-session-state"] == "resumed"
            assert said(answer) == "echo: next"
            asked = [each["content"] for each in await api.kit.asked(2)]
            assert asked[:2] == ["hang", "so far "]
            assert "next" in asked[2]
            _, headers, _ = await api.wire.ask("last", headers=SESSION)
            assert headers["x-session-state"] == "continued"
            assert await api.sessions() == [("active", None)]


@pytest.mark.parametrize(
    ("reason", "state"),
    [
        (SessionReason.RESTART, "resumed"),
        (SessionReason.CRASH, "resumed"),
        (SessionReason.STUCK, "resumed"),
        (SessionReason.STOP, "new"),
        (SessionReason.SWITCHED, "new"),
    ],
)
async def test_only_interrupted_sessions_resume_not_stopped_ones(
    tmp_path: Path, reason: SessionReason, state: str
) -> None:
    async with ModelServer(talkative) as model:
        async with served(tmp_path, model) as api:
            await api.wire.ask("one", headers=SESSION)
        place = f"sqlite:///{tmp_path / 'holdfast.db'}"
        store = await SessionStore.open(place, clock=SystemClock())
        (session,) = await store.sessions.list()
        await store.apply(SetSession(session.id, SessionState.SUSPENDED, reason, 1))
        await store.close()
        async with served(tmp_path, model) as api:
            _, headers, answer = await api.wire.ask("two", headers=SESSION)
            assert (headers["x-session-state"], said(answer)) == (state, "echo: two")
            asked = [str(each["content"]) for each in await api.kit.asked(2)]
            assert ("echo: one" in asked) is (state == "resumed")


async def test_no_request_begins_while_the_daemon_stops(tmp_path: Path) -> None:
    """This includes requests that were accepted before and still fetch a picture."""
    patient = GatewaySettings(drain_seconds=60)

    class Stops(dict[str, bytes]):
        def get(self, _path: str, _missing: Any = None) -> Any:
            api.kit.runner.stopping.set()
            return answer(PNG)

    async with (
        Shelf(Stops()).open() as shelf,
        ModelServer(talkative) as model,
        served(tmp_path, model, gateway=patient, http=fetching(shelf.place())) as api,
        api.wire.opened("hang") as running,
    ):
        async for event in events(running):
            if text_of([event]):
                break
        for asked in (looking(f"http://{shelf.place()}/a"), user("two")):
            status, headers, body = await api.wire.ask("", messages=asked)
            assert (status, body["error"]["code"]) == (503, "not_ready")
            assert (int(headers["retry-after"]), headers.get("x-should-retry")) == (2, None)
        assert (await api.wire.send("GET", "/models"))[0] == 200
        store = api.kit.runner._store
        assert store
        assert len(await store.sessions.list()) == 1
    assert [each.last_user_text for each in model.requests] == ["hang"]


async def test_queued_request_is_answered_after_a_crash_only_with_a_key(
    tmp_path: Path,
) -> None:
    go = asyncio.Event()
    shop, script = gated(go)
    async with ModelServer(script) as model:
        asked = (("one", SESSION), ("two", SESSION), ("three", keyed(**SESSION)))
        async with (
            served(tmp_path, model, tools=shop.tools()) as api,
            asyncio.TaskGroup() as group,
        ):
            for text, headers in asked:
                group.create_task(cut_off(api, text, headers))
                if text == "one":
                    await shop.entered.wait()
            await waiting(api, 2)
            await api.kit.crash()
        go.set()
        model._handler = talkative
        async with served(tmp_path, model) as api:
            _, headers, answer = await api.wire.ask("three", headers=keyed(**SESSION))
            assert said(answer) == "echo: three"
            seen = [each["content"] for each in await api.kit.asked(len(model.requests))]
            assert not any("two" in str(each) for each in seen)
            assert api.kit.runner._store
            found = await api.kit.runner._store.trace("api:mine")
            states = {each.entry.state for each in found}
            assert states == {InboxState.DONE}


async def cut_off(api: ApiKit, text: str, headers: dict[str, str]) -> None:
    status, _, body = await api.wire.ask(text, headers=headers)
    assert (status, body["error"]["code"]) == (503, "interrupted")


async def test_kill_9_in_the_middle_of_an_answer(tmp_path: Path) -> None:
    """The session resumes with its partial text, and a repeat with the key gets the answer."""
    async with ModelServer(talkative) as model:
        async with daemon_for(tmp_path, model) as daemon:
            base = f"{daemon.url}/v1"
            wire = Wire(base)
            _, _, stored = await wire.ask("before", headers=keyed(**SESSION))
            async with wire.opened("hang", headers=SESSION) as response:
                async for event in events(response):
                    if text_of([event]):
                        break
                await daemon.kill()
            await daemon.start()
            assert (await wire.ask("before", headers=keyed(**SESSION)))[2] == stored
            async with library_client(base, KEY) as client:
                raw = await client.chat.completions.with_raw_response.create(
                    model="scripted",
                    messages=user("after"),
                    extra_headers=SESSION,
                )
            assert raw.headers["x-session-state"] == "resumed"
            assert raw.parse().choices[0].message.content == "echo: after"
            await wire.close()
        asked = [str(each["content"]) for each in model.requests[-1].messages]
        assert asked[0] == "before"
        assert any("hang" in each for each in asked)
        async with opened(tmp_path) as store:
            (session,) = [each for each in await store.sessions.list() if each.key == "api:mine"]
            assert (session.state, session.reason) == ("active", None)


async def test_turn_of_a_lone_request_is_not_resumed_after_a_crash(tmp_path: Path) -> None:
    """With `on_interrupted = "resume"` only turns of sessions resume, not those of lone requests."""
    resume = SessionSettings(on_interrupted="resume")
    async with ModelServer(talkative) as model:
        async with (
            served(tmp_path, model, sessions=resume) as api,
            api.wire.opened("hang alone") as alone,
            api.wire.opened("hang on", headers=SESSION) as kept,
        ):
            for response in (alone, kept):
                async for event in events(response):
                    if text_of([event]):
                        break
            await api.kit.crash()
        async with served(tmp_path, model, sessions=resume) as api:
            async with asyncio.timeout(8):
                await model.request(3)
            assert model.requests[2].asked.messages[0]["content"] == "hang on"
            assert sorted(await api.sessions()) == [("active", None), ("suspended", "crash")]
        assert len(model.requests) == 3
