"""Sans-IO: what was found in one group of checks."""

from msgspec import Struct

from sessions.values.finding import Finding, FindingLevel


class FindingGroup(Struct, frozen=True):
    """What came of a group's checks."""

    name: str
    findings: tuple[Finding, ...]

    @property
    def level(self) -> FindingLevel:
        """How bad the worst of it is."""
        levels = {finding.level for finding in self.findings}
        return "fail" if "fail" in levels else "warn" if "warn" in levels else "ok"

    @property
    def problems(self) -> tuple[Finding, ...]:
        """What is not well, the worst first."""
        found = [each for each in self.findings if each.level != "ok"]
        return tuple(sorted(found, key=lambda each: each.level != "fail"))
