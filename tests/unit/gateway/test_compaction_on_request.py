from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agent.compaction import Compacted
from agent.request.tokens import estimate_message
from agent.tools.registry import BUILT_IN
from gateway.settings import Settings
from gateway.side_requests.summary import SummaryFailed, compaction_change, summarize
from gateway.spending.budgets import TurnBudget
from gateway.turns.models import Models, open_targets
from gateway.turns.setting import TurnSetting
from gateway.turns.side_turn import SideQuestion, SideTurn
from sessions.changes import AppendMessages, PutSummary, TakeBackTurn
from sessions.errors import Conflict
from sessions.records import Message
from sessions.store.store import SessionStore
from sessions.values.clock import SystemClock
from tests.contract.store_kit import ADDRESS, KEY, ended, opened, started
from tests.fakes.gateway_settings import scripted_model
from tests.fakes.model_script import Script, ok
from tests.fakes.model_server import ModelServer

NO_STORE: Any = None
UNLIMITED = TurnBudget(NO_STORE, ())  # reserves nothing, because there is no limit
LONG = "A long story about ships and harbours. " * 40
ROWS = tuple(
    row
    for number in range(4)
    for row in (Message("user", f"{LONG} {number}"), Message("assistant", f"{LONG} again {number}"))
)
WHOLE = sum(map(estimate_message, ROWS))
DONE = Compacted(
    summary="They talked.", kept_rows=2, rows=ROWS[-2:], tokens_before=WHOLE, tokens_after=100
)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SessionStore]:
    made = await SessionStore.open(f"sqlite:///{tmp_path / 'holdfast.db'}", clock=SystemClock())
    await made.apply(
        opened("s1"),
        started("t1", "s1", said=""),
        AppendMessages("s1", "t1", ROWS[:-2], 2),
        ended("t1"),
        started("t2", "s1", said=""),
        AppendMessages("s1", "t2", ROWS[-2:], 3),
        ended("t2"),
    )
    yield made
    await made.close()


async def setting(server: ModelServer, home: Path, **model: Any) -> tuple[Models, TurnSetting]:
    settings = scripted_model(
        server,
        **model,
    )
    used = Settings(model=settings)
    models = Models(used, home, await open_targets(used), clock=SystemClock(), tools=BUILT_IN)
    return models, models.turn_setting(KEY, "p")


async def shorten(
    server: ModelServer, home: Path, rows: tuple[Message, ...] = ROWS, **model: Any
) -> tuple[Compacted | None, SideTurn]:
    models, given = await setting(server, home, **model)
    side = SideTurn("t_side", given, SystemClock(), UNLIMITED)
    try:
        return await summarize(rows, "", given, side), side
    finally:
        await models.aclose()


# --- the summary -------------------------------------------------------------------------------


async def test_a_quarter_stays_and_the_request_holds_the_rest(tmp_path: Path) -> None:
    async with ModelServer(ok("They talked.")) as server:
        done, side = await shorten(server, tmp_path)
    assert done
    assert done.rows == ROWS[-2:]
    assert (done.kept_rows, done.summary, done.tokens_before) == (2, "They talked.", WHOLE)
    record = server.requests[0].last_user_text
    assert all(row.content in record for row in ROWS[:-2])
    assert side.tokens == 15


async def test_a_single_exchange_is_not_compacted_and_no_request_is_sent(tmp_path: Path) -> None:
    async with ModelServer() as server:
        done, side = await shorten(server, tmp_path, ROWS[:2])
    assert done is None
    assert server.requests == []
    assert (
        side.usage_changes(
            SideQuestion(key="k", session_id="s1", address=ADDRESS, person="p", request="/compact")
        )
        == ()
    )


async def test_a_summary_that_saves_nothing_is_not_used(tmp_path: Path) -> None:
    async with ModelServer(ok(LONG * 8)) as server:
        done, side = await shorten(server, tmp_path)
    assert done is None
    assert side.tokens == 15


async def test_the_text_to_summarise_fits_into_a_known_context_window(tmp_path: Path) -> None:
    async with ModelServer(ok("They talked.")) as server:
        await shorten(server, tmp_path, context_window=2048)
    assert estimate_message(Message("user", server.requests[0].last_user_text)) < 0.7 * 2048


async def test_a_learned_context_window_leads_to_a_second_request(
    tmp_path: Path,
) -> None:
    def small(body: dict[str, Any]) -> Script:
        if estimate_message(Message("user", str(body["messages"][-1]["content"]))) > 1500:
            return 'S400"This model\'s maximum context length is 1500 tokens."'
        return ok("They talked.")

    async with ModelServer(small) as server:
        done, side = await shorten(server, tmp_path)
    assert done
    assert done.summary == "They talked."
    numbers = [change.number for change in side._attempts if hasattr(change, "number")]
    assert numbers == sorted(numbers)
    assert len(set(numbers)) == len(server.requests)


