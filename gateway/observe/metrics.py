"""Sans-IO: what the daemon counts, out of facts that pass by anyway.

It is told what became durable (`sessions.store.store.Witness`), what came of each op (`delivered`) and of
a turn's first words (`spoke`); nobody counts for its sake. What was begun and never ended is
forgotten after a while, so nothing here grows.
"""

from collections import OrderedDict
from typing import Generic, TypeVar

from gateway.observe.metric_types import OTHER, Count, Spread
from platforms.core.contract import Op, Receipt
from platforms.core.errors import PlatformError, Unavailable
from sessions.changes import (
    Change,
    EndAttempt,
    EndTool,
    EndTurn,
    SetItem,
    SetSession,
    StartAttempt,
    StartTurn,
)
from sessions.records import InboxEntry, InboxState, ItemState, SessionState

MOST_MODELS = 20
"""Models that have figures of their own; the others share one name."""

_LONGEST_LABEL = 80
_REMEMBERED = 4_096
_UNKNOWN = "unknown"  # the platform of a turn that an earlier process began

_WAITS = (0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 1800)
_FIRSTS = (0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60, 120)
_TURNS = (0.25, 0.5, 1, 2, 5, 10, 20, 40, 80, 160, 320, 640, 1800)
_LAGS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)

_DECISIONS = {
    InboxState.WAITING: "message",
    InboxState.COMMAND: "command",
    InboxState.DONE: "correction",
}
_WHOLE = {"complete", "soft-complete"}

Value = TypeVar("Value")


