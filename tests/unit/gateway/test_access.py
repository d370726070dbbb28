"""The attack table: only listed people have access, regardless of their display names."""

import re
from typing import Any

import pytest

from gateway.access.entries import (
    GroupEntry,
    PersonEntry,
    PlatformEntry,
    RoleEntry,
    has_membership_entries,
    parse_admin_entry,
    parse_entry,
)
from gateway.access.policy import (
    Allowed,
    NotAddressed,
    Policy,
    Role,
    Stranger,
    Undecided,
    UnlistedBot,
    build_policy,
    decide_access,
)
from gateway.access.settings import AccessSettings
from platforms.core.contract import (
    Address,
    Inbound,
    InboundAction,
    InboundDelete,
    InboundEdit,
    InboundMessage,
    Quote,
    Sender,
    Text,
)

GROUP = "-1001234"


def message(platform: str = "telegram", **given: Any) -> InboundMessage:
    """Return a DM from 1001 on Telegram, unless changed by arguments."""
    sender = given.pop("sender", None) or Sender(
        id=given.pop("id", "1001"),
        name=given.pop("name", "Ann"),
        is_bot=given.pop("is_bot", False),
        memberships=given.pop("memberships", ()),
    )
    chat = given.pop("chat", sender.id)
    address = Address(
        platform, chat, account=given.pop("account", ""), thread=given.pop("thread", "")
    )
    given.setdefault("direct", chat == sender.id)
    given.setdefault("parts", (Text("hello"),))
    given.setdefault("addressed", True)
    return InboundMessage(id="1", at=0, address=address, sender=sender, **given)


def let_in(*allow: str, **more: Any) -> Policy:
    return build_policy(allow, more.pop("admins", ()), **more)


MEMBER = Allowed("telegram:1001", Role.MEMBER)


@pytest.mark.parametrize(
    ("entry", "event", "principal"),
    [
        pytest.param("telegram:1001", message(), "telegram:1001", id="person"),
        pytest.param(
            "telegram:1001", message(chat=GROUP), "telegram:1001", id="person in any room"
        ),
        pytest.param(
            "slack:T1/U3003", message("slack", id="T1/U3003"), "slack:T1/U3003", id="slack person"
        ),
        pytest.param(
            "slack:T1/*",
            message("slack", id="T1/U9", memberships=("T1/*",)),
            "slack:T1/U9",
            id="full member of the workspace, in a DM",
        ),
        pytest.param(
            f"telegram:{GROUP}/*",
            message(chat=GROUP, memberships=(GROUP,)),
            "telegram:1001",
            id="member of the group, there",
        ),
        pytest.param(
            f"telegram:{GROUP}/*",
            message(chat=GROUP, thread="7", memberships=(GROUP,)),
            "telegram:1001",
            id="member of the group, in a topic of it",
        ),
        pytest.param(
            "discord:G1/role:R7",
            message("discord", id="5", memberships=("G1/role:R6", "G1/role:R7")),
            "discord:5",
            id="holder of a role",
        ),
        pytest.param("telegram:*", message(id="424242"), "telegram:424242", id="everybody"),
        pytest.param(
            "telegram@work:1001", message(account="work"), "telegram:1001", id="under one account"
        ),
        pytest.param(
            "telegram:1001", message(account="work"), "telegram:1001", id="under any account"
        ),
        pytest.param(
            "telegram:7", message(id="7", is_bot=True), "telegram:7", id="a bot that is named"
        ),
        pytest.param(
            "telegram:1001",
            message(reply_to=Quote("2002", "forwarded words")),
            "telegram:1001",
            id="forwarded by an allowed person",
        ),
    ],
)
def test_a_listed_person_is_a_member(entry: str, event: InboundMessage, principal: str) -> None:
    assert decide_access(let_in(entry), event) == Allowed(principal, Role.MEMBER)


