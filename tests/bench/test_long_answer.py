"""A long answer in small pieces costs the gateway as much for its last piece as for its first."""

import sys
import time
from pathlib import Path

import pytest

from tests.e2e.scenarios.scenario_kit import stage
from tests.fakes.model_script import Head, Raw, Step, body_of, steps, text

PIECE = 4  # characters
SHORT, LONG = 10_000, 87_500  # pieces: 40 KB and 350 KB


def _answer(pieces: int) -> tuple[Step, ...]:
    said = (text(f"🙂{number % 1000:03d}") for number in range(pieces))
    return Head(bare=True), Raw(body_of((Head(), *said, *steps("F stop U D"))))


async def _seconds_a_piece(home: Path, pieces: int) -> float:
    """CPU time for each piece, from the message to the answer's end."""
    async with stage(home, "chat", _answer(pieces)) as scene:
        tracing = sys.gettrace()
        sys.settrace(None)
        try:
            began = time.process_time()
            await scene.go()
            spent = time.process_time() - began
        finally:
            sys.settrace(tracing)
        (_, answer) = await scene.rows()
        assert len(answer.content) == PIECE * pieces
    return spent / pieces


async def test_a_piece_costs_no_more_when_the_answer_is_long(tmp_path: Path) -> None:
    await _seconds_a_piece(tmp_path / "warm", 100)  # the first time, much is loaded
    ratios = []
    for number in range(3):  # a neighbour may disturb one
        short = await _seconds_a_piece(tmp_path / f"short-{number}", SHORT)
        long = await _seconds_a_piece(tmp_path / f"long-{number}", LONG)
        ratios.append(long / short)
        if ratios[-1] < 1.8:  # it is 4 when every piece is joined to all before it
            return
    pytest.fail(f"each piece of the long answer costs {ratios} times as much")
