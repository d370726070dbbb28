"""Sans-IO: what the daemon counts, out of facts that pass by anyway.

It is told what became durable (`sessions.store.store.StoreObserver`), what came of each op (`delivered`) and of
a turn's first words (`spoke`); nobody counts for its sake. What was begun and never ended is
forgotten after a while, so nothing here grows.
"""

from collections import OrderedDict
from typing import Generic, TypeVar

from gateway.observe.metric_types import OTHER, CounterMetric, HistogramMetric
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

MAX_MODELS = 20
"""Models that have figures of their own; the others share one name."""

_MAX_LABEL_LENGTH = 80
_MAX_REMEMBERED = 4_096
_UNKNOWN = "unknown"  # the platform of a turn that an earlier process began

_QUEUE_WAIT_BUCKETS = (0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 1800)
_FIRST_TEXT_BUCKETS = (0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60, 120)
_TURN_BUCKETS = (0.25, 0.5, 1, 2, 5, 10, 20, 40, 80, 160, 320, 640, 1800)
_LAG_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)

_DECISION_LABELS = {
    InboxState.WAITING: "message",
    InboxState.COMMAND: "command",
    InboxState.DONE: "correction",
}
_COMPLETE_VERDICTS = {"complete", "soft-complete"}

Value = TypeVar("Value")


