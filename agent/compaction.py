"""Puts a summary in place of the oldest rows of a conversation; the model writes it if it can."""

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from agent.attempt import AttemptResult
from agent.model.contract import ModelRequest
from agent.providers.registry import Target
from agent.request import history_plan
from agent.request.tokens import estimate_message
from agent.verdict import Complete, SoftComplete
from sessions.records import Message

Ask = Callable[[ModelRequest], Awaitable[AttemptResult]]
"""Sends a request whose answer nobody is shown."""


class Compacted(msgspec.Struct, frozen=True):
    """A conversation that became shorter."""

    summary: str
    keep: int  # newest rows that stay as they are
    rows: tuple[Message, ...]  # what is to be shown behind the summary
    before: int  # tokens, as estimated
    after: int


async def compact(
    rows: Sequence[Message],
    earlier: str,
    *,
    room: int,
    target: Target,
    ask: Ask,
    record: int | None = None,
) -> Compacted | None:
    """Make it at most `room` tokens long where that can be; None when it would not help.

    `earlier` is the summary of what came before the rows, `record` how many tokens of them the
    author of the new one may be shown: as many as `room`, unless there is reason to say otherwise.
    """
    whole = [history_plan.as_summary_row(earlier), *rows] if earlier else list(rows)
    sizes = [estimate_message(row) for row in whole]
    plan = history_plan.plan(whole, sizes, room)
    if plan is None:
        return None
    summary = await _summarised(plan.covered, target, record or room, ask)
    kept = rows[len(rows) - plan.keep :]
    shown = (*([plan.pinned] if plan.pinned else []), *kept)
    after = sum(map(estimate_message, (*shown, history_plan.as_summary_row(summary))))
    if not history_plan.shrunk(sum(sizes), after):
        return None
    return Compacted(summary, plan.keep, shown, sum(sizes), after)


async def _summarised(covered: Sequence[Message], target: Target, room: int, ask: Ask) -> str:
    system, messages = history_plan.summary_request(covered, budget=room)
    result = await ask(
        ModelRequest(
            model=target.model,
            system=system,
            messages=messages,
            max_output_tokens=target.settings.max_output_tokens,
        )
    )
    whole = isinstance(result.verdict, Complete | SoftComplete)
    said = result.step.text.strip()
    return said if whole and said else history_plan.without_summary(covered)
