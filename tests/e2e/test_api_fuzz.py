"""Random and malicious requests to the API; `make api-fuzz` sends 10,000."""

from pathlib import Path

import pytest

from tests.faults.api_cases import Cases
from tests.faults.api_fuzz import fuzz


@pytest.mark.timeout(90)
async def test_any_request_is_answered_or_refused_without_leftovers(tmp_path: Path) -> None:
    tally = await fuzz(400, 7, tmp_path)
    assert tally.wrong == []
    assert tally.kinds.total() == 400
    assert len(tally.kinds) == 7
    assert {200, 400, 403, 404, 405} <= set(tally.statuses)
    assert tally.turns > 50


def test_same_seed_generates_the_same_requests() -> None:
    assert [Cases(3)[n] for n in range(200)] == [Cases(3)[n] for n in range(200)]
    assert [Cases(3)[n] for n in range(20)] != [Cases(4)[n] for n in range(20)]
