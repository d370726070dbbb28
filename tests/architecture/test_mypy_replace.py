"""The mypy plugin that checks calls of `msgspec.structs.replace`."""

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


def check(tmp_path: Path, call: str) -> str:
    (tmp_path / "mypy.ini").write_text(
        f"[mypy]\nplugins = {ROOT / 'scripts' / 'mypy_replace.py'}\ncache_dir = {tmp_path}\n"
    )
    (tmp_path / "calls.py").write_text(f"{RECORD}{call}\n")
    text, errors, _ = api.run(
        ["--config-file", str(tmp_path / "mypy.ini"), str(tmp_path / "calls.py")]
    )
    assert not errors
    return text


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("msgspec.structs.replace(child, id='b', seconds=2.0)", "Success"),
        ("msgspec.structs.replace(child, second=2.0)", 'keyword argument "second"'),
        ("msgspec.structs.replace(child, seconds='2')", 'expected "float"'),
        ("msgspec.structs.replace(child, id=None)", 'expected "str"'),
        ("reveal_type(msgspec.structs.replace(child))", "calls.Child"),
    ],
)
def test_replace_is_checked_against_the_fields_of_the_struct(
    tmp_path: Path, call: str, expected: str
) -> None:
    assert expected in check(tmp_path, call)
