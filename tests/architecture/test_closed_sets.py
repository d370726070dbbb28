"""Matches over closed sets list every case, and mypy reports a missing one."""

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.code_figures import Module

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
PACKAGES = ("agent", "gateway", "platforms", "sessions")

OPEN_MATCHES = {
    ("gateway/inbound/reactions.py", "on_committed"): "an observer of some of the changes",
    ("gateway/observe/metrics.py", "on_applied"): "an observer of some of the changes",
    ("gateway/operate/why/standing.py", "_ignored"): "other decisions: access was lost later",
    ("gateway/operate/why/standing.py", "_refused"): "other decisions: the queue was full",
    ("gateway/operate/why/standing.py", "_done_without_turn"): "other decisions: it was accepted",
}
"""Matches over a closed set that deliberately have a case for everything else."""

_ENUMS = {"Enum", "IntEnum", "StrEnum"}
_RECORDS = {"NamedTuple", "Struct"}
_ERROR = re.compile(r"(\S+?):(\d+): error: .*\[([a-z-]+)\]")


class ClosedMatch:
    """A match whose cases are all records or enum members of this project, or None."""

    def __init__(self, file: str, function: str, node: ast.Match) -> None:
        self.file = file
        self.function = function
        self.node = node

    @property
    def name(self) -> tuple[str, str]:
        return self.file, self.function

    @property
    def has_case_for_the_rest(self) -> bool:
        return any(_takes_everything(case) and not _asserts_never(case) for case in self.node.cases)

    @property
    def droppable(self) -> ast.match_case:
        """The last case that can be dropped; the match must still end with a case without a guard."""
        *earlier, last = (each for each in self.node.cases if not _asserts_never(each))
        if not earlier[-1].guard:
            return last
        return next(each for each in reversed(earlier) if not each.guard)

    def is_reported(self, errors: set[tuple[str, int, str]]) -> bool:
        if (self.file, self.node.lineno, "exhaustive-match") in errors:
            return True
        lines = range(self.node.lineno, (self.node.end_lineno or 0) + 1)
        return any(
            (self.file, case.body[0].lineno, "arg-type") in errors
            for case in self.node.cases
            if _asserts_never(case) and case.body[0].lineno in lines
        )


def _takes_everything(case: ast.match_case) -> bool:
    return isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None


def _asserts_never(case: ast.match_case) -> bool:
    return ast.unparse(case.body[0]).startswith("assert_never(")


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _bases(tree: ast.Module) -> Iterator[tuple[str, list[str]]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield node.name, [_last_name(base) for base in node.bases]


def _descendants(bases: dict[str, list[str]], roots: set[str]) -> set[str]:
    found: set[str] = set()
    while more := {
        name for name, above in bases.items() if name not in found and {*above} & (roots | found)
    }:
        found |= more
    return found


@pytest.fixture(scope="module")
def closed_matches(modules: list[Module]) -> tuple[ClosedMatch, ...]:
    trees = {module.path: module.tree for module in modules}
    bases = dict(each for tree in trees.values() for each in _bases(tree))
    enums, records = _descendants(bases, _ENUMS), _descendants(bases, _RECORDS)

    def is_ours(pattern: ast.pattern) -> bool:
        match pattern:
            case ast.MatchOr(patterns=several):
                return all(map(is_ours, several))
            case ast.MatchAs(pattern=ast.pattern() as inner):
                return is_ours(inner)
            case ast.MatchClass(cls=name):
                return _last_name(name) in records
            case ast.MatchValue(value=ast.Attribute(value=owner)):
                return _last_name(owner) in enums
            case ast.MatchSingleton(value=None):
                return True
            case _:
                return False

    def is_closed(node: ast.Match) -> bool:
        cases = [case for case in node.cases if not _takes_everything(case)]
        named = [case for case in cases if not isinstance(case.pattern, ast.MatchSingleton)]
        return bool(named) and all(is_ours(case.pattern) for case in cases)

    return tuple(
        ClosedMatch(file, function.name, node)
        for file, tree in trees.items()
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Match) and is_closed(node)
    )


def test_the_last_case_of_a_closed_match_has_no_guard(
    closed_matches: tuple[ClosedMatch, ...],
) -> None:
    """Otherwise mypy reports no missing case."""
    guarded = {each.name for each in closed_matches if each.node.cases[-1].guard}
    assert guarded == set()


def blank_out(file: Path, case: ast.match_case) -> None:
    """Remove a case; the other lines keep their numbers."""
    lines = file.read_text(encoding="utf-8").split("\n")
    first = case.pattern.lineno - 1
    while not lines[first].lstrip().startswith("case "):
        first -= 1  # a pattern in parentheses begins below its keyword
    for number in range(first, case.body[-1].end_lineno or 0):
        lines[number] = ""
    file.write_text("\n".join(lines), encoding="utf-8")


def test_only_listed_matches_over_a_closed_set_have_a_case_for_the_rest(
    closed_matches: tuple[ClosedMatch, ...],
) -> None:
    names = {each.name for each in closed_matches}
    assert ("sessions/conversation/machine.py", "step") in names
    assert ("gateway/delivery/plan.py", "_create") in names
    assert {each.name for each in closed_matches if each.has_case_for_the_rest} == {*OPEN_MATCHES}


_SKIPPED = """
[[tool.mypy.overrides]]
module = [
  "aiohttp.*", "alembic.*", "anthropic.*", "anyio.*", "discord.*", "genai_prices.*", "httpx2.*",
  "mcp.*", "nats.*", "openai.*", "prometheus_client.*", "psycopg.*", "pydantic.*", "slack_bolt.*",
  "slack_sdk.*", "sqlalchemy.*", "starlette.*", "telegram.*", "tomlkit.*", "uvicorn.*",
]
follow_imports = "skip"
"""
"""No closed set is of these libraries, and reading them takes most of the time."""


@pytest.mark.timeout(600)
def test_mypy_reports_every_match_that_lacks_a_case(
    tmp_path: Path, closed_matches: tuple[ClosedMatch, ...]
) -> None:
    for package in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, tmp_path / package, ignore=ignored)
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    configured = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text(configured + _SKIPPED, encoding="utf-8")
    closed = [each for each in closed_matches if not each.has_case_for_the_rest]
    for each in closed:
        blank_out(tmp_path / each.file, each.droppable)
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", "cache", "--no-pretty", *PACKAGES],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1, ran.stderr
    errors = {(found[1], int(found[2]), found[3]) for found in _ERROR.finditer(ran.stdout)}
    assert [each.name for each in closed if not each.is_reported(errors)] == []
