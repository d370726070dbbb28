"""Access: a missing admin, access open to everyone, and shared workspaces."""

from collections.abc import Iterator, Sequence

import msgspec

from gateway.access.entries import GroupEntry, PersonEntry, PlatformEntry, RoleEntry, parse_entry
from gateway.access.people import AccessState, PairedPerson, read_access_state
from gateway.operate.doctor.context import DoctorContext
from platforms.core.contract import PlatformSpec
from sessions.errors import StoreError
from sessions.store.store import SessionStore
from sessions.values.finding import Finding, ok, warn


async def check_access(context: DoctorContext) -> Sequence[Finding]:
    """Check the configured access entries and the paired people."""
    state = await _load_people(context)
    paired = state.friends if state else ()
    return [
        *_admin_findings(context, paired),
        *_open_access_findings(context),
        *_workspace_findings(context, paired),
    ]


async def _load_people(context: DoctorContext) -> AccessState | None:
    """Load people and their access; None if the store cannot be read (reported elsewhere)."""
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


def _admin_findings(context: DoctorContext, paired: Sequence[PairedPerson]) -> Iterator[Finding]:
    named = len(context.settings.access.admins) + sum(person.admin for person in paired)
    if named:
        yield ok("admins", f"{named} admin{'' if named == 1 else 's'}")
        return
    if not _chat_platforms(context):
        yield ok(
            "admins", "the owner of this machine is the admin, on the page and in the terminal"
        )
        return
    yield warn(
        "admins",
        "there is no admin to answer the agent's approval requests and to give others access",
        "Run `holdfast pair claim` while the gateway runs and send the code to the bot, or add "
        "yourself to access.admins.",
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
                f"access.allow contains {text}: everyone there can use the agent at your expense",
                "List the people who may use the agent, or keep the entry and set [limits].",
            )
    if _chat_platforms(context) and not (access.allow or access.admins or access.pairing):
        yield warn(
            "no access",
            "access.allow and access.admins are empty and access.pairing is off: only a claim code "
            "gives access",
            "Add people to access.allow, or set access.pairing = true.",
        )


def _workspace_findings(
    context: DoctorContext, paired: Sequence[PairedPerson]
) -> Iterator[Finding]:
    folder = context.settings.agent.workspace
    if folder is None:
        return
    access = context.settings.access
    entries = [parse_entry(text) for text in (*access.allow, *access.admins)]
    persons = {
        f"{entry.platform}:{entry.id}" for entry in entries if isinstance(entry, PersonEntry)
    }
    persons |= {person.principal for person in paired}
    many = any(isinstance(entry, (PlatformEntry, GroupEntry, RoleEntry)) for entry in entries)
    if many or len(persons) > 1:
        yield warn(
            "workspace",
            f"all people share the folder {folder} (agent.workspace) and each other's files",
            "Remove agent.workspace to give each person a separate folder.",
        )
    else:
        yield ok("workspace", f"everyone with access shares {folder}")
