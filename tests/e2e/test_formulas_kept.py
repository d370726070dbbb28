"""Formulas leave a daemon with every backslash: through the API, an export, and the terminal."""

from pathlib import Path

import pytest

from tests.faults.markdown_causes import damaged_formulas, formulas
from tests.faults.markdown_daemon import texts_of_daemon
from tests.faults.markdown_texts import ANSWERS

pytestmark = pytest.mark.process

ANSWER = "\n\n".join(ANSWERS.values())


async def test_no_surface_that_prints_text_changes_a_formula(tmp_path: Path) -> None:
    assert len(formulas(ANSWER)) > 20
    printed = await texts_of_daemon(tmp_path, ANSWER)
    assert not [tex for text in printed.values() for tex in damaged_formulas(ANSWER, text)]
    for surface in ("API", "API, streamed", "API, Responses", "sessions export --json"):
        assert printed[surface] == ANSWER, surface
    for surface in ("sessions export", "holdfast chat"):
        assert ANSWER in printed[surface], surface
