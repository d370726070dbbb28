"""Sans-IO: access and roles. Messages, commands, buttons, edits and reactions pass `decide_access`.

Only listed people have access. An entry of `access.allow` is one of

    telegram:1001            one person, by the platform's stable id
    slack:T1/U3003           the same, where ids belong to a workspace
    slack:T1/*               the full members of a workspace
    telegram:-1001234/*      the members of a group, only in that group
    discord:GUILD/role:ID    the holders of a role
    telegram:*               everyone on that platform

An entry such as `telegram@work:1001` applies only under the account `work`. Everything is compared
exactly as written: no case folding, no trimming, no display names.

`Sender.memberships` holds the memberships an adapter vouches for, in one of three forms: `T1/*` (a
full member of T1, in every chat), `-1001234` (a member of the group with this chat id; applies only
in that chat) and `GUILD/role:ID` (holds that role, in every chat).
"""

import enum
import re
from collections.abc import Iterable

from msgspec import Struct

from platforms.core.contract import Address, Inbound, InboundMessage, Sender


class Role(enum.IntEnum):
    """A person's rights; a greater role includes the smaller ones."""

    GUEST = 1  # no tools
    MEMBER = 2  # reads, writes in their own workspace, fetches
    ADMIN = 3  # everything, and answers approval requests of members


OWNERS = frozenset({"console:owner", "web:owner", "api:key"})
"""The person at this machine's terminal, the person at the page opened by the printed link, and
clients with the API key, which grants the same rights."""


# --- entries -----------------------------------------------------------------------------------


class PersonEntry(Struct, frozen=True):
    """One person."""

    platform: str
    id: str
    account: str = ""


class PlatformEntry(Struct, frozen=True):
    """All people on a platform."""

    platform: str
    account: str = ""


class GroupEntry(Struct, frozen=True):
    """The members of a workspace or group."""

    platform: str
    group: str
    account: str = ""


class RoleEntry(Struct, frozen=True):
    """The holders of a role."""

    platform: str
    role: str  # GUILD/role:ID
    account: str = ""


AccessEntry = PersonEntry | PlatformEntry | GroupEntry | RoleEntry

_ENTRY = re.compile(r"(?P<platform>[a-z][a-z0-9_-]*)(?:@(?P<account>[A-Za-z0-9_.-]+))?:(?P<who>.*)")
_GROUP = re.compile(r"(-?[A-Za-z0-9_.]+)/\*")
_ROLE = re.compile(r"[A-Za-z0-9_.]+/role:[A-Za-z0-9_.]+")
_PERSON = re.compile(r"[!-)+-~]+")  # printable ASCII without space and *


def parse_entry(text: str) -> AccessEntry:
    """Parse an entry; raise `ValueError` with the problem."""
    match = _ENTRY.fullmatch(text)
    if match is None:
        msg = "is not platform:id, such as telegram:1001"
        raise ValueError(msg)
    platform, account, who = match["platform"], match["account"] or "", match["who"]
    if who == "*":
        return PlatformEntry(platform, account)
    if group := _GROUP.fullmatch(who):
        return GroupEntry(platform, group[1], account)
    if _ROLE.fullmatch(who):
        return RoleEntry(platform, who, account)
    if "*" in who:
        msg = f"may have a * only as the whole id ({platform}:*) or after a group ({platform}:GROUP/*)"
        raise ValueError(msg)
    if not _PERSON.fullmatch(who):
        msg = "has no id, or an id with spaces or non-ASCII letters"
        raise ValueError(msg)
    if who.startswith("@") and ":" not in who:
        msg = "contains a name, which can change; use the id that /whoami shows"
        raise ValueError(msg)
    return PersonEntry(platform, who, account)


def parse_admin_entry(text: str) -> AccessEntry:
    """Parse an entry of `access.admins`, which allows persons and roles only."""
    entry = parse_entry(text)
    if isinstance(entry, (PlatformEntry, GroupEntry)):
        msg = "would make everyone there an admin; list each person, or a role"
        raise ValueError(msg)  # noqa: TRY004 - an invalid value, not an invalid type
    return entry


def has_membership_entries(entries: Iterable[str], platform: str) -> bool:
    """Return True if groups or roles of a platform have access."""
    return any(
        isinstance(entry, GroupEntry | RoleEntry) and entry.platform == platform
        for entry in map(parse_entry, entries)
    )


# --- the decision ------------------------------------------------------------------------------


class Policy(Struct, frozen=True, kw_only=True):
    """Access as of now: configuration and stored people together."""

    allow: frozenset[AccessEntry] = frozenset()
    admins: frozenset[AccessEntry] = frozenset()
    approved: frozenset[str] = frozenset()  # principals with access by pairing
    appointed: frozenset[str] = frozenset()  # principals who are admins by claim code
    claim_open: bool = False  # a claim code is valid


def build_policy(
    allow: Iterable[str],
    admins: Iterable[str],
    *,
    approved: Iterable[str] = (),
    appointed: Iterable[str] = (),
    claim_open: bool = False,
) -> Policy:
    """Build a policy from written entries; raises `ValueError` like `parse_entry`."""
    return Policy(
        allow=frozenset(parse_entry(text) for text in allow),
        admins=frozenset(parse_admin_entry(text) for text in admins),
        approved=frozenset(approved),
        appointed=frozenset(appointed),
        claim_open=claim_open,
    )


class Allowed(Struct, frozen=True):
    """The person has access."""

    principal: str  # platform:id, the same under all of the bot's accounts
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


AccessDecision = Allowed | NotAddressed | Stranger | UnlistedBot


def decide_access(policy: Policy, event: Inbound) -> AccessDecision:
    """Return the decision about an event."""
    address, sender = event.address, event.sender
    principal = f"{address.platform}:{sender.id}"
    if isinstance(event, InboundMessage) and not (event.direct or event.addressed):
        return NotAddressed()
    role = _role_of(policy, principal, sender, address.platform, address.account, address.chat)
    if role is not None:
        return Allowed(principal, role)
    if sender.is_bot:
        return UnlistedBot(principal)
    return Stranger(principal, event.direct)


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
