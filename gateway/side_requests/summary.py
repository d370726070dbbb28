"""Compaction of a conversation on request: a summary replaces its older part."""

from collections.abc import Sequence

from agent.answer.accumulate import StepResult
from agent.attempt import AttemptResult
from agent.compaction import Compacted, compact_history
from agent.events import TurnEnding
from agent.model.contract import ModelRequest
from agent.model.known_models import model_facts
from agent.request import history_plan
from agent.request.tokens import estimate_message
from agent.verdict import Complete
from gateway.turns.setting import TurnSetting
from gateway.turns.side_turn import SideTurn
from sessions.changes import PutSummary
from sessions.records import Message
from sessions.store.store import SessionStore

_KEPT_DIVISOR = 4  # the newest quarter stays, as far as turn boundaries allow
_TRANSCRIPT_SHARE = 0.6  # of the model's context window, for the text to summarise


class SummaryFailed(Exception):
    """No model wrote the summary; the message is the cause."""


async def summarize(
    rows: Sequence[Message], earlier_summary: str, setting: TurnSetting, side_turn: SideTurn
) -> Compacted | None:
    """Summarise the older rows; None if that would not shorten them. Raises `SummaryFailed`.

    A turn that would otherwise fail uses a summary made without a model. Here that has no benefit.
    """

    async def ask(request: ModelRequest) -> AttemptResult:
        done = await side_turn.ask(request.system, request.messages)
        if done.ending is TurnEnding.FAILED:
            raise SummaryFailed(done.cause)
        return AttemptResult(verdict=Complete(), step=StepResult(text=done.text))

    total = sum(map(estimate_message, rows))
    record = _transcript_tokens(setting, total)
    while True:
        try:
            return await compact_history(
                rows,
                earlier_summary,
                room_tokens=total // _KEPT_DIVISOR,
                target=setting.targets[0],
                send_request=ask,
                record_tokens=record,
            )
        except SummaryFailed:
            known = _transcript_tokens(setting, total)
            if known >= record:
                raise
            record = known  # the failed request revealed a smaller context window


def _transcript_tokens(setting: TurnSetting, total_tokens: int) -> int:
    """Return how many tokens of the conversation fit into the request for the summary."""
    target = setting.targets[0]
    base_url = target.settings.base_url or ""
    learned = setting.experience.get(target.provider.name, base_url, target.model)
    window = history_plan.resolve_window(
        target.settings.context_window, learned.context_window, model_facts(target.model)
    )
    if window is None:
        return total_tokens
    return min(total_tokens, round(window * _TRANSCRIPT_SHARE / learned.token_correction))


async def compaction_change(
    store: SessionStore,
    session_id: str,
    seen_context: tuple[str, tuple[Message, ...]],
    compacted: Compacted,
    now: int,
) -> PutSummary | None:
    """Return the change that stores the summary; rows added since `seen_context` are kept.

    None if older rows changed meanwhile, by an undo or another summary.
    """
    earlier, rows = seen_context
    earlier_now, rows_now = await store.sessions.context(session_id)
    if earlier_now != earlier or rows_now[: len(rows)] != rows:
        return None
    keep = compacted.kept_rows + len(rows_now) - len(rows)
    return PutSummary(
        session_id=session_id, keep=keep, summary=compacted.summary, at=now, rows=len(rows_now)
    )
