"""The API with OpenAI's Node library; `test_api_chat` has the same for Python."""

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from gateway.settings import GatewaySettings, HttpSettings, RouteSettings
from sessions.values.secret import Secret
from tests.e2e.api_kit import KEY, ApiKit, served, user
from tests.e2e.gateway_kit import talkative
from tests.e2e.node_kit import Raised, node, why_not
from tests.fakes.agent_kit import Workshop
from tests.fakes.model_script import calls, ok, words
from tests.fakes.model_server import ModelServer

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "installed")

CUT = 'H T"so far " RST'
LOOK = 'H T"Let me look." C(0,c1,read,{"path":"a"}) F tool_calls U D'
PNG = "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(40)).decode()


def body(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "scripted", "messages": user(text), **more}


async def test_node_library_gets_a_whole_answer(tmp_path: Path) -> None:
    async with (
        ModelServer(ok("Hello.")) as model,
        served(tmp_path, model) as api,
        node(api) as sdk,
    ):
        answer = await sdk.run("chat", body=body("hi"))
        assert (answer["role"], answer["content"], answer["finish"]) == (
            "assistant",
            "Hello.",
            "stop",
        )
        assert (answer["object"], answer["model"]) == ("chat.completion", "scripted")
        assert answer["usage"]["completion_tokens"] == 5


async def test_node_library_reads_a_stream_with_usage(tmp_path: Path) -> None:
    async with (
        ModelServer(words("one two three")) as model,
        served(tmp_path, model) as api,
        node(api) as sdk,
    ):
        seen = await sdk.run("stream", body=body("go", stream_options={"include_usage": True}))
        assert (seen["text"], seen["finish"], seen["roles"]) == (
            "one two three",
            ["stop"],
            ["assistant"],
        )
        assert seen["ids"] == 1
        assert seen["empty"] == 1  # the chunk with the usage
        assert seen["usage"]["completion_tokens"] == 5


async def test_node_stream_helper_assembles_the_answer(tmp_path: Path) -> None:
    async with (
        ModelServer(words("one two three")) as model,
        served(tmp_path, model) as api,
        node(api) as sdk,
    ):
        found = await sdk.run("helper", body=body("go", stream_options={"include_usage": True}))
        assert found["content"] == found["said"] == found["last"] == "one two three"
        assert found["finish"] == "stop"
        heard = found["heard"]
        assert (heard["connect"], heard["content.done"], heard["end"]) == (1, 1, 1)
        assert heard["content.delta"] >= 3
        assert found["usage"] > 5


async def test_node_library_lists_models_and_requests_one(tmp_path: Path) -> None:
    routes = (RouteSettings(match="telegram:*", model="vendor/small"),)
    async with (
        ModelServer(talkative) as model,
        served(tmp_path, model, route=routes) as api,
        node(api) as sdk,
    ):
        found = await sdk.run("models", name="vendor/small")
        assert found["listed"] == ["scripted", "vendor/small"]
        assert (found["id"], found["object"], found["owned_by"]) == (
            "vendor/small",
            "model",
            "openai",
        )
        with pytest.raises(Raised) as error:
            await sdk.run("models", name="nobody")
        assert error.value.told["kinds"] == ["APIError", "NotFoundError", "OpenAIError"]
        assert error.value.code == "model_not_found"


async def test_node_library_raises_authentication_error_for_a_wrong_key(tmp_path: Path) -> None:
    async with ModelServer() as model, served(tmp_path, model) as api, node(api) as sdk:
        for case in ("chat", "stream", "helper", "models"):
            with pytest.raises(Raised) as error:
                await sdk.run(case, key="wrong", body=body("hi"), name="scripted")
            assert (error.value.name, error.value.status) == ("AuthenticationError", 401), case
            assert error.value.code == "invalid_api_key"
        assert model.requests == []


# --- limits ----------------------------------------------------------------------------------