class Ledger:
    """All that is counted in this process."""

    def __init__(self) -> None:
        self.inbound = Count(
            "holdfast_inbound_total",
            "What came in from a platform, by what was decided about it.",
            "platform",
            "decision",
        )
        self.duplicates = Count(
            "holdfast_duplicates_suppressed_total",
            "What a platform delivered once more although it was stored already.",
            "platform",
        )
        self.queue_wait = Spread(
            "holdfast_queue_wait_seconds",
            "From the arrival of a message to the start of its turn.",
            "platform",
            bounds=_WAITS,
        )
        self.first_text = Spread(
            "holdfast_first_text_seconds",
            "From the start of a turn to the first text of the model.",
            "platform",
            bounds=_FIRSTS,
        )
        self.turn_time = Spread(
            "holdfast_turn_seconds",
            "From the start of a turn to its end.",
            "platform",
            bounds=_TURNS,
        )
        self.turns = Count("holdfast_turns_total", "Turns that ended, by how.", "platform", "state")
        self.requests = Count(
            "holdfast_model_requests_total",
            "Requests to models that ended, by what the answer was.",
            "model",
            "verdict",
        )
        self.recoveries = Count(
            "holdfast_recoveries_total",
            "Answers that were not whole and were asked for again or carried on, by what was wrong.",
            "cause",
        )
        self.tokens = Count(
            "holdfast_tokens_total", "Tokens sent to and received from models.", "model", "kind"
        )
        self.cached = Count(
            "holdfast_cached_tokens_total", "Those of the input that a model had cached.", "model"
        )
        self.cost = Count(
            "holdfast_cost_dollars_total", "What requests cost, where that is known.", "model"
        )
        self.tools = Count("holdfast_tool_runs_total", "Tool calls carried out.", "result")
        self.suspended = Count(
            "holdfast_sessions_suspended_total", "Sessions that were suspended, by why.", "reason"
        )
        self.outbound = Count(
            "holdfast_outbound_total",
            "Ops handed to a platform, by what came of them.",
            "platform",
            "kind",
            "result",
        )
        self.limited = Count(
            "holdfast_rate_limited_total",
            "Ops that a platform put off because there were too many (429).",
            "platform",
        )
        self.settled = Count(
            "holdfast_items_total",
            "Answers and notices that are delivered (sent), or never will be (dead).",
            "state",
        )
        self.lag = Spread(
            "holdfast_loop_lag_seconds",
            "By how much the event loop was late, looked at once a second.",
            bounds=_LAGS,
        )
        self.cut = Count(
            "holdfast_http_refused_total",
            "HTTP requests and connections that were turned away or cut, by why.",
            "reason",
        )
        self._received: _Memory[tuple[int, str]] = _Memory()  # when and where, by inbox row
        self._turns: _Memory[tuple[int, str]] = _Memory()  # the same by turn
        self._asked: _Memory[str] = _Memory()  # models, by request
        self._verdicts: _Memory[str] = _Memory()  # of the last request, by turn
        self._models: set[str] = set()

    @property
    def counts(self) -> tuple[Count, ...]:
        """All that only grows."""
        return tuple(each for each in vars(self).values() if isinstance(each, Count))

    @property
    def spreads(self) -> tuple[Spread, ...]:
        """All times."""
        return tuple(each for each in vars(self).values() if isinstance(each, Spread))

    # --- what became durable --------------------------------------------------------------------

    def accepted(self, entry: InboxEntry, *, new: bool) -> None:
        """See `sessions.store.store.Witness`."""
        platform = platform_of(entry.key)
        if not new:
            self.duplicates.add(platform)
            self.inbound.add(platform, "duplicate")
            return
        # Of what is turned away the decision says why, in words of ours.
        decision = _DECISIONS.get(entry.state) or entry.decision.replace(" ", "_")
        self.inbound.add(platform, decision)
        if entry.state is InboxState.WAITING:
            self._received.put(entry.id, (entry.received_at, platform))

    def applied(self, changes: tuple[Change, ...]) -> None:
        """See `sessions.store.store.Witness`."""
        for change in changes:
            match change:
                case StartTurn():
                    self._turn_started(change)
                case EndTurn():
                    self._turn_ended(change)
                case StartAttempt():
                    self._asked_model(change)
                case EndAttempt():
                    self._answered(change)
                case EndTool():
                    self.tools.add("ok" if change.ok else "failed")
                case SetItem() if change.state in {ItemState.SENT, ItemState.DEAD}:
                    self.settled.add(change.state.value)
                case SetSession() if change.state is SessionState.SUSPENDED and change.reason:
                    self.suspended.add(change.reason.value)
                case _:
                    pass

    def _turn_started(self, change: StartTurn) -> None:
        self._turns.put(change.id, (change.at, platform_of(change.key)))
        for inbox in change.inbox:
            if received := self._received.take(inbox):
                at, platform = received
                self.queue_wait.saw((change.at - at) / 1000, platform)

    def _turn_ended(self, change: EndTurn) -> None:
        self._verdicts.take(change.id)
        started = self._turns.take(change.id)
        if started is None:
            self.turns.add(_UNKNOWN, change.state.value)
            return
        at, platform = started
        self.turns.add(platform, change.state.value)
        self.turn_time.saw((change.at - at) / 1000, platform)

    def _asked_model(self, change: StartAttempt) -> None:
        self._asked.put(f"{change.turn_id} {change.number}", self._model(change.target))
        last = self._verdicts.take(change.turn_id)
        if last and last not in _WHOLE:
            self.recoveries.add(last)

    def _answered(self, change: EndAttempt) -> None:
        model = self._asked.take(f"{change.turn_id} {change.number}") or _UNKNOWN
        self.requests.add(model, change.verdict)
        why = f"{change.verdict}-{change.phase}" if change.phase else change.verdict
        self._verdicts.put(change.turn_id, why)
        if change.input_tokens:
            self.tokens.add(model, "input", amount=change.input_tokens)
        if change.output_tokens:
            self.tokens.add(model, "output", amount=change.output_tokens)
        if change.cached_tokens:
            self.cached.add(model, amount=change.cached_tokens)
        if change.cost and change.cost > 0:
            self.cost.add(model, amount=change.cost)

    def _model(self, label: str) -> str:
        label = label[:_LONGEST_LABEL].encode("utf-8", "replace").decode()
        if label not in self._models:
            if len(self._models) >= MOST_MODELS:
                return OTHER
            self._models.add(label)
        return label

    # --- what else passes by ----------------------------------------------------------------------

    def spoke(self, turn_id: str, now: int) -> None:
        """A turn has its first text; `now` in milliseconds."""
        if started := self._turns.get(turn_id):
            at, platform = started
            self.first_text.saw((now - at) / 1000, platform)

    def delivered(self, platform: str, op: Op, outcome: Receipt | PlatformError) -> None:
        """An op was handed to a platform, and this came of it."""
        result = "sent" if isinstance(outcome, Receipt) else type(outcome).__name__.lower()
        if isinstance(outcome, Unavailable) and outcome.retry_after is not None:
            result = "limited"
            self.limited.add(platform)
        self.outbound.add(platform, type(op).__name__.lower(), result)


class _Memory(Generic[Value]):
    """What was begun and is expected to end; of too many the oldest are forgotten."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Value] = OrderedDict()

    def put(self, name: str, value: Value) -> None:
        self._kept[name] = value
        if len(self._kept) > _REMEMBERED:
            self._kept.popitem(last=False)

    def get(self, name: str) -> Value | None:
        return self._kept.get(name)

    def take(self, name: str) -> Value | None:
        return self._kept.pop(name, None)


def platform_of(key: str) -> str:
    """Name the platform of a conversation's key, `platform:…` or `platform@account:…`."""
    return key.partition(":")[0].partition("@")[0]
