"""`make new-platform` writes a platform that passes the linter, the type checker and its tests."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.new_platform import MAX_NAME, Refused, check_name, generate

ROOT = Path(__file__).parents[2]
TREE = ("agent", "gateway", "platforms", "sessions", "tests", "scripts", "docs", "pyproject.toml")
BIN = Path(sys.executable).parent


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # Coverage must not be measured in programs that run the copied tree.
    monkeypatch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)
    for name in TREE:
        if (ROOT / name).is_file():
            shutil.copy(ROOT / name, tmp_path / name)
        else:
            unused = shutil.ignore_patterns("__pycache__", "node_modules", "images")
            shutil.copytree(ROOT / name, tmp_path / name, ignore=unused)
    return tmp_path


def run(tree: Path, *command: str | Path) -> str:
    environ = {"PATH": f"{BIN}:/usr/bin:/bin", "PYTHONPATH": str(tree), "HOME": str(tree)}
    done = subprocess.run(
        list(map(str, command)), cwd=tree, env=environ, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def new_modules(tree: Path, name: str) -> list[Path]:
    places = (f"platforms/{name}", f"tests/fakes/{name}", f"tests/contract/services/{name}.py")
    return [tree / place for place in places]


@pytest.mark.process
@pytest.mark.timeout(300)
def test_a_generated_platform_passes_the_checks_and_its_contract_tests(tree: Path) -> None:
    printed = run(tree, sys.executable, "-m", "scripts.new_platform", "pigeon")
    assert "platforms/pigeon/adapter.py" in printed
    assert "tests/contract/adapter_kit.py" in printed
    run(tree, BIN / "ruff", "format", "--check", "--no-cache")
    run(tree, BIN / "ruff", "check", "--no-cache")
    run(tree, BIN / "mypy", *new_modules(tree, "pigeon"))
    pytest_command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    tests = ("tests/contract/test_adapters.py", "tests/architecture/test_adapter_roles.py")
    printed = run(tree, *pytest_command, *tests, "-k", "pigeon")
    assert "test_adapter" not in printed, "no test is skipped or fails"
    assert " passed" in printed


@pytest.mark.process
def test_names_of_every_length_and_order_are_formatted(tree: Path) -> None:
    """The sorting of imports and the length of lines depend on the name."""
    names = ["ab", "zz_top", "a_b2", "p" * MAX_NAME, "carrier_pigeon_1"]
    for name in names:
        generate(name, tree)
    run(tree, BIN / "ruff", "format", "--check", "--no-cache")
    run(tree, BIN / "ruff", "check", "--no-cache")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "Use: make new-platform NAME=pigeon"),
        ("Pigeon", "lower-case"),
        ("2pigeons", "lower-case"),
        ("carrier-pigeon", "lower-case"),
        ("../pigeon", "lower-case"),
        ("pigeon\n", "lower-case"),
        ("p" * (MAX_NAME + 1), f"{MAX_NAME} characters"),
        ("telegram", "exists already"),
        ("console", "exists already"),
        ("core", "exists already"),
        ("memory", "exists already"),
        ("class", "used by Python"),
        ("email", "used by Python"),
        ("staged", "used by Python or by the contract tests"),
    ],
)
def test_a_bad_name_is_refused_with_one_sentence(name: str, reason: str) -> None:
    with pytest.raises(Refused, match=reason) as refused:
        check_name(name, ROOT)
    assert "\n" not in str(refused.value)


@pytest.mark.process
def test_a_refused_name_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "scripts").symlink_to(ROOT / "scripts")
    with pytest.raises(Refused):
        generate("Pigeon", tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["scripts"]
