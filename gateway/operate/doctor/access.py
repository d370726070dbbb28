"""Who is let in: whether anybody is an admin, whether everybody comes in, who shares a folder."""

from collections.abc import Iterator, Sequence

import msgspec

from gateway.access.people import AccessState, PairedPerson, read_access_state
from gateway.access.policy import GroupEntry, PersonEntry, PlatformEntry, RoleEntry, parse_entry
from gateway.operate.doctor.context import DoctorContext
from platforms.core.contract import PlatformSpec
from sessions.errors import StoreError
from sessions.store.store import SessionStore
from sessions.values.finding import Finding, ok, warn


async def check_access(context: DoctorContext) -> Sequence[Finding]:
    """Look at the configuration and at whom a code has let in."""
    book = await _load_people(context)
    friends = book.friends if book else ()
    return [
        *_admin_findings(context, friends),
        *_open_access_findings(context),
        *_workspace_findings(context, friends),
    ]


async def _load_people(context: DoctorContext) -> AccessState | None:
    """What the store knows of people; None where it cannot be read. It says itself why."""
    try:
        store = await SessionStore.open(context.database, clock=context.clock, read_only=True)
    except StoreError:
        return None
    try:
        return await read_access_state(store)
    except (StoreError, msgspec.MsgspecError):
        return None
    finally:
        await store.close()


def _admin_findings(context: DoctorContext, friends: Sequence[PairedPerson]) -> Iterator[Finding]:
    named = len(context.settings.access.admins) + sum(friend.admin for friend in friends)
    if named:
        yield ok("admins", f"{named} admin{'' if named == 1 else 's'}")
        return
    if not _chat_platforms(context):
        yield ok("admins", "the page and the terminal belong to the owner of this machine")
        return
    yield warn(
        "admins",
        "nobody is an admin, so nobody answers what the agent asks and nobody lets others in",
        "Run `holdfast pair claim` while it runs, and send the bot the code; or name yourself in "
        "access.admins.",
    )


def _chat_platforms(context: DoctorContext) -> list[PlatformSpec]:
    return [
        spec
        for name, spec in context.specs.items()
        if name in context.settings.platforms and spec.secrets
    ]


def _open_access_findings(context: DoctorContext) -> Iterator[Finding]:
    access = context.settings.access
    for text in access.allow:
        if isinstance(parse_entry(text), PlatformEntry):
            yield warn(
                "open to all",
                f"access.allow has {text}: everybody there can talk to the agent at your expense",
                "Name the people who may, or keep it and set [limits].",
            )
    if _chat_platforms(context) and not (access.allow or access.admins or access.pairing):
        yield warn(
            "nobody",
            "access.allow and access.admins are empty and access.pairing is off: nobody is let in "
            "but by a claim",
            "Name somebody in access.allow, or set access.pairing = true.",
        )


def _workspace_findings(
    context: DoctorContext, friends: Sequence[PairedPerson]
) -> Iterator[Finding]:
    folder = context.settings.agent.workspace
    if folder is None:
        return
    access = context.settings.access
    entries = [parse_entry(text) for text in (*access.allow, *access.admins)]
    persons = {f"{each.platform}:{each.id}" for each in entries if isinstance(each, PersonEntry)}
    persons |= {friend.principal for friend in friends}
    many = any(isinstance(each, (PlatformEntry, GroupEntry, RoleEntry)) for each in entries)
    if many or len(persons) > 1:
        yield warn(
            "workspace",
            f"everybody shares the folder {folder} (agent.workspace), with each other's files",
            "Leave agent.workspace out, and each person has a folder of their own.",
        )
    else:
        yield ok("workspace", f"everybody who is let in shares {folder}")
