"""The visible state of messages, and the rules for ops."""

import msgspec

from platforms.core.contract import (
    Address,
    Ask,
    Button,
    Capabilities,
    Delete,
    Draft,
    Edit,
    Live,
    Op,
    Post,
    React,
    Task,
    Typing,
    Upload,
)
from platforms.core.markdown import has_open_fence
from platforms.core.split import text_length


class VisibleMessage(msgspec.Struct):
    """A message of the bot as it looks now."""

    id: str
    op: str
    text: str
    address: Address
    buttons: tuple[Button, ...] = ()
    reply_to: str | None = None
    streaming: bool = False
    file: str = ""
    notice: bool = False
    tasks: tuple[Task, ...] = ()


def visible_message(message: str, op: Post | Ask | Upload) -> VisibleMessage:
    """Create the visible message of an op."""
    match op:
        case Post():
            return VisibleMessage(
                message,
                op.op,
                op.text,
                op.address,
                op.buttons,
                op.reply_to,
                op.streaming,
                notice=op.notice,
                tasks=op.tasks,
            )
        case Ask():
            return VisibleMessage(message, op.op, op.text, op.address, op.buttons)
        case Upload():
            return VisibleMessage(message, op.op, op.caption, op.address, file=op.name)


def find_violations(op: Op, capabilities: Capabilities) -> list[str]:
    """Return what is wrong with an op in any chat."""
    text = op.text if isinstance(op, Post | Ask | Edit | Draft) else ""
    streaming = isinstance(op, Post | Edit) and op.streaming
    buttons = op.buttons if isinstance(op, Post | Ask | Edit) else ()
    tasks = op.tasks if isinstance(op, Post | Edit) else ()
    wrong = {
        "longer than the limit": text_length(text, capabilities.unit) > capabilities.text_limit,
        "nothing to show": isinstance(op, Post | Ask | Edit)
        and not (text.strip() or (streaming and tasks)),
        "no tasks here": bool(tasks) and not capabilities.tasks,
        "an open code block": has_open_fence(text)
        and not (streaming and capabilities.live is Live.STREAM),
        "too many buttons": len(buttons) > capabilities.buttons,
        "no live updates here": streaming and capabilities.live not in {Live.EDIT, Live.STREAM},
        "no drafts here": isinstance(op, Draft) and capabilities.live is not Live.DRAFT,
        "no edits here": isinstance(op, Edit) and not capabilities.edit,
        "no deletes here": isinstance(op, Delete) and not capabilities.delete,
        "no typing here": isinstance(op, Typing)
        and capabilities.typing_interval is None
        and not capabilities.status,
        "no status here": isinstance(op, Typing) and bool(op.status) and not capabilities.status,
        "an end of typing here": isinstance(op, Typing)
        and op.over
        and not capabilities.typing_ends,
        "no reactions here": isinstance(op, React) and not capabilities.reactions,
        "no files here": isinstance(op, Upload) and capabilities.files is None,
    }
    return [complaint for complaint, is_so in wrong.items() if is_so]
