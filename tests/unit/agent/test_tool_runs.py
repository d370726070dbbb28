import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.answer.call_slots import StepCall, classify_arguments
from agent.errors import ToolError, ToolUnknownOutcome
from agent.events import AgentEvent, ToolFinished, ToolProgress, ToolStarted
from agent.model.contract import ToolSchema
from agent.tools import deadline
from agent.tools.batches import MAX_PARALLEL
from agent.tools.contract import ReportProgress, Risk, Tool, ToolContext, ToolOutput
from agent.tools.define import tool
from agent.tools.drafts import DraftStore
from agent.tools.questions import PersonAnswer, PersonQuestion
from agent.tools.registry import ToolRegistry
from agent.tools.run import (
    BATCH_TIMEOUT_SECONDS,
    AskDuringCall,
    ToolLimits,
    ToolRunner,
    ToolServices,
)
from agent.tools.spill import ResultCaps
from agent.turn import TurnLimits
from sessions.errors import ToolAlreadyStarted
from sessions.records import Attachment, ToolCall, ToolRun
from sessions.values.masks import PLACEHOLDER_HEAD, MaskedText, MaskSecrets
from tests.fakes.agent_kit import LoopClock, MemoryJournal, Workshop

Made = tuple[str, str, str]


class Journal(MemoryJournal):
    """A journal that also records calls and late results."""

    def __init__(self) -> None:
        super().__init__()
        self.started: list[ToolCall] = []
        self.known: set[str] = set()  # ids of calls that an earlier process started
        self.late: list[tuple[str, str]] = []

    async def tool_started(self, call: ToolCall, risk: Risk, attempt: int) -> None:
        if call.id in self.known:
            raise ToolAlreadyStarted
        await super().tool_started(call, risk, attempt)
        self.started.append(call)

    async def tool_late(self, call: ToolCall, result: str) -> None:
        self.late.append((call.id, result))
        self.log.append(f"late {call.id}")


class Annex:
    """Additional tools for these tests."""

    def __init__(self, shop: Workshop) -> None:
        self.shop = shop
        self.words = "a"
        self.inside: set[str] = set()
        self.met: list[tuple[str, ...]] = []  # calls that were running when another one started

    def tools(self) -> tuple[Tool, ...]:
        annex, shop = self, self.shop

        @tool(risk=Risk.READ)
        async def look(_context: ToolContext) -> str:
            """Look what there is."""
            return annex.words

        @tool(risk=Risk.READ)
        async def moody(_context: ToolContext, ok: bool, number: int = 0) -> str:
            """Fail on demand."""
            if not ok:
                msg = f"no {number}"
                raise ToolError(msg)
            return f"yes {number}"

        @tool(risk=Risk.WRITE)
        async def lose(_context: ToolContext) -> str:
            """Lose the connection in the middle."""
            shop.effects.append("lose")
            raise ToolUnknownOutcome

        @tool(risk=Risk.READ)
        async def miss(_context: ToolContext) -> str:
            """Lose the connection while only looking."""
            raise ToolUnknownOutcome

        @tool(risk=Risk.READ, parallel=True)
        async def linger(_context: ToolContext, number: int) -> str:
            """Wait until released."""
            return f"{number} {await shop._wait()}"

        @tool(risk=Risk.WRITE, parallel=True)
        async def put(_context: ToolContext, path: str | None = None) -> str:
            """Write beside others."""
            annex.met.append((*sorted(annex.inside), path or "-"))
            annex.inside.add(path or "-")
            await asyncio.sleep(0)
            annex.inside.remove(path or "-")
            return f"put {path}"

        async def remote(given: dict[str, Any], _context: ToolContext) -> str:
            shop.effects.append(f"remote {given}")
            return "sent"

        def check(given: dict[str, Any]) -> str | None:
            return str(given["complaint"]) if given else None

        return (
            look,
            moody,
            lose,
            miss,
            linger,
            _with(put, touches="path"),
            Tool(
                name="remote",
                risk=Risk.NET,
                schema=ToolSchema("remote", "Far away.", {"type": "object"}),
                arguments=dict[str, Any],
                call=remote,
                label="whom",
                sends=False,
            ),
            Tool(
                name="picky",
                risk=Risk.READ,
                schema=ToolSchema("picky", "Complains.", {"type": "object"}),
                arguments=dict[str, Any],
                call=remote,
                check=check,
            ),
        )


def _with(made: Tool, *, touches: str) -> Tool:
    return Tool(
        name=made.name,
        risk=made.risk,
        schema=made.schema,
        arguments=made.arguments,
        call=made.call,
        parallel=made.parallel,
        touches=touches,
    )


class Bench:
    def __init__(self, workspace: Path) -> None:
        self.shop = Workshop()
        self.annex = Annex(self.shop)
        self.journal = Journal()
        self.events: list[AgentEvent] = []
        self.asked: list[ToolCall] = []
        self.verdict: Callable[[ToolCall], str | None] | None = None  # None: no approver
        self.workspace = workspace
        self.runner = self.new_runner()

    def new_runner(
        self,
        *,
        caps: ResultCaps | None = None,
        batch_timeout: float = 420.0,
        more: tuple[Tool, ...] = (),
        journal: MemoryJournal | None = None,
        mask: MaskSecrets = MaskedText,
        ask: AskDuringCall | None = None,
    ) -> ToolRunner:
        return ToolRunner(
            ToolRegistry((*self.shop.tools(), *self.annex.tools(), *more)),
            journal or self.journal,
            self.events.append,
            services=ToolServices(
                clock=LoopClock(),
                workspace=self.workspace,
                drafts=DraftStore(self.workspace / "drafts", LoopClock()),
                turn_key="s:t",
                ask_person=ask,
                mask=mask,
            ),
            limits=ToolLimits(batch_timeout=batch_timeout, caps=caps or ResultCaps()),
            approve=None if self.verdict is None else self._approve,
        )

    def answering(self, verdict: Callable[[ToolCall], str | None]) -> "Bench":
        self.verdict = verdict
        self.runner = self.new_runner()
        return self

    async def _approve(self, _tool: Tool, call: ToolCall) -> str | None:
        log = self.journal.log
        begun = [line.split()[1] for line in log if line.startswith("started")]
        over = [line.split()[1] for line in log if line.startswith("finished")]
        assert set(begun) <= set(over), "somebody is asked while a deadline runs"
        self.asked.append(call)
        assert self.verdict is not None
        return self.verdict(call)

    async def run(self, *calls: Made, after_recovery: bool = False) -> list[str]:
        known = len(self.journal.rows)
        async with asyncio.timeout(5):
            rows = await self.runner.run(made(*calls), after_recovery=after_recovery)
        assert [row.tool_call_id for row in rows] == [call_id for call_id, _, _ in calls]
        assert list(rows) == self.journal.rows[known:]
        return [row.content for row in rows]


