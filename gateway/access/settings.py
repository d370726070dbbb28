"""`[access]`: who is let in and who is an admin."""

from collections.abc import Callable, Iterator
from typing import Annotated

from msgspec import Meta, Struct

from gateway.access.policy import AccessEntry, parse_admin_entry, parse_entry


class AccessSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who is let in; nobody who is not named here or paired."""

    allow: Annotated[
        tuple[str, ...],
        Meta(
            description='Who may talk to the agent, by stable id: `"telegram:1001"`, '
            '`"slack:T1/U3003"`, `"slack:T1/*"` (full members of a workspace), '
            '`"telegram:-1001234/*"` (members of a group, only there), '
            '`"discord:GUILD/role:ID"`, `"telegram:*"` (everybody).'
        ),
    ] = ()
    admins: Annotated[
        tuple[str, ...],
        Meta(description="Who may do everything and answers for the others; persons or roles."),
    ] = ()
    pairing: Annotated[
        bool, Meta(description="Offer strangers in a DM a code that an admin can approve.")
    ] = True

    def conflicts(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """See the module."""
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
