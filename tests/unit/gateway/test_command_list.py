"""The list of commands that /help shows, by role."""

import pytest

from gateway.access.policy import Role
from gateway.commands.registry import COMMANDS


@pytest.mark.parametrize(
    ("role", "line"),
    [
        (Role.MEMBER, "/stop · stop the current task"),
        (Role.ADMIN, "/stop [all] · stop the current task"),
    ],
)
def test_each_role_gets_its_own_form_of_a_command(role: Role, line: str) -> None:
    assert line in COMMANDS.help(role, "/{word}").splitlines()


def test_members_see_no_command_for_admins() -> None:
    listed = COMMANDS.help(Role.MEMBER, "/{word}")
    assert "/status" in listed
    assert not any(f"/{entry.word} " in listed for entry in COMMANDS.menu() if entry.admin)


def test_the_menu_says_which_arguments_are_for_admins() -> None:
    (stop,) = [entry for entry in COMMANDS.menu() if entry.word == "stop"]
    assert (stop.args, stop.admin_args) == ("", "[all]")
