"""Sans-IO: tools of a request, which its client runs, in the forms of OpenAI's endpoints."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from agent.model.answer_options import AnswerOptions, ClientToolChoice, ToolMode
from agent.model.contract import ToolSchema
from gateway.http.api.failures import invalid_request
from gateway.settings import ClientToolPolicy

_TOOLS_REFUSED = (
    "The agent behind this API uses its own tools, and http.client_tools does not allow tools of a "
    "request; leave `tools` out."
)
_CALL_REQUIRED = (
    "The agent behind this API ignores the tools of requests (http.client_tools), so it cannot be "
    "made to call one; use `tool_choice` `auto` or `none`."
)
_NO_PARAMETERS = {"type": "object", "properties": {}}
_MODES = {mode.value: mode for mode in ToolMode}
_MODE_LIST = ", ".join(f"`{mode}`" for mode in _MODES)

ToolName = Annotated[str, Meta(min_length=1, max_length=128)]


class FunctionDefinition(msgspec.Struct, frozen=True):
    """A function of the client."""

    name: ToolName
    description: str | None = None
    parameters: Annotated[
        dict[str, Any] | None, Meta(description="A JSON schema of type `object`.")
    ] = None
    strict: bool | None = None


class ClientTools(msgspec.Struct, frozen=True, kw_only=True):
    """Tools of a request, and the reasons why some are left out."""

    options: AnswerOptions = AnswerOptions()
    warnings: tuple[str, ...] = ()


def read_tools(
    tools: Iterable[FunctionDefinition | str],
    choice: str | dict[str, Any] | None,
    *,
    parallel: bool | None,
) -> ClientTools:
    """Return the tools of a request; raises `RequestRefused`.

    A string among `tools` is the type of a tool that only another service has. It is left out.
    """
    schemas: dict[str, ToolSchema] = {}
    missing: list[str] = []
    for tool in tools:
        if isinstance(tool, str):
            missing.append(tool)
            continue
        if tool.name in schemas:
            msg = f"Two tools are named “{tool.name}”."
            raise invalid_request(msg, "tools")
        schemas[tool.name] = ToolSchema(
            tool.name,
            tool.description or "",
            tool.parameters or _NO_PARAMETERS,
            strict=bool(tool.strict),
        )
    warnings: tuple[str, ...] = ()
    if missing:
        kinds = ", ".join(dict.fromkeys(missing))
        warnings = (f"Tools of these types are not available here and were left out: {kinds}.",)
    options = AnswerOptions(
        tools=tuple(schemas.values()),
        tool_choice=_read_choice(choice, schemas),
        parallel_tool_calls=parallel,
    )
    return ClientTools(options=options, warnings=warnings)


def apply_policy(
    tools: AnswerOptions, policy: ClientToolPolicy, *, param: str = "tools"
) -> AnswerOptions:
    """Return the options under `http.client_tools`; raises `RequestRefused`."""
    mode = tools.tool_choice.mode
    if policy == "pass" or not tools.tools or mode is ToolMode.NONE:
        return tools
    if policy == "refuse":
        raise invalid_request(_TOOLS_REFUSED, param, "unsupported_parameter")
    if mode is ToolMode.REQUIRED:
        raise invalid_request(_CALL_REQUIRED, "tool_choice", "unsupported_parameter")
    return replace(tools, tools=(), tool_choice=ClientToolChoice())


def _read_choice(
    choice: str | dict[str, Any] | None, known: Mapping[str, ToolSchema]
) -> ClientToolChoice:
    match choice:
        case None:
            return ClientToolChoice()
        case str() if choice in _MODES:
            return ClientToolChoice(mode=_MODES[choice])
        case dict() if choice.get("type") == "allowed_tools":
            allowed = choice.get("allowed_tools", choice)
            mode = allowed.get("mode", "auto") if isinstance(allowed, dict) else None
            listed = allowed.get("tools") if isinstance(allowed, dict) else None
            if mode in ("auto", "required") and isinstance(listed, list):
                return ClientToolChoice(mode=_MODES[mode], names=_names(listed, known))
        case dict() if choice.get("type") == "function":
            return ClientToolChoice(mode=ToolMode.REQUIRED, names=_names([choice], known))
        case _:
            pass
    msg = f"`tool_choice` can be {_MODE_LIST}, a function, or `allowed_tools`."
    raise invalid_request(msg, "tool_choice")


def _names(entries: Sequence[Any], known: Mapping[str, ToolSchema]) -> tuple[str, ...]:
    """Return the names of the tools that a choice lists; left-out types of tools do not count."""
    names: list[str] = []
    for entry in entries:
        if not isinstance(entry, dict) or entry.get("type", "function") != "function":
            continue
        function = entry.get("function")
        name = entry.get("name") or (function.get("name") if isinstance(function, dict) else None)
        if not isinstance(name, str) or name not in known:
            msg = f"`tool_choice` names a tool that is not in `tools`: {str(name)[:80]}."
            raise invalid_request(msg, "tool_choice")
        names.append(name)
    return tuple(names)