def made(*calls: Made) -> list[StepCall]:
    return [
        StepCall(
            id=i, name=name, arguments=args, arguments_state=classify_arguments(args), sealed=True
        )
        for i, name, args in calls
    ]


async def entered(bench: Bench) -> None:
    async with asyncio.timeout(5):
        await bench.shop.entered.wait()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.shop.release.set()  # a tool that never ends would block the end of the loop


PAY_5 = ("c1", "pay", '{"amount":5}')

# --- one call -----------------------------------------------------------------------------------


async def test_a_call_is_journalled_before_and_after_its_effect(bench: Bench) -> None:
    assert await bench.run(PAY_5) == ["paid 5"]
    assert bench.journal.log == ["started c1 write", "finished c1 ok"]
    assert bench.shop.effects == ["pay 5"]
    assert bench.shop.keys == ["s:t:c1"]
    assert bench.events == [
        ToolStarted("c1", "pay", "5", "💶"),
        ToolFinished("c1", "pay", ok=True),
    ]
    assert bench.runner.started_tools == ["pay"]


async def test_secrets_in_a_result_reach_neither_model_nor_journal(bench: Bench) -> None:
    bench.runner = bench.new_runner(mask=lambda text: MaskedText(text.replace("paid", "***")))
    assert await bench.run(PAY_5) == ["*** 5"]
    assert "paid" not in str(bench.journal.rows)


async def test_a_call_outside_of_the_files_with_a_hidden_secret_does_not_run(bench: Bench) -> None:
    (result,) = await bench.run(("c1", "remote", '{"note":"***secret-abcdefghij"}'))
    assert result.startswith("remote has NOT run: its arguments contain ***secret-")
    assert bench.shop.effects == []
    assert "started" not in str(bench.journal.log)


async def test_a_tool_whose_start_cannot_be_journalled_does_not_run(bench: Bench) -> None:
    bench.journal.refuses_tools = True
    with pytest.raises(OSError, match="disk full"):
        await bench.run(PAY_5)
    assert bench.shop.effects == []
    assert bench.events == []


async def test_a_refused_call_never_starts_but_has_its_result(bench: Bench) -> None:
    (result,) = await bench.run(("c1", "pay", '{"amount":'))
    assert "NOT run" in result
    assert bench.journal.log == ["finished c1 failed"]
    assert bench.events == []


async def test_arguments_without_a_type_are_passed_and_labelled_unchanged(
    bench: Bench,
) -> None:
    results = await bench.run(("c1", "remote", '{"whom": "you\\n  two", "n": [1]}'))
    assert results == ["sent"]
    assert bench.shop.effects == ["remote {'whom': 'you\\n  two', 'n': [1]}"]
    assert bench.events[0] == ToolStarted("c1", "remote", "you two", "🔧")


async def test_a_result_that_is_not_text_is_converted(
    bench: Bench,
) -> None:
    async def call(_arguments: object, _context: ToolContext) -> Any:
        return {"sent": 2}

    schema = ToolSchema("odd", "", {"type": "object"})
    bench.runner = bench.new_runner(
        more=(Tool("odd", Risk.READ, schema=schema, arguments=dict, call=call),)
    )
    assert await bench.run(("c1", "odd", "{}")) == ["{'sent': 2}"]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        pytest.param("remote", '{"n": [1]}', id="without the argument of the label"),
        pytest.param("picky", '{"complaint": "", "": "no name"}', id="without a label"),
    ],
)
async def test_a_call_may_have_no_label(bench: Bench, name: str, arguments: str) -> None:
    await bench.run(("c1", name, arguments))
    assert bench.events[0] == ToolStarted("c1", name, "", "🔧")


async def test_a_long_label_is_truncated(bench: Bench) -> None:
    await bench.run(("c1", "read", f'{{"path":"{"x" * 200}"}}'))
    assert bench.events[0] == ToolStarted("c1", "read", "x" * 80, "🔧")


