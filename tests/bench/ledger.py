"""What it costs to count a turn: `python -m tests.bench.ledger` prints it.

One turn as the daemon commits it: a message, two requests to a model with a tool between them, and
six ops. `tests/bench/test_ledger_cost.py` holds the limit.
"""

import time
from collections.abc import Callable

from gateway.observe.metrics import Metrics
from platforms.core.contract import Address, Edit, Op, Post, React, Receipt, Typing
from sessions.changes import (
    AppendMessages,
    Change,
    Checkpoint,
    EndAttempt,
    EndTool,
    EndTurn,
    SetItem,
    StartAttempt,
    StartTool,
    StartTurn,
)
from sessions.records import InboxEntry, InboxState, ItemState, TurnState

KEY = "telegram:1001"
PLACE = Address("telegram", "1001")
OPS: tuple[Op, ...] = (
    Typing("o", PLACE),
    Post("o", PLACE, "hello"),
    *[Edit("o", PLACE, message="m", text="hello")] * 2,
    *[React("o", PLACE, "m", "👀")] * 2,
)


def turn(number: int) -> Callable[[Metrics], None]:
    """Make all records of a turn, and give what tells them to a ledger."""
    id_ = f"t{number}"
    received = InboxEntry(
        id=f"i{number}",
        source="telegram@:1001",
        event=id_,
        key=KEY,
        address=PLACE,
        state=InboxState.WAITING,
        payload=b"",
        received_at=1,
        decision="member",
    )
    asked = (
        StartTurn(
            id=id_,
            session_id="s",
            key=KEY,
            address=PLACE,
            inbox=(received.id,),
            messages=(),
            request="hello",
            at=2,
        ),
        attempt(id_, 1),
    )
    committed: tuple[tuple[Change, ...], ...] = (
        (Checkpoint(id_, "so far"),),
        (answer(id_, 1), AppendMessages("s", id_, (), 3)),
        (StartTool(turn_id=id_, call_id="c1", tool="read", risk="read", arguments="{}", at=3),),
        (
            EndTool(turn_id=id_, call_id="c1", ok=True, result="", at=3),
            AppendMessages("s", id_, (), 3),
        ),
        (attempt(id_, 2),),
        (EndTurn(id_, TurnState.DONE, 9), answer(id_, 2)),
        (SetItem(id=f"a{number}", state=ItemState.SENT, at=9),),
    )
    receipt = Receipt("m1")

    def tell(ledger: Metrics) -> None:
        ledger.on_accepted(received, new=True)
        ledger.on_applied(asked)
        ledger.on_first_text(id_, 3)
        for changes in committed:
            ledger.on_applied(changes)
        for op in OPS:
            ledger.on_delivered("telegram", op, receipt)

    return tell


def attempt(turn_id: str, number: int) -> StartAttempt:
    """Begin a request."""
    return StartAttempt(turn_id, number, "openai/gpt-5.5", 2)


def answer(turn_id: str, number: int) -> EndAttempt:
    """End it."""
    return EndAttempt(
        turn_id=turn_id,
        number=number,
        verdict="complete",
        at=3,
        input_tokens=900,
        output_tokens=90,
        cached_tokens=600,
        cost=0.1,
    )


def cost(turns: int = 2_000, rounds: int = 5, make: Callable[[], Metrics] = Metrics) -> float:
    """Give the seconds of CPU time that a turn takes; the best round, since others disturb."""
    ledger, best = make(), float("inf")
    for _ in range(rounds):
        told = [turn(number) for number in range(turns)]
        began = time.process_time()
        for tell in told:
            tell(ledger)
        best = min(best, (time.process_time() - began) / turns)
    return best


if __name__ == "__main__":
    print(f"{cost() * 1e6:.1f} µs of CPU time to count a turn")  # noqa: T201 - that is what it is for
