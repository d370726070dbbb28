"""Events of the daemon, and the metrics derived from them."""

from typing import Any

import pytest

from gateway.delivery.link import Crashed
from gateway.observe.metric_types import CounterMetric, HistogramMetric
from gateway.observe.metrics import _MAX_REMEMBERED, MAX_KEYS, MAX_MODELS, Metrics
from platforms.core.contract import Address, Edit, Op, Post, React, Receipt, Typing
from platforms.core.errors import (
    ChatGone,
    PlatformError,
    Rejected,
    Unauthorized,
    Unavailable,
    Unconfirmed,
)
from sessions.changes import (
    Change,
    Checkpoint,
    EndAttempt,
    EndTool,
    EndTurn,
    SetItem,
    SetSession,
    StartAttempt,
    StartTurn,
)
from sessions.records import (
    InboxEntry,
    InboxState,
    ItemState,
    SessionReason,
    SessionState,
    TurnState,
)

PLACE = Address("telegram", "1001")


def entry(
    state: InboxState = InboxState.WAITING,
    decision: str = "member",
    *,
    key: str = "telegram:1001",
    id_: str = "i1",
    at: int = 0,
) -> InboxEntry:
    return InboxEntry(
        id=id_,
        source="telegram@:1001",
        event="7",
        key=key,
        address=PLACE,
        state=state,
        payload=b"",
        received_at=at,
        decision=decision,
    )


def start(turn: str = "t1", *inbox: str, at: int = 0, key: str = "telegram:1001") -> StartTurn:
    return StartTurn(
        id=turn,
        session_id="s1",
        key=key,
        address=PLACE,
        inbox=inbox,
        messages=(),
        request="hello",
        at=at,
    )


def counted(figure: Any) -> dict[tuple[str, ...], float]:
    return dict(figure.read())


def times(figure: Any) -> dict[tuple[str, ...], float]:
    return {labels: total for labels, _, total in figure.read()}


@pytest.mark.parametrize(
    ("state", "decision", "label"),
    [
        (InboxState.WAITING, "admin", "message"),
        (InboxState.COMMAND, "stop", "command"),
        (InboxState.COMMAND, "anything a stranger writes", "command"),
        (InboxState.DONE, "InboundEdit", "correction"),
        (InboxState.REFUSED, "stale", "stale"),
        (InboxState.REFUSED, "too many", "too_many"),
        (InboxState.IGNORED, "not addressed", "not_addressed"),
        (InboxState.IGNORED, "a bot", "a_bot"),
        (InboxState.IGNORED, "not allowed", "not_allowed"),
    ],
)
def test_inbound_events_are_counted_by_decision(
    state: InboxState, decision: str, label: str
) -> None:
    ledger = Metrics()
    ledger.on_accepted(entry(state, decision, key="slack@work:T1/D1"), new=True)
    assert counted(ledger.inbound) == {("slack", label): 1}
    assert counted(ledger.duplicates) == {}


def test_repeated_event_counts_as_suppressed_duplicate() -> None:
    ledger = Metrics()
    ledger.on_accepted(entry(), new=True)
    ledger.on_accepted(entry(), new=False)
    assert counted(ledger.duplicates) == {("telegram",): 1}
    assert counted(ledger.inbound) == {("telegram", "message"): 1, ("telegram", "duplicate"): 1}


def test_times_of_a_turn_are_measured() -> None:
    ledger = Metrics()
    ledger.on_accepted(entry(id_="i1", at=1_000), new=True)
    ledger.on_accepted(entry(id_="i2", at=2_000), new=True)
    ledger.on_applied((start("t1", "i1", "i2", at=4_000),))
    ledger.on_first_text("t1", 4_700)
    ledger.on_applied((EndTurn("t1", TurnState.DONE, 9_000),))
    assert times(ledger.queue_wait_seconds) == {("telegram",): 3 + 2}
    assert times(ledger.first_text_seconds) == {("telegram",): pytest.approx(0.7)}
    assert times(ledger.turn_seconds) == {("telegram",): 5}
    assert counted(ledger.turns) == {("telegram", "done"): 1}


