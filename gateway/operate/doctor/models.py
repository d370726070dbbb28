"""The model and those that take over: reached, allowed, listed, answering, calling tools."""

from collections.abc import Iterator, Sequence

from agent.probe import ANSWER_SECONDS, CALL_SECONDS, LIST_SECONDS, ProbedModel, probe_model
from agent.settings import TargetSettings
from gateway.operate.doctor.check import Check
from gateway.operate.doctor.context import Case
from sessions.values.finding import Finding, ok

_ROOM = 1.0
SECONDS = LIST_SECONDS + ANSWER_SECONDS + CALL_SECONDS + _ROOM


def models(case: Case) -> Iterator[Check]:
    """Give a check for each target."""
    settings = case.settings.model
    demo = settings.provider == "demo"
    yield Check("model", _Model(settings).look, SECONDS, remote=not demo)
    for number, target in enumerate(settings.fallback, 1):
        yield Check(f"fallback {number}", _Model(target).look, SECONDS, remote=True)


class _Model:
    """One target."""

    def __init__(self, settings: TargetSettings) -> None:
        self._settings = settings

    async def look(self, case: Case) -> Sequence[Finding]:
        """Ask it."""
        probed = await probe_model(self._settings, clock=case.clock)
        return [*_in_short(probed), *probed.findings]


def _in_short(probed: ProbedModel) -> Iterator[Finding]:
    """Say first what somebody wants to know who sees one line only."""
    timed = {each.subject: each for each in probed.findings if each.seconds is not None}
    answer, call = timed.get("answer"), timed.get("tool call")
    if probed.works and answer and call and call.level == "ok":
        yield ok(
            "in short",
            f"{probed.label} answers in {answer.seconds:.1f} s, calls a tool in {call.seconds:.1f} s",
        )
