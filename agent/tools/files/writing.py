"""Tools that write files atomically: a temporary file next to the target replaces the target."""

import os
from collections.abc import Callable

from agent.errors import ToolError
from agent.tools.blocking import StopEvent, run_in_thread
from agent.tools.confine import Workspace, open_workspace, relative_path
from agent.tools.contract import Risk, ToolContext
from agent.tools.define import tool, with_placeholders
from agent.tools.drafts import MAX_DRAFT_BYTES, FileDraft
from agent.tools.files.nearest import explain_mismatch
from agent.tools.files.reading import is_binary
from agent.tools.masks import replace_masked, restore_secrets
from agent.tools.text import count_lines, encode_utf8, pluralize, quote
from sessions.values.masks import MASK, MaskedText, MaskSecrets

_MAX_LISTED_LINES = 10  # per message


@with_placeholders
@tool(risk=Risk.WRITE, emoji="📝", label="path", touches="path", grows="content", family="files")
async def write_file(context: ToolContext, path: str, content: str, more: bool = False) -> str:
    """Write a text file in the workspace. Missing folders are created; an existing file is replaced.

    Args:
        context: Not part of the call.
        path: File path, relative to the workspace root.
        content: The complete text of the file.
        more: True if this is only the first part of a long file. The part is kept as a draft until
            write_file_continue completes it; nothing is written to `path` before that.
    """
    if not more:
        return await _write_whole(context, path, content)
    relative_path(context.workspace, path)
    draft = await context.drafts.begin(path, content, context.idempotency_key)
    return _describe_draft(draft)


@with_placeholders
@tool(risk=Risk.WRITE, emoji="📝", label="draft_id", grows="content", family="files")
async def write_file_continue(
    context: ToolContext, draft_id: str, *, after: str = "", content: str, final: bool
) -> str:
    """Append the next part to a draft, an unfinished file whose beginning has been received.

    Args:
        context: Not part of the call.
        draft_id: The id of the draft.
        after: The last characters of the draft, copied exactly, to make the position certain.
        content: The text that follows directly; nothing that the draft already contains.
        final: True for the last part: the complete file is then written to its path.
    """
    drafts, key = context.drafts, context.idempotency_key
    draft = await drafts.extend(draft_id, content, after, key)
    if not final:
        return _describe_draft(draft)
    try:
        result = await _write_whole(context, draft.path, await drafts.read_text(draft_id))
    except ToolError as error:
        msg = (
            f"{error} The part was added to draft {draft_id}, which is complete now: to try again, "
            'call write_file_continue with content="" and final=true.'
        )
        raise ToolError(msg) from None
    await drafts.discard(draft_id)
    return result


@with_placeholders
@tool(risk=Risk.WRITE, emoji="✏️", label="path", touches="path", grows="new", family="files")
async def edit_file(
    context: ToolContext,
    path: str,
    old: str,
    new: str,
    all: bool = False,  # noqa: A002 - the name that models expect
) -> str:
    """Replace text in a text file in the workspace.

    Args:
        context: Not part of the call.
        path: File path, relative to the workspace root.
        old: The text to replace, exactly as in the file, with enough context to be unique.
        new: The replacement text.
        all: True to replace every occurrence of `old`.
    """

    def work(workspace: Workspace, stop: StopEvent) -> str:
        content, state = workspace.read(path, MAX_DRAFT_BYTES)
        present = context.mask(_decode_text(path, content))
        # The person may have named a secret that the model sees only as a placeholder.
        wanted = old if old in present.text else context.mask(old).text
        lines = _find_matches(path, present.text, wanted, new, every=all)
        changed = replace_masked(path, present, wanted, new, len(lines))
        data = _encode_limited(changed)
        token = context.idempotency_key
        workspace.write(path, data, token, is_cancelled=stop.is_set, expected_state=state)
        count = pluralize(len(lines), "occurrence")
        where = f" (line {lines[0]})" if len(lines) == 1 else ""
        return f"Replaced {count}{where}. {_describe_size(path, changed, data)}"

    return await _run_write(context, path, work)


async def _write_whole(context: ToolContext, path: str, content: str) -> str:
    def work(workspace: Workspace, stop: StopEvent) -> str:
        restored, state = _restore_whole(workspace, context.mask, path, content)
        data = _encode_limited(restored)
        token = context.idempotency_key
        replaced = workspace.write(
            path, data, token, is_cancelled=stop.is_set, expected_state=state
        )
        return f"{'Replaced' if replaced else 'Written'}. {_describe_size(path, restored, data)}"

    return await _run_write(context, path, work)


def _restore_whole(
    workspace: Workspace, mask: MaskSecrets, path: str, content: str
) -> tuple[str, os.stat_result | None]:
    """Return the content with the secrets of the present file, and the state they are from."""
    if MASK not in content or workspace.file_size(path) is None:
        return restore_secrets(path, content, MaskedText("")), None
    present, state = workspace.read(path, MAX_DRAFT_BYTES)
    text = "" if is_binary(present) else present.decode(errors="surrogateescape")
    return restore_secrets(path, content, mask(text)), state


async def _run_write(
    context: ToolContext, path: str, work: Callable[[Workspace, StopEvent], str]
) -> str:
    """Run `work` in the workspace, then discard drafts of the same file, which are outdated."""

    def run(stop: StopEvent) -> str:
        with open_workspace(context.workspace, create=True) as workspace:
            return work(workspace, stop)

    result = await run_in_thread(run)
    target = relative_path(context.workspace, path)
    for draft in await context.drafts.list_drafts():
        if _draft_target(context, draft) == target:
            await context.drafts.discard(draft.id)
    return result


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
    """Return the line numbers of the matches; raises `ToolError` for none, or several without `every`."""
    if not old:
        msg = "`old` is empty; use write_file to write a whole file."
        raise ToolError(msg)
    if old == new:
        msg = "`old` and `new` are the same; nothing was changed."
        raise ToolError(msg)
    lines = _match_lines(text, old)
    if not lines:
        hint = explain_mismatch(text, old)
        msg = f"`old` was not found in {path}; nothing was changed. {hint}".rstrip()
        raise ToolError(msg)
    if len(lines) > 1 and not every:
        listed = ", ".join(str(line) for line in lines[:_MAX_LISTED_LINES])
        msg = (
            f"`old` occurs {len(lines)} times in {path} (lines {listed}"
            f"{', …' if len(lines) > _MAX_LISTED_LINES else ''}); nothing was changed. "
            "Include more of the surrounding text, or set all=true."
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
        f"{pluralize(draft.lines, 'line')}; {draft.path} is not written yet. The draft ends with "
        f"{quote(draft.tail)}. Continue with write_file_continue; set final=true in the last part."
    )
