"""Whole turns, against scripted model servers."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.events import (
    AgentEvent,
    Ending,
    Notice,
    ReasoningReplaced,
    StepDone,
    TextDelta,
    TextReplaced,
    ToolStarted,
    TurnDone,
)
from agent.experience import Experience, Learned
from agent.loop import run_turn
from agent.providers.registry import Target
from agent.settings import PriceSettings
from agent.spend import Usage
from agent.thoughts import Thoughts, read_thoughts
from agent.tools.contract import Risk, Tool, ToolContext
from agent.tools.define import tool
from agent.tools.files.writing import write_file, write_file_continue
from agent.tools.registry import ToolRegistry
from agent.tools.run import Approve
from agent.turn import Means, TurnLimits, TurnTask
from sessions.records import Message, ToolCall, ToolRun
from tests.fakes.agent_kit import (
    SCALED,
    LoopClock,
    MemoryJournal,
    Workshop,
    drafts_in,
    learned_of,
    openai_target,
)
from tests.fakes.model_script import Event, Script, body_of, call_delta, calls, cut, ok, steps, text
from tests.fakes.model_server import Handler, ModelServer, always

pytestmark = pytest.mark.quick

CLOCKS = msgspec.structs.replace(
    SCALED,
    first_token=0.5,
    gap_text=0.3,
    gap_tool=0.3,
    gap_reasoning=0.3,
    notice_after=12.0,  # a recovery is told of after a sixth of this
    backoff=0.01,
)
GO = Message("user", "go")


class Clock(LoopClock):
    """The loop's time, and as much more as a test wants."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


@tool(risk=Risk.WRITE, grows="text")
async def note(_context: ToolContext, text: str) -> str:
    """Take a note.

    Args:
        _context: Not part of the call.
        text: What to remember.
    """
    return f"noted {len(text)}"


class Stage:
    """One turn: what it was given, what it told, what it wrote down."""

    def __init__(self, folder: Path, *scripts: Script | Handler) -> None:
        self.servers = [ModelServer(*scripts)]
        self.settings: dict[str, Any] = {}  # of the first target, over the usual ones
        self.task: dict[str, Any] = {}  # the same of the task
        self.folder = folder
        self.shop = Workshop()
        self.more_tools: tuple[Tool, ...] = (note,)
        self.journal = MemoryJournal()
        self.experience = Experience()
        self.drafts = drafts_in(folder)
        self.clock = Clock()
        self.events: list[AgentEvent] = []
        self.steered: list[tuple[Message, ...]] = []
        self.limits = TurnLimits(max_steps=5, tool_timeout=1.0)
        self.randomness = lambda: 1.0
        self.approve: Approve | None = None
        self.text_shown = asyncio.Event()
        self.told = asyncio.Event()
        self.targets: list[Target] = []

    @property
    def server(self) -> ModelServer:
        return self.servers[0]

    async def fallback(self, *scripts: Script | Handler) -> ModelServer:
        """Another model that takes over."""
        server = ModelServer(*scripts)
        await server.__aenter__()
        self.servers.append(server)
        return server

    def target(self, number: int = 0) -> Target:
        if not self.targets:
            for server, model in zip(self.servers, ("scripted", "second", "third"), strict=False):
                made = openai_target(server.url, CLOCKS)
                self.targets.append(msgspec.structs.replace(made, model=model))
            first = self.targets[0]
            settings = msgspec.structs.replace(first.settings, **self.settings)
            self.targets[0] = msgspec.structs.replace(first, settings=settings)
        return self.targets[number]

    def learned(self, number: int = 0) -> Learned:
        return learned_of(self.experience, self.target(number))

    async def run(self, *history: Message) -> TurnDone:
        self.target()
        task = TurnTask(
            turn_id="t1",
            session_id="s1",
            system="Be kind.",
            history=history or (GO,),
            workspace=self.folder,
            notes=("Note.",),
        )
        async with asyncio.timeout(10):
            return await run_turn(
                msgspec.structs.replace(task, **self.task),
                Means(
                    targets=self.targets,
                    tools=ToolRegistry((*self.shop.tools(), *self.more_tools)),
                    journal=self.journal,
                    clock=self.clock,
                    emit=self._emit,
                    steers=self._steers,
                    experience=self.experience,
                    drafts=self.drafts,
                    approve=self.approve,
                    limits=self.limits,
                    randomness=self.randomness,
                ),
            )

    def _emit(self, event: AgentEvent) -> None:
        self.events.append(event)
        if isinstance(event, TextDelta):
            self.text_shown.set()
        if isinstance(event, Notice):
            self.told.set()

    async def _steers(self) -> tuple[Message, ...]:
        return self.steered.pop(0) if self.steered else ()

    @property
    def shown(self) -> str:
        """The text as a person sees it, steps without a mark between them."""
        shown = ""
        for event in self.events:
            if isinstance(event, TextDelta):
                shown += event.text
            elif isinstance(event, TextReplaced):
                shown = event.text
        return shown

    @property
    def notices(self) -> list[str]:
        return [event.id for event in self.events if isinstance(event, Notice)]

    def notice(self, notice: str) -> dict[str, str | int]:
        """The fields of the one notice of this kind."""
        (fields,) = [e.fields for e in self.events if isinstance(e, Notice) and e.id == notice]
        return fields

    def sent(self, number: int) -> list[dict[str, Any]]:
        """The messages of a request to the first model."""
        messages: list[dict[str, Any]] = self.server.requests[number - 1].body["messages"]
        return messages

    def asked(self, number: int) -> str:
        """The last message of that request."""
        said: str = self.sent(number)[-1]["content"]
        return said

    def offered(self, number: int) -> dict[str, Any]:
        """The tools of that request, by name."""
        tools = self.server.requests[number - 1].body.get("tools", [])
        return {each["function"]["name"]: each["function"]["parameters"] for each in tools}


