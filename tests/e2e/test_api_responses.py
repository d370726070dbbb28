"""`/v1/responses` over the whole gateway, by OpenAI's library and raw HTTP."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest
from openai import AsyncOpenAI
from openai.types.responses import Response

from gateway.settings import GatewaySettings, HttpSettings
from sessions.values.secret import Secret
from tests.e2e.api_kit import KEY, ApiKit, Wire, daemon_for, served
from tests.e2e.gateway_kit import talkative
from tests.e2e.test_api_chat import CUT, data_url
from tests.e2e.test_api_sessions import gated, keyed
from tests.fakes.agent_kit import Workshop
from tests.fakes.http_client import library_client
from tests.fakes.model_script import calls, ok, words
from tests.fakes.model_server import ModelServer
from tests.fakes.responses_order import NOTICE, PROGRESS, Answered, checked, from_wire

SESSION = {"x-holdfast-session": "mine"}
MODEL = "scripted"


class Client:
    """A client with OpenAI's library and raw HTTP."""

    def __init__(self, api: ApiKit) -> None:
        self.api = api
        self.library = api.client.responses

    async def ask(self, said: Any, *, headers: dict[str, str] | None = None, **more: Any) -> Any:
        return await self.library.create(model=MODEL, input=said, extra_headers=headers, **more)

    async def send(
        self, said: Any, *, headers: dict[str, str] | None = None, **more: Any
    ) -> tuple[int, dict[str, str], Any]:
        body = {"model": MODEL, "input": said, **more}
        return await self.api.wire.send("POST", "/responses", json=body, headers=headers)

    async def get(self, answer: str, rest: str = "") -> Any:
        _, _, found = await self.api.wire.send("GET", f"/responses/{answer}{rest}")
        return found

    @contextlib.asynccontextmanager
    async def opened(
        self, said: Any, *, headers: dict[str, str] | None = None, **more: Any
    ) -> AsyncIterator["Opened"]:
        body = {"model": MODEL, "input": said, "stream": True, **more}
        wire = self.api.wire
        async with wire._http.post(
            f"{wire.base}/responses", json=body, headers=wire._headers | (headers or {})
        ) as response:
            assert response.status == 200, await response.text()
            yield Opened(response)

    async def stream(
        self, said: Any, *, headers: dict[str, str] | None = None, **more: Any
    ) -> Answered:
        async with self.opened(said, headers=headers, **more) as opened:
            return await opened.rest()

    async def seen(self, number: int) -> list[str]:
        """Return the contents of all messages in the n-th request to the model."""
        return [str(each["content"]) for each in await self.api.kit.asked(number)]


