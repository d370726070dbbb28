"""The parsed modules of the tree."""

import gc
from collections.abc import Sequence
from pathlib import Path

import pytest

from scripts.code_figures import PACKAGES, Module, read_modules

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def modules() -> list[Module]:
    """Every module of the four packages, parsed once for all rules."""
    return _parse(PACKAGES)


@pytest.fixture(scope="session")
def tests_and_scripts() -> list[Module]:
    """Every module that may use a name of the packages without being part of them."""
    return _parse(("tests", "scripts"))


def _parse(folders: Sequence[str]) -> list[Module]:
    gc.disable()  # with 400,000 nodes and no garbage, collections take longer than parsing
    try:
        return read_modules(ROOT, folders)
    finally:
        gc.freeze()
        gc.enable()