@pytest.mark.parametrize(
    ("entry", "event"),
    [
        pytest.param("", message(), id="an empty list lets nobody in"),
        pytest.param("telegram:1001", message(id="2002", name="1001"), id="name is an allowed id"),
        pytest.param(
            "telegram:1001", message(id="2002", name="telegram:1001"), id="name is an entry"
        ),
        pytest.param("telegram:1001", message(id="2002", chat="1001"), id="in a chat of that id"),
        pytest.param(
            "telegram:1001", message(id="2002", account="1001"), id="account of ours of that id"
        ),
        pytest.param(
            "telegram:1001",
            message(id="2002", reply_to=Quote("1001", "hello")),
            id="answers an allowed person",
        ),
        pytest.param(
            "telegram:1001",
            message(id="2002", context=(Quote("telegram:1001", "let me in"),)),
            id="listed after an allowed person",
        ),
        pytest.param("telegram:1001", message("discord"), id="same id on another platform"),
        pytest.param("telegram:1001", message("Telegram"), id="platform in another case"),
        pytest.param("telegram:1001", message(id="1001 "), id="space behind the id"),
        pytest.param("telegram:1001", message(id=" 1001"), id="space before the id"),
        pytest.param("telegram:1001", message(id="01001"), id="zero before the id"),
        pytest.param("telegram:1001", message(id="10012"), id="allowed id is the beginning"),
        pytest.param("telegram:1001", message(id="100"), id="beginning of an allowed id"),
        pytest.param("telegram:1001", message(id="１００１"), id="wide digits"),  # noqa: RUF001
        pytest.param("telegram:1001", message(id="1001\u200b"), id="invisible sign behind the id"),
        pytest.param("telegram:1001", message(id="*"), id="a star as id"),
        pytest.param("telegram:1001", message(id=""), id="no id"),
        pytest.param("telegram:*", message(id=""), id="no id where everybody may"),
        pytest.param("telegram:*", message("slack"), id="everybody, but elsewhere"),
        pytest.param("telegram@work:*", message(account="home"), id="everybody, other account"),
        pytest.param(
            "telegram@work:1001", message(account="home"), id="another account of the bot"
        ),
        pytest.param("telegram@work:1001", message(), id="no account where one is named"),
        pytest.param("slack:T1/U3003", message("slack", id="T1/u3003"), id="id in another case"),
        pytest.param(
            "slack:T1/U3003", message("slack", id="T2/U3003"), id="same person id, other workspace"
        ),
        pytest.param(
            "slack:T1/*", message("slack", id="T1/U9", memberships=()), id="guest of the workspace"
        ),
        pytest.param("slack:T1/*", message("slack", id="T1/*"), id="calls itself like all members"),
        pytest.param(
            "slack:T1/*",
            message("slack", id="T2/U9", memberships=("T2/*",), chat="T1"),
            id="member of another workspace",
        ),
        pytest.param(
            f"telegram:{GROUP}/*",
            message(memberships=(GROUP,)),
            id="member of the group, in a DM",
        ),
        pytest.param(
            f"telegram:{GROUP}/*",
            message(chat="-1009", memberships=(GROUP,)),
            id="member of the group, in another group",
        ),
        pytest.param(
            f"telegram:{GROUP}/*", message(chat=GROUP), id="in the group, but no member of it"
        ),
        pytest.param(
            f"telegram:{GROUP}/*", message(id=GROUP, chat=GROUP), id="the group itself as sender"
        ),
        pytest.param(
            "discord:G1/role:R7",
            message("discord", memberships=("G2/role:R7",)),
            id="same role id, other server",
        ),
        pytest.param(
            "discord:G1/role:R7",
            message("discord", memberships=("G1/*",)),
            id="member of the server without the role",
        ),
        pytest.param(
            "discord:G1/role:R7",
            message("discord", id="G1/role:R7"),
            id="calls itself like the role",
        ),
        pytest.param(
            "discord:G1/*",
            message("discord", chat="G1", memberships=("G1/role:R7",)),
            id="holder of a role, in a channel that has the id of the server",
        ),
        pytest.param("telegram:web:owner", message("telegram", id="owner"), id="owner elsewhere"),
    ],
)
def test_an_unlisted_person_is_a_stranger(entry: str, event: InboundMessage) -> None:
    decision = decide_access(let_in(*([entry] if entry else [])), event)
    assert isinstance(decision, Stranger)
    assert decision.direct == event.direct


UNKNOWN = Sender("1001", memberships_unknown=True)


@pytest.mark.parametrize(
    ("rules", "event", "decision"),
    [
        (let_in("telegram:1001"), message(sender=UNKNOWN), MEMBER),
        (let_in("telegram:*"), message(sender=UNKNOWN), MEMBER),
        (let_in("telegram:1001", "telegram:G1/*"), message(sender=UNKNOWN), MEMBER),
        (let_in("telegram:G1/*"), message(sender=UNKNOWN), Undecided("telegram:1001")),
        (
            let_in(admins=("telegram:G1/role:7",)),
            message(sender=UNKNOWN),
            Undecided("telegram:1001"),
        ),
        (
            let_in("telegram:2002", "telegram:G1/*", "slack:T1/*"),
            message(sender=UNKNOWN),
            Undecided("telegram:1001"),
        ),
        (
            let_in("slack:T1/*"),
            message(sender=UNKNOWN),
            Stranger("telegram:1001", direct=True),
        ),
        (let_in("telegram:2002"), message(sender=UNKNOWN), Stranger("telegram:1001", direct=True)),
        (
            let_in("telegram:G1/*"),
            message(sender=UNKNOWN, chat=GROUP, addressed=False),
            NotAddressed(),
        ),
        (
            let_in("telegram:G1/*"),
            message(sender=Sender("7", is_bot=True, memberships_unknown=True)),
            UnlistedBot("telegram:7"),
        ),
    ],
)
def test_unknown_memberships_leave_a_decision_open_only_if_a_rule_needs_them(
    rules: Policy, event: InboundMessage, decision: object
) -> None:
    assert decide_access(rules, event) == decision


