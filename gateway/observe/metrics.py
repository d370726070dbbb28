"""Sans-IO: the metrics of the daemon, derived from events that exist anyway.

`Metrics` observes committed changes (`sessions.store.store.StoreObserver`), deliveries and first
texts. Operations that began and never ended are dropped after a while, so memory stays bounded.
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
MAX_KEYS = 20
"""Models with a label of their own; further models are counted under `other`."""

_MAX_LABEL_LENGTH = 80
_MAX_REMEMBERED = 4_096
_UNKNOWN = "unknown"  # platform of a turn that began in an earlier process

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
    """All counters and histograms of this process."""

    def __init__(self) -> None:
        self.inbound = CounterMetric(
            "holdfast_inbound_total",
            "Events received from a platform, by decision.",
            "platform",
            "decision",
        )
        self.duplicates = CounterMetric(
            "holdfast_duplicates_suppressed_total",
            "Events that a platform delivered again after they were stored.",
            "platform",
        )
        self.queue_wait_seconds = HistogramMetric(
            "holdfast_queue_wait_seconds",
            "Time from the arrival of a message to the start of its turn.",
            "platform",
            bounds=_QUEUE_WAIT_BUCKETS,
        )
        self.first_text_seconds = HistogramMetric(
            "holdfast_first_text_seconds",
            "Time from the start of a turn to the first text of the model.",
            "platform",
            bounds=_FIRST_TEXT_BUCKETS,
        )
        self.turn_seconds = HistogramMetric(
            "holdfast_turn_seconds",
            "Time from the start of a turn to its end.",
            "platform",
            bounds=_TURN_BUCKETS,
        )
        self.turns = CounterMetric(
            "holdfast_turns_total", "Finished turns, by final state.", "platform", "state"
        )
        self.model_requests = CounterMetric(
            "holdfast_model_requests_total",
            "Finished requests to models, by verdict on the answer.",
            "model",
            "verdict",
        )
        self.recoveries = CounterMetric(
            "holdfast_recoveries_total",
            "Incomplete model answers that were retried or continued, by cause.",
            "cause",
        )
        self.tokens = CounterMetric(
            "holdfast_tokens_total", "Tokens sent to and received from models.", "model", "kind"
        )
        self.cached_tokens = CounterMetric(
            "holdfast_cached_tokens_total", "Input tokens read from the model's cache.", "model"
        )
        self.cost_dollars = CounterMetric(
            "holdfast_cost_dollars_total", "Cost of requests to models with a known price.", "model"
        )
        self.tool_runs = CounterMetric(
            "holdfast_tool_runs_total", "Finished tool calls, by result.", "result"
        )
        self.suspended_sessions = CounterMetric(
            "holdfast_sessions_suspended_total", "Suspensions of sessions, by reason.", "reason"
        )
        self.outbound = CounterMetric(
            "holdfast_outbound_total",
            "Operations sent to a platform, by result.",
            "platform",
            "kind",
            "result",
        )
        self.rate_limited = CounterMetric(
            "holdfast_rate_limited_total",
            "Operations that a platform rate limited (429).",
            "platform",
        )
        self.settled_items = CounterMetric(
            "holdfast_items_total",
            "Answers and notices that were delivered (sent) or given up (dead).",
            "state",
        )
        self.loop_lag_seconds = HistogramMetric(
            "holdfast_loop_lag_seconds",
            "Lag of the event loop, measured once a second.",
            bounds=_LAG_BUCKETS,
        )
        self.http_refused = CounterMetric(
            "holdfast_http_refused_total",
            "HTTP requests and connections that were rejected or closed, by reason.",
            "reason",
        )
        self.api_requests = CounterMetric(
            "holdfast_api_requests_total",
            "Requests of API clients, by key, and by what is known of their user.",
            "key",
            "user",
        )
        # (time, platform) by inbox row and by turn.
        self._received: _RecentValues[tuple[int, str]] = _RecentValues()
        self._started_turns: _RecentValues[tuple[int, str]] = _RecentValues()
        self._models_by_request: _RecentValues[str] = _RecentValues()
        self._last_verdicts: _RecentValues[str] = _RecentValues()  # of the last request, by turn
        self._known_models: set[str] = set()
        self._known_keys: set[str] = set()

    @property
    def counters(self) -> tuple[CounterMetric, ...]:
        """All counters."""
        return tuple(each for each in vars(self).values() if isinstance(each, CounterMetric))

    @property
    def histograms(self) -> tuple[HistogramMetric, ...]:
        """All histograms."""
        return tuple(each for each in vars(self).values() if isinstance(each, HistogramMetric))

    # --- committed changes ----------------------------------------------------------------------

    def on_accepted(self, entry: InboxEntry, *, new: bool) -> None:
        """See `sessions.store.store.StoreObserver`."""
        platform = platform_of(entry.key)
        if not new:
            self.duplicates.add(platform)
            self.inbound.add(platform, "duplicate")
            return
        # A refused entry has a decision of a fixed set of texts, which serves as the label.
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
        return _limited(label, self._known_models, MAX_MODELS)

    def on_api_request(self, key: str, user: str) -> None:
        """Record a request of an API client; `user` is one of few kinds, never a name."""
        self.api_requests.add(_limited(key, self._known_keys, MAX_KEYS), user)

    # --- other events -----------------------------------------------------------------------------

    def on_first_text(self, turn_id: str, now: int) -> None:
        """Record the first text of a turn; `now` is Unix time in milliseconds."""
        if started := self._started_turns.get(turn_id):
            at, platform = started
            self.first_text_seconds.observe((now - at) / 1000, platform)

    def on_delivered(self, platform: str, op: Op, outcome: Receipt | PlatformError) -> None:
        """Record the result of an operation sent to a platform."""
        result = "sent" if isinstance(outcome, Receipt) else type(outcome).__name__.lower()
        if isinstance(outcome, Unavailable) and outcome.retry_after is not None:
            result = "limited"
            self.rate_limited.add(platform)
        self.outbound.add(platform, type(op).__name__.lower(), result)


def _limited(label: str, known: set[str], most: int) -> str:
    """Return the label, or `other` if it would be one too many."""
    if label not in known:
        if len(known) >= most:
            return OTHER
        known.add(label)
    return label


class _RecentValues(Generic[Value]):
    """A mapping with a maximum size that drops its oldest entries."""

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
    """Return the platform of a session key, `platform:…` or `platform@account:…`."""
    return key.partition(":")[0].partition("@")[0]
