"""Puts a summary in place of most of a conversation, because somebody wants it shorter."""

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

_KEPT_DIVISOR = 4  # a quarter of it stays in view, if turns can be parted so
_TRANSCRIPT_SHARE = 0.6  # of the model's window, for what it is to sum up


class SummaryFailed(Exception):
    """No model could be had to write the summary; says why."""


async def summarize(
    rows: Sequence[Message], earlier_summary: str, setting: TurnSetting, side_turn: SideTurn
) -> Compacted | None:
    """Sum up what is old; None when it would not become shorter. Raises `SummaryFailed`.

    Unlike in a turn that would otherwise fail, a summary made without a model is no help here.
    """

    async def ask(request: ModelRequest) -> AttemptResult:
        done = await side_turn.ask(request.system, request.messages)
        if done.ending is TurnEnding.FAILED:
            raise SummaryFailed(done.cause)
        return AttemptResult(verdict=Complete(), step=StepResult(text=done.text))

    whole = sum(map(estimate_message, rows))
    record = _transcript_tokens(setting, whole)
    while True:
        try:
            return await compact_history(
                rows,
                earlier_summary,
                room_tokens=whole // _KEPT_DIVISOR,
                target=setting.targets[0],
                send_request=ask,
                record_tokens=record,
            )
        except SummaryFailed:
            known = _transcript_tokens(setting, whole)
            if known >= record:
                raise
            record = known  # the service said how much it takes


def _transcript_tokens(setting: TurnSetting, total_tokens: int) -> int:
    """How many tokens of the conversation the author of the summary may be shown."""
    target = setting.targets[0]
    place = target.settings.base_url or ""
    learned = setting.experience.get(target.provider.name, place, target.model)
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
    """What to store now that the conversation may have gone on since it was seen.

    New rows stay in view. None when it has become another one: something was taken back, or summed
    up by somebody else.
    """
    earlier, rows = seen_context
    earlier_now, rows_now = await store.sessions.context(session_id)
    if earlier_now != earlier or rows_now[: len(rows)] != rows:
        return None
    keep = compacted.kept_rows + len(rows_now) - len(rows)
    return PutSummary(
        session_id=session_id, keep=keep, summary=compacted.summary, at=now, rows=len(rows_now)
    )
