"""The mypy plugin that checks calls of `msgspec.structs.replace`."""

import sys
from pathlib import Path

import pytest
from mypy import api

ROOT = Path(__file__).parents[2]

RECORD = """
import msgspec

class Parent(msgspec.Struct, frozen=True):
    id: str

class Child(Parent, frozen=True, kw_only=True):
    seconds: float = 0.0

child = Child("a", seconds=1.0)
"""


CALLS = {
    "msgspec.structs.replace(child, id='b', seconds=2.0)": "",
    "msgspec.structs.replace(child, second=2.0)": 'keyword argument "second"',
    "msgspec.structs.replace(child, seconds='2')": 'expected "float"',
    "msgspec.structs.replace(child, id=None)": 'expected "str"',
    "reveal_type(msgspec.structs.replace(child))": "calls.Child",
}


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The report of mypy about each call, from one run over all of them."""
    folder = tmp_path_factory.mktemp("mypy")
    config, program = folder / "mypy.ini", folder / "calls.py"
    config.write_text(
        f"[mypy]\nplugins = {ROOT / 'scripts' / 'mypy_replace.py'}\ncache_dir = {folder}\n"
    )
    program.write_text(RECORD + "".join(f"{call}\n" for call in CALLS))
    limit = sys.getrecursionlimit()
    try:
        text, errors, _ = api.run(["--config-file", str(config), str(program)])
    finally:
        sys.setrecursionlimit(limit)  # mypy raises the limit for its whole process
    assert not errors
    first = RECORD.count("\n") + 1
    lines = text.splitlines()
    return {
        call: "".join(line for line in lines if f"calls.py:{number}: " in line)
        for number, call in enumerate(CALLS, first)
    }


@pytest.mark.process
@pytest.mark.parametrize("call", CALLS)
def test_replace_is_checked_against_the_fields_of_the_struct(
    reports: dict[str, str], call: str
) -> None:
    expected = CALLS[call]
    assert expected in reports[call]
    assert bool(expected) == bool(reports[call])
