"""`background` of `/v1/responses`: answers that go on without their client, and are polled."""

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import openai
import pytest
from openai.types.responses import Response

from tests.e2e.api_kit import HTTP, KEY, OPEN, PATIENCE, daemon_for, polled, served, user
from tests.e2e.gateway_kit import talkative
from tests.e2e.test_api_keys import add, client_with
from tests.e2e.test_api_responses import MODEL, responses
from tests.e2e.test_api_sessions import gated
from tests.fakes.http_client import library_client
from tests.fakes.model_script import Script, ok
from tests.fakes.model_server import ModelServer


async def test_an_answer_goes_on_without_its_client_and_is_polled(tmp_path: Path) -> None:
    go = asyncio.Event()
    shop, script = gated(go)
    async with (
        ModelServer(script) as model,
        responses(tmp_path, model, tools=shop.tools()) as client,
    ):
        begun = await client.ask("hi", background=True)
        assert (begun.status, begun.background, begun.output) == ("queued", True, [])
        await shop.entered.wait()
        running = await client.library.retrieve(begun.id)
        assert (running.status, running.background) == ("in_progress", True)
        go.set()
        answer = await polled(lambda: client.library.retrieve(begun.id))
        assert (answer.status, answer.output_text) == ("completed", "echo: hi")
        assert answer.background is True
        more = await client.ask("more", previous_response_id=begun.id)
        assert (more.output_text, more.background) == ("echo: more", False)


async def test_no_more_answers_run_in_the_background_than_requests_may_run(tmp_path: Path) -> None:
    async with (
        ModelServer(talkative) as model,
        served(tmp_path, model, http=msgspec.structs.replace(HTTP, max_requests=2)) as api,
    ):

        async def begin(number: int) -> Response:
            key = {"idempotency-key": f"k{number}"}
            return await api.client.responses.create(
                model="", input="hang", background=True, extra_headers=key
            )

        begun = [await begin(number) for number in range(2)]
        for each in begun:
            await polled(partial(api.client.responses.retrieve, each.id), until=OPEN[1:])
        with pytest.raises(openai.RateLimitError) as refused:
            await api.client.responses.create(model="", input="hi", background=True)
        assert refused.value.response.headers["retry-after"] == "1"
        counted = dict(api.kit.runner._metrics.http_refused.read())
        assert list(counted.values()) == [1]
        assert [(await begin(number)).id for number in range(2)] == [each.id for each in begun]
        assert (await api.client.responses.create(model="", input="hi")).output_text == "echo: hi"
        await api.client.responses.cancel(begun[0].id)
        more = await api.client.responses.create(model="", input="more", background=True)
        answer = await polled(lambda: api.client.responses.retrieve(more.id))
        assert answer.output_text == "echo: more"
        await api.client.responses.cancel(begun[1].id)


async def test_a_queued_answer_is_shown_as_queued_and_can_be_cancelled(tmp_path: Path) -> None:
    session = {"x-holdfast-session": "mine"}
    go = asyncio.Event()
    shop, script = gated(go)
    async with (
        ModelServer(script) as model,
        responses(tmp_path, model, tools=shop.tools()) as client,
    ):
        first = await client.ask("one", background=True, headers=session)
        await shop.entered.wait()
        second = await client.ask("two", background=True, headers=session)
        third = await client.ask("three", background=True, headers=session)
        assert (await client.library.retrieve(second.id)).status == "queued"
        assert (await client.library.cancel(second.id)).status == "cancelled"
        go.set()
        ended = await polled(lambda: client.library.retrieve(third.id))
        assert ended.output_text == "echo: three"
        assert (await client.library.retrieve(first.id)).output_text == "echo: one"
        assert (await client.library.retrieve(second.id)).status == "cancelled"


