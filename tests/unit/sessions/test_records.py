"""Roles and kinds in stored records."""

import msgspec
import pytest

from sessions.records import ItemKind, Message, MessageRole


@pytest.mark.parametrize("role", MessageRole)
def test_a_role_is_stored_as_its_plain_name(role: MessageRole) -> None:
    stored = f'{{"role":"{role}","content":"text"}}'.encode()
    assert msgspec.json.encode(Message(role, "text")) == stored
    read = msgspec.json.decode(stored, type=Message)
    assert read.role is role
    assert read == Message(role, "text")


def test_a_plugin_may_write_a_role_as_a_plain_string() -> None:
    plain, ours = Message("assistant", "text"), Message(MessageRole.ASSISTANT, "text")
    assert plain == ours
    assert plain.role == MessageRole.ASSISTANT
    assert msgspec.json.encode(plain) == msgspec.json.encode(ours)
    assert msgspec.msgpack.encode(plain) == msgspec.msgpack.encode(ours)


def test_the_stored_names_of_item_kinds_never_change() -> None:
    assert [kind.value for kind in ItemKind] == ["answer", "notice", "ask", "upload"]
