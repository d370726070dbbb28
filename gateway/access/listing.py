"""Sans-IO: the list of people with access, and of people who have asked for it."""

import enum
from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from sessions.values.clock import rfc3339
from sessions.values.text import format_span


class AccessSource(enum.StrEnum):
    """Origin of a person's access."""

    REQUEST = "request"  # no access yet
    CONFIGURATION = "configuration"
    PAIRING = "pairing"


class ListedPerson(Struct, frozen=True, kw_only=True):
    """A person, or an entry of the configuration that names several."""

    principal: str
    name: str = ""
    role: str | None = None  # `admin`, `member`, or None without access
    source: AccessSource
    since: int | None = None  # of the request, or of the access by pairing
    code_expires_at: int | None = None  # of an open request

    def describe(self, now: int) -> str:
        """Return the state in words."""
        if self.since is None:
            return f"{self.role}, in the configuration"
        if self.code_expires_at is None:
            return f"{self.role} since {rfc3339(self.since)[:10]}"
        age, left = now - self.since, self.code_expires_at - now
        return (
            f"asks for access, {format_span(age / 1000)} ago; "
            f"the code is valid for {format_span(left / 1000)}"
        )

    def data(self, now: int) -> dict[str, object]:
        """Return the person as JSON data."""
        expires = self.code_expires_at
        return {
            "principal": self.principal,
            "name": self.name or None,
            "role": self.role,
            "source": self.source.value,
            "state": self.describe(now),
            "since": None if self.since is None else rfc3339(self.since),
            "code_expires_at": None if expires is None else rfc3339(expires),
        }


_ROLES = (None, "member", "admin")


def merge_people(found: Iterable[ListedPerson]) -> list[ListedPerson]:
    """Return each person once, with the highest role; open requests come first.

    Between equal roles, the configuration counts: removing the pairing would change nothing.
    """
    best: dict[str, ListedPerson] = {}
    names: dict[str, str] = {}
    for each in found:
        names[each.principal] = names.get(each.principal) or each.name
        known = best.get(each.principal)
        if known is None or _rank(each) > _rank(known):
            best[each.principal] = each
    people = (replace(each, name=names[name]) for name, each in best.items())
    return sorted(people, key=lambda each: list(AccessSource).index(each.source))


def _rank(person: ListedPerson) -> tuple[int, bool]:
    return _ROLES.index(person.role), person.source is AccessSource.CONFIGURATION
