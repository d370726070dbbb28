"""Requests to models as they go on record."""

from agent.attempt import AttemptResult
from sessions.changes import EndAttempt


def end_attempt(turn_id: str, number: int, result: AttemptResult, now: int) -> EndAttempt:
    """Say how a request ended and what it cost."""
    return EndAttempt(
        turn_id=turn_id,
        number=number,
        verdict=result.verdict_name,
        at=now,
        phase=result.phase,
        received=result.received_characters,
        cause=result.cause,
        request_id=result.request_id,
        input_tokens=result.usage.input_tokens,
        output_tokens=result.usage.output_tokens,
        cached_tokens=result.usage.cached_tokens,
        cost=result.usage.cost,
        request_hash=result.request_hash,
    )