class Opened:
    """A stream in progress."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response
        self.content = b""

    async def until(self, words_of_it: str) -> dict[str, Any]:
        """Read until a text appears; return the response of the first event."""
        async for line in self.response.content:
            self.content += line
            if words_of_it in line.decode():
                break
        created = next(line for line in self.content.split(b"\n") if line.startswith(b"data: "))
        response: dict[str, Any] = json.loads(created[6:])["response"]
        return response

    async def rest(self) -> Answered:
        self.content += await self.response.content.read()
        return from_wire(self.content)


@contextlib.asynccontextmanager
async def responses(home: Path, model: ModelServer, **more: Any) -> AsyncIterator[Client]:
    async with served(home, model, **more) as api:
        yield Client(api)


def plain(answer: Response) -> dict[str, Any]:
    return answer.to_dict(mode="json")


# --- answers ---------------------------------------------------------------------------------


async def test_openai_library_gets_a_response_and_retrieves_it_later(tmp_path: Path) -> None:
    more: dict[str, Any] = {
        "instructions": "Be brief.",
        "metadata": {"colour": "red"},
        "temperature": 0.5,
        "max_output_tokens": 99,
        "reasoning": {"effort": "low"},
    }
    async with ModelServer(ok("Hello.")) as model:
        async with responses(tmp_path, model) as client:
            answer = await client.ask("hi", **more)
            assert (answer.status, answer.output_text, answer.model) == (
                "completed",
                "Hello.",
                MODEL,
            )
            assert answer.id.startswith("resp_")
            assert answer.output[0].id.startswith("msg_")
            assert answer.usage
            assert answer.usage.total_tokens == answer.usage.input_tokens + 5
            echoed = plain(answer)
            assert {name: echoed[name] for name in more} == more | {
                "reasoning": {"effort": "low", "summary": None}
            }
            assert client.api.kit.system(1).endswith("Be brief.")
            assert model.requests[0].max_tokens == 99
            assert await client.library.retrieve(answer.id) == answer
            assert await client.api.sessions() == [("closed", "answered")]
        async with responses(tmp_path, model) as client:
            assert await client.library.retrieve(answer.id) == answer


async def test_stream_is_in_order_and_equals_the_stored_response(tmp_path: Path) -> None:
    async with (
        ModelServer(words("one two three four")) as model,
        responses(tmp_path, model) as client,
    ):
        async with client.opened("go", metadata={"a": "b"}) as opened:
            headers = opened.response.headers
            found = await opened.rest()
        assert headers["content-type"].startswith("text/event-stream")
        assert headers["cache-control"] == "no-cache"
        assert headers["x-accel-buffering"] == "no"
        assert (found.text, found.ended_by) == ("one two three four", "response.completed")
        assert found.response["output"][0]["content"][0]["text"] == found.text
        assert found.pieces > 1
        assert await client.get(found.response["id"]) == found.response


async def test_openai_library_reads_a_stream(tmp_path: Path) -> None:
    async with ModelServer(words("one two three")) as model, responses(tmp_path, model) as client:
        stream = await client.ask("go", stream=True)
        found = checked([event.to_dict(mode="json") async for event in stream])
        assert found.text == "one two three"


async def test_stream_helper_assembles_the_response(tmp_path: Path) -> None:
    shop = Workshop()
    scripts = ('H T"Let me look." C(0,c1,read,{"path":"a"}) F tool_calls U D', ok("It says so."))
    async with (
        ModelServer(*scripts) as model,
        responses(tmp_path, model, tools=shop.tools()) as client,
        client.library.stream(model=MODEL, input="go") as stream,
    ):
        snapshots = [
            event.snapshot async for event in stream if event.type == "response.output_text.delta"
        ]
        final = await stream.get_final_response()
        assert final.output_text == snapshots[-1] == "Let me look.\n\nIt says so."
        assert (await client.library.retrieve(final.id)).output_text == final.output_text


async def test_items_of_a_request_are_the_conversation(tmp_path: Path) -> None:
    items: Any = [
        {"role": "developer", "content": "Speak like a pirate."},
        {"role": "user", "content": "one"},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "result"},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "two", "annotations": []}],
        },
        {"role": "user", "content": [{"type": "input_text", "text": "three"}]},
    ]
    async with ModelServer(talkative) as model, responses(tmp_path, model) as client:
        answer = await client.ask(items, instructions="Be brief.")
        assert answer.output_text == "echo: three"
        rows = await client.api.kit.asked(1)
        assert [row["role"] for row in rows] == ["user", "assistant", "tool", "assistant", "user"]
        assert rows[1]["tool_calls"][0]["function"]["name"] == "f"
        assert client.api.kit.system(1).endswith("Be brief.\n\nSpeak like a pirate.")
        listed = await client.library.input_items.list(answer.id, order="asc")
        assert [item.type for item in listed.data] == [
            "message",
            "function_call",
            "function_call_output",
            "message",
            "message",
        ]
        newest = await client.get(answer.id, "/input_items?limit=1")
        assert newest["data"][0]["content"] == [{"type": "input_text", "text": "three"}]
        assert newest["has_more"] is True


async def test_picture_reaches_the_model(tmp_path: Path) -> None:
    looking = [
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "what is this?"},
                {"type": "input_image", "image_url": data_url(), "detail": "auto"},
            ],
        }
    ]
    async with ModelServer(talkative) as model, responses(tmp_path, model) as client:
        first = await client.ask(looking)
        await client.ask("and now?", previous_response_id=first.id)
        await client.ask("or else?", previous_response_id=first.id)  # branches off
        for number in (1, 2, 3):
            row = (await client.api.kit.asked(number))[0]
            shown = [part for part in row["content"] if part["type"] == "image_url"]
            assert [part["image_url"]["url"] for part in shown] == [data_url()]


# --- continuing an answer --------------------------------------------------------------------


async def test_newest_answer_is_continued_and_an_older_one_branches(
    tmp_path: Path,
) -> None:
    async with ModelServer(talkative) as model:
        async with responses(tmp_path, model) as client:
            one = await client.ask("one", instructions="Be brief.")
            two = await client.ask("two", previous_response_id=one.id)
            assert two.previous_response_id == one.id
            assert len(await client.api.sessions()) == 1
        async with responses(tmp_path, model) as client:  # also after a restart
            await client.ask("three", previous_response_id=two.id)
            assert len(await client.api.sessions()) == 1
            branch = await client.ask("other", previous_response_id=one.id)
            assert len(await client.api.sessions()) == 2
            more: Any = [{"role": "user", "content": "more"}, {"role": "user", "content": "last"}]
            found = await client.stream(more, previous_response_id=branch.id)
            assert found.text == "echo: last"
            assert len(await client.api.sessions()) == 2
            assert set(await client.api.sessions()) == {("closed", "answered")}
            assert [await client.seen(number) for number in (2, 3, 4, 5)] == [
                ["one", "echo: one", "two"],
                ["one", "echo: one", "two", "echo: two", "three"],
                ["one", "echo: one", "other"],
                ["one", "echo: one", "other", "echo: other", "more\n\nlast"],
            ]
            assert not client.api.kit.system(2).endswith("Be brief.")


async def test_two_concurrent_continuations_of_one_answer_do_not_mix(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, responses(tmp_path, model) as client:
        one = await client.ask("one")
        async with asyncio.TaskGroup() as group:
            for number in range(4):
                group.create_task(client.ask(f"next {number}", previous_response_id=one.id))
        shown = sorted([await client.seen(number) for number in (2, 3, 4, 5)])
        assert shown == [["one", "echo: one", f"next {number}"] for number in range(4)]
        assert len(await client.api.sessions()) == 4


async def test_failed_request_is_not_part_of_a_later_continuation(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, responses(tmp_path, model) as client:
        one = await client.ask("one")
        with pytest.raises(openai.BadRequestError):
            await client.ask("fail", previous_response_id=one.id)
        await client.ask("two", previous_response_id=one.id)
        assert await client.seen(len(model.requests)) == ["one", "echo: one", "two"]


async def test_answer_of_a_named_session_can_be_continued(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, responses(tmp_path, model) as client:
        status, headers, one = await client.send("one", headers=SESSION)
        assert (status, headers["x-session-state"]) == (200, "new")
        two = await client.ask("two", previous_response_id=one["id"])
        _, headers, _ = await client.send("three", headers=SESSION)
        assert headers["x-session-state"] == "continued"
        assert await client.seen(3) == ["one", "echo: one", "two", "echo: two", "three"]
        assert await client.api.sessions() == [("active", None)]
        await client.ask("other", previous_response_id=two.id)
        assert await client.seen(4) == ["one", "echo: one", "two", "echo: two", "other"]
        assert await client.api.sessions() == [("closed", "answered"), ("active", None)]
        status, _, body = await client.send("x", headers=SESSION, previous_response_id=two.id)
        assert (status, body["error"]["param"]) == (400, "previous_response_id")


async def test_unknown_previous_response_is_refused(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, responses(tmp_path, model) as client:
        chat = await client.api.chat.create(
            model=MODEL, messages=[{"role": "user", "content": "hi"}]
        )
        unkept = await client.ask("one", store=False)
        tail = chat.id.partition("-")[2]
        for name in ("resp_0", unkept.id, chat.id, f"resp_{tail}", "x", "resp_" + "a" * 500):
            with pytest.raises(openai.BadRequestError) as error:
                await client.ask("two", previous_response_id=name)
            assert error.value.code == "previous_response_not_found"
            with pytest.raises(openai.NotFoundError):
                await client.library.retrieve(name)
        assert len(model.requests) == 2


async def test_unstored_answer_does_not_change_its_conversation(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, responses(tmp_path, model) as client:
        one = await client.ask("one")
        beside = await client.ask("aside", previous_response_id=one.id, store=False)
        assert (beside.store, beside.output_text) == (False, "echo: aside")
        await client.ask("two", previous_response_id=one.id)
        assert await client.seen(3) == ["one", "echo: one", "two"]
        store = client.api.kit.runner._store
        assert store
        aside, first = await store.sessions.list()
        said = [row.content for row in await store.sessions.history(first.id)]
        assert said == ["one", "echo: one", "two", "echo: two"]
        said = [row.content for row in await store.sessions.history(aside.id)]
        assert said == ["one", "echo: one", "aside", "echo: aside"]


async def test_deleted_answer_is_gone_with_its_conversation(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model:
        async with responses(tmp_path, model) as client:
            one = await client.ask("one", headers=keyed())
            two = await client.ask("two", previous_response_id=one.id)
            await client.library.delete(one.id)
            assert await client.api.sessions() == [("closed", "answered")]
        async with responses(tmp_path, model) as client:
            for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/cancel")):
                status, _, body = await client.api.wire.send(method, f"/responses/{one.id}{path}")
                assert (status, body["error"]["code"]) == (404, "response_not_found")
            with pytest.raises(openai.BadRequestError):
                await client.ask("x", previous_response_id=one.id)
            again = await client.ask("one", headers=keyed())
            assert again.id != one.id
            assert (await client.library.retrieve(two.id)).output_text == "echo: two"
            _, _, gone = await client.api.wire.send("DELETE", f"/responses/{two.id}")
            assert gone == {"id": two.id, "object": "response", "deleted": True}
            assert ("closed", "deleted") in await client.api.sessions()


async def test_answers_of_a_deleted_conversation_are_gone(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, responses(tmp_path, model) as client:
        one = await client.ask("one")
        runner = client.api.kit.runner
        assert runner._store
        (session,) = await runner._store.sessions.list()
        await runner.operations["delete"](session=session.id)
        with pytest.raises(openai.NotFoundError):
            await client.library.retrieve(one.id)
        with pytest.raises(openai.BadRequestError):
            await client.ask("two", previous_response_id=one.id)


# --- repeated requests -----------------------------------------------------------------------


async def test_repeated_continuation_gets_the_same_answer(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model:
        async with responses(tmp_path, model) as client:
            one = await client.ask("one", headers=keyed("a"))
            assert await client.ask("one", headers=keyed("a")) == one
            two = await client.ask("two", previous_response_id=one.id, headers=keyed("b"))
            branch = await client.ask("other", previous_response_id=one.id, headers=keyed("c"))
            await client.ask("three", previous_response_id=two.id)
            sent = len(model.requests)
        async with responses(tmp_path, model) as client:
            asked = {"two": ("b", two), "other": ("c", branch)}
            for text, (key, answer) in asked.items():
                again = await client.ask(text, previous_response_id=one.id, headers=keyed(key))
                assert again == answer
            live = await client.stream("live", headers=keyed("d"))
            told_again = await client.stream("live", headers=keyed("d"))
            assert (told_again.response, told_again.text) == (live.response, "echo: live")
            status, _, body = await client.send("else", headers=keyed("a"))
            assert (status, body["error"]["code"]) == (422, "idempotency_key_reused")
        assert len(model.requests) == sent + 1


# --- running answers -------------------------------------------------------------------------


async def test_running_response_can_be_retrieved_and_cancelled(tmp_path: Path) -> None:
    async with (
        ModelServer(talkative) as model,
        responses(tmp_path, model) as client,
        client.opened("hang") as opened,
    ):
        created = await opened.until("so far ")
        path = f"/responses/{created['id']}"
        assert await client.get(created["id"]) == created
        assert created["status"] == "in_progress"
        assert (await client.api.wire.send("DELETE", path))[0] == 400
        status, _, body = await client.send("x", previous_response_id=created["id"])
        assert (status, body["error"]["code"]) == (400, "previous_response_in_progress")
        stopped = await client.library.cancel(created["id"])
        found = await opened.rest()
        assert (stopped.status, stopped.output_text) == ("cancelled", "so far ")
        assert (found.text, found.response) == ("so far ", plain(stopped))
        assert await client.library.cancel(created["id"]) == stopped
        went_on = await client.ask("next", previous_response_id=created["id"])
        assert went_on.output_text == "echo: next"


async def test_stream_closed_by_the_openai_library_ends_its_turn(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, responses(tmp_path, model) as client:
        answer = ""
        stream = await client.ask("hang", stream=True, store=False)
        async for event in stream:
            if event.type == "response.created":
                answer = event.response.id
            if event.type == "response.output_text.delta":
                break
        await stream.close()
        async with asyncio.timeout(8):
            await model.requests[0].closed.wait()
        with pytest.raises(openai.NotFoundError):
            await client.library.retrieve(answer)


async def test_silent_response_is_created_with_the_first_keepalive(tmp_path: Path) -> None:
    http = HttpSettings(port=0, api_key=Secret(KEY), ui=False, sse_keepalive=0.05)
    async with (
        ModelServer("HANG") as model,
        responses(tmp_path, model, http=http) as client,
        client.opened("go") as opened,
    ):
        created = await opened.until("response.in_progress")
        assert opened.content.startswith(b": keepalive\n\nevent: response.created\n")
        await client.library.cancel(created["id"])
        found = await opened.rest()
        assert (found.response["status"], found.response["output"]) == ("cancelled", [])


# --- tools and notices -----------------------------------------------------------------------


@pytest.mark.parametrize("lang", ["", "python", "js"])
async def test_tool_events_are_separate_from_the_answer(tmp_path: Path, lang: str) -> None:
    """OpenAI's JavaScript library fails on unknown event types, except for one."""
    shop = Workshop()
    scripts = (calls(("c1", "pay", '{"amount":3}')), ok("Paid."))
    headers = {"x-stainless-lang": lang} if lang else {}
    async with (
        ModelServer(*scripts) as model,
        responses(tmp_path, model, tools=shop.tools()) as client,
        client.opened("go", headers=headers) as opened,
    ):
        found = await opened.rest()
        running, over = found.tools
        kind = "keepalive" if lang == "js" else PROGRESS
        assert (running["status"], running["tool"], running["type"]) == ("running", "pay", kind)
        assert running["label"] == "3"
        assert {name: over[name] for name in ("tool", "toolCallId", "status")} == {
            "tool": "pay",
            "toolCallId": "c1",
            "status": "completed",
        }
        assert opened.content.count(f"event: {PROGRESS}".encode()) == 2
        assert found.text == "Paid."
        assert [item["type"] for item in found.response["output"]] == ["message"]
        assert shop.effects == ["pay 3"]


