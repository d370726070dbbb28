"""A few mutants with large consequences, judged within seconds by one named test each."""

import sys
import tomllib
from pathlib import Path

import msgspec

from tests.mutants.engine import Case, Outcome, judge_cases, parse_module
from tests.mutants.operators import find_mutants


class HighRiskMutant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One mutant, and the test that has to notice."""

    consequence: str
    module: str
    function: str
    before: str
    after: str
    test: str


def judge_high_risk(file: Path) -> int:
    """Judge the mutants of a file and print a line for each; return 1 if one survives."""
    entries = msgspec.convert(tomllib.loads(file.read_text())["mutant"], list[HighRiskMutant])
    cases = [_find_case(entry) for entry in entries]
    survived = 0
    for case, outcome, _ in judge_cases(cases, sorted({entry.test for entry in entries})):
        name = "not found" if outcome is None else outcome.name.lower()
        survived += outcome in {None, Outcome.SURVIVED}
        sys.stdout.write(f"{name:<9} {entries[cases.index(case)].consequence}\n")
    return int(survived > 0)


def _find_case(entry: HighRiskMutant) -> Case:
    tree = parse_module(entry.module)
    wanted = (entry.function, entry.before, entry.after)
    for mutant in find_mutants(entry.module, tree):
        if wanted == (mutant.function, mutant.before, mutant.after):
            return Case(mutant=mutant, tree=tree, test=entry.test)
    msg = f"{entry.module} has no mutant for: {entry.consequence}"
    raise LookupError(msg)