async def test_a_failing_model_gives_the_reason_instead_of_a_summary(tmp_path: Path) -> None:
    async with ModelServer('S400"closed today"') as server:
        with pytest.raises(SummaryFailed, match="closed today"):
            await shorten(server, tmp_path)


# --- storage -----------------------------------------------------------------------------------


async def test_rows_added_meanwhile_are_kept(store: SessionStore) -> None:
    seen = await store.sessions.context("s1")
    new = Message("user", "meanwhile")
    await store.apply(started("t3", "s1", said=""), AppendMessages("s1", "t3", (new,), 4))
    change = await compaction_change(store, "s1", seen, DONE, 5)
    assert change == PutSummary(session_id="s1", keep=3, summary="They talked.", at=5, rows=9)
    await store.apply(change)
    assert await store.sessions.context("s1") == ("They talked.", (*ROWS[-2:], new))


async def test_no_summary_is_stored_after_an_undo(
    store: SessionStore,
) -> None:
    seen = await store.sessions.context("s1")
    await store.apply(TakeBackTurn("s1", "t2", 4))
    assert await compaction_change(store, "s1", seen, DONE, 5) is None


async def test_no_summary_is_stored_after_another_summary(store: SessionStore) -> None:
    seen = await store.sessions.context("s1")
    await store.apply(
        PutSummary(session_id="s1", keep=4, summary="They talked, somebody says.", at=4)
    )
    assert await compaction_change(store, "s1", seen, DONE, 5) is None


@pytest.mark.parametrize("rows", [7, 9])
async def test_a_summary_for_another_number_of_rows_is_refused(
    store: SessionStore, rows: int
) -> None:
    with pytest.raises(Conflict, match="8 rows behind its summary"):
        await store.apply(
            PutSummary(session_id="s1", keep=2, summary="They talked.", at=5, rows=rows)
        )
    assert await store.sessions.context("s1") == ("", ROWS)
    await store.apply(PutSummary(session_id="s1", keep=2, summary="They talked.", at=5, rows=8))
    assert await store.sessions.context("s1") == ("They talked.", ROWS[-2:])


# --- costs -------------------------------------------------------------------------------------


async def test_side_requests_record_their_cost_in_a_turn_that_undo_cannot_find(
    store: SessionStore, tmp_path: Path
) -> None:
    async with ModelServer('H T"The " RST', 'H T"The end." F stop U(7,100,60) D') as server:
        models, given = await setting(server, tmp_path)
        side = SideTurn("t_side", given, SystemClock(), UNLIMITED)
        done = await side.ask("", (Message("user", "go"),), session="s1")
        await models.aclose()
    assert done.text == "The end."
    assert (
        side.usage_changes(
            SideQuestion(key=KEY, session_id="", address=ADDRESS, person="p", request="x")
        )
        == ()
    )  # without a session
    await store.apply(
        *side.usage_changes(
            SideQuestion(
                key=KEY, session_id="s1", address=ADDRESS, person="p", request="(on the side) go"
            )
        )
    )
    spent = await store.spending.totals(session_id="s1", person="p")
    assert (spent.requests, spent.input_tokens, spent.output_tokens) == (2, 100, 7)
    last = await store.turns.last("s1")
    assert last
    assert last.id == "t2"
    assert await store.turns.running() == ()
    assert await store.sessions.context("s1") == ("", ROWS)
    session = await store.sessions.get("s1")
    assert session
    assert session.messages == len(ROWS)


async def test_a_model_that_calls_missing_tools_is_asked_for_text(
    tmp_path: Path,
) -> None:
    scripts = ('H C(0,c1,read,{"path":"a"}) F tool_calls U D', ok("Without tools: fine."))
    async with ModelServer(*scripts) as server:
        models, given = await setting(server, tmp_path)
        side = SideTurn("t_side", given, SystemClock(), UNLIMITED)
        done = await side.ask("", (Message("user", "go"),))
        await models.aclose()
    assert done.text == "Without tools: fine."
    assert [each.tools for each in server.requests] == [{}, {}]


async def test_a_too_long_conversation_is_shortened_for_the_side_question_only(
    store: SessionStore, tmp_path: Path
) -> None:
    async with ModelServer(ok("They talked."), ok("Fine.")) as server:
        models, given = await setting(server, tmp_path, context_window=2048)
        side = SideTurn("t_side", given, SystemClock(), UNLIMITED)
        done = await side.ask("", (*ROWS, Message("user", "and?")), session="s1")
        await models.aclose()
    assert done.text == "Fine."
    assert server.requests[1].messages[0]["content"].startswith("[Summary of the conversation")
    assert await store.sessions.context("s1") == ("", ROWS)