class Play:
    """Makes stages, and closes what they opened."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stages: list[Stage] = []

    async def __call__(self, *scripts: Script | Handler) -> Stage:
        stage = Stage(self.folder, *scripts)
        await stage.server.__aenter__()
        self.stages.append(stage)
        return stage


@pytest.fixture
async def play(tmp_path: Path) -> AsyncIterator[Play]:
    stages = Play(tmp_path)
    yield stages
    for stage in stages.stages:
        for target in stage.targets:
            await target.provider.aclose()
        for server in stage.servers:
            await server.__aexit__(None, None, None)


READ_A = ("c1", "read", '{"path":"a"}')
PAY = ("c2", "pay", '{"amount":5}')
LOST_PAY = "C(0,c1,pay,'{\"amount\": 1')"


def lost_note(size: int, call_id: str = "c1") -> Script:
    """A long call that breaks off."""
    return (*steps("H"), call_delta(0, call_id, "note", '{"text":"' + "x" * size), *steps("RST"))


def lost_file(content: str, *, path: str = "a.txt", after: str = "RST") -> Script:
    """The beginning of a file; the rest does not arrive."""
    arguments = json.dumps({"path": path, "content": content})[:-2]
    return (*steps("H"), call_delta(0, "c1", "write_file", arguments), *steps(after))


# --- turns in which nothing goes wrong --------------------------------------------------------------


async def test_a_plain_answer_ends_the_turn(play: Play) -> None:
    stage = await play('H T"Hel" T"lo" F stop U D')
    done = await stage.run()
    assert done == TurnDone(
        Ending.ANSWERED,
        "Hello",
        message=Message("assistant", "Hello"),
        tries=1,
        usage=Usage(10, 5),
        last="complete",
    )
    assert stage.events == [TextDelta("Hel"), TextDelta("lo")]
    assert stage.journal.log == ["attempt 1 openai/scripted", "attempt 1 complete"]
    assert stage.journal.rows == []
    assert stage.sent(1) == [
        {"role": "system", "content": "Be kind.\n\n[Note.]"},
        {"role": "user", "content": "go"},
    ]
    assert set(stage.offered(1)) == {tool.name for tool in (*stage.shop.tools(), note)}


async def test_the_target_s_settings_go_with_the_request(play: Play) -> None:
    stage = await play(ok("done"))
    stage.settings = {"max_output_tokens": 50, "temperature": 0.1, "reasoning_effort": "low"}
    await stage.run()
    body = stage.server.requests[0].body
    assert stage.server.requests[0].max_tokens == 50
    assert (body["model"], body["temperature"], body["stream"]) == ("scripted", 0.1, True)
    assert body["reasoning_effort"] == "low"


async def test_a_summary_of_what_came_before_stands_in_front(play: Play) -> None:
    stage = await play(ok("done"))
    stage.task = {"summary": "They like tea."}
    await stage.run(Message("user", "a"), Message("assistant", "b"), GO)
    assert [message["role"] for message in stage.sent(1)[1:]] == ["user", "assistant", "user"]
    assert "They like tea." in stage.sent(1)[1]["content"]


async def test_tools_run_between_steps_and_their_rows_go_back_exactly(play: Play) -> None:
    stage = await play(
        'H T"Let me see." C(0,c1,read,{"path": "a"}) C(1,c2,pay,{"amount":5}) F tool_calls U D',
        ok("done"),
    )
    done = await stage.run()
    assert (done.ending, done.text, done.tries) == (Ending.ANSWERED, "done", 2)
    assert done.tools == ("read a", "pay 5")
    assert done.usage == Usage(20, 10)
    assert done.message == Message("assistant", "done")
    assert stage.journal.log == [
        "attempt 1 openai/scripted",
        "attempt 1 complete",
        "step",
        "started c1 read",
        "finished c1 ok",
        "started c2 write",
        "finished c2 ok",
        "attempt 2 openai/scripted",
        "attempt 2 complete",
    ]
    first, *results = stage.journal.rows
    assert first.content == "Let me see."
    assert [call.arguments for call in first.tool_calls] == ['{"path": "a"}', '{"amount":5}']
    assert [row.content for row in results] == ["content of a", "paid 5"]
    assert stage.shop.keys == ["s1:t1:c2"]
    roles = [message["role"] for message in stage.sent(2)]
    assert roles == ["system", "user", "assistant", "tool", "tool"]
    assert stage.sent(2)[2]["tool_calls"][0]["function"]["arguments"] == '{"path": "a"}'
    kinds = [type(event) for event in stage.events]
    assert kinds.index(StepDone) < kinds.index(ToolStarted)


async def test_the_journal_hears_which_request_brought_a_call_and_which_say_the_same(
    play: Play,
) -> None:
    stage = await play("S500", calls(READ_A), "H RST", calls(PAY), ok("done"))
    await stage.run()
    assert stage.journal.brought == {"c1": 2, "c2": 4}
    hashes = [each.request_hash for each in stage.journal.attempts if each]
    assert hashes[0] == hashes[1]  # the very same, once more
    assert hashes[2] == hashes[3]
    assert len(set(hashes)) == 3
    assert {len(each) for each in hashes} == {32}


async def test_what_the_model_thought_goes_into_the_row_of_its_answer(play: Play) -> None:
    stage = await play(
        'H R"look first" C(0,c1,read,{"path":"a"}) F tool_calls D', 'H R"seen" T"done" F stop D'
    )
    done = await stage.run()
    assert done.message is not None
    thoughts = [
        read_thoughts(r.reasoning, "openai/scripted") for r in (stage.journal.rows[0], done.message)
    ]
    assert thoughts == [
        Thoughts("openai/scripted", "look first"),
        Thoughts("openai/scripted", "seen"),
    ]


async def test_a_price_makes_the_turn_s_cost(play: Play) -> None:
    stage = await play(calls(READ_A), ok("done"))
    stage.settings = {"price": PriceSettings(input=1.0, output=2.0)}
    done = await stage.run()
    assert done.usage.cost == pytest.approx((20 * 1.0 + 10 * 2.0) / 1_000_000)


async def test_steering_reaches_the_model_after_the_next_tool_result(play: Play) -> None:
    stage = await play(calls(READ_A), ok("done"))
    stage.steered = [(Message("user", "and hurry"),)]
    await stage.run()
    assert [message["role"] for message in stage.sent(2)][-2:] == ["tool", "user"]
    assert stage.asked(2) == "and hurry"


async def test_calls_without_an_id_get_one_that_no_other_call_has(play: Play) -> None:
    stage = await play(
        'H C(0,-,read,{"path":"a"}) F tool_calls D',
        'H C(0,-,read,{"path":"b"}) F tool_calls D',
        ok("done"),
    )
    await stage.run()
    ids = [row.tool_call_id for row in stage.journal.rows if row.role == "tool"]
    assert ids == ["call_t1_1_0", "call_t1_2_0"]


async def test_an_id_that_the_history_holds_is_not_used_again(play: Play) -> None:
    stage = await play(calls(READ_A), calls(READ_A), ok("done"))
    await stage.run()
    ids = [row.tool_call_id for row in stage.journal.rows if row.role == "tool"]
    assert ids == ["c1", "c1_2"]


async def test_a_model_that_only_makes_calls_which_cannot_run_is_stopped(play: Play) -> None:
    stage = await play(always(calls(("", "zzz", "{}"))))
    done = await stage.run()
    assert (done.ending, done.tries) == (Ending.FAILED, 3)
    assert "tool calls that cannot be carried out" in done.cause
    assert done.message is None


async def test_one_call_that_runs_gives_the_model_all_its_patience_back(play: Play) -> None:
    wrong = calls(("", "zzz", "{}"))
    stage = await play(wrong, wrong, calls(READ_A), wrong, ok("done"))
    assert (await stage.run()).text == "done"


# --- the end of the steps ------------------------------------------------------------------------------


async def test_the_last_step_asks_for_a_summary_without_tools(play: Play) -> None:
    def insatiable(body: dict[str, Any]) -> Script:
        if "tools" not in body:
            return ok("this is how far I came")
        return calls(("", "read", f'{{"path":"{len(body["messages"])}"}}'))

    stage = await play(insatiable)
    done = await stage.run()
    assert (done.ending, done.text, done.tries) == (Ending.ANSWERED, "this is how far I came", 6)
    assert len(stage.shop.effects) == 5
    assert "used all your steps" in stage.asked(6)
    assert all("used all your steps" not in row.content for row in stage.journal.rows)


@pytest.mark.parametrize(
    ("last", "ending", "words"),
    [
        (calls(READ_A), Ending.FAILED, "used up all its steps"),
        ('H T"so far" C(0,c9,read,{"path":"z"}) F tool_calls D', Ending.ANSWERED, ""),
        ("S400", Ending.FAILED, "refused"),
    ],
)
async def test_calls_in_the_summary_do_not_count(
    play: Play, last: Script, ending: Ending, words: str
) -> None:
    stage = await play(calls(READ_A), last)
    stage.limits = TurnLimits(max_steps=1)
    done = await stage.run()
    assert done.ending is ending
    assert words in done.cause
    assert stage.shop.effects == ["read a"]


# --- asking again ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "first",
    [
        pytest.param("RST", id="reset before headers"),
        pytest.param("H RST", id="reset after headers"),
        pytest.param("H EOF", id="empty body"),
        pytest.param('H R"hm" RST', id="reset while thinking"),
        pytest.param(f"H {LOST_PAY} RST", id="half a call"),
        pytest.param("H C(0,c1,pay,-) EOF", id="only a name"),
        pytest.param("S500", id="server error"),
        pytest.param('S429:{"retry-after":"0.01"}', id="slow down"),
        pytest.param("H F stop D", id="empty answer"),
        pytest.param("H HANG", id="silence"),
    ],
)
async def test_trouble_before_any_text_is_tried_again_and_nothing_runs(
    play: Play, first: str
) -> None:
    stage = await play(first, ok("done"))
    done = await stage.run()
    assert (done.ending, done.text, done.tries) == (Ending.ANSWERED, "done", 2)
    assert stage.shop.effects == []
    assert stage.journal.rows == []
    assert stage.server.requests[0].body == stage.server.requests[1].body


async def test_an_answer_of_nothing_but_blanks_is_no_answer(play: Play) -> None:
    stage = await play('H T"\\n\\n" F stop D', ok("done"))
    done = await stage.run()
    assert (done.text.strip(), done.tries) == ("done", 2)
    assert stage.server.requests[0].body == stage.server.requests[1].body


async def test_after_two_repeats_the_turn_ends_with_the_cause(play: Play) -> None:
    stage = await play(always("H RST"))
    done = await stage.run()
    assert (done.ending, done.text, done.message, done.tries) == (Ending.FAILED, "", None, 3)
    assert (done.cause, done.notice) == ("connection drops on the way to the model", "N7")
    assert done.tell_operator  # nobody gets an answer
    assert stage.journal.verdicts == ["cut", "cut", "cut"]


@pytest.mark.parametrize(
    ("script", "words", "tell"),
    [
        ("S400", "refused the request (scripted error)", False),
        ("S401", "key", True),
        ("S402", "account", True),
        ('S429:{"retry-after":"601"}', "slow down", False),
        ('H J{"error":{"message":"x","code":"context_length_exceeded"}}', "too long", False),
    ],
)
async def test_what_would_fail_again_is_not_tried_again(
    play: Play, script: str, words: str, tell: bool
) -> None:
    stage = await play(script)
    done = await stage.run()
    assert (done.ending, done.tries, done.tell_operator) == (Ending.FAILED, 1, tell)
    assert words in done.cause


async def test_a_model_that_declines_is_quoted(play: Play) -> None:
    stage = await play('H T"I will not." F content_filter D')
    done = await stage.run()
    assert (done.ending, done.notice, done.cause) == (Ending.FAILED, "N9", "I will not.")
    assert done.message == Message(
        "assistant", "I will not.", interrupted="the model declined to answer"
    )


async def test_a_model_that_declines_without_a_word_says_so(play: Play) -> None:
    done = await (await play("H F content_filter D")).run()
    assert (done.notice, done.cause, done.message) == ("N9", "it gave no reason", None)


@pytest.mark.parametrize(
    ("first", "follow", "text", "cause", "tries"),
    [
        pytest.param('H T"The quick " RST', "H RST", "The quick ", "connection drops", 3, id="cut"),
        pytest.param('H T"The quick " HANG', "S401", "The quick ", "key", 2, id="silence"),
        pytest.param(
            'H T"The quick " F length D', 'H T"x" F length D', "The quick x",
            "output limit", 3, id="limit",
        ),
        pytest.param(
            f'H T"Paying. " {LOST_PAY} RST', "S401", "Paying. ", "key", 2, id="half a call"
        ),
    ],
)  # fmt: skip
async def test_what_was_shown_is_kept_when_nothing_follows(
    play: Play, first: str, follow: str, text: str, cause: str, tries: int
) -> None:
    stage = await play(first, *[follow] * 4)
    done = await stage.run()
    assert (done.ending, done.text, done.tries) == (Ending.FAILED, text, tries)
    assert stage.shown == text
    assert cause in done.cause
    assert done.message == Message("assistant", text, interrupted=done.cause)
    assert stage.shop.effects == []


async def test_waits_are_spread_unless_the_service_named_them(play: Play) -> None:
    """Half of a wait is left to chance."""
    told = 'S429:{"retry-after":"0.3"}'
    for script, least, most in (("S500", 0.15, 0.28), (told, 0.3, 0.45)):
        stage = await play(script, ok("done"))
        stage.settings = {"timeouts": msgspec.structs.replace(CLOCKS, backoff=0.3)}
        stage.randomness = lambda: 0.0
        await stage.run()
        first, second = stage.server.requests
        assert least <= round(second.at - first.at, 6) < most


# --- a text that broke off ------------------------------------------------------------------------------


COUNTED = Event(
    b'{"choices":[{"index":0,"delta":{}}],"usage":{"prompt_tokens":10,"completion_tokens":3}}'
)
"""Some services count with every piece."""


async def test_a_text_that_broke_off_is_carried_on_to_the_letter(play: Play) -> None:
    stage = await play(
        (*steps('H T"The quick brown "'), COUNTED, *steps("RST")),
        'H T"The quick brown fox jumps." F stop U(4) D',
    )
    done = await stage.run()
    assert (done.text, done.tries) == ("The quick brown fox jumps.", 2)
    assert done.usage == Usage(20, 7)
    assert stage.events == [TextDelta("The quick brown "), TextDelta("fox jumps.")]
    assert stage.sent(2)[:-1] == [
        *stage.sent(1),
        {"role": "assistant", "content": "The quick brown "},
    ]
    assert "«The quick brown »" in stage.asked(2)
    assert "network" in stage.asked(2)
    assert "length limit" not in stage.asked(2)
    assert stage.journal.verdicts == ["cut", "complete"]


async def test_a_text_that_met_the_limit_is_carried_on_with_a_higher_one(play: Play) -> None:
    stage = await play('H T"One, " F length D', 'H T"One, two, " F length D', ok("three."))
    stage.settings = {"max_output_tokens": 100}
    done = await stage.run()
    assert done.text == "One, two, three."
    assert [request.max_tokens for request in stage.server.requests] == [100, 200, 400]
    for number in (2, 3):
        assert "output length limit" in stage.asked(number)
        assert "network" not in stage.asked(number)


async def test_without_a_limit_of_ours_it_is_raised_from_what_was_used(play: Play) -> None:
    stage = await play('H T"One, " F length U(5000) D', ok("two."))
    await stage.run()
    assert [request.max_tokens for request in stage.server.requests] == [None, 10_000]


async def test_a_raised_limit_ends_with_its_step(play: Play) -> None:
    stage = await play('H T"One " F length D', calls(READ_A), ok("done"))
    stage.settings = {"max_output_tokens": 100}
    await stage.run()
    assert [request.max_tokens for request in stage.server.requests] == [100, 200, 100]


async def test_a_limit_that_is_more_than_the_model_gives_is_lowered(play: Play) -> None:
    stage = await play(
        'S400"max_tokens is too large: 9999. This model supports at most 4096 completion tokens"',
        ok("done"),
    )
    stage.settings = {"max_output_tokens": 9999}
    done = await stage.run()
    assert (done.text, done.tries) == ("done", 2)
    assert [request.max_tokens for request in stage.server.requests] == [9999, 4096]


async def test_a_limit_without_a_number_is_halved(play: Play) -> None:
    stage = await play('S400"max_tokens is too large"', ok("done"))
    stage.settings = {"max_output_tokens": 9998}
    await stage.run()
    assert [request.max_tokens for request in stage.server.requests] == [9998, 4999]


async def test_a_model_that_begins_anew_is_not_shown_twice(play: Play) -> None:
    old = "It was the best of times, it was the worst of times, it was the age of "
    stage = await play(f'H T"{old}" RST', f'H T"{old}" T"wisdom." F stop D')
    done = await stage.run()
    assert done.text == stage.shown == f"{old}wisdom."


async def test_thoughts_begin_anew_with_each_request(play: Play) -> None:
    stage = await play('H R"think" RST', 'H R"again" T"42" F stop D')
    done = await stage.run()
    kinds = [type(event).__name__ for event in stage.events]
    assert kinds == ["ReasoningDelta", "ReasoningReplaced", "ReasoningDelta", "TextDelta"]
    assert ReasoningReplaced() in stage.events
    assert done.message is not None
    assert read_thoughts(done.message.reasoning, "openai/scripted") == Thoughts(
        "openai/scripted", "again"
    )


async def test_a_model_that_thinks_to_no_end_is_asked_to_think_less(play: Play) -> None:
    stage = await play('H R"hm" F length D', ok("done"))
    stage.settings = {"max_output_tokens": 100, "reasoning_effort": "medium"}
    assert (await stage.run()).text == "done"
    sent = [(r.body["reasoning_effort"], r.max_tokens) for r in stage.server.requests]
    assert sent == [("medium", 100), ("low", 200)]


async def test_a_model_that_thinks_to_no_end_twice_is_given_up(play: Play) -> None:
    stage = await play(always('H R"hm" F length D'))
    done = await stage.run()
    assert (done.notice, done.tries) == ("N8", 2)


async def test_after_tools_a_silent_model_is_told_that_an_answer_is_missing(play: Play) -> None:
    stage = await play(calls(READ_A), "H F stop D", "H F stop D", ok("done"))
    done = await stage.run()
    assert (done.text, done.tries) == ("done", 4)
    assert stage.sent(2) == stage.sent(3)
    assert "empty" in stage.asked(4)


async def test_text_that_repeats_itself_is_taken_back(play: Play) -> None:
    block = "".join(chr(97 + at * 7 % 26) for at in range(120)) + " end. "
    stage = await play(
        (*steps("H"), *[text(block)] * 200, *steps("HANG")),
        'H T"Then it was over." F stop D',
    )
    done = await stage.run()
    assert done.text == stage.shown == "Then it was over."
    assert any(isinstance(event, TextReplaced) for event in stage.events)
    assert "repeat the same words" in stage.asked(2)
    assert block not in json.dumps(stage.sent(2))


# --- services that do not stream -----------------------------------------------------------------------


async def test_a_service_that_cannot_stream_is_asked_for_whole_answers(play: Play) -> None:
    stage = await play('S400"Streaming is not supported by this model"', calls(READ_A), ok("done"))
    done = await stage.run()
    assert (done.text, done.tries) == ("done", 3)
    assert [request.stream for request in stage.server.requests] == [True, False, False]
    assert not stage.learned().streams(stage.clock.monotonic())


async def test_what_is_known_of_a_service_holds_for_the_next_turn(play: Play) -> None:
    stage = await play(ok("done"))
    stage.learned().cannot_stream(stage.clock.monotonic())
    assert (await stage.run()).text == "done"
    assert [request.stream for request in stage.server.requests] == [False]


async def test_an_end_without_a_word_is_asked_after_until_it_is_known(play: Play) -> None:
    bare = 'H T"All is well here." EOF'
    stage = await play(*[bare] * 9)
    tries = []
    for _ in range(3):
        done = await stage.run()
        assert done.text == "All is well here."
        tries.append(done.tries)
    assert tries == [2, 2, 1]


async def test_a_last_word_once_heard_is_waited_for_again(play: Play) -> None:
    bare = 'H T"All is well here." EOF'
    stage = await play(bare, bare, ok("done"), *[bare] * 4)
    assert [(await stage.run()).tries for _ in range(4)] == [2, 1, 2, 2]


# --- calls that were cut off ----------------------------------------------------------------------------


async def test_a_long_call_that_broke_off_is_asked_for_in_smaller_parts(play: Play) -> None:
    stage = await play(lost_note(3000), calls(("c1", "note", '{"text":"part"}')), ok("done"))
    done = await stage.run()
    assert (done.text, done.tools) == ("done", ("note",))
    asked = stage.asked(2)
    assert "`note` (cut off after 3,009 bytes received)" in asked
    assert "has not run" in asked
    assert "8K tokens" in asked
    assert "maxLength" not in stage.offered(2)["note"]["properties"]["text"]
    assert stage.notices == ["N4"]
    assert stage.notice("N4") == {"tool": "note"}
    assert stage.sent(3)[1:2] == [{"role": "user", "content": "go"}]
    assert "xxx" not in json.dumps(stage.sent(3))


async def test_a_short_call_that_broke_off_is_told_as_not_run_too(play: Play) -> None:
    stage = await play(f"H {LOST_PAY} RST", calls(PAY), ok("done"))
    await stage.run()
    assert stage.notices == ["N4"]
    assert stage.shop.effects == ["pay 5"]


async def test_each_loss_asks_for_half_until_the_tool_is_held_back(play: Play) -> None:
    stage = await play(*[lost_note(3000)] * 4, 'H T"I could not note it." F stop D')
    done = await stage.run()
    assert (done.ending, done.text, done.tries) == (Ending.ANSWERED, "I could not note it.", 5)
    limits = [f"{limit}K tokens" in stage.asked(at) for at, limit in ((2, 8), (3, 4), (4, 2))]
    assert all(limits)
    longest = [stage.offered(at)["note"]["properties"]["text"].get("maxLength") for at in (2, 3, 4)]
    assert longest == [None, 6000, 6000]
    assert "maxLength" not in json.dumps(stage.offered(4)["pay"])
    assert "note" not in stage.offered(5)
    assert "pay" in stage.offered(5)
    assert "`note` cannot be used" in stage.asked(5)


async def test_a_tool_that_is_lost_once_more_ends_the_turn(play: Play) -> None:
    stage = await play(always(lost_note(3000)))
    done = await stage.run()
    assert (done.ending, done.tries) == (Ending.FAILED, 5)


async def test_a_call_that_met_the_limit_is_asked_for_in_parts_at_once(play: Play) -> None:
    stage = await play(f"H {LOST_PAY} F tool_calls U(100) D", ok("done"))
    stage.settings = {"max_output_tokens": 100}
    await stage.run()
    assert [request.max_tokens for request in stage.server.requests] == [100, 200]
    assert "smaller calls" in stage.asked(2)


async def test_a_call_that_nothing_proves_is_asked_for_again(play: Play) -> None:
    stage = await play('H C(0,c1,pay,{"amount":5}) EOF', calls(PAY), ok("done"))
    done = await stage.run()
    assert (done.text, stage.shop.effects) == ("done", ["pay 5"])
    assert "`pay`; it has not run" in stage.asked(2)
    assert [message["role"] for message in stage.sent(2)] == ["system", "user"]
    assert "smaller" not in stage.asked(2)
    assert stage.notices == []


async def test_a_whole_call_that_changes_nothing_runs_although_nothing_proves_it(
    play: Play,
) -> None:
    stage = await play('H C(0,c1,read,{"path":"a"}) EOF', ok("done"))
    assert (await stage.run()).text == "done"
    assert stage.shop.effects == ["read a"]
    assert len(stage.server.requests) == 2


async def test_what_came_whole_runs_and_only_what_was_lost_is_reported(play: Play) -> None:
    first = (
        *steps('H T"Both. " C(0,c1,read,{"path":"a"}) C(1,c2,pay,{"amount":5})'),
        call_delta(2, "c3", "note", '{"text":"' + "x" * 3000),
        *steps("RST"),
    )
    stage = await play(first, calls(("c4", "note", '{"text":"x"}')), ok("done"))
    done = await stage.run()
    assert (done.text, done.tries) == ("done", 3)
    assert stage.shop.effects == ["read a", "pay 5"]
    assert stage.notices == ["N4"]
    roles = [message["role"] for message in stage.sent(2)]
    assert roles == ["system", "user", "assistant", "tool", "tool", "user"]
    assert [call["id"] for call in stage.sent(2)[2]["tool_calls"]] == ["c1", "c2"]
    assert "`note`" in stage.asked(2)
    assert "read (c1), pay (c2)" in stage.asked(2)
    assert [message["role"] for message in stage.sent(3)][-2:] == ["assistant", "tool"]


async def test_after_a_loss_what_was_done_is_not_done_again(play: Play) -> None:
    first = (
        *steps('H C(0,c1,pay,{"amount":5})'),
        call_delta(1, "c2", "note", '{"text":"' + "x" * 3000),
        *steps("RST"),
    )
    again = ("c3", "pay", '{"amount": 5}')
    stage = await play(first, calls(again), calls(("c4", "pay", '{"amount": 5}')), ok("done"))
    await stage.run()
    assert stage.shop.effects == ["pay 5", "pay 5"]  # the third is a decision, no repeat
    answered = [row.content for row in stage.journal.rows if row.tool_call_id == "c3"]
    assert answered[0].startswith("already done in this turn (call c1)")


async def test_after_a_dropped_request_what_was_done_is_not_done_again(play: Play) -> None:
    stage = await play(calls(PAY), "H RST", calls(("c9", "pay", '{"amount": 5}')), ok("done"))
    await stage.run()
    assert stage.shop.effects == ["pay 5"]


async def test_text_is_not_asked_for_again_with_a_lost_call(play: Play) -> None:
    stage = await play(f'H T"I pay. " {LOST_PAY} RST', calls(PAY), ok("done"))
    await stage.run()
    assert stage.sent(2)[-2] == {"role": "assistant", "content": "I pay. "}
    assert "repeating its last words, «I pay. »" in stage.asked(2)
    assert stage.shown == "I pay. done"
    assert [row.content for row in stage.journal.rows if row.role == "assistant"] == ["I pay. "]


async def test_every_cut_of_an_answer_with_a_payment_pays_at_most_once(play: Play) -> None:
    whole = 'H T"ok" C(0,c1,pay,{"amount":5}) F tool_calls U D'
    for after in range(0, len(body_of(whole)), 17):
        for ending in ("RST", "EOF"):
            stage = await play(cut(whole, after, ending), *[ok("done")] * 3)
            done = await stage.run()
            assert stage.shop.effects in ([], ["pay 5"]), (after, ending)
            assert done.ending is Ending.ANSWERED, (after, ending)
            assert done.text.endswith("done")


# --- files that were cut off ----------------------------------------------------------------------------


async def test_the_beginning_of_a_file_is_kept_and_finished(play: Play) -> None:
    def go_on(body: dict[str, Any]) -> Script:
        last = body["messages"][-1]
        if last["role"] == "tool":
            return ok("done")
        if "draft" not in last["content"]:
            return lost_file("line one\nline two")
        draft = last["content"].partition('draft_id "')[2].partition('"')[0]
        rest = json.dumps({"draft_id": draft, "content": "\nline three", "final": True})
        return calls(("c2", "write_file_continue", rest))

    stage = await play(go_on)
    stage.more_tools = (write_file, write_file_continue)
    done = await stage.run()
    assert (done.text, done.drafts) == ("done", ())
    assert (stage.folder / "a.txt").read_text() == "line one\nline two\nline three"
    assert stage.notices == ["N4", "N13"]
    assert stage.notice("N13") == {"n": 2, "path": "a.txt"}
    assert "«line one\nline two»" in stage.asked(2)


async def test_files_that_were_not_finished_are_named_at_the_end(play: Play) -> None:
    stage = await play(lost_file("line one\nline two"), "S401")
    stage.more_tools = (write_file, write_file_continue)
    done = await stage.run()
    (kept,) = await stage.drafts.kept()
    assert done.drafts == (f"a.txt (17 characters, {kept.id})",)
    assert not (stage.folder / "a.txt").exists()


async def test_a_file_that_grew_meanwhile_is_told_of_as_it_is_now(play: Play) -> None:
    """The end of it that the model is shown is where it has to go on."""

    def go_on(body: dict[str, Any]) -> Script:
        last = body["messages"][-1]
        if last["role"] == "tool":
            return lost_note(3000)
        if "`note`" in last["content"]:
            return "S401"
        if "draft" not in last["content"]:
            return lost_file("line one")
        draft = last["content"].partition('draft_id "')[2].partition('"')[0]
        part = json.dumps({"draft_id": draft, "content": " and two", "final": False})
        return calls(("c2", "write_file_continue", part))

    stage = await play(go_on)
    stage.more_tools = (write_file, write_file_continue, note)
    done = await stage.run()
    assert "«line one»" in stage.asked(2)
    assert "«line one and two»" in stage.asked(4)
    (kept,) = await stage.drafts.kept()
    assert done.drafts == (f"a.txt (16 characters, {kept.id})",)


async def test_drafts_that_cannot_be_read_any_more_do_not_end_the_turn(play: Play) -> None:
    stage = await play(lost_file("line one"), calls(("c2", "spoil", "{}")), ok("done"))

    @tool(risk=Risk.WRITE)
    async def spoil(_context: ToolContext) -> str:
        """Put a file where the drafts are."""
        shutil.rmtree(stage.folder / "drafts")
        (stage.folder / "drafts").touch()
        return "spoilt"

    stage.more_tools = (write_file, write_file_continue, spoil)
    done = await stage.run()
    assert (done.ending, done.text) == (Ending.ANSWERED, "done")


async def test_what_is_repeated_without_end_is_not_kept_as_a_file(play: Play) -> None:
    block = "".join(chr(97 + at * 7 % 26) for at in range(120)) + " end. "
    stage = await play(lost_file(block * 200, after="HANG"), ok("done"))
    stage.more_tools = (write_file, write_file_continue)
    assert (await stage.run()).text == "done"
    assert await stage.drafts.kept() == []
    assert "`write_file`" in stage.asked(2)


# --- other models ---------------------------------------------------------------------------------------


async def test_another_model_takes_over_and_it_is_said_once(play: Play) -> None:
    stage = await play("S401")
    second = await stage.fallback(calls(READ_A), ok("done"))
    done = await stage.run()
    assert (done.ending, done.text, done.tries) == (Ending.ANSWERED, "done", 3)
    assert stage.notices == ["N5"]
    assert stage.notice("N5") == {"a": "openai/scripted", "b": "openai/second"}
    assert {request.model for request in second.requests} == {"second"}
    assert len(stage.server.requests) == 1
    assert stage.journal.log[2] == "attempt 2 openai/second"


@pytest.mark.parametrize(
    ("scripts", "requests"),
    [
        pytest.param(["S401"], 1, id="key refused"),
        pytest.param(["S402"], 1, id="account empty"),
        pytest.param(["S400"], 1, id="request refused"),
        pytest.param(["H F content_filter D"], 1, id="declined"),
        pytest.param(['S429:{"retry-after":"61"}'], 1, id="told to wait for long"),
        pytest.param(["S500"] * 3, 3, id="down"),
        pytest.param(["H RST"] * 3, 3, id="drops"),
        pytest.param(["H HANG"] * 2, 2, id="silence"),
        pytest.param(["H F stop D"] * 2, 2, id="empty answers"),
    ],
)
async def test_the_next_model_is_asked_when_the_first_is_of_no_use(
    play: Play, scripts: list[str], requests: int
) -> None:
    stage = await play(*scripts)
    await stage.fallback(ok("done"))
    done = await stage.run()
    assert (done.text, done.tries) == ("done", requests + 1)
    assert stage.notices == ["N5"]


async def test_every_model_gets_the_same_patience(play: Play) -> None:
    stage = await play(*["H RST"] * 3)
    await stage.fallback("H RST", "H RST", ok("done"))
    assert (await stage.run()).tries == 6


async def test_when_nobody_is_left_the_last_cause_counts(play: Play) -> None:
    stage = await play(*["H RST"] * 3)
    await stage.fallback("S402")
    await stage.fallback("S401")
    done = await stage.run()
    assert (done.ending, done.tries) == (Ending.FAILED, 5)
    assert "key" in done.cause
    assert done.tell_operator
    assert stage.notices == ["N5", "N5"]


async def test_the_next_model_carries_a_text_on(play: Play) -> None:
    stage = await play('H T"The quick brown " F length D', "S401")
    stage.settings = {"max_output_tokens": 100, "reasoning_effort": "high"}
    second = await stage.fallback('H T"The quick brown fox." F stop D')
    done = await stage.run()
    assert done.text == stage.shown == "The quick brown fox."
    (request,) = second.requests
    assert request.max_tokens is None  # the first one's limit was raised, it is no business of ours
    assert request.messages[-2]["content"] == "The quick brown "


async def test_limits_that_were_changed_for_one_model_do_not_hold_for_the_next(play: Play) -> None:
    stage = await play('H R"hm" F length D', 'S400"Streaming is not supported"', "S401")
    stage.settings = {"max_output_tokens": 100, "reasoning_effort": "high"}
    second = await stage.fallback(ok("done"))
    stage.target()
    settings = msgspec.structs.replace(
        stage.target(1).settings, max_output_tokens=70, reasoning_effort="high"
    )
    stage.targets[1] = msgspec.structs.replace(stage.target(1), settings=settings)
    await stage.run()
    (request,) = second.requests
    assert request.max_tokens == 70
    assert (request.body["reasoning_effort"], request.stream) == ("high", True)


async def test_the_next_model_gets_to_know_what_the_one_before_lost(play: Play) -> None:
    stage = await play(*[lost_note(3000)] * 3)
    second = await stage.fallback(ok("done"))
    done = await stage.run()
    assert (done.text, done.tries) == ("done", 4)
    assert "`note` (cut off after 3,009 bytes" in second.requests[0].last_user_text


async def test_thoughts_of_one_model_are_not_given_to_another(play: Play) -> None:
    stage = await play('H R"deep" C(0,c1,read,{"path":"a"}) F tool_calls D', "S401")
    second = await stage.fallback(ok("done"))
    await stage.run()
    assert "deep" not in second.requests[0].raw.decode()


async def test_a_model_that_is_known_to_hang_is_not_waited_for(play: Play) -> None:
    stage = await play(ok("never asked"))
    await stage.fallback(calls(READ_A), ok("done"))
    for _ in range(2):
        stage.learned().breaker.killed(stage.clock.monotonic())
    done = await stage.run()
    assert (done.text, done.tries) == ("done", 2)
    assert stage.server.requests == []
    assert stage.notices == ["N5"]


async def test_a_turn_stays_with_the_model_that_answers(play: Play) -> None:
    """The first one is tried again with the next turn."""
    stage = await play(ok("the first is back"))

    def later(body: dict[str, Any]) -> Script:
        stage.clock.ahead = 120.0
        return ok("done") if body["messages"][-1]["role"] == "tool" else calls(READ_A)

    await stage.fallback(later)
    for _ in range(2):
        stage.learned().breaker.killed(stage.clock.monotonic())
    assert (await stage.run()).text == "done"
    assert stage.notices == ["N5"]
    assert (await stage.run()).text == "the first is back"


async def test_two_hangs_close_a_model_for_everybody(play: Play) -> None:
    stage = await play(*["H HANG"] * 2)
    await stage.fallback(ok("done"))
    await stage.run()
    assert stage.learned().breaker.open_until is not None
    assert stage.learned(1).breaker.open_until is None


async def test_an_answer_closes_the_breaker_again(play: Play) -> None:
    stage = await play("H HANG", ok("done"))
    await stage.run()
    stage.learned().breaker.killed(stage.clock.monotonic())
    assert stage.learned().breaker.open_until is None


async def test_a_stopped_look_leaves_the_look_to_somebody_else(play: Play) -> None:
    stage = await play('H T"abc" HANG')
    await stage.fallback(ok("done"))
    breaker = stage.learned().breaker
    for _ in range(2):
        breaker.killed(stage.clock.monotonic())
    stage.clock.ahead = 120.0
    async with asyncio.TaskGroup() as group:
        task = group.create_task(stage.run())
        async with asyncio.timeout(5):
            await stage.text_shown.wait()
        task.cancel()
    assert breaker.allows(stage.clock.monotonic())


async def test_a_look_that_is_stopped_before_its_request_is_left_to_somebody_else(
    play: Play,
) -> None:
    stage = await play("H HANG")  # the request for a summary, before the one of the step
    stage.settings = {"context_window": 2000}
    breaker = stage.learned().breaker
    for _ in range(2):
        breaker.killed(stage.clock.monotonic())
    stage.clock.ahead = 120.0
    async with asyncio.TaskGroup() as group:
        task = group.create_task(stage.run(*OLD))
        async with asyncio.timeout(5):
            await stage.server.request(1)
        task.cancel()
    assert breaker.allows(stage.clock.monotonic())


# --- conversations that are too long --------------------------------------------------------------------

LONG = "many words of an old story. " * 300
OLD = (Message("user", LONG), Message("assistant", LONG), GO)
TOO_LONG = 'S400"This model\'s maximum context length is 3000 tokens."'


async def test_a_conversation_that_is_too_long_is_summarised_and_asked_again(play: Play) -> None:
    stage = await play(TOO_LONG, ok("An old story."), ok("done"))
    done = await stage.run(*OLD)
    assert (done.text, done.tries) == ("done", 3)
    assert done.usage == Usage(20, 10)  # the summary was paid for as well
    assert stage.journal.summaries == [(1, "An old story.")]
    assert stage.journal.log == [
        "attempt 1 openai/scripted",
        "attempt 1 cut",
        "attempt 2 openai/scripted",
        "attempt 2 complete",
        "compacted",
        "attempt 3 openai/scripted",
        "attempt 3 complete",
    ]
    assert stage.notices == ["N12"]
    assert stage.shown == "done"
    assert LONG not in json.dumps(stage.sent(3))
    assert "An old story." in stage.sent(3)[1]["content"]
    assert stage.learned().window == 3000


async def test_without_a_summary_what_was_asked_for_is_listed(play: Play) -> None:
    stage = await play(TOO_LONG, "S500", ok("done"))
    assert (await stage.run(*OLD)).text == "done"
    ((keep, summary),) = stage.journal.summaries
    assert keep == 1
    assert "Earlier messages are not in view" in summary


async def test_what_is_known_to_be_too_long_is_not_even_sent(play: Play) -> None:
    stage = await play(ok("An old story."), calls(READ_A), ok("done"))
    stage.settings = {"context_window": 4000}
    done = await stage.run(*OLD)
    assert (done.text, done.tries) == ("done", 3)
    assert stage.notices == ["N12"]
    assert len(stage.journal.summaries) == 1


async def test_a_text_that_grows_beyond_the_window_is_made_room_for(play: Play) -> None:
    parts = [" ".join(f"w{part}x{word}" for word in range(300)) for part in range(2)]
    capped = [f'H T" {part}" F length U(100) D' for part in parts]
    stage = await play(*capped, ok("An old story."), ok("And so it ends."))
    stage.settings = {"context_window": 4000}
    old = [Message(role, "old words " * 80) for _ in range(5) for role in ("user", "assistant")]
    done = await stage.run(*old, GO)
    assert done.ending is Ending.ANSWERED
    assert all(part in done.text for part in (*parts, "And so it ends."))
    assert stage.notices.count("N12") == 1
    assert stage.journal.verdicts == ["capped", "capped", "complete", "complete"]


async def test_what_cannot_be_shortened_ends_the_turn(play: Play) -> None:
    stage = await play(*[TOO_LONG] * 9)
    done = await stage.run(Message("user", LONG * 3))
    assert (done.ending, done.tries) == (Ending.FAILED, 1)
    assert "too long for the model" in done.cause
    assert stage.notices == []  # nobody was kept waiting for a summary


async def test_a_conversation_is_measured_once_for_each_model(play: Play) -> None:
    """What cannot be made short enough is sent all the same: the estimate may be wrong."""
    stage = await play(ok("An old story."), "H RST", "H RST", ok("done"))
    stage.settings = {"context_window": 1200}
    done = await stage.run(*OLD[:2], Message("user", LONG))
    assert (done.text, done.tries) == ("done", 4)
    assert len(stage.journal.summaries) == 1


async def test_a_model_with_a_smaller_window_is_given_less(play: Play) -> None:
    stage = await play("S401")
    second = await stage.fallback(ok("An old story."), ok("done"))
    stage.target()
    settings = msgspec.structs.replace(stage.target(1).settings, context_window=4000)
    stage.targets[1] = msgspec.structs.replace(stage.target(1), settings=settings)
    done = await stage.run(*OLD)
    assert (done.text, done.tries) == ("done", 3)
    assert stage.notices == ["N5", "N12"]
    assert LONG not in second.requests[1].raw.decode()


async def test_the_size_of_a_request_is_held_against_what_the_service_counted(play: Play) -> None:
    stage = await play("H F stop U(1,9000) D", ok("done"))
    stage.settings = {"context_window": 8000}
    await stage.run(*OLD)
    assert 1.5 < stage.learned().correction <= 2.0


async def test_the_size_before_a_summary_says_nothing_about_the_request_after_it(
    play: Play,
) -> None:
    stage = await play(ok("An old story."), ok("done"))
    stage.settings = {"context_window": 4000}
    await stage.run(*OLD)
    assert len(stage.journal.summaries) == 1
    assert stage.learned().correction == 1.0


async def test_a_service_that_is_never_satisfied_is_given_up(play: Play) -> None:
    def complain(body: dict[str, Any]) -> Script:
        return ok("short") if "tools" not in body else TOO_LONG

    stage = await play(complain)
    rows = [
        row
        for at in range(40)
        for row in (Message("user", f"{at} {LONG}"), Message("assistant", "ok"))
    ]
    done = await stage.run(*rows, GO)
    assert done.ending is Ending.FAILED
    assert "too long" in done.cause
    assert len(stage.journal.summaries) <= 3


# --- turns that are taken up again ----------------------------------------------------------------------


async def test_a_text_that_was_visible_is_gone_on_with(play: Play) -> None:
    stage = await play('H T"The quick brown fox jumps." F stop D')
    stage.task = {"taken_up": True, "partial": "The quick brown "}
    done = await stage.run()
    assert done.text == "The quick brown fox jumps."
    assert stage.events == [TextDelta("fox jumps.")]
    assert stage.sent(1)[-2] == {"role": "assistant", "content": "The quick brown "}
    assert "network" in stage.asked(1)


async def test_a_visible_text_belongs_to_the_first_step_only(play: Play) -> None:
    stage = await play(
        'H T"The quick brown fox. " C(0,c1,read,{"path":"a"}) F tool_calls D', ok("done")
    )
    stage.task = {"taken_up": True, "partial": "The quick brown "}
    done = await stage.run()
    assert done.text == "done"
    assert stage.journal.rows[0].content == "The quick brown fox. "
    assert stage.sent(2)[-1]["role"] == "tool"


PAID = Message("assistant", "", (ToolCall("c1", "pay", '{"amount":5}'),))


@pytest.mark.parametrize(
    ("result", "answer"),
    [
        ("paid 5", "already done in this turn (call c1): paid 5"),
        ("Not run, but walked: paid 5", "already done in this turn (call c1): Not run, but walked"),
        (None, "pay has NOT run: the same call (c1)"),
    ],
)
async def test_what_was_done_before_an_interruption_is_not_done_again(
    play: Play, result: str | None, answer: str
) -> None:
    stage = await play(calls(("c9", "pay", '{"amount": 5}')), ok("done"))
    ok_ = True if result else None
    run = ToolRun("t", "c1", "pay", "write", '{"amount":5}', 1, ok_ and 2, ok_, result)
    stage.task = {"taken_up": True, "before": (run,)}
    await stage.run(GO, PAID, Message("tool", result or "UNKNOWN", tool_call_id="c1"))
    assert stage.shop.effects == []
    assert stage.journal.rows[-1].content.startswith(answer)


async def test_what_an_earlier_turn_did_may_be_done_again(play: Play) -> None:
    stage = await play(calls(("c9", "pay", '{"amount": 5}')), ok("done"))
    stage.task = {"taken_up": True}
    paid = (PAID, Message("tool", "paid 5", tool_call_id="c1"), Message("assistant", "Paid."))
    await stage.run(GO, *paid, GO)
    assert stage.shop.effects == ["pay 5"]


# --- news ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shown", ["", 'T"abc "'])
async def test_a_short_recovery_is_not_worth_a_word(play: Play, shown: str) -> None:
    stage = await play(f"H {shown} RST", ok("done"))
    await stage.run()
    assert stage.notices == []


@pytest.mark.parametrize(
    ("shown", "told"),
    [
        ("", Notice("N2", {"provider": "openai", "k": 1, "max": 2})),
        ('T"abc "', Notice("N3", {})),
    ],
)
async def test_a_recovery_that_takes_long_is_told_once(
    play: Play, shown: str, told: Notice
) -> None:
    stage = await play(f"H {shown} RST", 'W.3 H T"done" F stop D')
    stage.settings = {"timeouts": msgspec.structs.replace(CLOCKS, notice_after=0.6)}
    done = await stage.run()
    assert done.text.endswith("done")
    assert [event for event in stage.events if isinstance(event, Notice)] == [told]
    assert stage.events.index(told) == (1 if shown else 0)  # before the rest came


async def test_silence_is_told_with_the_time_that_is_left(play: Play) -> None:
    stage = await play('W.25 H T"done" F stop D')
    stage.settings = {"timeouts": msgspec.structs.replace(CLOCKS, notice_after=0.2)}
    await stage.run()
    assert stage.events[0] == Notice("N1", {"model": "scripted", "n": 0, "d": 0})


async def test_a_wait_that_the_service_asked_for_is_told(play: Play) -> None:
    stage = await play('S429:{"retry-after":"0.01"}', ok("done"))
    await stage.run()
    assert stage.events[0] == Notice("N6", {"provider": "openai", "n": 0})


async def test_compacting_is_not_called_a_dropped_connection(play: Play) -> None:
    stage = await play(TOO_LONG, 'W.3 H T"An old story." F stop D', 'W.3 H T"done" F stop D')
    stage.settings = {"timeouts": msgspec.structs.replace(CLOCKS, notice_after=1.2)}
    await stage.run(*OLD)
    assert stage.notices == ["N12"]


async def test_the_model_before_is_no_news_once_another_was_asked(play: Play) -> None:
    stage = await play("S401")
    await stage.fallback('W.4 H T"done" F stop D')
    stage.settings = {"timeouts": msgspec.structs.replace(CLOCKS, notice_after=0.6)}
    await stage.run()
    assert stage.notices == ["N5"]


# --- patience -------------------------------------------------------------------------------------------


@tool(risk=Risk.EXEC)
async def launch(_context: ToolContext) -> str:
    """Start it."""
    return "gone"


async def test_the_time_that_people_take_is_not_the_model_s(play: Play) -> None:
    stage = await play(calls(("c1", "launch", "{}")), "H RST", ok("done"))
    stage.more_tools = (launch,)

    async def no_after_a_while(_tool: Tool, _call: ToolCall) -> str:
        stage.clock.ahead += 1700.0
        return "denied."

    stage.approve = no_after_a_while
    done = await stage.run()
    assert (done.ending, done.text) == (Ending.ANSWERED, "done")


async def test_a_conversation_may_be_shortened_again_after_each_tool_that_ran(play: Play) -> None:
    full = 'S400"This model\'s maximum context length is 100000 tokens."'
    rounds = [
        script
        for number in range(4)
        for script in (
            full,
            ok(f"Story {number}."),
            calls((f"c{number}", "read", json.dumps({"path": f"part {number}"}))),
        )
    ]
    stage = await play(*rounds, ok("done"))
    stage.limits = TurnLimits(max_steps=9)
    old = [
        Message(role, "words of old " * 200) for _ in range(15) for role in ("user", "assistant")
    ]
    done = await stage.run(*old, GO)
    assert (done.ending, done.text) == (Ending.ANSWERED, "done")
    assert len(stage.journal.summaries) == 4


# --- stopping -------------------------------------------------------------------------------------------


async def test_stopping_closes_the_connection(play: Play) -> None:
    stage = await play('H T"abc" T"def" HANG')
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(stage.run())
        async with asyncio.timeout(5):
            await stage.text_shown.wait()
            received = await stage.server.request(1)
        told = loop.time()
        task.cancel()
    async with asyncio.timeout(5):
        await received.closed.wait()
    assert task.cancelled()
    assert received.closed_at is not None
    assert received.closed_at - told < 0.1
    assert stage.shown.startswith("abc")
    assert stage.journal.verdicts == ["open"]
    assert len(stage.server.requests) == 1


async def test_stopping_while_a_tool_runs_cancels_it(play: Play) -> None:
    stage = await play(calls(("c1", "sleepy", "{}")))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(stage.run())
        async with asyncio.timeout(5):
            await stage.shop.entered.wait()
        task.cancel()
    assert task.cancelled()
    assert stage.shop.ended == ["cancelled"]
    assert stage.journal.log[-1] == "started c1 write"


@pytest.mark.parametrize(
    ("script", "notice"),
    [
        ('S429:{"retry-after":"50"}', Notice("N6", {"provider": "openai", "n": 50})),
        ('S503:{"retry-after":"50"}', Notice("N2", {"provider": "openai", "k": 1, "max": 2})),
    ],
)
async def test_a_long_wait_is_told_and_can_be_stopped(
    play: Play, script: str, notice: Notice
) -> None:
    stage = await play(script)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(stage.run())
        async with asyncio.timeout(5):
            await stage.told.wait()
        task.cancel()
    assert task.cancelled()
    assert stage.events == [notice]
    assert len(stage.server.requests) == 1


async def test_a_turn_that_was_stopped_while_it_waited_tells_nothing_more(play: Play) -> None:
    stage = await play("S500")
    stage.settings = {"timeouts": msgspec.structs.replace(CLOCKS, backoff=0.1, notice_after=0.9)}
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(stage.run())
        async with asyncio.timeout(5):
            await stage.journal.judged.wait()
        loop.call_later(0.02, task.cancel)
    later = asyncio.Event()
    loop.call_later(0.3, later.set)
    async with asyncio.timeout(5):
        await later.wait()
    assert task.cancelled()
    assert stage.notices == []
