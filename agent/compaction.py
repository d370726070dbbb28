"""Compaction: replaces the oldest rows of a conversation by a summary written by the model."""

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
"""Sends a request whose answer is not shown to the user."""


class Compacted(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a compaction."""

    summary: str
    kept_rows: int  # number of newest rows that stay unchanged
    rows: tuple[Message, ...]  # rows to send after the summary
    tokens_before: int  # estimated
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
    """Shorten a conversation to `room_tokens` if possible; return None if that would not help.

    `earlier_summary` covers the messages before `rows`. `record_tokens` limits the size of the
    summary request's record; the default is `room_tokens`. Without a complete answer from the
    model, the summary is a list of requests and tools.
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
    text = result.step.text.strip()
    return text if whole and text else history_plan.summarize_without_model(covered)
