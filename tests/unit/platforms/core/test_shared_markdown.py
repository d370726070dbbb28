"""Texts that chats and the page read alike: the parser of chats."""

import pytest

from tests.faults.markdown_outline import outline
from tests.faults.markdown_shared import SHARED


@pytest.mark.parametrize("name", SHARED)
def test_the_parser_of_chats_reads_a_shared_text(name: str) -> None:
    md, expected = SHARED[name]
    assert outline(md) == expected
