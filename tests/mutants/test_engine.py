"""The choice of tests for a mutant, and mutants that cannot be imported."""

import ast
import subprocess
import sys

import pytest

from tests.mutants.engine import ROOT, Baseline
from tests.mutants.operators import Mutant, find_mutants

SOURCE = "def f(a):\n    b = g(a)\n    return b + 1\n"
REACHED = {"sample.py:2": ["both", "first line"], "sample.py:3": ["both"]}

JUDGE_IMPORT = """
from tests.mutants import engine
from tests.mutants.operators import find_mutants
module = "agent/tools/names.py"
tree = engine.parse_module(module)
mutant = next(each for each in find_mutants(module, tree) if each.kind == "arithmetic")
print(engine.judge_import(mutant, tree, ["tests/unit/agent/test_gate.py"]).name)
"""


def mutant_of(line: int) -> Mutant:
    found = find_mutants("sample.py", ast.parse(SOURCE))
    return next(mutant for mutant in found if mutant.lines.start == line)


@pytest.mark.parametrize(
    ("reached", "is_coroutine", "tests"),
    [
        pytest.param(REACHED, False, {"both": True}, id="tests that reach the line"),
        pytest.param(
            REACHED,
            True,
            {"both": True, "first line": False},
            id="in a coroutine all tests that reach the function",
        ),
        pytest.param(
            {"sample.py:2": ["first line"]},
            False,
            {"first line": False},
            id="without a test that reaches the line those that reach the function",
        ),
        pytest.param({}, True, {}, id="no test"),
    ],
)
def test_tests_are_chosen_by_the_lines_that_they_reach(
    reached: dict[str, list[str]], is_coroutine: bool, tests: dict[str, bool]
) -> None:
    baseline = Baseline(reached=reached)
    assert baseline.tests_of(mutant_of(3), is_coroutine=is_coroutine) == tests


@pytest.mark.process
def test_a_mutant_that_cannot_be_imported_is_killed() -> None:
    run = subprocess.run(
        [sys.executable, "-c", JUDGE_IMPORT], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.stdout == "KILLED\n", run.stderr
