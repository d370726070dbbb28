"""Rules about folders, names and calls, counted by `scripts/code_figures.py`."""

from pathlib import Path

import pytest

from scripts.code_figures import Figure, measure, read_modules

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def figures() -> dict[str, Figure]:
    return {figure.label: figure for figure in measure(read_modules(ROOT))}


def test_no_folder_holds_more_than_25_modules(figures: dict[str, Figure]) -> None:
    assert figures["folders with more than 25 modules"].value == 0


def test_no_two_packages_have_a_class_of_the_same_name(figures: dict[str, Figure]) -> None:
    same = figures["  in two or more folders"]
    assert same.value == 0, same.found


def test_no_record_is_built_from_many_positional_arguments(figures: dict[str, Figure]) -> None:
    positional = figures["objects built from 6 or more positional arguments"]
    assert positional.value == 0, positional.found
