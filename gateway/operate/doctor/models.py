"""The model and the fallbacks: reachable, authorized, listed, answering, calling tools."""

from collections.abc import Iterator, Sequence

from agent.probe import (
    ANSWER_SECONDS,
    CALL_SECONDS,
    LIST_SECONDS,
    ProbedModel,
    ProbeSubject,
    probe_model,
)
from agent.settings import TargetSettings
from gateway.operate.doctor.check import Check
from gateway.operate.doctor.context import DoctorContext
from sessions.values.finding import Finding, ok

_MARGIN_SECONDS = 1.0
_TIMEOUT_SECONDS = LIST_SECONDS + ANSWER_SECONDS + CALL_SECONDS + _MARGIN_SECONDS


def model_checks(context: DoctorContext) -> Iterator[Check]:
    """Yield a check for each target."""
    settings = context.settings.model
    demo = settings.provider == "demo"
    yield Check("model", _ModelCheck(settings).run, _TIMEOUT_SECONDS, needs_network=not demo)
    for number, target in enumerate(settings.fallback, 1):
        yield Check(
            f"fallback {number}", _ModelCheck(target).run, _TIMEOUT_SECONDS, needs_network=True
        )


class _ModelCheck:
    """Check of one target."""

    def __init__(self, settings: TargetSettings) -> None:
        self._settings = settings

    async def run(self, context: DoctorContext) -> Sequence[Finding]:
        """Probe the target with short requests."""
        probed = await probe_model(self._settings, clock=context.clock)
        return [*_summary_finding(probed), *probed.findings]


def _summary_finding(probed: ProbedModel) -> Iterator[Finding]:
    """Yield the one-line summary of a working target."""
    timed = {finding.subject: finding for finding in probed.findings if finding.seconds is not None}
    answer, call = timed.get(ProbeSubject.ANSWER), timed.get(ProbeSubject.TOOL_CALL)
    if probed.works and answer and call and call.level == "ok":
        yield ok(
            "in short",
            f"{probed.label} answers in {answer.seconds:.1f} s, calls a tool in {call.seconds:.1f} s",
        )
