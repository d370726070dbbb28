import pytest

from agent.model.contract import (
    CallChunk,
    Chunk,
    FinishChunk,
    ModelRequest,
    TextChunk,
    ToolSchema,
    UsageChunk,
)
from agent.providers import demo
from agent.providers.demo import WORD_SECONDS, DemoProvider
from agent.settings import TargetSettings
from sessions.records import Message

CLOCK = (ToolSchema("current_time", "", {}),)


class Pacer:
    def __init__(self) -> None:
        self.waits: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.waits.append(seconds)


async def ask(*rows: Message, tools: tuple[ToolSchema, ...] = ()) -> list[Chunk]:
    async with DemoProvider(Pacer()).stream(
        ModelRequest("demo", "", messages=rows, tools=tools)
    ) as chunks:
        return [chunk async for chunk in chunks]


def text_of(chunks: list[Chunk]) -> str:
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, TextChunk))


def user(text: str) -> Message:
    return Message("user", text)


async def test_the_answer_says_that_it_is_a_demo_and_how_to_add_a_model() -> None:
    said = text_of(await ask(user("hello there")))
    assert "no model behind it" in said
    assert "OPENAI_API_KEY=… make run" in said
    assert '[model]\nprovider = "openai"' in said
    assert "> hello there" in said
    assert "message number 1 " in said
    assert "\n- " in said


async def test_the_answer_counts_the_messages() -> None:
    rows = (user("a"), Message("assistant", "x"), user("b"), Message("assistant", "x"), user("c"))
    assert "message number 3 " in text_of(await ask(*rows))


@pytest.mark.parametrize(
    ("wrote", "shown"),
    [
        ("one\ntwo {braces}", "> one\n> two {braces}"),
        ("[Ann (telegram:1)] hi", "> hi"),
        ("[Your answer above was cut short: stop.]\n\nhi", "> hi"),
        ("  ", "> (nothing)"),
        ("x" * 3000, "> " + "x" * 2000 + "…"),
    ],
)
async def test_the_answer_quotes_the_message(wrote: str, shown: str) -> None:
    assert f"{shown}\n\n" in text_of(await ask(user(wrote)))


async def test_the_answer_streams_word_by_word_at_reading_speed() -> None:
    pacer = Pacer()
    async with DemoProvider(pacer).stream(ModelRequest("demo", "", (user("hi"),))) as chunks:
        words = [chunk async for chunk in chunks if isinstance(chunk, TextChunk)]
    assert len(words) > 40
    assert pacer.waits == [WORD_SECONDS] * len(words)


@pytest.mark.parametrize("wrote", ["What time is it?", "show me a TOOL", "what's the date"])
async def test_a_question_about_the_time_leads_to_a_tool_call(wrote: str) -> None:
    chunks = await ask(user(wrote), tools=CLOCK)
    assert CallChunk(0, None, name="current_time", arguments='{"timezone":"UTC"}') in chunks
    assert FinishChunk("tool_calls") in chunks
    assert "demo" in text_of(chunks)


@pytest.mark.parametrize("tools", [(), (ToolSchema("other", "", {}),)])
async def test_without_the_clock_tool_there_is_no_call(tools: tuple[ToolSchema, ...]) -> None:
    chunks = await ask(user("What time is it?"), tools=tools)
    assert FinishChunk("stop") in chunks
    assert "see a tool call" not in text_of(chunks)


async def test_similar_words_lead_to_no_tool_call() -> None:
    assert FinishChunk("stop") in await ask(user("sometimes I bake"), tools=CLOCK)


async def test_the_answer_contains_the_result_of_the_tool() -> None:
    said = text_of(await ask(user("time?"), Message("tool", "It is noon."), tools=CLOCK))
    assert "It is noon." in said
    assert "no model behind it" in said


async def test_an_empty_conversation_is_answered_and_tokens_are_counted() -> None:
    chunks = await ask()
    assert "> (nothing)" in text_of(chunks)
    (usage,) = (chunk for chunk in chunks if isinstance(chunk, UsageChunk))
    assert usage.input_tokens == 0
    assert usage.output_tokens > 40


async def test_the_provider_is_built_without_settings() -> None:
    provider = demo.build(TargetSettings())
    assert provider.name == "demo"
    await provider.aclose()