async def test_full_queue_sends_notices_and_refuses_further_requests(tmp_path: Path) -> None:
    go = asyncio.Event()
    shop, script = gated(go)
    settings = GatewaySettings(drain_seconds=0, queue_limit=1)
    async with (
        ModelServer(script) as model,
        responses(tmp_path, model, tools=shop.tools(), gateway=settings) as client,
        asyncio.TaskGroup() as group,
    ):
        first = group.create_task(client.stream("one", headers=SESSION))
        await shop.entered.wait()
        async with client.opened("two", headers=SESSION) as second:
            await second.until(NOTICE)
            with pytest.raises(openai.RateLimitError) as error:
                await client.ask("three", headers=SESSION)
            assert error.value.code == "queue_full"
            go.set()
            found = await second.rest()
        assert (await first).text == "echo: one"
        assert found.text == "echo: two"
        (notice,) = found.notices
        assert notice["id"] == "N15"


# --- endings ---------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
async def test_failure_before_any_text_is_an_error_without_retry(
    tmp_path: Path, stream: bool
) -> None:
    async with (
        ModelServer('S400"too clever"') as model,
        responses(tmp_path, model) as client,
        AsyncOpenAI(base_url=client.api.wire.base, api_key=KEY) as eager,
    ):
        with pytest.raises(openai.BadRequestError) as error:
            await eager.responses.create(model=MODEL, input="go", stream=stream)
        assert error.value.code == "turn_failed"
        assert "too clever" in str(error.value)
        assert len(model.requests) == 1


