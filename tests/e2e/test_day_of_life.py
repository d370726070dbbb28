"""A day of life in some seconds; `make soak` is the long form, which looks at memory, too."""

from pathlib import Path

import pytest

from tests.faults.soak import Plan, live


async def test_everybody_is_answered_once_whatever_breaks_off_or_dies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = str(tmp_path)
    short = Plan(people=24, turns=80, seconds=12, restart_every=2, trouble_every=1, home=home)
    assert await live(short) == 0, capsys.readouterr().out
