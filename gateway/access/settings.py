"""`[access]`: people with access, and admins."""

from collections.abc import Callable, Iterator
from typing import Annotated

from msgspec import Meta, Struct

from gateway.access.entries import AccessEntry, parse_admin_entry, parse_entry


class AccessSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """People with access; people neither listed here nor paired have none."""

    allow: Annotated[
        tuple[str, ...],
        Meta(
            description='People with access to the agent, by stable id: `"telegram:1001"`, '
            '`"slack:T1/U3003"`, `"slack:T1/*"` (full members of a workspace), '
            '`"telegram:-1001234/*"` (members of a group, only there), '
            '`"discord:GUILD/role:ID"`, `"telegram:*"` (everyone).'
        ),
    ] = ()
    admins: Annotated[
        tuple[str, ...],
        Meta(description="Admins, who may do everything and answer approvals; persons or roles."),
    ] = ()
    pairing: Annotated[
        bool,
        Meta(description="Give people without access a code in a DM that an admin can approve."),
    ] = True

    def conflicts(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield the path and problem of each invalid entry."""
        for key, texts, parse in (
            ("allow", self.allow, parse_entry),
            ("admins", self.admins, parse_admin_entry),
        ):
            for index, text in enumerate(texts):
                problem = parse_error(parse, text)
                if problem:
                    yield (key, index), f'"{text}" {problem}'


def parse_error(parse: Callable[[str], AccessEntry], text: str) -> str:
    """Return the problem that `parse` finds in the text, or an empty string."""
    try:
        parse(text)
    except ValueError as error:
        return str(error)
    return ""
