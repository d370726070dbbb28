"""Sans-IO: the people whose work must stop, because they have no access any more.

Access is decided again for stored messages, because only the sender of a message has the memberships
that groups and roles need. The newest message of a person counts in each conversation.
"""

from collections.abc import Callable, Iterable, Iterator

import msgspec

from gateway.inbound.reader import read_event
from gateway.inbound.request_options import person_of
from sessions.records import InboxEntry, Turn

_FIRST_RETRY_SECONDS, _MAX_RETRY_SECONDS = 1.0, 60.0

HasAccess = Callable[[InboxEntry], bool]
"""Returns True if the sender of a stored message has access now."""


def has_lost_access(entries: Iterable[InboxEntry], has_access: HasAccess) -> bool:
    """Return True if the sender of the newest entry has no access.

    Work without an entry stops too: its requester is unknown.
    """
    newest = max(entries, key=lambda entry: entry.seq, default=None)
    return newest is None or not has_access(newest)


def find_people_without_access(
    unanswered: Iterable[InboxEntry],
    running: Iterable[tuple[Turn, Iterable[InboxEntry]]],
    has_access: HasAccess,
) -> dict[str, frozenset[str]]:
    """Return the people with work but without access, by conversation.

    `running` has each running turn with the entries that the turn answers. A damaged entry has no
    sender; its conversation reports the damage.
    """
    work: dict[tuple[str, str], list[InboxEntry]] = {}
    for entry in unanswered:
        if person := sender_of(entry):
            work.setdefault((entry.key, person), []).append(entry)
    for turn, answered in running:
        work.setdefault((turn.key, turn.person), []).extend(answered)
    lost: dict[str, set[str]] = {}
    for (key, person), entries in work.items():
        if has_lost_access(entries, has_access):
            lost.setdefault(key, set()).add(person)
    return {key: frozenset(people) for key, people in lost.items()}


def sender_of(entry: InboxEntry) -> str:
    """Return the person whose authority a stored message has; empty if the message is damaged."""
    try:
        return person_of(read_event(entry))
    except msgspec.DecodeError:
        return ""


def retry_pauses() -> Iterator[float]:
    """Yield the seconds to wait before each retry."""
    pause = _FIRST_RETRY_SECONDS
    while True:
        yield pause
        pause = min(pause * 2, _MAX_RETRY_SECONDS)
