"""Sans-IO: access and roles. Messages, commands, buttons, edits and reactions pass `decide_access`.

Only listed people have access; `gateway.access.entries` parses the lists.

`Sender.memberships` holds the memberships an adapter vouches for, in one of three forms: `T1/*` (a
full member of T1, in every chat), `-1001234` (a member of the group with this chat id; applies only
in that chat) and `GUILD/role:ID` (holds that role, in every chat).
"""

import enum
from collections.abc import Iterable, Mapping

from msgspec import Struct

from gateway.access.api_keys import API_PLATFORM, CONFIGURED_PERSON, StoredKey
from gateway.access.entries import (
    AccessEntry,
    GroupEntry,
    PersonEntry,
    PlatformEntry,
    RoleEntry,
    parse_admin_entry,
    parse_entry,
)
from platforms.core.contract import Address, Inbound, InboundMessage, Sender


class Role(enum.IntEnum):
    """A person's rights; a greater role includes the smaller ones."""

    GUEST = 1  # no tools
    MEMBER = 2  # reads, writes in their own workspace, fetches
    ADMIN = 3  # everything, and answers approval requests of members


OWNERS = frozenset({"console:owner", "web:owner", CONFIGURED_PERSON})
"""The person at this machine's terminal, the person at the page opened by the printed link, and
clients with the API key of the configuration, which grants the same rights."""


# --- the decision ------------------------------------------------------------------------------


class Policy(Struct, frozen=True, kw_only=True):
    """Access as of now: configuration and stored people together."""

    allow: frozenset[AccessEntry] = frozenset()
    admins: frozenset[AccessEntry] = frozenset()
    approved: frozenset[str] = frozenset()  # principals with access by pairing
    appointed: frozenset[str] = frozenset()  # principals who are admins by claim code
    claim_open: bool = False  # a claim code is valid
    keys: Mapping[str, StoredKey] = {}  # API keys, by the sender of their requests


def build_policy(
    allow: Iterable[str],
    admins: Iterable[str],
    *,
    approved: Iterable[str] = (),
    appointed: Iterable[str] = (),
    claim_open: bool = False,
    keys: Iterable[StoredKey] = (),
) -> Policy:
    """Build a policy from written entries; raises `ValueError` like `parse_entry`."""
    return Policy(
        allow=frozenset(parse_entry(text) for text in allow),
        admins=frozenset(parse_admin_entry(text) for text in admins),
        approved=frozenset(approved),
        appointed=frozenset(appointed),
        claim_open=claim_open,
        keys={key.sender: key for key in keys},
    )


class Allowed(Struct, frozen=True):
    """The person has access."""

    principal: str
    """platform:id, the same under all of the bot's accounts; for an API key, the key's person."""
    role: Role


class NotAddressed(Struct, frozen=True):
    """A message in a room that is not addressed to the bot."""


class Stranger(Struct, frozen=True):
    """A person without access, who may ask for it in a direct message; rooms get no reply."""

    principal: str
    direct: bool


class UnlistedBot(Struct, frozen=True):
    """A bot that is not listed in `access.allow`."""

    principal: str


class Undecided(Struct, frozen=True):
    """A person whose memberships, which are unknown, may give access."""

    principal: str


AccessDecision = Allowed | NotAddressed | Stranger | UnlistedBot | Undecided


def decide_access(policy: Policy, event: Inbound) -> AccessDecision:
    """Return the decision about an event."""
    address, sender = event.address, event.sender
    principal = f"{address.platform}:{sender.id}"
    if isinstance(event, InboundMessage) and not (event.direct or event.addressed):
        return NotAddressed()
    if address.platform == API_PLATFORM and principal not in OWNERS:
        return _decide_key(policy, principal, direct=event.direct)
    role = _role_of(policy, principal, sender, address.platform, address.account, address.chat)
    if role is not None:
        return Allowed(principal, role)
    if sender.is_bot:
        return UnlistedBot(principal)
    if sender.memberships_unknown and _names_memberships(policy, address.platform):
        return Undecided(principal)
    return Stranger(principal, event.direct)


def role_of_key(policy: Policy, key: StoredKey) -> Role | None:
    """Return the smaller role of a key and its person; None if the person has no access.

    Access by membership does not count, because memberships are known only when the person writes.
    """
    most = Role[key.role.name]
    platform, _, id_ = key.person.partition(":")
    if platform == API_PLATFORM:
        return most  # a person who exists through keys alone
    role = _role_of(policy, key.person, Sender(id=id_), platform, "", "")
    return None if role is None else min(role, most)


def _decide_key(policy: Policy, sender: str, *, direct: bool) -> Allowed | Stranger:
    key = policy.keys.get(sender)
    if key is None:
        return Stranger(sender, direct)
    role = role_of_key(policy, key)
    return Stranger(sender, direct) if role is None else Allowed(key.person, role)


def _names_memberships(policy: Policy, platform: str) -> bool:
    return any(
        isinstance(entry, GroupEntry | RoleEntry) and entry.platform == platform
        for entry in policy.allow | policy.admins
    )


def _role_of(
    policy: Policy, principal: str, sender: Sender, platform: str, account: str, chat: str
) -> Role | None:
    if not sender.id:
        return None
    entries = _matching_entries(sender, platform, account, chat)
    if principal in OWNERS or principal in policy.appointed or entries & policy.admins:
        return Role.ADMIN
    if principal in policy.approved or entries & policy.allow:
        return Role.MEMBER
    return None


def _matching_entries(sender: Sender, platform: str, account: str, chat: str) -> set[AccessEntry]:
    """Return every entry that would match this sender in this chat."""
    named: set[AccessEntry] = set()
    for under in {"", account}:
        named.add(PersonEntry(platform, sender.id, under))
        if sender.is_bot:
            continue  # a bot has access only by its own entry
        named.add(PlatformEntry(platform, under))
        for membership in sender.memberships:
            group, mark, rest = membership.partition("/")
            if rest == "*" or (not mark and group == chat):
                named.add(GroupEntry(platform, group, under))
            elif rest.startswith("role:"):
                named.add(RoleEntry(platform, membership, under))
    return named


def admin_addresses(admins: Iterable[str]) -> tuple[Address, ...]:
    """Return the private addresses of the listed admins, without duplicates."""
    found = (parse_admin_entry(text) for text in admins)
    return tuple(
        dict.fromkeys(
            Address(entry.platform, entry.id, entry.account)
            for entry in found
            if isinstance(entry, PersonEntry)
        )
    )
