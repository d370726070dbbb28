"""Hands files of the workspace to the people in the chat."""

from agent.errors import ToolError
from agent.tools.contract import Risk, ToolContext
from agent.tools.define import tool


@tool(risk=Risk.WRITE, emoji="📤", label="path", touches="path", family="files")
async def send_file(context: ToolContext, path: str, caption: str = "") -> str:
    """Send a file of the workspace into this chat, so that the person can open or keep it.

    Use it for what is meant for the person: a report, a picture, a table. What fits into a few
    lines is better said in your answer.

    Args:
        context: Not part of the call.
        path: The file, named from the top of the workspace.
        caption: A line that stands with it; may be left out.
    """
    if context.send_file is None:
        msg = "Files cannot be sent from here. Say in your answer where the file is."
        raise ToolError(msg)
    return await context.send_file(path, caption, context.idempotency_key)