async def test_cancel_stops_a_running_answer(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, responses(tmp_path, model) as client:
        begun = await client.ask("hang", background=True)
        await model.request(1)
        assert (await client.library.cancel(begun.id)).status == "cancelled"
        async with asyncio.timeout(PATIENCE):
            await model.requests[0].closed.wait()
        assert (await client.library.retrieve(begun.id)).status == "cancelled"


async def test_a_failure_is_polled(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, responses(tmp_path, model) as client:
        begun = await client.ask("fail", background=True)
        ended = await polled(lambda: client.library.retrieve(begun.id))
        assert ended.status == "failed"
        assert ended.error


async def test_a_stream_in_the_background_is_resumed_after_an_event(tmp_path: Path) -> None:
    go = asyncio.Event()
    shop, script = gated(go)
    async with (
        ModelServer(script) as model,
        responses(tmp_path, model, tools=shop.tools()) as client,
    ):
        seen = []
        stream = await client.ask("hi", background=True, stream=True)
        async for event in stream:
            seen.append(event)
            if event.sequence_number == 1:
                break
        await stream.close()
        await shop.entered.wait()
        async with asyncio.TaskGroup() as group:
            resumed = group.create_task(_rest(client.library, seen[0].response.id, 1))
            whole = group.create_task(_rest(client.library, seen[0].response.id, None))
            await asyncio.sleep(0.05)  # both may have begun; the result does not depend on it
            go.set()
        events = [*seen, *resumed.result()]
        assert [each.sequence_number for each in events] == list(range(len(events)))
        assert events[-1].type == "response.completed"
        assert events[-1].response.output_text == "echo: hi"
        assert [each.to_dict() for each in events[:-1]] == [
            each.to_dict() for each in whole.result()[:-1]
        ]


async def _rest(library: Any, answer: str, after: int | None) -> list[Any]:
    more = {} if after is None else {"starting_after": after}
    stream = await library.retrieve(answer, stream=True, **more)
    return [event async for event in stream]


async def test_an_ended_answer_is_streamed_whole_but_not_in_part(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, responses(tmp_path, model) as client:
        begun = await client.ask("hi", background=True)
        await polled(lambda: client.library.retrieve(begun.id))
        events = await _rest(client.library, begun.id, None)
        assert events[0].type == "response.created"
        assert events[-1].response.output_text == "echo: hi"
        with pytest.raises(openai.BadRequestError, match="has ended; get it without `stream`"):
            await _rest(client.library, begun.id, 3)
        plain = await client.ask("plain")
        with pytest.raises(openai.BadRequestError, match="background"):
            await _rest(client.library, plain.id, None)


@pytest.mark.parametrize("after", ["-1", "x", "1.5", "9" * 30])
async def test_a_bad_position_in_a_stream_is_refused(tmp_path: Path, after: str) -> None:
    async with ModelServer(talkative) as model, responses(tmp_path, model) as client:
        begun = await client.ask("hang", background=True)
        found = await client.get(begun.id, f"?stream=true&starting_after={after}")
        assert found["error"]["param"] == "starting_after"
        await client.library.cancel(begun.id)


async def test_a_background_answer_has_to_be_stored(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, responses(tmp_path, model) as client:
        status, _, body = await client.send("hi", background=True, store=False)
        assert (status, body["error"]["param"]) == (400, "background")
        assert model.requests == []


async def test_a_repeated_request_begins_one_turn(tmp_path: Path) -> None:
    key = {"idempotency-key": "once"}
    async with ModelServer(talkative) as model, responses(tmp_path, model) as client:
        first = await client.ask("hi", background=True, headers=key)
        second = await client.ask("hi", background=True, headers=key)
        assert first.id == second.id
        await polled(lambda: client.library.retrieve(first.id))
        third = await client.ask("hi", background=True, headers=key)
        assert (third.id, third.status, third.output_text) == (first.id, "completed", "echo: hi")
        assert len(model.requests) == 1


# --- the end of the process -----------------------------------------------------------------


async def test_queued_and_running_answers_survive_kill_9(tmp_path: Path) -> None:
    session = {"x-holdfast-session": "mine"}

    def script(body: dict[str, Any]) -> Script:
        if len(model.requests) == 1:
            return 'H T"so far, " HANG'
        return talkative(body)

    async with ModelServer(script) as model, daemon_for(tmp_path, model) as daemon:
        async with library_client(f"{daemon.url}/v1", KEY) as client:
            library = client.responses
            more: dict[str, Any] = {"model": MODEL, "background": True}
            begun = await library.create(input="one", extra_headers=session, **more)
            queued = await library.create(input="two", extra_headers=session, **more)
            alone = await library.create(input="three", **more)
            await polled(lambda: library.retrieve(alone.id))
            assert (await library.retrieve(begun.id)).status == "in_progress"
            await daemon.kill()
            await daemon.start()
            ended = await polled(lambda: library.retrieve(begun.id))
            assert ended.status == "completed", ended
            assert (await polled(lambda: library.retrieve(queued.id))).output_text == "echo: two"
            assert (await library.retrieve(alone.id)).output_text == "echo: three"
        asked = [json.dumps(each.messages) for each in model.requests]
        assert sum("three" in each for each in asked) == 1


async def test_a_single_answer_goes_on_after_a_restart(tmp_path: Path) -> None:
    scripts = ('H T"so far" HANG', ok(" and on."))
    async with ModelServer(*scripts) as model:
        async with responses(tmp_path, model) as client:
            begun = await client.ask("hi", background=True)
            await model.request(1)
        async with responses(tmp_path, model) as client:
            ended = await polled(lambda: client.library.retrieve(begun.id))
            assert ended.status == "completed"
            with pytest.raises(openai.BadRequestError, match="get it without `stream`"):
                await _rest(client.library, begun.id, 1)
        assert len(model.requests) == 2


async def test_an_answer_that_a_restart_continued_can_be_cancelled(tmp_path: Path) -> None:
    async with ModelServer(lambda _: 'H T"so far" HANG') as model:
        async with responses(tmp_path, model) as client:
            begun = await client.ask("hang", background=True)
            await model.request(1)
        async with responses(tmp_path, model) as client:
            await model.request(2)
            assert (await client.library.retrieve(begun.id)).status == "in_progress"
            for after in (1, None):
                with pytest.raises(openai.BadRequestError, match="interrupted by a restart"):
                    await _rest(client.library, begun.id, after)
            assert (await client.library.cancel(begun.id)).status == "cancelled"
            async with asyncio.timeout(PATIENCE):
                await model.requests[1].closed.wait()


async def test_another_key_does_not_see_a_background_answer(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, responses(tmp_path, model) as client:
        other = await add(client.api, "other")
        async with client_with(client.api, other) as theirs:
            begun = await client.ask("hang", background=True)
            for act in (theirs.responses.retrieve, theirs.responses.cancel):
                with pytest.raises(openai.NotFoundError):
                    await act(begun.id)
            with pytest.raises(openai.NotFoundError):
                await theirs.responses.retrieve(begun.id, stream=True)
            assert (await client.library.cancel(begun.id)).status == "cancelled"


async def test_chat_completions_ignore_the_field(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, served(tmp_path, model) as api:
        _, _, answer = await api.wire.ask("hi", background=True)
        assert answer["choices"][0]["message"]["content"] == "echo: hi"
        assert user("hi")