async def test_failure_after_text_is_reported_streamed_whole_and_stored(tmp_path: Path) -> None:
    scripts = (CUT, 'S400"not today"') * 2
    async with ModelServer(*scripts) as model:
        async with responses(tmp_path, model) as client:
            found = await client.stream("go")
            assert (found.text, found.ended_by) == ("so far ", "response.failed")
            assert found.response["error"]["code"] == "server_error"
            assert "not today" in found.response["error"]["message"]
            whole = await client.ask("go")
            assert (whole.status, whole.output_text) == ("failed", "so far ")
            assert whole.error
            assert "not today" in whole.error.message
        async with responses(tmp_path, model) as client:
            assert await client.get(found.response["id"]) == found.response
            assert await client.library.retrieve(whole.id) == whole


INCOMPLETE = {
    "length": ('H T"one two" F length U(2) D', "max_output_tokens", "one two"),
    "declined": ("H F content_filter U D", "content_filter", ""),
}


@pytest.mark.parametrize(("script", "reason", "text"), INCOMPLETE.values(), ids=INCOMPLETE)
async def test_incomplete_answer_has_a_reason(
    tmp_path: Path, script: str, reason: str, text: str
) -> None:
    async with (
        ModelServer(script, script) as model,
        responses(tmp_path, model) as client,
    ):
        found = await client.stream("go", max_output_tokens=16)
        assert (found.ended_by, found.why, found.text) == ("response.incomplete", reason, text)
        assert await client.get(found.response["id"]) == found.response
        whole = await client.ask("go", max_output_tokens=16)
        assert whole.incomplete_details
        assert (whole.status, whole.incomplete_details.reason) == ("incomplete", reason)
        assert plain(whole)["output"][0]["content"] == found.response["output"][0]["content"]
        assert await client.library.retrieve(whole.id) == whole


