"""A short form of `make mutants`: mutants with large consequences must be noticed."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.accepted import read_accepted
from tests.mutants.areas import TESTS
from tests.mutants.engine import ROOT

HIGH_RISK = Path(__file__).with_name("high_risk.toml")

UNNOTICED = """
[[mutant]]
consequence = "{consequence}"
module = "gateway/access/pairing.py"
function = "normalize_code"
before = "return re.sub('[\\\\\\\\s-]', '', code).upper()"
after = "{after}"
test = "tests/unit/gateway/test_pairing.py::test_a_used_code_is_invalid"
"""


def judge(file: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.mutants", "--high-risk", str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.process
@pytest.mark.timeout(300)
def test_every_mutant_with_large_consequences_is_noticed_by_its_test() -> None:
    run = judge(HIGH_RISK)
    lines = run.stdout.splitlines()
    assert run.returncode == 0, run.stdout + run.stderr
    assert len(lines) == HIGH_RISK.read_text().count("[[mutant]]")
    assert all(line.startswith(("killed", "timeout")) for line in lines), run.stdout


@pytest.mark.process
@pytest.mark.timeout(300)
def test_a_mutant_that_its_test_does_not_notice_is_a_failure(tmp_path: Path) -> None:
    file = tmp_path / "mutants.toml"
    after = "return re.sub('XX[\\\\\\\\s-]', '', code).upper()"
    file.write_text(UNNOTICED.format(consequence="spaces count", after=after))
    run = judge(file)
    assert run.returncode == 1, run.stderr
    assert run.stdout == "survived  spaces count\n"


def test_accepted_survivors_are_in_modules_that_are_judged_and_have_a_reason() -> None:
    for key, reason in read_accepted().items():
        assert key[0] in TESTS
        assert len(reason.split()) > 2, key
