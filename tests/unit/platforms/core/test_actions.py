"""Actions of buttons: the stored forms, and reading them."""

import pytest

from platforms.core.actions import ButtonAction, read_action, write_action


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (ButtonAction.STOP, "stop:t_1"),
        (ButtonAction.RETRY, "retry:t_1"),
        (ButtonAction.RESUME, "resume.go:t_1"),
        (ButtonAction.APPROVE, "approve:t_1"),
        (ButtonAction.DENY, "deny:t_1"),
    ],
)
def test_an_action_keeps_its_form_and_is_read(action: ButtonAction, text: str) -> None:
    assert write_action(action, "t_1") == text
    assert read_action(text) == (action, "t_1")
    assert read_action(write_action(action)) == (action, "")


@pytest.mark.parametrize(
    ("text", "subject"), [("", ""), ("jump:t_1", "t_1"), ("Stop:t_1", "t_1"), ("resume:a:b", "a:b")]
)
def test_other_texts_are_no_action(text: str, subject: str) -> None:
    assert read_action(text) == (None, subject)
