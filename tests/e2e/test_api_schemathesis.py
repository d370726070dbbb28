"""Requests generated from the OpenAPI document, of some phases a part; `make api-fuzz` sends all."""

from pathlib import Path

import pytest

from tests.faults.api_schema import ask


@pytest.mark.timeout(120)
async def test_api_conforms_to_its_document(tmp_path: Path) -> None:
    report = await ask(5, 1, tmp_path, every=4)
    assert report.code == 0, report.text
    assert report.cases > 800, report.text
    assert report.odd == []
