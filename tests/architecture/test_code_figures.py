"""The counters of scripts/code_figures.py, on a small made-up tree."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.code_figures import Figure, measure, read_modules, table

ROOT = Path(__file__).parents[2]

ENGINE = '''"""What an engine needs; somebody starts it."""

import sqlalchemy
from sqlalchemy import Table as LibraryTable

LIMIT = 3
"""Its largest load."""
SPEED, _HIDDEN = 1, 2
UNUSED = 4


class Engine:
    """An engine."""

    def run(self, a, b, c, d, *, e, f, g, h):  # what: it runs
        """Whether the engine runs."""
        try:
            return LibraryTable(1, 2, 3, 4, 5, 6), sqlalchemy.Table(1, 2, 3, 4, 5, 6)
        except (ValueError, Exception):
            return None


class _Part: ...


class Table:
    columns = "what is no docstring"
'''

GARAGE = '''"""A garage."""

import agent.engine as motor
from agent import engine
from agent.engine import LIMIT, Engine


class Engine:
    def __init__(self, a, b, c, d, e, f):
        """Keep the parts."""


class _Part: ...


def build(self, a, b, c, d, e, f, g, *rest):
    """Build an engine."""
    try:
        return Engine(1, 2, 3, 4, 5, 6), engine.Engine(1, 2, 3, 4, 5, *rest), Engine(1)
    except:  # noqa: E722
        return motor.SPEED
'''


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    sources = {
        "agent/__init__.py": "",
        "agent/engine.py": ENGINE,
        "gateway/__init__.py": '"""Package."""\n',
        "gateway/garage.py": GARAGE,
        "gateway/long.py": "pass\n" * 601,
        "tests/test_engine.py": "class Engine: ...\n",
    }
    sources |= {f"platforms/chat/m{number}.py": "" for number in range(26)}
    for name, source in sources.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8")
    return tmp_path


def figures(tree: Path) -> dict[str, Figure]:
    return {each.label.strip(): each for each in measure(read_modules(tree))}


def test_modules_are_counted_per_folder_without_package_files(tree: Path) -> None:
    found = figures(tree)
    assert found["modules"].value == 29
    assert found["modules in the largest folder"].shown == "26 (platforms/chat)"
    assert found["folders with more than 25 modules"].found == ("platforms/chat: 26",)


def test_class_names_of_two_modules_are_counted_as_public_and_private(tree: Path) -> None:
    found = figures(tree)
    assert found["class names in two or more modules"].found == (
        "Engine: gateway/garage.py agent/engine.py",
        "_Part: gateway/garage.py agent/engine.py",
    )
    assert found["public"].value == 1
    assert found["private"].value == 1
    assert found["in two or more folders"].value == 2


def test_only_classes_of_the_tree_count_as_built_from_many_positions(tree: Path) -> None:
    found = figures(tree)["objects built from 6 or more positional arguments"]
    assert found.found == ("gateway/garage.py:19 Engine (6)", "gateway/garage.py:19 Engine (6)")


def test_self_of_a_method_is_no_parameter(tree: Path) -> None:
    found = figures(tree)["functions with more than 8 parameters"]
    assert found.found == ("gateway/garage.py:16 build (9)",)


def test_words_are_counted_in_docstrings_and_comments_alone(tree: Path) -> None:
    found = figures(tree)
    # Docstrings 7+3+2+4, comment 3, the module and two functions of the garage 2+3+3, package 1.
    assert found["words in docstrings and comments"].value == 28
    assert found["per 1,000 words: what"].value == pytest.approx(1000 * 2 / 28)
    whoever = found["per 1,000 words: whoever, nobody, somebody, anybody"]
    assert whoever.value == pytest.approx(1000 / 28)
    assert found["per 1,000 words: it, its"].value == pytest.approx(1000 * 3 / 28)


def test_docstrings_that_begin_with_a_question_word_are_a_share_of_all(tree: Path) -> None:
    found = figures(tree)["% of docstrings that begin with What, Whether, How or Who"]
    assert found.value == pytest.approx(100 * 2 / 7)


def test_handlers_in_tuples_and_without_a_type_are_broad(tree: Path) -> None:
    found = figures(tree)["handlers of every exception"]
    assert found.found == ("gateway/garage.py:20", "agent/engine.py:19")


def test_a_file_over_the_limit_is_named(tree: Path) -> None:
    assert figures(tree)["files over 600 lines"].found == ("gateway/long.py: 601",)


def test_a_constant_is_used_where_another_module_imports_or_reads_it(tree: Path) -> None:
    found = figures(tree)["public constants that no other module uses"]
    assert found.found == ("agent/engine.py UNUSED",)


def test_a_constant_that_only_a_test_uses_is_counted_apart(tree: Path) -> None:
    (tree / "tests" / "test_engine.py").write_text("from agent.engine import UNUSED\n")
    measured = measure(read_modules(tree), read_modules(tree, ("tests",)))
    found = {figure.label: figure.found for figure in measured}
    assert found["public constants that no other module uses"] == ("agent/engine.py UNUSED",)
    assert found["  and no test"] == ()


def test_two_trees_stand_in_two_aligned_columns(tree: Path) -> None:
    measured = measure(read_modules(tree))
    lines = table({"old": measured, "new": measured}).splitlines()
    assert lines[0].split() == ["old", "new"]
    assert lines[1].split() == ["modules", "29", "29"]
    assert len({len(line) for line in lines}) == 1


@pytest.mark.process
def test_the_script_writes_a_table_and_json(tree: Path) -> None:
    def run(*arguments: str) -> str:
        command = [sys.executable, "-m", "scripts.code_figures", str(tree), *arguments]
        return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout

    assert "agent/engine.py UNUSED" not in run()
    assert "agent/engine.py UNUSED" in run("--list")
    assert json.loads(run("--json"))[str(tree)]["modules"] == {"value": 29}
