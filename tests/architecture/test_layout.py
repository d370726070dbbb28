"""Rules about folders, names and calls, counted by `scripts/code_figures.py`."""

import pytest

from scripts.code_figures import Figure, Module, measure_layout


@pytest.fixture(scope="module")
def figures(modules: list[Module], tests_and_scripts: list[Module]) -> dict[str, Figure]:
    return {figure.label: figure for figure in measure_layout(modules, tests_and_scripts)}


def test_no_folder_holds_more_than_25_modules(figures: dict[str, Figure]) -> None:
    assert figures["folders with more than 25 modules"].value == 0


def test_no_two_packages_have_a_class_of_the_same_name(figures: dict[str, Figure]) -> None:
    same = figures["  in two or more folders"]
    assert same.value == 0, same.found


def test_no_function_has_more_than_8_parameters(figures: dict[str, Figure]) -> None:
    many = figures["functions with more than 8 parameters"]
    assert many.value == 0, many.found


def test_a_constant_without_a_second_user_is_private(figures: dict[str, Figure]) -> None:
    unused = figures["  and no test"]
    assert unused.value == 0, unused.found


def test_no_record_is_built_from_many_positional_arguments(figures: dict[str, Figure]) -> None:
    positional = figures["objects built from 6 or more positional arguments"]
    assert positional.value == 0, positional.found
