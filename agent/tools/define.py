"""The decorator that makes a tool from a typed async function.

The signature becomes the schema, the docstring the description that the model reads.
"""

import inspect
import re
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, get_type_hints

import msgspec

from agent.model.contract import ToolSchema
from agent.tools.contract import Risk, Tool, ToolContext, ToolOutput

ToolFunction = Callable[..., Awaitable[str | ToolOutput]]

_ARGUMENT_DOC = re.compile(r"^\s+(\w+): (.+(?:\n\s{8,}\S.*)*)", re.MULTILINE)


def tool(
    *,
    risk: Risk,
    timeout: float | None = None,
    emoji: str = "🔧",
    parallel: bool = False,
    label: str = "",
    touches: str = "",
    grows: str = "",
    family: str = "",
) -> Callable[[ToolFunction], Tool]:
    """Declare a tool.

    The first parameter of the function is its `ToolContext`; the others are the arguments of the
    call, described under `Args:` in the docstring. `label`, `touches` and `grows` are names of
    arguments; see `Tool`. Raises `TypeError` for a missing docstring or an unknown argument.
    """

    def decorate(function: ToolFunction) -> Tool:
        name = function.__name__
        description, _, described = inspect.cleandoc(function.__doc__ or "").partition("\nArgs:\n")
        arguments = _arguments_type(function, dict(_ARGUMENT_DOC.findall(described)))
        if not description.strip():
            msg = f"the tool {name} needs a docstring, because the model reads it"
            raise TypeError(msg)
        for role, argument in (("label", label), ("touches", touches), ("grows", grows)):
            if argument and argument not in arguments.__struct_fields__:
                msg = f"the tool {name} has no argument {argument!r} for {role}"
                raise TypeError(msg)

        async def call(arguments: msgspec.Struct, context: ToolContext) -> str | ToolOutput:
            return await function(context, **msgspec.structs.asdict(arguments))

        return Tool(
            name=name,
            risk=risk,
            schema=ToolSchema(name, description.strip(), _arguments_schema(arguments)),
            arguments=arguments,
            call=call,
            emoji=emoji,
            timeout=timeout,
            parallel=parallel,
            label=label,
            touches=touches,
            grows=grows,
            family=family,
        )

    return decorate


def with_placeholders(tool: Tool) -> Tool:
    """Declare that the arguments of a tool may contain placeholders of secrets."""
    return msgspec.structs.replace(tool, takes_placeholders=True)


def _arguments_type(function: ToolFunction, described: dict[str, str]) -> type[msgspec.Struct]:
    _, *parameters = inspect.signature(function).parameters.values()
    hints = get_type_hints(function, include_extras=True)
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for parameter in parameters:
        description = " ".join(described.get(parameter.name, "").split())
        hint = hints[parameter.name]
        typed = Annotated[hint, msgspec.Meta(description=description)] if description else hint
        required = parameter.default is inspect.Parameter.empty
        fields.append(
            (parameter.name, typed) if required else (parameter.name, typed, parameter.default)
        )
    return msgspec.defstruct(
        function.__name__, fields, frozen=True, kw_only=True, forbid_unknown_fields=True
    )


def _arguments_schema(arguments: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the JSON schema of the arguments; nested types are in `$defs`."""
    (_,), types = msgspec.json.schema_components((arguments,), ref_template="#/$defs/{name}")
    schema: dict[str, Any] = types.pop(arguments.__name__)
    schema.pop("title", None)
    return {**schema, "$defs": types} if types else schema
