"""Results of servers for the model: text lines, and files in the workspace."""

from agent.request.file_lines import format_file_line
from agent.tools.contract import ToolContext, ToolOutput
from agent.tools.mcp.contract import ServerOutput
from agent.tools.output import EncodedFile
from agent.tools.received import save_result_files


async def save_output(output: ServerOutput, context: ToolContext) -> ToolOutput:
    """Save the files of a result into the workspace; a line of the text names each.

    Pictures among the files are shown to a model that can see.
    """
    encoded = tuple(part for part in output.parts if isinstance(part, EncodedFile))
    if not encoded:
        return ToolOutput("\n".join(map(str, output.parts)))
    files = await save_result_files(context.workspace, context.idempotency_key, encoded)
    rest = iter(files)
    lines = [
        format_file_line(next(rest)) if isinstance(part, EncodedFile) else part
        for part in output.parts
    ]
    return ToolOutput("\n".join(lines), tuple(file for file in files if file.fetched))