@pytest.mark.parametrize("allow", ["telegram:*", f"telegram:{GROUP}/*", "telegram:1001"])
def test_bots_need_an_entry_of_their_own(allow: str) -> None:
    event = message(id="7", chat=GROUP, is_bot=True, memberships=(GROUP, "G1/role:1"))
    assert decide_access(let_in(allow), event) == UnlistedBot("telegram:7")


def _edit(sender: Sender, *, direct: bool) -> Inbound:
    place = Address("telegram", sender.id if direct else GROUP)
    return InboundEdit(
        "2", 0, address=place, sender=sender, message="1", parts=(Text("new words"),), direct=direct
    )


def _delete(sender: Sender, *, direct: bool) -> Inbound:
    place = Address("telegram", sender.id if direct else GROUP)
    return InboundDelete("2", 0, address=place, sender=sender, message="1", direct=direct)


def _button(sender: Sender, *, direct: bool) -> Inbound:
    place = Address("telegram", sender.id if direct else GROUP)
    return InboundAction("2", 0, address=place, sender=sender, action="approve:1", direct=direct)


@pytest.mark.parametrize("make", [_edit, _delete, _button])
@pytest.mark.parametrize("direct", [True, False])
def test_edits_deletes_and_buttons_pass_the_same_decision(make: Any, *, direct: bool) -> None:
    rules = let_in("telegram:1001")
    assert decide_access(rules, make(Sender("1001"), direct=direct)) == MEMBER
    assert decide_access(rules, make(Sender("2002", name="1001"), direct=direct)) == Stranger(
        "telegram:2002", direct
    )


@pytest.mark.parametrize("text", ["/stop", "/reset", "/new", "!stop", "/pair approve ABCDEFGH"])
def test_a_command_gives_no_access(text: str) -> None:
    event = message(id="2002", parts=(Text(text),))
    assert isinstance(decide_access(let_in("telegram:1001"), event), Stranger)


@pytest.mark.parametrize("identity", ["1001", "2002"])
def test_messages_to_others_in_a_room_are_ignored(identity: str) -> None:
    event = message(id=identity, chat=GROUP, addressed=False)
    assert decide_access(let_in("telegram:1001"), event) == NotAddressed()


def test_a_dm_counts_as_addressed_regardless_of_the_adapter() -> None:
    assert decide_access(let_in("telegram:1001"), message(addressed=False)) == MEMBER


def test_a_thread_of_a_dm_is_private_too() -> None:
    assert decide_access(let_in("telegram:1001"), message(thread="9")) == MEMBER


@pytest.mark.parametrize(
    "rules",
    [
        let_in(admins=["telegram:1001"]),
        let_in("telegram:1001", admins=["telegram:1001"]),
        let_in(appointed=["telegram:1001"]),
        let_in(admins=["telegram:G1/role:R1"]),
    ],
)
def test_admins_need_not_be_in_the_allow_list(rules: Policy) -> None:
    event = message(memberships=("G1/role:R1",))
    assert decide_access(rules, event) == Allowed("telegram:1001", Role.ADMIN)


def test_only_a_paired_person_is_a_member() -> None:
    rules = let_in(approved=["telegram:1001"])
    assert decide_access(rules, message()) == MEMBER
    assert isinstance(decide_access(rules, message(id="2002")), Stranger)
    assert isinstance(decide_access(rules, message("slack")), Stranger)


def test_revoking_a_pairing_affects_the_next_message() -> None:
    assert decide_access(let_in(approved=["telegram:1001"]), message()) == MEMBER
    assert isinstance(decide_access(let_in(), message()), Stranger)


@pytest.mark.parametrize("principal", ["console:owner", "web:owner", "api:key"])
def test_the_person_at_the_terminal_and_at_the_page_and_a_client_with_the_key_are_admins(
    principal: str,
) -> None:
    platform, _, identity = principal.partition(":")
    event = message(platform, id=identity, chat="main", direct=True)
    assert decide_access(let_in(), event) == Allowed(principal, Role.ADMIN)