async def test_node_library_raises_rate_limit_error_for_a_full_queue(tmp_path: Path) -> None:
    headers = {"x-holdfast-session": "mine"}
    one_waits = GatewaySettings(drain_seconds=0, queue_limit=1)
    async with (
        ModelServer(talkative) as model,
        served(tmp_path, model, gateway=one_waits) as api,
        node(api) as sdk,
        api.wire.opened("hang", headers=headers),
        asyncio.TaskGroup() as group,
    ):
        await model.request(1)
        waits = group.create_task(api.wire.ask("two", headers=headers))
        await waiting(api)
        with pytest.raises(Raised) as error:
            await sdk.run("headers", body=body("three"), headers=headers)
        assert (error.value.name, error.value.status) == ("RateLimitError", 429)
        assert error.value.code == "queue_full"
        assert error.value.told["type"] == "rate_limit_error"
        assert int(error.value.told["headers"]["retry-after"]) > 0
        waits.cancel()


async def waiting(api: ApiKit) -> None:
    """Wait until a request is queued in the session."""
    store = api.kit.runner._store
    assert store
    async with asyncio.timeout(8):
        while not (await store.conversation("api:mine")).waiting:  # noqa: ASYNC110 - the store has no event
            await asyncio.sleep(0.01)


async def test_node_library_retries_after_429(tmp_path: Path) -> None:
    """A full server sends Retry-After; the library waits and retries on its own."""
    narrow = HttpSettings(port=0, api_key=Secret(KEY), ui=False, max_requests=1)
    async with (
        ModelServer(talkative) as model,
        served(tmp_path, model, http=narrow) as api,
        node(api) as sdk,
    ):
        turned_away = asyncio.Event()
        api.kit.runner._concurrency_limit.on_rejected = turned_away.set
        async with asyncio.TaskGroup() as group, api.wire.opened("hang"):
            with pytest.raises(Raised) as error:
                await sdk.run("chat", body=body("hi"))
            assert (error.value.name, error.value.code) == ("RateLimitError", "too_many_requests")
            assert error.value.told["headers"]["retry-after"] == "1"
            turned_away.clear()
            again = group.create_task(sdk.run("chat", retries=2, body=body("hi")))
            await turned_away.wait()
        assert again.result()["content"] == "echo: hi"


# --- tools and notices -----------------------------------------------------------------------


async def test_node_library_ignores_tool_events(tmp_path: Path) -> None:
    shop = Workshop()
    scripts = (LOOK, ok("It says so.")) * 2
    async with (
        ModelServer(*scripts) as model,
        served(tmp_path, model, tools=shop.tools()) as api,
        node(api) as sdk,
    ):
        seen = await sdk.run("stream", body=body("go"))
        assert seen["text"] == "Let me look.\n\nIt says so."
        assert (seen["finish"], seen["empty"]) == (["stop"], 2)  # running, completed
        found = await sdk.run("helper", body=body("go"))
        assert found["content"] == found["said"] == "Let me look.\n\nIt says so."
        assert shop.effects == ["read a", "read a"]


async def test_node_library_ignores_a_tool_event_before_the_first_text(tmp_path: Path) -> None:
    shop = Workshop()
    scripts = (calls(("c1", "pay", '{"amount":3}')), ok("Paid.")) * 2
    async with (
        ModelServer(*scripts) as model,
        served(tmp_path, model, tools=shop.tools()) as api,
        node(api) as sdk,
    ):
        for case, text in (("stream", "text"), ("helper", "content")):
            assert (await sdk.run(case, body=body("go")))[text] == "Paid."


async def test_node_library_ignores_a_notice(tmp_path: Path) -> None:
    limited = 'S429:{"retry-after":"0.01"}'
    async with (
        ModelServer(limited, ok("done"), limited, ok("done")) as model,
        served(tmp_path, model) as api,
        node(api) as sdk,
    ):
        seen = await sdk.run("stream", body=body("go"))
        assert (seen["text"], seen["empty"]) == ("done", 1)
        assert (await sdk.run("helper", body=body("go")))["content"] == "done"


