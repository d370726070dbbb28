"""Who is let in: whether anybody is an admin, whether everybody comes in, who shares a folder."""

from collections.abc import Iterator, Sequence

import msgspec

from gateway.access.people import Book, Friend, stored_book
from gateway.access.policy import Everybody, Holders, Members, Person, parse_entry
from gateway.operate.doctor.context import Case
from platforms.core.contract import PlatformSpec
from sessions.errors import StoreError
from sessions.store.store import SessionStore
from sessions.values.finding import Finding, ok, warn


async def entry(case: Case) -> Sequence[Finding]:
    """Look at the configuration and at whom a code has let in."""
    book = await _book(case)
    friends = book.friends if book else ()
    return [*_admins(case, friends), *_open_doors(case), *_workspace(case, friends)]


async def _book(case: Case) -> Book | None:
    """What the store knows of people; None where it cannot be read. It says itself why."""
    try:
        store = await SessionStore.open(case.database, clock=case.clock, read_only=True)
    except StoreError:
        return None
    try:
        return await stored_book(store)
    except (StoreError, msgspec.MsgspecError):
        return None
    finally:
        await store.close()


def _admins(case: Case, friends: Sequence[Friend]) -> Iterator[Finding]:
    named = len(case.settings.access.admins) + sum(friend.admin for friend in friends)
    if named:
        yield ok("admins", f"{named} admin{'' if named == 1 else 's'}")
        return
    if not _chats(case):
        yield ok("admins", "the page and the terminal belong to the owner of this machine")
        return
    yield warn(
        "admins",
        "nobody is an admin, so nobody answers what the agent asks and nobody lets others in",
        "Run `holdfast pair claim` while it runs, and send the bot the code; or name yourself in "
        "access.admins.",
    )


def _chats(case: Case) -> list[PlatformSpec]:
    return [
        spec
        for name, spec in case.specs.items()
        if name in case.settings.platforms and spec.secrets
    ]


def _open_doors(case: Case) -> Iterator[Finding]:
    access = case.settings.access
    for text in access.allow:
        if isinstance(parse_entry(text), Everybody):
            yield warn(
                "open to all",
                f"access.allow has {text}: everybody there can talk to the agent at your expense",
                "Name the people who may, or keep it and set [limits].",
            )
    if _chats(case) and not (access.allow or access.admins or access.pairing):
        yield warn(
            "nobody",
            "access.allow and access.admins are empty and access.pairing is off: nobody is let in "
            "but by a claim",
            "Name somebody in access.allow, or set access.pairing = true.",
        )


def _workspace(case: Case, friends: Sequence[Friend]) -> Iterator[Finding]:
    folder = case.settings.agent.workspace
    if folder is None:
        return
    access = case.settings.access
    entries = [parse_entry(text) for text in (*access.allow, *access.admins)]
    persons = {f"{each.platform}:{each.id}" for each in entries if isinstance(each, Person)}
    persons |= {friend.principal for friend in friends}
    many = any(isinstance(each, (Everybody, Members, Holders)) for each in entries)
    if many or len(persons) > 1:
        yield warn(
            "workspace",
            f"everybody shares the folder {folder} (agent.workspace), with each other's files",
            "Leave agent.workspace out, and each person has a folder of their own.",
        )
    else:
        yield ok("workspace", f"everybody who is let in shares {folder}")
