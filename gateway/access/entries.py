"""Sans-IO: entries of `access.allow` and `access.admins`, parsed from text.

An entry is one of

    telegram:1001            one person, by the platform's stable id
    slack:T1/U3003           the same, where ids belong to a workspace
    slack:T1/*               the full members of a workspace
    telegram:-1001234/*      the members of a group, only in that group
    discord:GUILD/role:ID    the holders of a role
    telegram:*               everyone on that platform

An entry such as `telegram@work:1001` applies only under the account `work`. Everything is compared
exactly as written: no case folding, no trimming, no display names.
"""

import re
from collections.abc import Iterable

from msgspec import Struct


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