def test_queue_wait_and_turn_end_are_counted_once() -> None:
    ledger = Metrics()
    ledger.on_accepted(entry(), new=True)
    ledger.on_applied((start("t1", "i1"), EndTurn("t1", TurnState.STOPPED, 1)))
    ledger.on_applied((start("t2", "i1"),))
    ledger.on_first_text("t1", 5)
    assert [sum(numbers) for _, numbers, _ in ledger.queue_wait_seconds.read()] == [1]
    assert times(ledger.first_text_seconds) == {}


def test_turn_of_an_earlier_process_ends_with_an_unknown_platform() -> None:
    ledger = Metrics()
    ledger.on_applied((EndTurn("t0", TurnState.INTERRUPTED, 1),))
    assert counted(ledger.turns) == {("unknown", "interrupted"): 1}
    assert times(ledger.turn_seconds) == {}


def request(verdict: str = "complete", number: int = 1, phase: str = "", **used: Any) -> Change:
    return EndAttempt(turn_id="t1", number=number, verdict=verdict, at=1, phase=phase, **used)


def test_requests_tokens_and_cost_are_counted_by_model() -> None:
    ledger = Metrics()
    ledger.on_applied((start(), StartAttempt("t1", 1, "openai/big", 0)))
    used: dict[str, Any] = {
        "input_tokens": 90,
        "output_tokens": 10,
        "cached_tokens": 60,
        "cost": 0.25,
    }
    ledger.on_applied((request(**used), StartAttempt("t1", 2, "local/small", 0)))
    ledger.on_applied((request("empty", 2, cost=None), request(number=3, output_tokens=1)))
    assert counted(ledger.model_requests) == {
        ("openai/big", "complete"): 1,
        ("local/small", "empty"): 1,
        ("unknown", "complete"): 1,
    }
    assert counted(ledger.tokens) == {
        ("openai/big", "input"): 90,
        ("openai/big", "output"): 10,
        ("unknown", "output"): 1,
    }
    assert counted(ledger.cached_tokens) == {("openai/big",): 60}
    assert counted(ledger.cost_dollars) == {("openai/big",): 0.25}


@pytest.mark.parametrize(
    ("verdict", "phase", "cause"),
    [
        ("complete", "", None),  # a request for tools
        ("soft-complete", "", None),
        ("cut", "tool-args", "cut-tool-args"),
        ("cut", "before-first", "cut-before-first"),
        ("capped", "", "capped"),
        ("empty", "", "empty"),
    ],
)
def test_request_after_an_incomplete_answer_is_a_recovery(
    verdict: str, phase: str, cause: str | None
) -> None:
    ledger = Metrics()
    ledger.on_applied((StartAttempt("t1", 1, "m", 0), request(verdict, 1, phase)))
    assert counted(ledger.recoveries) == {}
    ledger.on_applied((StartAttempt("t1", 2, "m", 0), request(number=2)))
    ledger.on_applied((StartAttempt("t1", 3, "m", 0),))
    assert counted(ledger.recoveries) == ({(cause,): 1} if cause else {})


def test_finished_turn_counts_no_recovery() -> None:
    ledger = Metrics()
    ledger.on_applied((StartAttempt("t1", 1, "m", 0), request("cut", 1, "text")))
    ledger.on_applied((EndTurn("t1", TurnState.FAILED, 1), StartAttempt("t1", 2, "m", 0)))
    assert counted(ledger.recoveries) == {}


def test_models_beyond_the_limit_are_counted_as_other() -> None:
    ledger = Metrics()
    for number in range(MAX_MODELS + 10):
        label = f"{number}/{'m' * 200}"
        ledger.on_applied((StartAttempt("t1", 1, label, 0), request()))
    models = {labels[0] for labels in counted(ledger.model_requests)}
    assert len(models) <= MAX_MODELS + 1
    assert "other" in models
    assert max(map(len, models)) <= 80


def test_keys_beyond_the_limit_are_counted_as_other() -> None:
    ledger = Metrics()
    for number in range(MAX_KEYS + 10):
        ledger.on_api_request(f"key-{number}", "none")
    found = counted(ledger.api_requests)
    assert len(found) == MAX_KEYS + 1
    assert found["other", "none"] == 10