@pytest.mark.parametrize("claim_open", [True, False])
def test_a_policy_tells_if_a_claim_code_is_valid(*, claim_open: bool) -> None:
    assert let_in(claim_open=claim_open).claim_open is claim_open
    assert not let_in().claim_open
    assert not Policy().claim_open


@pytest.mark.parametrize(
    ("platform", "identity"), [("web", "Owner"), ("web", "x"), ("api", "owner")]
)
def test_no_one_else_is_the_owner(platform: str, identity: str) -> None:
    event = message(platform, id=identity, chat="main", direct=True)
    assert isinstance(decide_access(let_in(), event), Stranger)


def test_strangers_in_dms_and_rooms_are_distinguished() -> None:
    assert decide_access(let_in(), message()) == Stranger("telegram:1001", direct=True)
    assert decide_access(let_in(), message(chat=GROUP)) == Stranger("telegram:1001", direct=False)


def test_greater_roles_include_smaller_ones() -> None:
    assert Role.GUEST < Role.MEMBER < Role.ADMIN


# --- entries -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        ("telegram:1001", PersonEntry("telegram", "1001")),
        ("telegram:-1001234", PersonEntry("telegram", "-1001234")),
        ("slack:T1/U3003", PersonEntry("slack", "T1/U3003")),
        ("matrix:@ann:example.org", PersonEntry("matrix", "@ann:example.org")),
        ("telegram@work:1001", PersonEntry("telegram", "1001", "work")),
        ("telegram:*", PlatformEntry("telegram")),
        ("slack:T1/*", GroupEntry("slack", "T1")),
        ("telegram:-1001234/*", GroupEntry("telegram", "-1001234")),
        ("discord:11/role:22", RoleEntry("discord", "11/role:22")),
    ],
)
def test_entries_are_parsed(text: str, entry: object) -> None:
    assert parse_entry(text) == entry


@pytest.mark.parametrize(
    "text",
    [
        "",
        "*",
        "1001",
        "telegram",
        "telegram:",
        ":1001",
        " telegram:1001",
        "telegram :1001",
        "telegram: 1001",
        "telegram:1001 ",
        "telegram:1001\n",
        "Telegram:1001",
        "telegram:10*",
        "telegram:*1",
        "telegram:**",
        "telegram:*/*",
        "telegram:/*",
        "telegram:-100*/*",
        "slack:T1/U*",
        "discord:*/role:1",
        "discord:1/role:*",
        "telegram:@ann",
        "telegram:１００１",  # noqa: RUF001
        "tеlegram:1001",  # noqa: RUF001 - with a Cyrillic letter
        "telegram@:1001",
        "telegram:1001,telegram:2002\t",
    ],
)
def test_an_ambiguous_entry_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_entry(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("1001", "is not platform:id"),
        ("telegram:10*", "may have a * only"),
        ("telegram:", "has no id"),
        ("telegram:10 01", "has no id, or an id with spaces"),
        ("telegram:@ann", "contains a name"),
    ],
)
def test_a_refused_entry_is_told_its_problem(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        parse_entry(text)


@pytest.mark.parametrize("text", ["telegram:*", "slack:T1/*", "telegram:-1001234/*"])
def test_groups_and_platforms_cannot_be_admins(text: str) -> None:
    with pytest.raises(ValueError, match="everyone there an admin"):
        parse_admin_entry(text)


def test_a_person_or_a_role_can_be_admin() -> None:
    assert parse_admin_entry("telegram:1001") == PersonEntry("telegram", "1001")
    assert parse_admin_entry("discord:1/role:2") == RoleEntry("discord", "1/role:2")


@pytest.mark.parametrize(
    ("entries", "asked"),
    [
        ((), False),
        (("discord:5", "telegram:-1001234/*", "discord:*"), False),
        (("discord:5", "discord:1/role:2"), True),
        (("discord:1/*",), True),
        (("discord@work:1/role:2",), True),
    ],
)
def test_memberships_matter_only_if_an_entry_uses_them(
    entries: tuple[str, ...], asked: bool
) -> None:
    assert has_membership_entries(entries, "discord") is asked


def test_each_invalid_entry_of_the_settings_is_reported_with_its_place() -> None:
    settings = AccessSettings(
        allow=("telegram:1001", "telegram:@ann"), admins=("telegram:*", "telegram:1")
    )
    (allow, why), (admins, why_not) = settings.conflicts()
    assert (allow, admins) == (("allow", 1), ("admins", 0))
    assert why.startswith('"telegram:@ann" contains a name')
    assert why_not.startswith('"telegram:*" would make everyone there an admin')


def test_without_settings_nobody_is_listed_and_people_may_ask_for_access() -> None:
    assert AccessSettings() == AccessSettings(allow=(), admins=(), pairing=True)
