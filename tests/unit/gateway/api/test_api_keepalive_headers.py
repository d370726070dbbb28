"""Headers and white space of answers that take long and are not streamed, in simulated time."""

import asyncio
import json
from typing import Any

import pytest
from starlette.types import Message

from agent.events import TextDelta, TurnDone, TurnEnding
from gateway.http.api.chat.form import ChatEncoder
from gateway.http.api.messages.form import MessagesEncoder
from gateway.http.api.requests import TurnSubscription
from gateway.http.api.responses.form import ResponsesEncoder
from gateway.http.api.stream import AnswerEncoder, AnswerResponse, Keepalive
from gateway.observe.redact import Redactor
from gateway.turns.feed_events import FeedOutcome
from gateway.turns.feeds import Feed
from tests.unit.delivery.simulation import World
from tests.unit.gateway.api.test_api_keepalive import ASKED

TIMES = Keepalive(idle_seconds=15, headers_after=50)
NEVER = Keepalive(idle_seconds=15)
FAILED = TurnDone(ending=TurnEnding.FAILED, text="")


class Response:
    """A response as a client receives it, with times."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.headers_at = 0.0
        self.blanks: list[float] = []
        self.body = b""
        self.is_complete = False
        self.left = asyncio.Event()

    async def receive(self) -> Message:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        now = asyncio.get_running_loop().time()
        if message["type"] == "http.response.start":
            assert not self.status, "a second start"
            self.status, self.headers_at = message["status"], now
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            return
        assert not self.is_complete
        self.body += message["body"]
        self.is_complete = not message.get("more_body", False)
        if not self.is_complete:
            assert message["body"].isspace()
            self.blanks.append(now)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(
    encoder: AnswerEncoder,
    end: float,
    *,
    text: str = "Hello.",
    fails: bool = False,
    keepalive: Keepalive = TIMES,
    path: str = "/v1/chat/completions",
    leaves_at: float = 0.0,
) -> Response:
    """Wait for an answer that ends at this time."""

    async def work(world: World) -> Response:
        feed, response = Feed("o1"), Response()

        async def turn() -> None:
            if text:
                feed.publish(TextDelta(text))
            if leaves_at:
                await asyncio.sleep(leaves_at)
                response.left.set()
                return
            await asyncio.sleep(end)
            if fails:
                feed.set_result(FAILED)
                feed.finish(FeedOutcome.FAILED, "no route to the model")
            feed.finish(FeedOutcome.ANSWERED)

        answer = AnswerResponse(
            subscription=TurnSubscription(
                feed=feed,
                id="a1",
                entry=ASKED,
                created=0,
                model="m",
                session_state="new",
                unsubscribe=lambda: None,
            ),
            encoder=encoder,
            clock=world,
            keepalive=keepalive,
            stream=False,
            redactor=Redactor(),
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(turn())
            await answer({"path": path}, response.receive, response.send)
            assert world.time() == (leaves_at or end)
        return response

    with asyncio.Runner(loop_factory=World) as runner:
        world = runner.get_loop()
        assert isinstance(world, World)
        return runner.run(work(world))


def chat() -> ChatEncoder:
    return ChatEncoder("a1", "m", 0)


@pytest.mark.parametrize(
    ("end", "keepalive", "headers_at", "blanks"),
    [
        pytest.param(49.0, TIMES, 49.0, [], id="short"),
        pytest.param(51.0, TIMES, 50.0, [50.0], id="a second too long"),
        pytest.param(100.0, TIMES, 50.0, [50.0, 65.0, 80.0, 95.0], id="long"),
        pytest.param(100.0, NEVER, 100.0, [], id="switched off"),
    ],
)
def test_a_long_answer_sends_headers_and_blanks(
    end: float, keepalive: Keepalive, headers_at: float, blanks: list[float]
) -> None:
    response = ask(chat(), end, keepalive=keepalive)
    assert (response.status, response.headers_at, response.blanks) == (200, headers_at, blanks)
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-session-state"] == "new"
    assert ("content-length" in response.headers) is not bool(blanks)
    assert response.json["choices"][0]["message"]["content"] == "Hello."
    assert response.is_complete


def test_a_failure_before_the_headers_keeps_its_status() -> None:
    response = ask(chat(), 49, text="", fails=True)
    assert (response.status, response.json["error"]["code"]) == (502, "turn_failed")


@pytest.mark.parametrize("text", ["", "So far"])
def test_a_failure_after_the_headers_is_the_body(text: str) -> None:
    response = ask(chat(), 51, text=text, fails=True)
    assert response.status == 200
    assert response.json["error"]["code"] == "turn_failed"
    assert response.json["error"].get("partial") == (text or None)
    assert "choices" not in response.json


def test_a_late_failure_of_anthropics_endpoint_has_its_shape() -> None:
    encoder = MessagesEncoder("a1", "m")
    response = ask(encoder, 51, text="", fails=True, path="/v1/messages")
    assert (response.status, response.json["type"]) == (200, "error")


def test_a_late_failure_of_a_response_is_a_failed_response() -> None:
    encoder = ResponsesEncoder("resp_1", "m", 0, b"")
    response = ask(encoder, 51, text="", fails=True, path="/v1/responses")
    assert (response.status, response.json["status"]) == (200, "failed")
    assert "no route" in response.json["error"]["message"]
    early = ask(ResponsesEncoder("resp_1", "m", 0, b""), 49, text="", fails=True)
    assert early.status == 502


@pytest.mark.parametrize("outcome", [FeedOutcome.INTERRUPTED, FeedOutcome.NOT_STARTED])
def test_a_stream_in_the_background_does_not_end_with_the_process(outcome: FeedOutcome) -> None:
    feed, received = Feed("o1"), []

    async def work(world: World) -> None:
        async def send(message: Message) -> None:
            received.append(message)

        feed.publish(TextDelta("So far"))
        feed.publish(TextDelta(" so good"))
        feed.finish(outcome)
        answer = AnswerResponse(
            subscription=TurnSubscription(
                feed=feed,
                id="a1",
                entry=ASKED,
                created=0,
                model="m",
                session_state="",
                unsubscribe=lambda: None,
            ),
            encoder=ResponsesEncoder("resp_1", "m", 0, b""),
            clock=world,
            keepalive=TIMES,
            stream=True,
            in_background=True,
            redactor=Redactor(),
        )
        await answer({"path": "/v1/responses"}, asyncio.Event().wait, send)  # type: ignore[arg-type]

    with asyncio.Runner(loop_factory=World) as runner:
        world = runner.get_loop()
        assert isinstance(world, World)
        runner.run(work(world))
    sent = b"".join(message.get("body", b"") for message in received)
    assert b"[DONE]" not in sent
    assert b"response.failed" not in sent
    assert not received[-1].get("more_body")


def test_an_end_of_the_process_after_the_headers_is_an_error_in_the_body() -> None:
    response = ask(chat(), 99, leaves_at=60)
    assert (response.status, response.json["error"]["code"]) == (200, "interrupted")
