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

SendSummaryRequest = Callable[[ModelRequest], Awaitable[AttemptResult]]
"""Sends a request whose answer nobody is shown."""


class Compacted(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation that became shorter."""

    summary: str
    kept_rows: int  # newest rows that stay as they are
    rows: tuple[Message, ...]  # what is to be shown behind the summary
    tokens_before: int  # tokens, as estimated
    tokens_after: int


async def compact_history(
    rows: Sequence[Message],
    earlier_summary: str,
    *,
    room_tokens: int,
    target: Target,
    send_request: SendSummaryRequest,
    record_tokens: int | None = None,
) -> Compacted | None:
    """Make it at most `room` tokens long where that can be; None when it would not help.

    `earlier` is the summary of what came before the rows, `record` how many tokens of them the
    author of the new one may be shown: as many as `room`, unless there is reason to say otherwise.
    """
    whole = (
        [history_plan.make_summary_row(earlier_summary), *rows] if earlier_summary else list(rows)
    )
    sizes = [estimate_message(row) for row in whole]
    plan = history_plan.plan_history(whole, sizes, room_tokens)
    if plan is None:
        return None
    summary = await _write_summary(plan.covered, target, record_tokens or room_tokens, send_request)
    kept = rows[len(rows) - plan.kept_rows :]
    shown = (*([plan.pinned] if plan.pinned else []), *kept)
    after = sum(map(estimate_message, (*shown, history_plan.make_summary_row(summary))))
    if not history_plan.has_shrunk_enough(sum(sizes), after):
        return None
    return Compacted(
        summary=summary,
        kept_rows=plan.kept_rows,
        rows=shown,
        tokens_before=sum(sizes),
        tokens_after=after,
    )


async def _write_summary(
    covered: Sequence[Message], target: Target, room_tokens: int, send_request: SendSummaryRequest
) -> str:
    system, messages = history_plan.build_summary_request(covered, budget=room_tokens)
    result = await send_request(
        ModelRequest(
            model=target.model,
            system=system,
            messages=messages,
            max_output_tokens=target.settings.max_output_tokens,
        )
    )
    whole = isinstance(result.verdict, Complete | SoftComplete)
    said = result.step.text.strip()
    return said if whole and said else history_plan.summarize_without_model(covered)
