"""Ids of outbox items, and of the ops that show them. Stored, so their form never changes.

An item that replies to a received message or command is named after the origin, which is derived
from that event: a repeat after a crash replaces the item instead of adding one.

    a_ORIGIN                answer
    r_ORIGIN                reasoning
    b_ORIGIN                answer of a side request
    n_ORIGIN.NOTICE         notice about the event
    n_RESTART.NUMBER.back   report of a finished restart to one requester
    p_UNIQUE.NUMBER         question of the approval p_UNIQUE in one chat
    f_DIGEST                file
    n_UNIQUE, m_UNIQUE      notice and text without an event

An op adds the piece of the item that it creates, edits or deletes. Platforms without message ids
name a message after the op that created it.

    ITEM.PIECE              the op creates a message; every replacement of the message adds an `n`
    ITEM.PIECE.e            the op edits the message
    ITEM.PIECE.d            the op deletes the message
    ITEM.t, ITEM.p          the op shows the typing sign or a draft
    MESSAGE.s               the op reacts to a person's message
"""

import enum
import re
from typing import Self

import msgspec

from sessions.values.notices import NoticeId

_NOTICES = {notice.value: notice for notice in NoticeId}


class ItemType(enum.StrEnum):
    """First letter of an item's id."""

    ANSWER = "a"
    REASONING = "r"
    SIDE_ANSWER = "b"
    NOTICE = "n"
    QUESTION = "p"
    FILE = "f"
    TEXT = "m"  # sent by the command line


_TYPES = {type_.value: type_ for type_ in ItemType}


class ItemId(msgspec.Struct, frozen=True):
    """The parts of an item's id."""

    type: ItemType
    origin: str  # or the unique part, or the digest
    detail: str | None = None  # text after the first dot

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the parts of an id; None if the text is not the id of an item."""
        letter, underscore, rest = text.partition("_")
        type_ = _TYPES.get(letter)
        if type_ is None or not underscore:
            return None
        origin, dot, detail = rest.partition(".")
        return cls(type_, origin, detail if dot else None)

    def __str__(self) -> str:
        """Return the id."""
        return self.base if self.detail is None else f"{self.base}.{self.detail}"

    @property
    def base(self) -> str:
        """The id without the detail; the id of the approval, for a question."""
        return f"{self.type}_{self.origin}"

    @property
    def notice(self) -> NoticeId | None:
        """Notice about an event; None for other items."""
        return _NOTICES.get(self.detail or "") if self.type is ItemType.NOTICE else None

    @property
    def number(self) -> int | None:
        """Number of a question among those of its approval; None for other items."""
        is_question = self.type is ItemType.QUESTION and (self.detail or "").isdecimal()
        return int(self.detail or "") if is_question else None


def answer_id(origin: str) -> str:
    """Return the id of an answer."""
    return f"{ItemType.ANSWER}_{origin}"


def reasoning_id(origin: str) -> str:
    """Return the id of the reasoning that belongs to an answer."""
    return f"{ItemType.REASONING}_{origin}"


def side_answer_id(origin: str) -> str:
    """Return the id of the answer of a side request."""
    return f"{ItemType.SIDE_ANSWER}_{origin}"


def notice_id(origin: str, notice: NoticeId) -> str:
    """Return the id of a notice about an event."""
    return f"{ItemType.NOTICE}_{origin}.{notice}"


def notice_id_range(origin: str) -> tuple[str, str]:
    """Return the limits of the ids of all notices about an event: from the first, below the second."""
    return f"{ItemType.NOTICE}_{origin}.", f"{ItemType.NOTICE}_{origin}{chr(ord('.') + 1)}"


def restart_report_id(restart: str, number: int) -> str:
    """Return the id of the report of a finished restart to one of its requesters."""
    return f"{ItemType.NOTICE}_{restart}.{number}.back"


def question_id(approval: str, number: int) -> str:
    """Return the id of the question of an approval in one of its chats."""
    return f"{approval}.{number}"


def file_id(digest: str) -> str:
    """Return the id of a file to send."""
    return f"{ItemType.FILE}_{digest}"


# --- ops --------------------------------------------------------------------------------------


class OpAction(enum.StrEnum):
    """Last letter of an op's id; an op that creates a message has none."""

    CREATE = ""
    EDIT = "e"
    DELETE = "d"
    TYPING = "t"
    DRAFT = "p"


_OP = re.compile(r"(.+)\.(?:(0|[1-9][0-9]*)(n*)(?:\.([ed]))?|([tp]))", re.DOTALL)


class OpId(msgspec.Struct, frozen=True):
    """The parts of an op's id."""

    item: str
    action: OpAction
    piece: int | None = None  # None: typing and drafts show the item as a whole
    replacements: int = 0  # number of earlier messages that this one replaces

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the parts of an id; None if the text is not the id of an item's op."""
        found = _OP.fullmatch(text)
        if found is None:
            return None
        item, piece, replaced, change, whole = found.groups()
        if whole:
            return cls(item, OpAction(whole))
        return cls(item, OpAction(change or ""), int(piece), len(replaced))

    def __str__(self) -> str:
        """Return the id."""
        piece = "" if self.piece is None else f".{self.piece}{'n' * self.replacements}"
        action = f".{self.action}" if self.action else ""
        return f"{self.item}{piece}{action}"


def create_op(item: str, piece: int) -> str:
    """Return the id of the op that creates the message of a piece."""
    return f"{item}.{piece}"


def replace_op(op: str) -> str:
    """Return the id of the op that creates a message again, in place of the one of `op`."""
    return f"{op}n"


def edit_op(op: str) -> str:
    """Return the id of an op that edits the message created by `op`."""
    return f"{op}.{OpAction.EDIT}"


def delete_op(op: str) -> str:
    """Return the id of the op that deletes the message created by `op`."""
    return f"{op}.{OpAction.DELETE}"


def typing_op(item: str) -> str:
    """Return the id of the op that shows the typing sign for an item."""
    return f"{item}.{OpAction.TYPING}"


def draft_op(item: str) -> str:
    """Return the id of the op that shows a draft of an item."""
    return f"{item}.{OpAction.DRAFT}"


def reaction_op(message: str) -> str:
    """Return the id of the op that reacts to a person's message."""
    return f"{message}.s"


def creating_op(op: str) -> str:
    """Return the id of the op that created the message which `op` edits."""
    return op.removesuffix(f".{OpAction.EDIT}")


def item_of_op(op: str) -> str:
    """Return the item that an op shows; the text itself if it is not the id of an op."""
    found = OpId.parse(op)
    return found.item if found else op