async def test_a_failing_tool_reports_its_error_and_other_calls_continue(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    results = await bench.run(("c1", "broken", "{}"), ("c2", "pay", '{"amount":1}'))
    assert results == ["broken failed: RuntimeError: no luck", "paid 1"]
    assert bench.journal.log[1] == "finished c1 failed"
    assert ToolFinished("c1", "broken", ok=False) in bench.events
    assert "tool broken failed" in caplog.text


async def test_an_error_without_words_is_a_failure_too(bench: Bench) -> None:
    class Silent(ToolError):
        pass

    @tool(risk=Risk.READ)
    async def mute(_context: ToolContext) -> str:
        """Fail without words."""
        raise Silent

    bench.runner = bench.new_runner(more=(mute,))
    assert await bench.run(("c1", "mute", "{}")) == [""]
    assert bench.events[1:] == [ToolFinished("c1", "mute", ok=False)]


async def test_a_call_that_was_started_before_does_not_run_and_counts_as_refused(
    bench: Bench,
) -> None:
    bench.journal.known.add("c1")
    (result,) = await bench.run(PAY_5)
    assert result.startswith("pay has NOT run: a call with the same id was started earlier")
    assert bench.shop.effects == []
    assert bench.journal.log == ["finished c1 failed"]
    assert bench.runner.all_refused


HIDDEN = f"{PLACEHOLDER_HEAD}abcdefghij"


@pytest.mark.parametrize(
    ("name", "arguments", "runs"),
    [
        pytest.param("read", f'{{"path":"{HIDDEN}"}}', True, id="a tool that only reads"),
        pytest.param("keep", f'{{"text":"{HIDDEN}"}}', True, id="a tool that takes placeholders"),
        pytest.param("put", f'{{"path":"{HIDDEN}"}}', False, id="another tool"),
    ],
)
async def test_a_call_with_the_placeholder_of_a_secret_is_refused_where_it_would_be_used(
    bench: Bench, name: str, arguments: str, runs: bool
) -> None:
    @tool(risk=Risk.WRITE)
    async def keep(_context: ToolContext, text: str) -> str:
        """Keep a text."""
        return f"kept {text}"

    taking = msgspec.structs.replace(keep, takes_placeholders=True)
    bench.runner = bench.new_runner(more=(taking,))
    (result,) = await bench.run(("c1", name, arguments))
    assert ("NOT run: its arguments contain" in result) is not runs
    assert bench.journal.log[-1] == f"finished c1 {'ok' if runs else 'failed'}"
    assert bench.runner.all_refused is not runs


async def test_a_call_that_was_not_allowed_is_not_taken_for_done_later(bench: Bench) -> None:
    answers = iter(["denied.", None])
    bench.answering(lambda _: next(answers))
    first, second = ("c1", "shell", '{"command":"ls"}'), ("c2", "shell", '{"command":"ls"}')
    assert await bench.run(first) == ["shell has NOT run: denied."]
    assert bench.runner.completed_summary == []
    (result,) = await bench.run(second, after_recovery=True)
    assert "already done" not in result
    assert [call.id for call in bench.asked] == ["c1", "c2"]


async def test_a_call_is_journalled_with_the_number_of_its_request(bench: Bench) -> None:
    await bench.runner.run(made(PAY_5))
    await bench.runner.run(made(("c2", "pay", '{"amount":5}')), attempt=3)
    assert bench.shop.effects == ["pay 5", "pay 5"], "no answer was interrupted before"
    assert bench.journal.brought == {"c1": 0, "c2": 3}


async def test_a_run_that_breaks_off_is_not_marked_as_refused(bench: Bench) -> None:
    assert not bench.runner.all_refused
    await bench.run(("c0", "zzz", "{}"))
    bench.journal.refuses_tools = True
    with pytest.raises(OSError, match="disk full"):
        await bench.run(PAY_5)
    assert not bench.runner.all_refused


def _mask_all(_text: str) -> MaskedText:
    return MaskedText("***")


async def test_a_tool_gets_the_services_of_its_turn(tmp_path: Path) -> None:
    async def send(path: str, _caption: str, _key: str) -> str:
        return path

    async def ask(_question: PersonQuestion) -> PersonAnswer | None:
        return None

    def report(_text: str) -> None:
        """Show nothing."""

    clock = LoopClock()
    drafts = DraftStore(tmp_path, clock)
    services = ToolServices(
        clock=clock,
        workspace=tmp_path,
        drafts=drafts,
        turn_key="s:t",
        mask=_mask_all,
        send_file=send,
    )
    context = services.context_of(made(PAY_5)[0], report, ask)
    assert (context.report_progress, context.ask_person) == (report, ask)
    assert (context.clock, context.workspace, context.drafts) == (clock, tmp_path, drafts)
    assert context.mask is _mask_all
    assert (context.idempotency_key, context.send_file) == ("s:t:c1", send)


async def test_a_failing_argument_check_refuses_only_its_call(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    results = await bench.run(
        ("c1", "picky", '{"complaint": "too many."}'),
        ("c2", "picky", '{"x": 1}'),
        ("c3", "picky", "{}"),
    )
    assert results == [
        "picky has NOT run, its arguments do not fit: too many.",
        "picky has NOT run, its arguments could not be checked: KeyError: 'complaint'",
        "sent",
    ]
    assert "the check of the arguments of picky failed" in caplog.text


async def test_only_a_call_with_possible_effects_has_an_unknown_outcome(bench: Bench) -> None:
    changed, looked = await bench.run(("c1", "lose", "{}"), ("c2", "miss", "{}"))
    assert changed.startswith("UNKNOWN: The tool was started")
    assert looked == "miss did not complete."


# --- corrections ---------------------------------------------------------------------------------


async def test_repaired_calls_are_the_ones_that_run_and_are_journalled(bench: Bench) -> None:
    calls = made(
        ("c1", "Read", '{"path":"a"}'),
        ("c2", "pay", '{"amount": 5,}'),
        ("c3", "zzz", "{,}"),
        ("c4", "pay", '{"amount":'),
    )
    prepared = bench.runner.repair_calls(calls)
    assert [(call.id, call.name, call.arguments) for call in prepared] == [
        ("c1", "read", '{"path":"a"}'),
        ("c2", "pay", '{"amount": 5}'),
        ("c3", "zzz", "{,}"),
        ("c4", "pay", '{"amount":'),
    ]
    assert bench.runner.repair_calls(prepared) == prepared
    async with asyncio.timeout(5):
        rows = await bench.runner.run(prepared)
    assert [row.content for row in rows[:2]] == ["content of a", "paid 5"]
    assert bench.journal.started == [
        ToolCall("c1", "read", '{"path":"a"}'),
        ToolCall("c2", "pay", '{"amount": 5}'),
    ]


async def test_calls_are_corrected_without_preparation_too(bench: Bench) -> None:
    assert await bench.run(("c1", "READ", '{"path":"a",}')) == ["content of a"]
    assert bench.events[0] == ToolStarted("c1", "read", "a", "🔧")


# --- several calls -------------------------------------------------------------------------------


async def test_read_only_calls_run_in_parallel_and_results_keep_their_order(
    bench: Bench,
) -> None:
    calls = [(f"c{n}", "read", f'{{"path":"{n}"}}') for n in range(10)]
    assert await bench.run(*calls) == [f"content of {n}" for n in range(10)]
    assert bench.shop.at_once == MAX_PARALLEL
    assert [line for line in bench.journal.log if line.startswith("finished")] == [
        f"finished c{n} ok" for n in range(10)
    ]


async def test_a_call_with_side_effects_runs_alone(
    bench: Bench,
) -> None:
    await bench.run(
        ("c1", "read", '{"path":"a"}'),
        ("c2", "pay", '{"amount":1}'),
        ("c3", "read", '{"path":"b"}'),
    )
    assert bench.shop.effects == ["read a", "pay 1", "read b"]
    assert bench.shop.at_once == 1


@pytest.mark.parametrize(
    ("paths", "met"),
    [
        pytest.param(("a", "b"), [("a",), ("a", "b")], id="different paths"),
        pytest.param(("a", "./a"), [("a",), ("./a",)], id="the same path"),
        pytest.param(("a/b", "a"), [("a/b",), ("a",)], id="a file in the folder"),
        pytest.param((".", "a"), [(".",), ("a",)], id="the whole workspace"),
    ],
)
async def test_two_calls_on_one_path_do_not_run_in_parallel(
    bench: Bench, paths: tuple[str, ...], met: list[tuple[str, ...]]
) -> None:
    await bench.run(*((f"c{n}", "put", f'{{"path":"{path}"}}') for n, path in enumerate(paths)))
    assert bench.annex.met == met


async def test_paths_are_compared_in_normal_form(bench: Bench) -> None:
    whole = bench.workspace / "a"
    await bench.run(("c1", "put", '{"path":"a"}'), ("c2", "put", f'{{"path":"{whole}"}}'))
    assert bench.annex.met == [("a",), (str(whole),)]


async def test_a_call_without_a_path_conflicts_with_no_other(bench: Bench) -> None:
    await bench.run(("c1", "put", "{}"), ("c2", "put", '{"path":"a"}'))
    assert bench.annex.met == [("-",), ("-", "a")]


async def test_refused_calls_do_not_split_a_batch(bench: Bench) -> None:
    results = await bench.run(
        ("c1", "read", '{"path":"a"}'), ("c2", "read", "{}"), ("c3", "read", '{"path":"b"}')
    )
    assert bench.shop.at_once == 2
    assert "NOT run" in results[1]


async def test_the_same_call_twice_in_one_answer_runs_once_and_both_get_the_result(
    bench: Bench,
) -> None:
    results = await bench.run(PAY_5, ("c2", "pay", '{ "amount": 5 }'))
    assert results == ["paid 5", "paid 5"]
    assert bench.shop.effects == ["pay 5"]
    assert bench.journal.log == ["started c1 write", "finished c1 ok", "finished c2 ok"]
    assert len(bench.events) == 2
    assert bench.runner.started_tools == ["pay"]


# --- deadlines -----------------------------------------------------------------------------------


async def test_a_tool_past_its_deadline_is_cancelled_with_unknown_effect(
    bench: Bench,
) -> None:
    (result,) = await bench.run(("c1", "slow", "{}"))
    assert result == "UNKNOWN: slow timed out after 0.05 s; its effect is unknown."
    assert bench.shop.ended == ["cancelled"]
    assert bench.journal.log == ["started c1 write", "finished c1 failed"]
    assert bench.journal.late == []


async def test_a_network_tool_that_only_reads_did_not_complete_when_it_times_out(
    bench: Bench,
) -> None:
    async def hang(_given: dict[str, Any], _context: ToolContext) -> str:
        await asyncio.Event().wait()
        return "never"

    schema = ToolSchema("hang", "Hangs.", {"type": "object"})
    tool = Tool(
        name="hang",
        risk=Risk.NET,
        schema=schema,
        arguments=dict,
        call=hang,
        sends=False,
        timeout=0.05,
    )
    bench.runner = bench.new_runner(more=(tool,))
    (result,) = await bench.run(("c1", "hang", "{}"))
    assert result == "hang did not complete: it took more than 0.05 s."
    assert bench.journal.log == ["started c1 read", "finished c1 failed"]
    assert bench.events[-1] == ToolFinished("c1", "hang", ok=False)


async def test_progress_renews_the_deadline_and_is_shown(bench: Bench) -> None:
    reports: list[ReportProgress] = []

    async def climb(_given: dict[str, Any], context: ToolContext) -> str:
        reports.append(context.report_progress)
        for number in range(4):
            await asyncio.sleep(0.1)
            context.report_progress(f"step {number}")
        return "on top"

    schema = ToolSchema("climb", "Climbs.", {"type": "object"})
    tool = Tool(
        name="climb",
        risk=Risk.NET,
        schema=schema,
        arguments=dict,
        call=climb,
        sends=False,
        timeout=0.2,
    )
    bench.runner = bench.new_runner(more=(tool,))
    assert await bench.run(("c1", "climb", "{}")) == ["on top"]
    shown = [event for event in bench.events if isinstance(event, ToolProgress)]
    assert shown == [ToolProgress("c1", "step 0")]  # one per half second
    reports[0]("late")
    assert [event for event in bench.events if isinstance(event, ToolProgress)] == shown


async def test_progress_after_the_end_of_a_call_is_ignored(bench: Bench) -> None:
    reports: list[ReportProgress] = []

    async def leave(_given: dict[str, Any], context: ToolContext) -> str:
        reports.append(context.report_progress)
        return "left"

    schema = ToolSchema("leave", "Leaves.", {"type": "object"})
    tool = Tool(name="leave", risk=Risk.READ, schema=schema, arguments=dict, call=leave)
    bench.runner = bench.new_runner(more=(tool,))
    assert await bench.run(("c1", "leave", "{}")) == ["left"]
    shown = list(bench.events)
    reports[0]("late")
    assert bench.events == shown


async def test_progress_of_parallel_calls_does_not_exceed_their_shared_limit(bench: Bench) -> None:
    async def spin(_given: dict[str, Any], context: ToolContext) -> str:
        while True:
            await asyncio.sleep(0.01)
            context.report_progress("again")

    schema = ToolSchema("spin", "Spins.", {"type": "object"})
    tool = Tool(
        name="spin",
        risk=Risk.READ,
        schema=schema,
        arguments=dict[str, Any],
        call=spin,
        parallel=True,
        timeout=0.05,
    )
    bench.runner = bench.new_runner(more=(tool,), batch_timeout=0.1)
    results = await bench.run(("c1", "spin", '{"number":1}'), ("c2", "spin", '{"number":2}'))
    assert results == ["spin did not complete: it took more than 0.1 s."] * 2


def _asking(limit: float) -> Tool:
    async def order(_given: dict[str, Any], context: ToolContext) -> str:
        if context.ask_person is None:
            return "there is no person"
        answer = await context.ask_person(PersonQuestion(asker="shop", text="Which size?"))
        return "no answer" if answer is None else f"size {answer.text}"

    schema = ToolSchema("order", "Orders.", {"type": "object"})
    return Tool(
        name="order", risk=Risk.WRITE, schema=schema, arguments=dict, call=order, timeout=limit
    )


async def test_a_running_call_asks_a_person_and_its_deadline_waits(bench: Bench) -> None:
    asked: list[tuple[str, str, str]] = []

    async def ask(call: ToolCall, question: PersonQuestion) -> PersonAnswer | None:
        asked.append((call.id, call.name, question.text))
        await asyncio.sleep(0.2)  # longer than the call may take
        return PersonAnswer(accepted=True, text="L")

    bench.runner = bench.new_runner(more=(_asking(0.05),), ask=ask)
    assert await bench.run(("c1", "order", "{}")) == ["size L"]
    assert asked == [("c1", "order", "Which size?")]


async def test_a_call_knows_that_no_person_can_be_asked(bench: Bench) -> None:
    bench.runner = bench.new_runner(more=(_asking(5),))
    assert await bench.run(("c1", "order", "{}")) == ["there is no person"]


async def test_progress_without_end_is_cut_at_twelve_times_the_limit(bench: Bench) -> None:
    async def spin(_given: dict[str, Any], context: ToolContext) -> str:
        while True:
            await asyncio.sleep(0.01)
            context.report_progress("again")

    schema = ToolSchema("spin", "Spins.", {"type": "object"})
    tool = Tool(
        name="spin", risk=Risk.WRITE, schema=schema, arguments=dict, call=spin, timeout=0.05
    )
    bench.runner = bench.new_runner(more=(tool,))
    (result,) = await bench.run(("c1", "spin", "{}"))
    assert result == "UNKNOWN: spin timed out after 0.6 s; its effect is unknown."


async def test_files_of_a_result_are_in_its_row(bench: Bench) -> None:
    shot = Attachment(name="a.png", media_type="image/png", path="received/a.png", fetched=True)

    async def see(_given: dict[str, Any], _context: ToolContext) -> ToolOutput:
        return ToolOutput("seen", (shot,))

    schema = ToolSchema("see", "Sees.", {"type": "object"})
    tool = Tool(name="see", risk=Risk.READ, schema=schema, arguments=dict, call=see)
    bench.runner = bench.new_runner(more=(tool,))
    assert await bench.run(("c1", "see", "{}")) == ["seen"]
    assert bench.journal.rows[-1].files == (shot,)


async def test_parallel_calls_share_a_deadline(bench: Bench) -> None:
    bench.runner = bench.new_runner(batch_timeout=0.05)
    results = await bench.run(
        ("c1", "linger", '{"number":1}'),
        ("c2", "linger", '{"number":2}'),
        ("c3", "read", '{"path":"a"}'),
    )
    assert results == [
        "linger did not complete: it took more than 0.05 s.",
        "linger did not complete: it took more than 0.05 s.",
        "content of a",
    ]


async def test_a_call_that_runs_alone_has_only_its_own_deadline(bench: Bench) -> None:
    bench.runner = bench.new_runner(batch_timeout=0.01)
    asyncio.get_running_loop().call_later(0.05, bench.shop.release.set)
    results = await bench.run(("c1", "linger", '{"number":1}'), ("c2", "linger", "{}"))
    assert results[0] == "1 woke up"


def test_the_default_time_limits() -> None:
    assert (BATCH_TIMEOUT_SECONDS, deadline._GRACE_SECONDS, TurnLimits().tool_timeout) == (
        420,
        3,
        300,
    )
    assert ToolLimits().timeout == 300
    assert deadline._STOP_GRACE_SECONDS <= 0.3  # time limit for `/stop`


async def test_a_tool_that_ignores_its_cancellation_is_abandoned_and_its_late_result_recorded(
    bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadline, "_GRACE_SECONDS", 0.05)
    with caplog.at_level(logging.WARNING):
        (result,) = await bench.run(("c1", "stubborn", "{}"))
    assert "timed out" in result
    assert "stubborn has not ended 0.1 s after its cancellation" in caplog.text
    assert len(deadline._abandoned_tasks) == 1
    assert bench.journal.late == []
    await _released(bench)
    assert bench.journal.late == [("c1", "late")]
    assert [row.content for row in bench.journal.rows] == [result]


async def _released(bench: Bench) -> None:
    left = set(deadline._abandoned_tasks)
    bench.shop.release.set()
    async with asyncio.timeout(5):
        await asyncio.wait(left)
    await asyncio.sleep(0)  # the done callback runs in the next iteration of the loop
    assert not deadline._abandoned_tasks


def _after_all(bench: Bench) -> Tool:
    @tool(risk=Risk.WRITE, timeout=0.05)
    async def after_all(_context: ToolContext) -> str:
        """Finish although it is told to end."""
        try:
            return await bench.shop._wait()
        except asyncio.CancelledError:
            return "finished after all"

    return after_all


async def test_a_result_during_the_cancellation_is_recorded_as_late(
    bench: Bench,
) -> None:
    bench.runner = bench.new_runner(more=(_after_all(bench),))
    (result,) = await bench.run(("c1", "after_all", "{}"))
    assert result.startswith("UNKNOWN: after_all timed out")
    assert bench.journal.late == [("c1", "finished after all")]
    assert bench.journal.log[-2:] == ["finished c1 failed", "late c1"]


async def test_a_journal_need_not_support_late_results(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    runner = bench.new_runner(more=(_after_all(bench),), journal=MemoryJournal())
    async with asyncio.timeout(5):
        (row,) = await runner.run(made(("c1", "after_all", "{}")))
    assert row.content.startswith("UNKNOWN: after_all timed out")
    assert "after_all returned a result after its deadline" in caplog.text


async def test_a_failure_during_the_cancellation_is_logged(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    @tool(risk=Risk.WRITE, timeout=0.05)
    async def clumsy(_context: ToolContext) -> str:
        """Fail at the end."""
        try:
            return await bench.shop._wait()
        except asyncio.CancelledError:
            msg = "fell over"
            raise RuntimeError(msg) from None

    bench.runner = bench.new_runner(more=(clumsy,))
    (result,) = await bench.run(("c1", "clumsy", "{}"))
    assert "timed out" in result
    await asyncio.sleep(0)
    assert "tool clumsy failed after its cancellation: fell over" in caplog.text


async def test_stop_cancels_running_calls_at_once_and_starts_no_more(bench: Bench) -> None:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(bench.run(("c1", "sleepy", "{}"), ("c2", "pay", '{"amount":1}')))
        await entered(bench)
        task.cancel()
    assert task.cancelled()
    assert bench.shop.ended == ["cancelled"]
    assert bench.shop.effects == []
    assert bench.journal.log == ["started c1 write"]


async def test_stop_does_not_wait_for_a_tool_that_ignores_its_cancellation(bench: Bench) -> None:
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(bench.run(("c1", "stubborn", "{}")))
        await entered(bench)
        told = loop.time()
        task.cancel()
    assert task.cancelled()
    assert loop.time() - told < 0.3
    await _released(bench)
    assert bench.journal.late == []  # the stop of the turn closes the calls in the journal


async def test_a_tool_that_cancels_itself_does_not_take_the_turn_with_it(bench: Bench) -> None:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(bench.run(("c1", "sleepy", "{}")))
        await entered(bench)
        (inner,) = (t for t in asyncio.all_tasks() if t.get_name() == "tool sleepy")
        inner.cancel()
    assert task.result() == ["UNKNOWN: sleepy cancelled itself; its effect is unknown."]


# --- approval ------------------------------------------------------------------------------------


async def test_a_call_that_needs_approval_does_not_run_without_an_approver(bench: Bench) -> None:
    (result,) = await bench.run(("c1", "shell", '{"command":"ls"}'))
    assert result.startswith("shell has NOT run: it needs approval")
    assert bench.shop.effects == []
    assert bench.journal.log == ["finished c1 failed"]
    assert not bench.runner.all_refused


async def test_an_approver_sees_the_exact_call(bench: Bench) -> None:
    bench.answering(lambda call: None if "ls" in call.arguments else "nobody allowed it.")
    results = await bench.run(
        ("c1", "shell", '{"command":"ls"}'), ("c2", "shell", '{"command":"rm"}')
    )
    assert results == ["ran", "shell has NOT run: nobody allowed it."]
    assert bench.shop.effects == ["shell ls"]
    assert [call.arguments for call in bench.asked] == ['{"command":"ls"}', '{"command":"rm"}']


async def test_only_calls_that_need_approval_ask_for_it(bench: Bench) -> None:
    bench.answering(lambda _call: None)
    await bench.run(PAY_5, ("c2", "remote", "{}"), ("c3", "read", '{"path":"a"}'))
    assert bench.asked == []


async def test_no_other_call_runs_while_an_approval_is_pending(bench: Bench) -> None:
    @tool(risk=Risk.EXEC, parallel=True)
    async def ask_me(_context: ToolContext, number: int) -> str:
        """Run beside others, once allowed."""
        return f"ran {number}"

    bench.verdict = lambda _call: None
    bench.runner = bench.new_runner(more=(ask_me,))
    results = await bench.run(
        ("c1", "read", '{"path":"a"}'),
        ("c2", "ask_me", '{"number":1}'),
        ("c3", "ask_me", '{"number":2}'),
        ("c4", "read", '{"path":"b"}'),
    )
    assert results == ["content of a", "ran 1", "ran 2", "content of b"]
    assert len(bench.asked) == 2


# --- repeated calls ------------------------------------------------------------------------------


async def test_after_a_recovery_a_completed_call_is_not_repeated(bench: Bench) -> None:
    await bench.run(("c2", "pay", '{"amount":5}'))
    known = list(bench.events)
    results = await bench.run(
        ("c3", "pay", '{ "amount": 5 }'), ("c4", "pay", '{"amount":6}'), after_recovery=True
    )
    assert results == ["already done in this turn (call c2): paid 5", "paid 6"]
    assert bench.shop.effects == ["pay 5", "pay 6"]
    assert bench.journal.log[2] == "finished c3 ok"
    assert bench.events[len(known)] == ToolStarted("c4", "pay", "6", "💶")


async def test_without_a_recovery_the_same_call_runs_again(bench: Bench) -> None:
    await bench.run(PAY_5)
    (result,) = await bench.run(("c2", "pay", '{"amount":5}'))
    assert result.startswith("paid 5")
    assert bench.shop.effects == ["pay 5", "pay 5"]


async def test_after_a_recovery_a_read_only_call_runs_again(bench: Bench) -> None:
    for number in range(2):
        await bench.run((f"c{number}", "read", '{"path":"a"}'), after_recovery=True)
    assert bench.shop.effects == ["read a", "read a"]


async def test_after_a_recovery_a_call_with_unknown_outcome_needs_approval(
    bench: Bench,
) -> None:
    await bench.run(("c1", "lose", "{}"))
    (result,) = await bench.run(("c2", "lose", "{}"), after_recovery=True)
    assert result.startswith("lose has NOT run: the same call (c1) was started earlier")
    assert "needs approval, which cannot be given here" in result
    assert bench.shop.effects == ["lose"]


@pytest.mark.parametrize(
    ("answer", "effects"),
    [pytest.param(None, 2, id="allowed"), pytest.param("better not.", 1, id="denied")],
)
async def test_a_call_with_unknown_outcome_runs_again_once_approved(
    bench: Bench, answer: str | None, effects: int
) -> None:
    bench.answering(lambda _call: answer)
    await bench.run(("c1", "lose", "{}"))
    (result,) = await bench.run(("c2", "lose", "{}"), after_recovery=True)
    assert result.startswith("UNKNOWN" if answer is None else "lose has NOT run: better not.")
    assert bench.asked == [ToolCall("c2", "lose", "{}")]
    assert len(bench.shop.effects) == effects


def begun(call_id: str, tool: str, args: str, ok: bool | None = None, text: str = "") -> ToolRun:
    """Build the journal's record of a call; without `ok` the call never finished."""
    ended, result = (None, None) if ok is None else (2, text)
    return ToolRun(
        turn_id="t1",
        call_id=call_id,
        tool=tool,
        risk="write",
        arguments=args,
        started_at=1,
        finished_at=ended,
        ok=ok,
        result=result,
    )


async def test_calls_before_a_crash_are_remembered(bench: Bench) -> None:
    bench.runner.restore_runs(
        [
            begun("c1", "pay", '{"amount":1}', ok=True, text="Not run in vain: paid 1"),
            begun("c2", "pay", '{"amount":2}'),
            begun("c4", "read", '{"path":"a"}', ok=True, text="content of a"),
            begun("c5", "gone", "{}", ok=True, text="done"),
            begun("c6", "pay", '{"amount":6}', ok=False, text="no money"),
            begun("c7", "pay", '{"amount":7}', ok=False, text="UNKNOWN: timed out"),
        ]
    )
    results = await bench.run(
        ("d1", "pay", '{"amount": 1}'),
        ("d2", "pay", '{"amount":2}'),
        ("d3", "pay", '{"amount":3}'),
        ("d4", "read", '{"path":"a"}'),
        ("d5", "gone", "{}"),
        ("d6", "pay", '{"amount":6}'),
        ("d7", "pay", '{"amount":7}'),
        after_recovery=True,
    )
    assert results[0] == "already done in this turn (call c1): Not run in vain: paid 1"
    assert results[1].startswith("pay has NOT run: the same call (c2)")
    assert results[2:4] == ["paid 3", "content of a"]
    assert results[4].startswith("Nothing has run: there is no tool 'gone'.")
    assert results[5] == "already done in this turn (call c6): no money"
    assert results[6].startswith("pay has NOT run: the same call (c7)")
    assert bench.shop.effects == ["pay 3", "read a"]


async def test_the_text_of_a_result_does_not_make_its_outcome_unknown(bench: Bench) -> None:
    @tool(risk=Risk.WRITE)
    async def odd(_context: ToolContext) -> str:
        """Answer in odd words."""
        bench.shop.effects.append("odd")
        return "UNKNOWN is what they call me"

    bench.runner = bench.new_runner(more=(odd,))
    await bench.run(("c1", "odd", "{}"))
    (result,) = await bench.run(("c2", "odd", "{}"), after_recovery=True)
    assert result == "already done in this turn (call c1): UNKNOWN is what they call me"
    assert bench.shop.effects == ["odd"]


async def test_a_repeated_call_gets_the_late_result_of_the_first(bench: Bench) -> None:
    bench.runner = bench.new_runner(more=(_after_all(bench),))
    await bench.run(("c1", "after_all", "{}"))
    (result,) = await bench.run(("c2", "after_all", "{}"), after_recovery=True)
    assert result == "already done in this turn (call c1): finished after all"


# --- loops ---------------------------------------------------------------------------------------


async def test_the_sixth_identical_read_does_not_run(bench: Bench) -> None:
    results = [(await bench.run((f"c{n}", "look", "{}")))[0] for n in range(6)]
    assert results[0] == "a"
    assert all(each.startswith("a\n\n[The same call returned the same") for each in results[1:5])
    assert results[5].startswith("look has NOT run: the same call returned the same result 5 times")
    assert bench.runner.started_tools == ["look"] * 5
    assert bench.journal.log[-1] == "finished c5 failed"
    assert bench.runner.all_refused


async def test_a_different_result_resets_the_count(bench: Bench) -> None:
    for number in range(12):
        bench.annex.words = str(number // 4)
        await bench.run((f"c{number}", "look", "{}"))
    assert len(bench.runner.started_tools) == 12


async def test_a_tool_that_keeps_failing_is_disabled_for_the_turn(bench: Bench) -> None:
    results = [
        (await bench.run((f"c{n}", "moody", f'{{"ok":false,"number":{n}}}')))[0] for n in range(8)
    ]
    assert [each == f"no {n}" for n, each in enumerate(results)] == [True] * 2 + [False] * 6
    assert results[2].startswith("no 2\n\n[moody failed 3 times in a row.")
    assert not bench.runner.all_refused
    fails, works = await bench.run(("c9", "moody", '{"ok":true}'), ("c10", "look", "{}"))
    assert fails.startswith("moody has NOT run: it failed 8 times in a row")
    assert works == "a"


async def test_invalid_arguments_count_as_failures_of_the_tool(bench: Bench) -> None:
    results = [(await bench.run((f"c{n}", "pay", "{}")))[0] for n in range(3)]
    assert "in a row" not in results[1]
    assert "[pay failed 3 times in a row." in results[2]
    unknown = [(await bench.run((f"d{n}", "zzz", "{}")))[0] for n in range(3)]
    assert set(unknown) == {unknown[0]}
    assert unknown[0].endswith("linger, broken.")


@pytest.mark.parametrize(
    ("calls", "refused"),
    [
        pytest.param([], False, id="no calls"),
        pytest.param([("c1", "pay", "{}")], True, id="one"),
        pytest.param([("c1", "pay", "{}"), ("c2", "zzz", "{}")], True, id="two"),
        pytest.param([("c1", "pay", "{}"), ("c2", "look", "{}")], False, id="not all"),
        pytest.param([("c1", "broken", "{}")], False, id="one that failed"),
    ],
)
async def test_an_answer_with_only_refused_calls_is_marked(
    bench: Bench, calls: list[Made], refused: bool
) -> None:
    await bench.run(("c0", "zzz", "{}"))
    assert bench.runner.all_refused
    await bench.run(*calls)
    assert bench.runner.all_refused is refused


@pytest.mark.parametrize(
    ("call", "admitted"),
    [
        pytest.param(PAY_5, True, id="a call that may run"),
        pytest.param(("c1", "pay", "{}"), False, id="arguments that do not fit"),
        pytest.param(("c1", "zzz", "{}"), False, id="an unknown tool"),
    ],
)
async def test_the_gate_is_asked_without_running_a_call(
    bench: Bench, call: Made, admitted: bool
) -> None:
    assert bench.runner.is_admitted(made(call)[0]) is admitted
    assert bench.journal.log == []


async def test_calls_of_a_cut_answer_are_recorded_as_not_run(bench: Bench) -> None:
    rows = await bench.runner.refuse_cut_calls(made(PAY_5, ("c2", "look", "{}")))
    text = "has NOT run: the call was cut off. Make it again, if still needed."
    assert [(row.tool_call_id, row.content) for row in rows] == [
        ("c1", f"pay {text}"),
        ("c2", f"look {text}"),
    ]
    assert list(rows) == bench.journal.rows
    assert bench.journal.log == ["finished c1 failed", "finished c2 failed"]
    assert (bench.shop.effects, bench.events) == ([], [])


# --- results -------------------------------------------------------------------------------------


async def test_a_long_result_is_saved_to_a_file_and_previewed(bench: Bench) -> None:
    (result,) = await bench.run(("c1", "long", '{"size":150000}'))
    assert len(result) < 1800
    assert "150,000 characters" in result
    assert ".holdfast/results/c1.txt. Beginning" in result
    kept = bench.workspace / ".holdfast" / "results" / "c1.txt"
    assert kept.read_text(encoding="utf-8") == "x" * 150_000


async def test_the_preview_names_the_tool_that_reads_the_file(bench: Bench) -> None:
    @tool(risk=Risk.READ)
    async def read_file(_context: ToolContext) -> str:
        """Read on."""
        return ""

    bench.runner = bench.new_runner(more=(read_file,))
    (result,) = await bench.run(("c1", "long", '{"size":150000}'))
    assert "use read_file to read it" in result


async def test_the_results_of_a_turn_share_a_limit_but_short_ones_always_fit(
    bench: Bench,
) -> None:
    bench.runner = bench.new_runner(caps=ResultCaps(per_result=5000, per_turn=9000))
    results = await bench.run(
        ("c1", "long", '{"size":5000}'),
        ("c2", "long", '{"size":4100}'),
        ("c3", "long", '{"size":3000}'),
        ("c4", "long", '{"size":2000}'),
        ("c5", "pay", '{"amount":5}'),
    )
    assert [text.startswith("x") for text in results[:4]] == [True, False, False, False]
    assert results[4] == "paid 5"
    bench.runner = bench.new_runner(caps=ResultCaps(per_result=5000, per_turn=9000))
    both = await bench.run(("c6", "long", '{"size":4500}'), ("c7", "long", '{"size":4500}'))
    assert both == ["x" * 4500] * 2


async def test_a_result_that_cannot_be_saved_is_truncated(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.workspace /= "file"
    bench.workspace.touch()
    bench.runner = bench.new_runner()
    results = await bench.run(*((f"c{n}", "long", f'{{"size":{150_000 + n}}}') for n in range(3)))
    assert [len(text) // 1000 for text in results] == [100, 100, 1]
    assert results[0].endswith("[50000 more characters were left out]")
    assert results[2].endswith("characters were left out]")
    assert "cannot save the result of long" in caplog.text


async def test_warnings_follow_a_truncated_result(bench: Bench) -> None:
    await bench.run(("c1", "long", '{"size":150000}'))
    (result,) = await bench.run(("c2", "long", '{"size":150000}'))
    assert result.endswith("it is refused.]")


async def test_the_summary_contains_only_successful_calls(bench: Bench) -> None:
    await bench.run(
        PAY_5, ("c2", "broken", "{}"), ("c3", "read", '{"path":"a"}'), ("c4", "pay", "{}")
    )
    await bench.run(("c5", "pay", '{"amount":5}'))
    assert bench.runner.completed_summary == ["pay 5 \N{MULTIPLICATION SIGN}2", "read a"]
    assert bench.runner.started_tools == ["pay", "broken", "read", "pay"]
