"""Writes files: whole, in one step, from a file beside the target that takes its place."""

from collections.abc import Callable

from agent.errors import ToolError
from agent.tools.blocking import StopEvent, run_in_thread
from agent.tools.confine import Workspace, open_workspace, relative_path
from agent.tools.contract import Risk, ToolContext
from agent.tools.define import tool
from agent.tools.drafts import MAX_DRAFT_BYTES, FileDraft
from agent.tools.files.nearest import explain_mismatch
from agent.tools.files.reading import is_binary
from agent.tools.text import count_lines, encode_utf8, pluralize, quote

_MAX_LISTED_LINES = 10  # named in a message


@tool(risk=Risk.WRITE, emoji="📝", label="path", touches="path", grows="content", family="files")
async def write_file(context: ToolContext, path: str, content: str, more: bool = False) -> str:
    """Write a text file of the workspace; folders are made, a file that is there is replaced.

    Args:
        context: Not part of the call.
        path: The file, named from the top of the workspace.
        content: All of its text.
        more: True when this is only the first part of a long file: it is kept as a draft, to be
            finished by write_file_continue, and nothing is at `path` until then.
    """
    if not more:
        return await _write_whole(context, path, content)
    relative_path(context.workspace, path)
    draft = await context.drafts.begin(path, content, context.idempotency_key)
    return _describe_draft(draft)


@tool(risk=Risk.WRITE, emoji="📝", label="draft_id", grows="content", family="files")
async def write_file_continue(
    context: ToolContext, draft_id: str, *, after: str = "", content: str, final: bool
) -> str:
    """Add the next part to a draft: a file of which only the beginning was received so far.

    Args:
        context: Not part of the call.
        draft_id: The draft.
        after: The last characters of the draft, copied exactly, so that the place is certain.
        content: What follows them directly; nothing that the draft already holds.
        final: True for the last part: the whole file is then put into its place.
    """
    drafts, key = context.drafts, context.idempotency_key
    draft = await drafts.extend(draft_id, content, after, key)
    if not final:
        return _describe_draft(draft)
    try:
        said = await _write_whole(context, draft.path, await drafts.read_text(draft_id))
    except ToolError as error:
        msg = (
            f"{error} The part was added to draft {draft_id}, which is whole now: to try again, "
            'call write_file_continue with content="" and final=true.'
        )
        raise ToolError(msg) from None
    await drafts.discard(draft_id)
    return said


@tool(risk=Risk.WRITE, emoji="✏️", label="path", touches="path", grows="new", family="files")
async def edit_file(
    context: ToolContext,
    path: str,
    old: str,
    new: str,
    all: bool = False,  # noqa: A002 - as models know it
) -> str:
    """Replace a piece of a text file of the workspace.

    Args:
        context: Not part of the call.
        path: The file, named from the top of the workspace.
        old: The text to replace, exactly as it stands there, with enough around it to be unique.
        new: The text to put in its place.
        all: True to replace every place where `old` stands.
    """

    def work(workspace: Workspace, stop: StopEvent) -> str:
        content, state = workspace.read(path, MAX_DRAFT_BYTES)
        text = _decode_text(path, content)
        places = _find_matches(path, text, old, new, every=all)
        changed = text.replace(old, new)
        data = _encode_limited(changed)
        token = context.idempotency_key
        workspace.write(path, data, token, is_cancelled=stop.is_set, expected_state=state)
        where = f" (line {places[0]})" if len(places) == 1 else ""
        return f"Replaced {pluralize(len(places), 'place')}{where}. {_describe_size(path, changed, data)}"

    return await _run_write(context, path, work)


async def _write_whole(context: ToolContext, path: str, content: str) -> str:
    def work(workspace: Workspace, stop: StopEvent) -> str:
        data = _encode_limited(content)
        token = context.idempotency_key
        replaced = workspace.write(path, data, token, is_cancelled=stop.is_set)
        return f"{'Replaced' if replaced else 'Written'}. {_describe_size(path, content, data)}"

    return await _run_write(context, path, work)


async def _run_write(
    context: ToolContext, path: str, work: Callable[[Workspace, StopEvent], str]
) -> str:
    """Do the work; drafts of the same file are then out of date."""

    def inside(stop: StopEvent) -> str:
        with open_workspace(context.workspace, create=True) as workspace:
            return work(workspace, stop)

    said = await run_in_thread(inside)
    target = relative_path(context.workspace, path)
    for draft in await context.drafts.list_drafts():
        if _draft_target(context, draft) == target:
            await context.drafts.discard(draft.id)
    return said


def _draft_target(context: ToolContext, draft: FileDraft) -> str | None:
    try:
        return relative_path(context.workspace, draft.path)
    except ToolError:
        return None


def _encode_limited(content: str) -> bytes:
    data = encode_utf8(content)
    if len(data) > MAX_DRAFT_BYTES:
        msg = f"Nothing was written: a file may have at most {MAX_DRAFT_BYTES:,} bytes."
        raise ToolError(msg)
    return data


def _decode_text(path: str, content: bytes) -> str:
    try:
        if not is_binary(content):
            return content.decode()
    except UnicodeDecodeError:
        pass
    msg = f"{path} is not UTF-8 text; it cannot be edited."
    raise ToolError(msg)


def _find_matches(path: str, text: str, old: str, new: str, *, every: bool) -> list[int]:
    """Give the lines in which `old` begins; an error unless they are what was meant."""
    if not old:
        msg = "`old` is empty; use write_file to write a whole file."
        raise ToolError(msg)
    if old == new:
        msg = "`old` and `new` are the same; nothing was changed."
        raise ToolError(msg)
    lines = _match_lines(text, old)
    if not lines:
        msg = f"`old` does not stand in {path}; nothing was changed. {explain_mismatch(text, old)}".rstrip()
        raise ToolError(msg)
    if len(lines) > 1 and not every:
        named = ", ".join(str(line) for line in lines[:_MAX_LISTED_LINES])
        msg = (
            f"`old` stands in {path} {len(lines)} times (lines {named}"
            f"{', …' if len(lines) > _MAX_LISTED_LINES else ''}); nothing was changed. "
            "Give more of the text around it, or all=true."
        )
        raise ToolError(msg)
    return lines


def _match_lines(text: str, old: str) -> list[int]:
    lines: list[int] = []
    line, seen = 1, 0
    at = text.find(old)
    while at >= 0:
        line += text.count("\n", seen, at)
        seen = at
        lines.append(line)
        at = text.find(old, at + len(old))
    return lines


def _describe_size(path: str, text: str, data: bytes) -> str:
    return f"{path} has {pluralize(count_lines(text), 'line')}, {pluralize(len(data), 'byte')}."


def _describe_draft(draft: FileDraft) -> str:
    return (
        f"Draft {draft.id} of {draft.path} now has {pluralize(draft.size, 'character')}, "
        f"{pluralize(draft.lines, 'line')}; nothing is at {draft.path} yet. It ends with "
        f"{quote(draft.tail)}. Go on with write_file_continue, final=true in the last part."
    )
