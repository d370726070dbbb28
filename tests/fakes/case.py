"""What the doctor is shown: a state folder, settings, and a daemon that runs or not."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from gateway.config.loader import LoadedConfig
from gateway.operate.doctor.context import DoctorContext
from gateway.settings import Settings
from platforms.core.registry import load_specs
from sessions.values.finding import Finding
from tests.fakes.quick_time import TimerClock


def case_of(home: Path, environ: Mapping[str, str] | None = None, **settings: Any) -> DoctorContext:
    """A case whose configuration works; `settings` are sections of it."""
    loaded = LoadedConfig(
        settings=replace(Settings(), **settings), home=home, path=None, sources={}, warnings=()
    )
    return DoctorContext(
        environ=environ or {},
        home=home,
        specs=load_specs(),
        clock=TimerClock(),
        config_path=None,
        loaded=loaded,
    )


def told(findings: Sequence[Finding]) -> list[tuple[str, str]]:
    """Level and subject of each."""
    return [(each.level, each.subject) for each in findings]


def only(findings: Sequence[Finding], subject: str) -> Finding:
    """The one finding about this."""
    (found,) = (each for each in findings if each.subject == subject)
    assert found.level == "ok" or found.fix.endswith((".", ")")), "no sentence says what to do"
    return found