class Metrics:
    """All that is counted in this process."""

    def __init__(self) -> None:
        self.inbound = CounterMetric(
            "holdfast_inbound_total",
            "What came in from a platform, by what was decided about it.",
            "platform",
            "decision",
        )
        self.duplicates = CounterMetric(
            "holdfast_duplicates_suppressed_total",
            "What a platform delivered once more although it was stored already.",
            "platform",
        )
        self.queue_wait_seconds = HistogramMetric(
            "holdfast_queue_wait_seconds",
            "From the arrival of a message to the start of its turn.",
            "platform",
            bounds=_QUEUE_WAIT_BUCKETS,
        )
        self.first_text_seconds = HistogramMetric(
            "holdfast_first_text_seconds",
            "From the start of a turn to the first text of the model.",
            "platform",
            bounds=_FIRST_TEXT_BUCKETS,
        )
        self.turn_seconds = HistogramMetric(
            "holdfast_turn_seconds",
            "From the start of a turn to its end.",
            "platform",
            bounds=_TURN_BUCKETS,
        )
        self.turns = CounterMetric(
            "holdfast_turns_total", "Turns that ended, by how.", "platform", "state"
        )
        self.model_requests = CounterMetric(
            "holdfast_model_requests_total",
            "Requests to models that ended, by what the answer was.",
            "model",
            "verdict",
        )
        self.recoveries = CounterMetric(
            "holdfast_recoveries_total",
            "Answers that were not whole and were asked for again or carried on, by what was wrong.",
            "cause",
        )
        self.tokens = CounterMetric(
            "holdfast_tokens_total", "Tokens sent to and received from models.", "model", "kind"
        )
        self.cached_tokens = CounterMetric(
            "holdfast_cached_tokens_total", "Those of the input that a model had cached.", "model"
        )
        self.cost_dollars = CounterMetric(
            "holdfast_cost_dollars_total", "What requests cost, where that is known.", "model"
        )
        self.tool_runs = CounterMetric(
            "holdfast_tool_runs_total", "Tool calls carried out.", "result"
        )
        self.suspended_sessions = CounterMetric(
            "holdfast_sessions_suspended_total", "Sessions that were suspended, by why.", "reason"
        )
        self.outbound = CounterMetric(
            "holdfast_outbound_total",
            "Ops handed to a platform, by what came of them.",
            "platform",
            "kind",
            "result",
        )
        self.rate_limited = CounterMetric(
            "holdfast_rate_limited_total",
            "Ops that a platform put off because there were too many (429).",
            "platform",
        )
        self.settled_items = CounterMetric(
            "holdfast_items_total",
            "Answers and notices that are delivered (sent), or never will be (dead).",
            "state",
        )
        self.loop_lag_seconds = HistogramMetric(
            "holdfast_loop_lag_seconds",
            "By how much the event loop was late, looked at once a second.",
            bounds=_LAG_BUCKETS,
        )
        self.http_refused = CounterMetric(
            "holdfast_http_refused_total",
            "HTTP requests and connections that were turned away or cut, by why.",
            "reason",
        )
        self._received: _RecentValues[tuple[int, str]] = (
            _RecentValues()
        )  # when and where, by inbox row
        self._started_turns: _RecentValues[tuple[int, str]] = _RecentValues()  # the same by turn
        self._models_by_request: _RecentValues[str] = _RecentValues()  # models, by request
        self._last_verdicts: _RecentValues[str] = _RecentValues()  # of the last request, by turn
        self._known_models: set[str] = set()

    @property
    def counters(self) -> tuple[CounterMetric, ...]:
        """All that only grows."""
        return tuple(each for each in vars(self).values() if isinstance(each, CounterMetric))

    @property
    def histograms(self) -> tuple[HistogramMetric, ...]:
        """All times."""
        return tuple(each for each in vars(self).values() if isinstance(each, HistogramMetric))

    # --- what became durable --------------------------------------------------------------------

    def on_accepted(self, entry: InboxEntry, *, new: bool) -> None:
        """See `sessions.store.store.StoreObserver`."""
        platform = platform_of(entry.key)
        if not new:
            self.duplicates.add(platform)
            self.inbound.add(platform, "duplicate")
            return
        # Of what is turned away the decision says why, in words of ours.
        decision = _DECISION_LABELS.get(entry.state) or entry.decision.replace(" ", "_")
        self.inbound.add(platform, decision)
        if entry.state is InboxState.WAITING:
            self._received.put(entry.id, (entry.received_at, platform))

    def on_applied(self, changes: tuple[Change, ...]) -> None:
        """See `sessions.store.store.StoreObserver`."""
        for change in changes:
            match change:
                case StartTurn():
                    self._on_turn_started(change)
                case EndTurn():
                    self._on_turn_ended(change)
                case StartAttempt():
                    self._on_attempt_started(change)
                case EndAttempt():
                    self._on_attempt_ended(change)
                case EndTool():
                    self.tool_runs.add("ok" if change.ok else "failed")
                case SetItem() if change.state in {ItemState.SENT, ItemState.DEAD}:
                    self.settled_items.add(change.state.value)
                case SetSession() if change.state is SessionState.SUSPENDED and change.reason:
                    self.suspended_sessions.add(change.reason.value)
                case _:
                    pass

    def _on_turn_started(self, change: StartTurn) -> None:
        self._started_turns.put(change.id, (change.at, platform_of(change.key)))
        for inbox in change.inbox:
            if received := self._received.pop(inbox):
                at, platform = received
                self.queue_wait_seconds.observe((change.at - at) / 1000, platform)

    def _on_turn_ended(self, change: EndTurn) -> None:
        self._last_verdicts.pop(change.id)
        started = self._started_turns.pop(change.id)
        if started is None:
            self.turns.add(_UNKNOWN, change.state.value)
            return
        at, platform = started
        self.turns.add(platform, change.state.value)
        self.turn_seconds.observe((change.at - at) / 1000, platform)

    def _on_attempt_started(self, change: StartAttempt) -> None:
        self._models_by_request.put(
            f"{change.turn_id} {change.number}", self._model_label(change.target)
        )
        last = self._last_verdicts.pop(change.turn_id)
        if last and last not in _COMPLETE_VERDICTS:
            self.recoveries.add(last)

    def _on_attempt_ended(self, change: EndAttempt) -> None:
        model = self._models_by_request.pop(f"{change.turn_id} {change.number}") or _UNKNOWN
        self.model_requests.add(model, change.verdict)
        why = f"{change.verdict}-{change.phase}" if change.phase else change.verdict
        self._last_verdicts.put(change.turn_id, why)
        if change.input_tokens:
            self.tokens.add(model, "input", amount=change.input_tokens)
        if change.output_tokens:
            self.tokens.add(model, "output", amount=change.output_tokens)
        if change.cached_tokens:
            self.cached_tokens.add(model, amount=change.cached_tokens)
        if change.cost and change.cost > 0:
            self.cost_dollars.add(model, amount=change.cost)

    def _model_label(self, label: str) -> str:
        label = label[:_MAX_LABEL_LENGTH].encode("utf-8", "replace").decode()
        if label not in self._known_models:
            if len(self._known_models) >= MAX_MODELS:
                return OTHER
            self._known_models.add(label)
        return label

    # --- what else passes by ----------------------------------------------------------------------

    def on_first_text(self, turn_id: str, now: int) -> None:
        """A turn has its first text; `now` in milliseconds."""
        if started := self._started_turns.get(turn_id):
            at, platform = started
            self.first_text_seconds.observe((now - at) / 1000, platform)

    def on_delivered(self, platform: str, op: Op, outcome: Receipt | PlatformError) -> None:
        """An op was handed to a platform, and this came of it."""
        result = "sent" if isinstance(outcome, Receipt) else type(outcome).__name__.lower()
        if isinstance(outcome, Unavailable) and outcome.retry_after is not None:
            result = "limited"
            self.rate_limited.add(platform)
        self.outbound.add(platform, type(op).__name__.lower(), result)


class _RecentValues(Generic[Value]):
    """What was begun and is expected to end; of too many the oldest are forgotten."""

    def __init__(self) -> None:
        self._values: OrderedDict[str, Value] = OrderedDict()

    def put(self, name: str, value: Value) -> None:
        self._values[name] = value
        if len(self._values) > _MAX_REMEMBERED:
            self._values.popitem(last=False)

    def get(self, name: str) -> Value | None:
        return self._values.get(name)

    def pop(self, name: str) -> Value | None:
        return self._values.pop(name, None)


def platform_of(key: str) -> str:
    """Name the platform of a conversation's key, `platform:…` or `platform@account:…`."""
    return key.partition(":")[0].partition("@")[0]
