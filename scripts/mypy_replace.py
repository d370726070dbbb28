"""mypy plugin that checks the fields and types in calls of `msgspec.structs.replace`.

msgspec declares the keywords of `replace` as `Any`, so a misspelt field would only fail when the line
runs. The plugin gives each call the keywords of the struct's own constructor, all of them optional.
"""

from collections.abc import Callable

from mypy.nodes import ARG_NAMED_OPT, ARG_POS
from mypy.plugin import FunctionSigContext, Plugin
from mypy.types import (
    AnyType,
    CallableType,
    FunctionLike,
    Instance,
    Type,
    TypeVarType,
    UnionType,
    get_proper_type,
)

REPLACE = "msgspec.structs.replace"


class ReplacePlugin(Plugin):
    """Types calls of `msgspec.structs.replace`."""

    def get_function_signature_hook(
        self, fullname: str
    ) -> Callable[[FunctionSigContext], FunctionLike] | None:
        """Return the hook for `replace`, None for every other function."""
        return _replace_signature if fullname == REPLACE else None


def _replace_signature(context: FunctionSigContext) -> FunctionLike:
    signature = context.default_signature
    if not context.args or len(context.args[0]) != 1:
        return signature
    struct = get_proper_type(context.api.get_expression_type(context.args[0][0]))
    if isinstance(struct, TypeVarType):
        struct = get_proper_type(struct.upper_bound)
    if isinstance(struct, AnyType):
        return signature
    members = struct.items if isinstance(struct, UnionType) else [struct]
    fields: dict[str, Type] = {}
    for member in map(get_proper_type, members):
        constructor = (
            get_proper_type(member.type.get_method("__init__").type)  # type: ignore[union-attr]
            if isinstance(member, Instance) and member.type.get_method("__init__")
            else None
        )
        if not isinstance(constructor, CallableType):
            return signature  # a struct in general: nothing is known of its fields
        own = dict(zip(constructor.arg_names[1:], constructor.arg_types[1:], strict=True))
        named = {name: kind for name, kind in own.items() if name is not None}
        fields = named if not fields else {key: fields[key] for key in fields if key in named}
    return signature.copy_modified(
        arg_types=[struct, *fields.values()],
        arg_kinds=[ARG_POS, *[ARG_NAMED_OPT] * len(fields)],
        arg_names=[None, *fields],
        ret_type=struct,
        variables=[],
    )


def plugin(_version: str) -> type[Plugin]:
    """Return the plugin; mypy calls this function."""
    return ReplacePlugin
