"""Failures of the model service in the classes that API clients act on."""

from pathlib import Path

import openai
import pytest

from tests.e2e.api_kit import served, user
from tests.fakes.agent_kit import Workshop
from tests.fakes.model_script import Script, calls
from tests.fakes.model_server import ModelServer, always

LITELLM = (
    "litellm.BadRequestError: litellm.ContextWindowExceededError: OpenAIException - the prompt does "
    "not fit"
)
VLLM = (
    "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4990 in "
    "the messages, 10 in the completion). Please reduce the length of the messages or completion."
)
LLAMA = "the request exceeds the available context size, try increasing it"
CLASSES: dict[str, tuple[Script, int, str, str | None, str | None]] = {
    "rate limit": (
        'S429:{"retry-after":"0.05"}"slow down"',
        429,
        "rate_limit_exceeded",
        None,
        "1",
    ),
    "litellm": (f'S400"{LITELLM}"', 400, "context_length_exceeded", "false", None),
    "vllm": (f'S400"{VLLM}"', 400, "context_length_exceeded", "false", None),
    "llama.cpp": (f'S400"{LLAMA}"', 400, "context_length_exceeded", "false", None),
    "no credit": ('S402"no money left"', 429, "insufficient_quota", "false", None),
    "quota": ('S429"insufficient_quota"', 429, "insufficient_quota", "false", None),
    "refused": ('S400"not like this"', 400, "turn_failed", "false", None),
    "overloaded": ('S503"too busy"', 503, "turn_failed", "true", None),
    "cut": ("H RST", 503, "turn_failed", "true", None),
}


@pytest.mark.parametrize(
    ("script", "status", "code", "retry", "after"), CLASSES.values(), ids=CLASSES
)
async def test_a_failure_keeps_its_class(
    tmp_path: Path, script: Script, status: int, code: str, retry: str | None, after: str | None
) -> None:
    async with ModelServer(always(script)) as model, served(tmp_path, model) as api:
        for path, body in (
            ("/chat/completions", {"messages": user("hi")}),
            ("/responses", {"input": "hi"}),
        ):
            found, headers, answer = await api.wire.send("POST", path, json=body)
            assert (found, answer["error"]["code"]) == (status, code)
            assert headers.get("x-should-retry") == retry
            assert headers.get("retry-after") == after
            assert headers["x-request-id"].startswith("req_")


async def test_the_sentence_of_the_service_reaches_the_client(tmp_path: Path) -> None:
    async with ModelServer(always('S400"not like this"')) as model, served(tmp_path, model) as api:
        with pytest.raises(openai.BadRequestError, match="not like this") as error:
            await api.chat.create(model="scripted", messages=user("hi"))
        assert error.value.request_id


@pytest.mark.parametrize(
    "words", ["exceeds the context window", "Input tokens exceed the configured limit"]
)
async def test_a_conversation_that_is_too_long_is_named_by_the_words_that_libraries_search(
    tmp_path: Path, words: str
) -> None:
    async with ModelServer(always(f'S400"{VLLM}"')) as model, served(tmp_path, model) as api:
        with pytest.raises(openai.BadRequestError, match=words):
            await api.chat.create(model="scripted", messages=user("hi"))


async def test_a_request_whose_tools_ran_must_not_be_repeated(tmp_path: Path) -> None:
    scripts: tuple[Script, ...] = (
        calls(("c1", "pay", '{"amount": 1}')),
        *(['S503"too busy"'] * 5),
    )
    shop = Workshop()
    async with (
        ModelServer(*scripts) as model,
        served(tmp_path, model, tools=shop.tools()) as api,
    ):
        status, headers, _ = await api.wire.ask("hi")
        assert (status, headers["x-should-retry"], shop.effects) == (503, "false", ["pay 1"])


async def test_half_an_answer_is_an_error_with_its_text(tmp_path: Path) -> None:
    scripts: tuple[Script, ...] = ('H T"so far" RST', *(["H RST"] * 5))
    async with ModelServer(*scripts) as model, served(tmp_path, model) as api:
        status, headers, answer = await api.wire.ask("hi")
        assert (status, headers["x-should-retry"]) == (502, "false")
        assert answer["error"]["partial"] == "so far"


async def test_every_answer_has_a_request_id(tmp_path: Path) -> None:
    async with ModelServer() as model, served(tmp_path, model) as api:
        seen = set()
        for path in ("/models", "/nothing", "/models/unknown"):
            _, headers, _ = await api.wire.send("GET", path)
            seen.add(headers["x-request-id"])
        assert len(seen) == 3
