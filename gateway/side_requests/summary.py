"""Puts a summary in place of most of a conversation, because somebody wants it shorter."""

from collections.abc import Sequence

from agent.answer.accumulate import StepResult
from agent.attempt import AttemptResult
from agent.compaction import Compacted, compact
from agent.events import Ending
from agent.model.contract import ModelRequest
from agent.model.known_models import facts
from agent.request import history_plan
from agent.request.tokens import estimate_message
from agent.verdict import Complete
from gateway.turns.setting import Setting
from gateway.turns.side_turn import SideTurn
from sessions.changes import Compact
from sessions.records import Message
from sessions.store.store import SessionStore

_LEFT = 4  # a quarter of it stays in view, if turns can be parted so
_RECORD_SHARE = 0.6  # of the model's window, for what it is to sum up


class NotSummarised(Exception):
    """No model could be had to write the summary; says why."""


async def shortened(
    rows: Sequence[Message], earlier: str, setting: Setting, side: SideTurn
) -> Compacted | None:
    """Sum up what is old; None when it would not become shorter. Raises `NotSummarised`.

    Unlike in a turn that would otherwise fail, a summary made without a model is no help here.
    """

    async def ask(request: ModelRequest) -> AttemptResult:
        done = await side.ask(request.system, request.messages)
        if done.ending is Ending.FAILED:
            raise NotSummarised(done.cause)
        return AttemptResult(Complete(), StepResult(text=done.text))

    whole = sum(map(estimate_message, rows))
    record = _record(setting, whole)
    while True:
        try:
            return await compact(
                rows,
                earlier,
                room=whole // _LEFT,
                target=setting.targets[0],
                ask=ask,
                record=record,
            )
        except NotSummarised:
            known = _record(setting, whole)
            if known >= record:
                raise
            record = known  # the service said how much it takes


def _record(setting: Setting, whole: int) -> int:
    """How many tokens of the conversation the author of the summary may be shown."""
    target = setting.targets[0]
    place = target.settings.base_url or ""
    learned = setting.experience.of(target.provider.name, place, target.model)
    window = history_plan.window_of(
        target.settings.context_window, learned.window, facts(target.model)
    )
    if window is None:
        return whole
    return min(whole, round(window * _RECORD_SHARE / learned.correction))


async def as_change(
    store: SessionStore,
    session_id: str,
    seen: tuple[str, tuple[Message, ...]],
    done: Compacted,
    now: int,
) -> Compact | None:
    """What to store now that the conversation may have gone on since it was seen.

    New rows stay in view. None when it has become another one: something was taken back, or summed
    up by somebody else.
    """
    earlier, rows = seen
    earlier_now, rows_now = await store.context(session_id)
    if earlier_now != earlier or rows_now[: len(rows)] != rows:
        return None
    keep = done.keep + len(rows_now) - len(rows)
    return Compact(session_id, keep, done.summary, now, rows=len(rows_now))
