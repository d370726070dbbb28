"""Tools of an API client: offered to the model beside the agent's own, and run by the client.

The client's answer ends with the calls of its tools, and its next request brings their results.
Until then the history holds a placeholder as the result of each call, so that the history is
complete whether or not the client comes back.
"""

import secrets

from agent.model.answer_options import AnswerOptions, ToolMode
from agent.model.contract import ToolChoice, ToolSchema
from agent.tools.contract import Risk, Tool, ToolContext
from agent.tools.registry import ToolRegistry
from sessions.values.ids import unique_part


class ToolOffer:
    """Tools that the model may call in the steps of one turn.

    A tool of the client replaces the agent's tool with the same name. If the client demands a call,
    only its tools are offered, because the client knows no others.
    """

    def __init__(self, own: ToolRegistry, options: AnswerOptions) -> None:
        choice = options.tool_choice
        allowed = [tool for tool in options.tools if not choice.names or tool.name in choice.names]
        self.client_names = frozenset(tool.name for tool in allowed)
        self.registry = own
        self._required = choice.mode is ToolMode.REQUIRED
        if choice.mode is ToolMode.NONE:
            self.client_names, self.registry = frozenset(), ToolRegistry(())
        elif options.tools:
            # The names of all tools of the client count, including those it does not allow now.
            taken = {tool.name for tool in options.tools}
            kept = () if self._required else (tool for tool in own if tool.name not in taken)
            reserved = own.reserved_names | {tool.name for tool in own} | taken
            self.registry = ToolRegistry((*kept, *map(_client_tool, allowed)), reserved)

    def choice(self, step_number: int) -> ToolChoice | None:
        """Return the obligation to call a tool in a step.

        Without tools of the client, only the first step has to call one: the agent's own tools do
        not end the turn.
        """
        if not self._required or not (self.client_names or step_number == 1):
            return None
        return ToolChoice(*self.client_names) if len(self.client_names) == 1 else ToolChoice()


def new_call_id(turn_id: str) -> str:
    """Return an id for a call that the client has to run; it names the turn, and is a secret."""
    return f"call_{unique_part(turn_id)}_{secrets.token_hex(6)}"


def _client_tool(schema: ToolSchema) -> Tool:
    from agent.tools.mcp.arguments import make_checker  # noqa: PLC0415 - loads jsonschema

    return Tool(
        schema.name,
        Risk.WRITE,
        schema,
        dict,
        _cannot_run,
        check=make_checker(schema.name, schema.parameters),
    )


async def _cannot_run(_: object, __: ToolContext) -> str:
    msg = "a tool of the client runs at the client"
    raise AssertionError(msg)