# --- endings ---------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["leave", "leaveHelper"])
async def test_stream_closed_by_the_node_library_ends_its_turn(tmp_path: Path, case: str) -> None:
    async with ModelServer(talkative) as model, served(tmp_path, model) as api, node(api) as sdk:
        if case == "leave":
            found = await sdk.run(case, body=body("hang"))
            assert found == {"text": "so far ", "aborted": True}
        else:
            with pytest.raises(Raised) as error:
                await sdk.run(case, body=body("hang"))
            assert error.value.name == "APIUserAbortError"
        async with asyncio.timeout(8):
            await model.requests[0].closed.wait()
        assert (await sdk.run("chat", body=body("hi")))["content"] == "echo: hi"


@pytest.mark.parametrize("case", ["chat", "stream", "helper"])
async def test_node_library_raises_a_failure_before_the_first_text(
    tmp_path: Path, case: str
) -> None:
    async with (
        ModelServer('S400"too clever"') as model,
        served(tmp_path, model) as api,
        node(api) as sdk,
    ):
        with pytest.raises(Raised, match="too clever") as error:
            await sdk.run(case, retries=2, body=body("go"))
        assert "BadRequestError" in error.value.told["kinds"]
        assert (error.value.status, error.value.code) == (400, "turn_failed")
        assert len(model.requests) == 1  # a header forbids the retry


async def test_node_library_yields_the_text_and_then_raises(tmp_path: Path) -> None:
    script = (CUT, 'S400"not today"')
    async with (
        ModelServer(*script, *script) as model,
        served(tmp_path, model) as api,
        node(api) as sdk,
    ):
        with pytest.raises(Raised, match="not today") as error:
            await sdk.run("stream", body=body("go"))
        assert (error.value.name, error.value.code) == ("APIError", "turn_failed")
        (seen,) = sdk.now
        assert (seen["text"], seen["finish"]) == ("so far ", ["error"])
        with pytest.raises(Raised, match="not today"):
            await sdk.run("helper", body=body("go"))


async def test_node_library_raises_bad_request_error_for_unsupported_requests(
    tmp_path: Path,
) -> None:
    async with ModelServer() as model, served(tmp_path, model) as api, node(api) as sdk:
        with pytest.raises(Raised) as error:
            await sdk.run("chat", body=body("hi", n=2))
        assert (error.value.name, error.value.status) == ("BadRequestError", 400)
        assert (error.value.code, error.value.told["param"]) == ("unsupported_parameter", "n")


# --- pictures and sessions -------------------------------------------------------------------


async def test_picture_of_the_node_library_reaches_the_model(tmp_path: Path) -> None:
    parts = [
        {"type": "text", "text": "what is this?"},
        {"type": "image_url", "image_url": {"url": PNG}},
    ]
    said = {"model": "scripted", "messages": [{"role": "user", "content": parts}]}
    async with (
        ModelServer(ok("A cat.")) as model,
        served(tmp_path, model) as api,
        node(api) as sdk,
    ):
        assert (await sdk.run("chat", body=said))["content"] == "A cat."
        (message,) = await api.kit.asked(1)
        shown = [part for part in message["content"] if part["type"] == "image_url"]
        assert [part["image_url"]["url"] for part in shown] == [PNG]


async def test_node_library_continues_a_session(tmp_path: Path) -> None:
    headers = {"x-holdfast-session": "mine"}
    async with ModelServer(talkative) as model, served(tmp_path, model) as api, node(api) as sdk:
        for text, state in (("one", "new"), ("two", "continued")):
            found = await sdk.run("headers", body=body(text), headers=headers)
            assert found == {"text": f"echo: {text}", "state": state}
        said = [each["content"] for each in await api.kit.asked(2)]
        assert said == ["one", "echo: one", "two"]
