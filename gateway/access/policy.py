"""Sans-IO: who may do what. Messages, commands, buttons, edits and reactions all pass `decide`.

Nobody is let in who is not named. An entry of `access.allow` is one of

    telegram:1001            one person, by the platform's stable id
    slack:T1/U3003           the same, where ids belong to a workspace
    slack:T1/*               the full members of a workspace
    telegram:-1001234/*      the members of a group, and only in that group
    discord:GUILD/role:ID    the holders of a role
    telegram:*               everybody on that platform

and `telegram@work:1001` and so on hold only under the account `work`. Everything is compared
exactly as written: no case folding, no trimming, no names.

What an adapter vouches for stands in `Sender.memberships`, in one of three forms: `T1/*` (a full
member of T1, wherever it writes from), `-1001234` (a member of the group whose chat has this id;
counts only in that chat) and `GUILD/role:ID` (holds that role, wherever it writes from).
"""

import enum
import re
from collections.abc import Iterable

from msgspec import Struct

from platforms.core.contract import Address, Inbound, InboundMessage, Sender


class Role(enum.IntEnum):
    """What somebody may do; a greater one includes the smaller ones."""

    GUEST = 1  # no tools
    MEMBER = 2  # reads, writes in the own workspace, fetches
    ADMIN = 3  # everything, and answers for what members ask


OWNERS = frozenset({"console:owner", "web:owner", "api:key"})
"""The person at this machine's terminal, at the page opened by the printed link, and whoever has
the key of the API: it stands in the configuration, and opens as much."""


# --- entries -----------------------------------------------------------------------------------


class PersonEntry(Struct, frozen=True):
    """One person."""

    platform: str
    id: str
    account: str = ""


class PlatformEntry(Struct, frozen=True):
    """All people of a platform."""

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
_PERSON = re.compile(r"[!-)+-~]+")  # what ASCII can print, without space and *


def parse_entry(text: str) -> AccessEntry:
    """Read an entry; raises `ValueError` with what is wrong with it."""
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
        msg = f"may have a * only as all of the id ({platform}:*) or after a group ({platform}:GROUP/*)"
        raise ValueError(msg)
    if not _PERSON.fullmatch(who):
        msg = "has no id, or one with spaces or letters outside ASCII"
        raise ValueError(msg)
    if who.startswith("@") and ":" not in who:
        msg = "names somebody by a name that can be changed; use the id that /whoami shows"
        raise ValueError(msg)
    return PersonEntry(platform, who, account)


def parse_admin_entry(text: str) -> AccessEntry:
    """Read an entry of `access.admins`, where only persons and roles may stand."""
    entry = parse_entry(text)
    if isinstance(entry, (PlatformEntry, GroupEntry)):
        msg = "would make everybody there an admin; name each person, or a role"
        raise ValueError(msg)  # noqa: TRY004 - the text is wrong, not its type
    return entry


def has_membership_entries(entries: Iterable[str], platform: str) -> bool:
    """Tell whether groups or roles of a platform let somebody in who is not named there."""
    return any(
        isinstance(entry, GroupEntry | RoleEntry) and entry.platform == platform
        for entry in map(parse_entry, entries)
    )


# --- the decision ------------------------------------------------------------------------------


class Policy(Struct, frozen=True, kw_only=True):
    """Who is let in, as it stands now: configuration and pairings together."""

    allow: frozenset[AccessEntry] = frozenset()
    admins: frozenset[AccessEntry] = frozenset()
    approved: frozenset[str] = frozenset()  # principals let in by pairing
    appointed: frozenset[str] = frozenset()  # principals that became admin by the claim code
    claim_open: bool = False  # a claim code is open: the first owner may still show up


def build_policy(
    allow: Iterable[str],
    admins: Iterable[str],
    *,
    approved: Iterable[str] = (),
    appointed: Iterable[str] = (),
    claim_open: bool = False,
) -> Policy:
    """Build a policy out of entries as they are written; raises `ValueError` like `parse_entry`."""
    return Policy(
        allow=frozenset(parse_entry(text) for text in allow),
        admins=frozenset(parse_admin_entry(text) for text in admins),
        approved=frozenset(approved),
        appointed=frozenset(appointed),
        claim_open=claim_open,
    )


class Allowed(Struct, frozen=True):
    """Go on."""

    principal: str  # platform:id, the same under every account of ours
    role: Role


class NotAddressed(Struct, frozen=True):
    """Said in a room, to others."""


class Stranger(Struct, frozen=True):
    """Not let in. Directly: may ask to be, by pairing or claim. In a room: silence."""

    principal: str
    direct: bool


class UnlistedBot(Struct, frozen=True):
    """A program that is not named in `access.allow`."""

    principal: str


AccessDecision = Allowed | NotAddressed | Stranger | UnlistedBot


def decide_access(policy: Policy, event: Inbound) -> AccessDecision:
    """Settle what may become of an event."""
    place, sender = event.address, event.sender
    principal = f"{place.platform}:{sender.id}"
    if isinstance(event, InboundMessage) and not (event.direct or event.addressed):
        return NotAddressed()
    role = _role_of(policy, principal, sender, place.platform, place.account, place.chat)
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
    """All entries that would name this sender in this place."""
    named: set[AccessEntry] = set()
    for under in {"", account}:
        named.add(PersonEntry(platform, sender.id, under))
        if sender.is_bot:
            continue  # a program is let in only when it is named itself
        named.add(PlatformEntry(platform, under))
        for membership in sender.memberships:
            group, mark, rest = membership.partition("/")
            if rest == "*" or (not mark and group == chat):
                named.add(GroupEntry(platform, group, under))
            elif rest.startswith("role:"):
                named.add(RoleEntry(platform, membership, under))
    return named


def admin_addresses(admins: Iterable[str]) -> tuple[Address, ...]:
    """Where admins are written to in private, each once."""
    found = (parse_admin_entry(entry) for entry in admins)
    return tuple(
        dict.fromkeys(
            Address(each.platform, each.id, each.account)
            for each in found
            if isinstance(each, PersonEntry)
        )
    )