async def test_refusals_have_the_shape_of_openai(tmp_path: Path) -> None:
    async with ModelServer() as model, responses(tmp_path, model) as client:
        stranger = Wire(client.api.wire.base, "wrong")
        for method, path in (
            ("POST", "/responses"),
            ("GET", "/responses/resp_0"),
            ("DELETE", "/responses/resp_0"),
            ("POST", "/responses/resp_0/cancel"),
            ("GET", "/responses/resp_0/input_items"),
        ):
            status, _, body = await stranger.send(method, path)
            assert (status, body["error"]["code"]) == (401, "invalid_api_key")
        await stranger.close()
        with pytest.raises(openai.NotFoundError) as error:
            await client.library.create(model="nobody", input="hi")
        assert error.value.code == "model_not_found"
        with pytest.raises(openai.BadRequestError, match=r"`tools\[0\].name` is missing"):
            await client.ask("hi", tools=[{"type": "function"}])
        assert await client.api.sessions() == []


async def test_stored_answer_cannot_be_streamed(tmp_path: Path) -> None:
    async with ModelServer(ok("Hello.")) as model, responses(tmp_path, model) as client:
        answer = await client.ask("hi")
        with pytest.raises(
            openai.BadRequestError, match="only if it was created with `background`"
        ):
            await client.library.retrieve(answer.id, stream=True)
        status, _, body = await client.api.wire.send(
            "GET", f"/responses/{answer.id}/input_items?limit=0"
        )
        assert (status, body["error"]["param"]) == (400, "limit")


