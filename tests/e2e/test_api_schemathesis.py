"""The API before a program that has read its document; `make api-fuzz` asks at length."""

from pathlib import Path

import pytest

from tests.faults.api_schema import ask


@pytest.mark.timeout(90)
@pytest.mark.parametrize(
    ("phases", "mode", "least"),
    [
        pytest.param(
            ("coverage",), "negative", 200, id="all that the document forbids, one by one"
        ),
        pytest.param(("examples", "fuzzing"), "all", 30, id="what it allows, and what it forbids"),
    ],
)
async def test_the_api_keeps_what_its_document_promises(
    tmp_path: Path, phases: tuple[str, ...], mode: str, least: int
) -> None:
    report = await ask(10, 1, tmp_path, phases, mode)
    assert report.code == 0, report.text
    assert report.cases >= least, report.text
    assert report.odd == []
