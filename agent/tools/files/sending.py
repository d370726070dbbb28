"""The tool that sends workspace files to the chat."""

from agent.errors import ToolError
from agent.tools.contract import Risk, ToolContext
from agent.tools.define import tool, with_placeholders


@with_placeholders
@tool(risk=Risk.WRITE, emoji="📤", label="path", touches="path", family="files")
async def send_file(context: ToolContext, path: str, caption: str = "") -> str:
    """Send a file from the workspace to this chat, so that the user can open or keep it.

    Use it for files meant for the user, such as reports, pictures and tables. Put short content of
    a few lines into your answer instead.

    Args:
        context: Not part of the call.
        path: File path, relative to the workspace root.
        caption: Optional one-line caption.
    """
    if context.send_file is None:
        msg = "Files cannot be sent from here. Name the path of the file in your answer."
        raise ToolError(msg)
    return await context.send_file(path, caption, context.idempotency_key)