async def test_key_in_the_text_is_masked_live_and_later(tmp_path: Path) -> None:
    secret = "sk-abcdefghij0123456789ABCDEFGHIJ"
    script = f'H T"it is {secret[:2]}" T"{secret[2:20]}" T"{secret[20:]} ok" F stop U D'
    async with ModelServer(script) as model, responses(tmp_path, model) as client:
        found = await client.stream("go")
        assert found.text == "it is *** ok"
        assert await client.get(found.response["id"]) == found.response


# --- kill -9 ---------------------------------------------------------------------------------


async def test_kill_9_in_the_middle_of_an_answer(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model:
        async with daemon_for(tmp_path, model) as daemon:
            base = f"{daemon.url}/v1"
            async with library_client(base, KEY) as library:
                before = await library.responses.create(model=MODEL, input="before")
                cut = ""
                stream = await library.responses.create(
                    model=MODEL, input="hang", stream=True, previous_response_id=before.id
                )
                async for event in stream:
                    if event.type == "response.created":
                        cut = event.response.id
                    if event.type == "response.output_text.delta":
                        break
                await daemon.kill()
                with contextlib.suppress(openai.APIConnectionError):
                    async for _ in stream:
                        pass
                await daemon.start()
                assert await library.responses.retrieve(before.id) == before
                failed = await library.responses.retrieve(cut)
                assert failed.status == "failed"
                assert failed.error
                assert "restarted" in failed.error.message
                after = await library.responses.create(
                    model=MODEL, input="after", previous_response_id=before.id
                )
                assert after.output_text == "echo: after"
                again = await library.responses.create(
                    model=MODEL, input="again", previous_response_id=cut
                )
                assert again.output_text == "echo: again"
        asked = [
            [each["content"] for each in request.messages if each["role"] != "system"]
            for request in model.requests[-2:]
        ]
        assert asked[0] == ["before", "echo: before", "after"]
        assert asked[1][:2] == ["before", "echo: before"]
        assert asked[1][2].startswith("hang")