@pytest.mark.parametrize(
    ("outcome", "result", "limited"),
    [
        (Receipt("m1"), "sent", 0),
        (Unavailable("busy", 3.0), "limited", 1),
        (Unavailable("busy", 0.0), "limited", 1),
        (Unavailable("away"), "unavailable", 0),
        (Rejected(), "rejected", 0),
        (ChatGone(), "chatgone", 0),
        (Unauthorized(), "unauthorized", 0),
        (Unconfirmed(), "unconfirmed", 0),
        (Crashed(), "crashed", 0),
    ],
)
def test_operations_are_counted_by_result(
    outcome: Receipt | PlatformError, result: str, limited: int
) -> None:
    ledger = Metrics()
    ledger.on_delivered("telegram", Post("o1", PLACE, "hello"), outcome)
    assert counted(ledger.outbound) == {("telegram", "post", result): 1}
    assert sum(counted(ledger.rate_limited).values()) == limited


@pytest.mark.parametrize(
    ("op", "kind"),
    [
        (Edit("o", PLACE, message="m", text="hello"), "edit"),
        (Typing("o", PLACE), "typing"),
        (React("o", PLACE, "m", "👀"), "react"),
    ],
    ids=["edit", "typing", "react"],
)
def test_operations_are_counted_by_kind(op: Op, kind: str) -> None:
    ledger = Metrics()
    ledger.on_delivered("slack", op, Receipt("m"))
    assert counted(ledger.outbound) == {("slack", kind, "sent"): 1}


def test_tools_items_and_suspended_sessions_are_counted() -> None:
    ledger = Metrics()
    ledger.on_applied(
        (
            EndTool(turn_id="t1", call_id="c1", ok=True, result="", at=1),
            EndTool(turn_id="t1", call_id="c2", ok=False, result="", at=1),
            SetItem(id="a1", state=ItemState.SENT, at=1),
            SetItem(id="a2", state=ItemState.DEAD, at=1),
            SetItem(id="a3", state=ItemState.ATTEMPTING, at=1),
            SetSession("s1", SessionState.SUSPENDED, SessionReason.CRASH, 1),
            SetSession("s2", SessionState.CLOSED, SessionReason.NEW, 1),
            SetSession("s3", SessionState.ACTIVE, None, 1),
            Checkpoint("t1", "so far"),
        )
    )
    assert counted(ledger.tool_runs) == {("ok",): 1, ("failed",): 1}
    assert counted(ledger.settled_items) == {("sent",): 1, ("dead",): 1}
    assert counted(ledger.suspended_sessions) == {("crash",): 1}


def test_unfinished_turns_are_eventually_dropped() -> None:
    ledger = Metrics()
    for number in range(_MAX_REMEMBERED + 100):
        ledger.on_accepted(entry(id_=f"i{number}"), new=True)
        ledger.on_applied((start(f"t{number}"), StartAttempt(f"t{number}", 1, "m", 0)))
        ledger.on_applied((EndAttempt(turn_id=f"x{number}", number=1, verdict="cut", at=0),))
    kept = (
        ledger._received,
        ledger._started_turns,
        ledger._models_by_request,
        ledger._last_verdicts,
    )
    assert [len(each._values) for each in kept] == [_MAX_REMEMBERED] * 4
    ledger.on_applied((EndTurn("t0", TurnState.DONE, 1), EndTurn(f"t{number}", TurnState.DONE, 1)))
    assert counted(ledger.turns) == {("unknown", "done"): 1, ("telegram", "done"): 1}


def test_every_metric_has_the_prefix_and_a_description() -> None:
    ledger = Metrics()
    figures: list[CounterMetric | HistogramMetric] = [*ledger.counters, *ledger.histograms]
    assert len({each.name for each in figures}) == len(figures) > 10
    for each in figures:
        assert each.name.startswith("holdfast_")
        assert each.description.endswith(".")
    assert all(each.name.endswith("_total") for each in ledger.counters)
    assert all(each.name.endswith("_seconds") for each in ledger.histograms)
    assert all(list(each.bounds) == sorted(each.bounds) for each in ledger.histograms)
