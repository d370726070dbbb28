"""Small changes to a module that its tests should notice.

Texts for people and logs, docstrings, annotations, assertions and protocols are left alone.
"""

import ast
import copy
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

Function = ast.FunctionDef | ast.AsyncFunctionDef

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.LShift: ast.RShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_FUNCTIONS = {"any": "all", "all": "any", "min": "max", "max": "min"}
_LOGS = {"log", "_log"}
_UNTESTED_FUNCTIONS = {"__repr__"}
_UNCHANGED = (
    ast.Assert,
    ast.Import,
    ast.ImportFrom,
    ast.JoinedStr,
    ast.pattern,
    ast.Pass,
    ast.expr_context,
)
_UNCHANGED_FIELDS = {"annotation", "returns", "decorator_list", "bases"}


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One change to a module."""

    module: str  # path of the file below the root
    function: str  # qualified name of the outermost function; empty outside functions
    function_line: int  # first line of this function with its decorators
    lines: range  # lines of the changed statement
    function_lines: range = range(0)
    kind: str
    before: str  # the changed statement, or the first line of a compound statement
    after: str
    parent: ast.AST
    field: str
    index: int | None
    new: ast.AST

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """Identity that survives changes elsewhere in the module."""
        return self.module, self.function, self.kind, self.before, self.after

    def compile(self, tree: ast.Module) -> types.CodeType:
        """Return the code of the changed module; the tree is the same afterwards."""
        old = self._put(self.new)
        try:
            code: types.CodeType = compile(ast.fix_missing_locations(tree), self.module, "exec")
            return code
        finally:
            self._put(old)

    def _put(self, node: ast.AST) -> ast.AST:
        if self.index is None:
            old: ast.AST = getattr(self.parent, self.field)
            setattr(self.parent, self.field, node)
        else:
            values: list[ast.AST] = getattr(self.parent, self.field)
            old, values[self.index] = values[self.index], node
        return old


def find_mutants(module: str, tree: ast.Module) -> list[Mutant]:
    """Return all mutants of a parsed module, in the order of its lines."""
    return list(_Finder(module, tree).mutants_below(tree))


def called_during_import(tree: ast.Module) -> set[str]:
    """Return the names of functions that run when the module is imported."""
    functions = {node.name: node for node in tree.body if isinstance(node, Function)}
    todo = [name for node in tree.body for name in _names_outside_functions(node)]
    found: set[str] = set()
    while todo:
        name = todo.pop()
        if name in functions and name not in found:
            found.add(name)
            todo += [each.id for each in ast.walk(functions[name]) if isinstance(each, ast.Name)]
    return found


def _names_outside_functions(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    for field, value in ast.iter_fields(node):
        if field in {"annotation", "returns"} or (isinstance(node, Function) and field == "body"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _names_outside_functions(child)


class _Finder:
    def __init__(self, module: str, tree: ast.Module) -> None:
        self._module = module
        self._tree = tree
        self._scope: list[str] = []
        self._function: Function | None = None
        self._function_name = ""

    def mutants_below(
        self, node: ast.AST, statement: ast.stmt | ast.match_case | None = None
    ) -> Iterator[Mutant]:
        for field, value in ast.iter_fields(node):
            if field in _UNCHANGED_FIELDS or (
                isinstance(node, ast.ClassDef) and field == "keywords"
            ):
                continue
            in_list = isinstance(value, list)
            for index, child in enumerate(value if in_list else [value]):
                if not isinstance(child, ast.AST) or _is_left_alone(child):
                    continue
                place = child if isinstance(child, ast.stmt | ast.match_case) else statement
                if place is not None:
                    for kind, new in _variants(child):
                        yield self._mutant(
                            node, field, index if in_list else None, kind, new, place
                        )
                yield from self._inside(child, place)

    def _inside(
        self, node: ast.AST, statement: ast.stmt | ast.match_case | None
    ) -> Iterator[Mutant]:
        if not isinstance(node, Function | ast.ClassDef):
            yield from self.mutants_below(node, statement)
            return
        self._scope.append(node.name)
        outermost = isinstance(node, Function) and self._function is None
        if outermost and isinstance(node, Function):
            self._function, self._function_name = node, ".".join(self._scope)
        yield from self.mutants_below(node, statement)
        if outermost:
            self._function, self._function_name = None, ""
        self._scope.pop()

    def _mutant(
        self,
        parent: ast.AST,
        field: str,
        index: int | None,
        kind: str,
        new: ast.AST,
        statement: ast.stmt | ast.match_case,
    ) -> Mutant:
        function = self._function
        if function and field in {"defaults", "kw_defaults"} and parent is function.args:
            function = None  # evaluated once, during the import
        old = getattr(parent, field) if index is None else getattr(parent, field)[index]
        ast.copy_location(new, old)
        before, lines = _text(statement), _lines(statement)
        if old is statement:
            after = _text(new)
        else:
            draft = Mutant(
                module="", function="", function_line=0, lines=lines, kind=kind, before="",
                after="", parent=parent, field=field, index=index, new=new,
            )  # fmt: skip
            draft._put(new)
            after = _text(statement)
            draft._put(old)
        if kind == "handler" and isinstance(old, ast.Try):
            kept = new.handlers if isinstance(new, ast.Try) else []
            dropped = next(each for each in old.handlers if each not in kept)
            before, after = _text(dropped), "(no handler)"
            lines = range(dropped.lineno, dropped.lineno + 1)
        first, function_lines = 0, range(0)
        if function:
            first = min([function.lineno, *(each.lineno for each in function.decorator_list)])
            function_lines = range(function.body[0].lineno, (function.end_lineno or first) + 1)
        return Mutant(
            module=self._module,
            function=self._function_name if function else "",
            function_line=first,
            lines=lines,
            function_lines=function_lines,
            kind=kind,
            before=before,
            after=after,
            parent=parent,
            field=field,
            index=index,
            new=new,
        )


# --- places without mutants --------------------------------------------------------------------


def _is_left_alone(node: ast.AST) -> bool:
    match node:
        case ast.Expr(value=ast.Constant()):
            return True  # a docstring or `...`
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))) if name in _LOGS:
            return True
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return True
        case ast.Assign(value=value) if _is_type(value):
            return True
        case ast.Assign(value=ast.Call(func=ast.Name(id="TypeVar"))):
            return True
        case ast.ClassDef(bases=bases):
            return any(_name_of(base) == "Protocol" for base in bases)
        case ast.FunctionDef(name=name) if name in _UNTESTED_FUNCTIONS:
            return True
        case ast.Subscript(value=ast.Name(id=name)) if name[0].isupper() and not name.isupper():
            return True  # a type with arguments
        case ast.Constant(value=str(text)):
            return " " in text.strip() or "\n" in text  # words
        case _:
            return isinstance(node, _UNCHANGED)


def _is_type(node: ast.expr) -> bool:
    match node:
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _is_type(left) or _is_type(right)
        case ast.Subscript(value=ast.Name(id=name)):
            return name in {"tuple", "dict", "list", "set", "type"} or name[0].isupper()
        case ast.Name(id=name):
            return name[0].isupper() and not name.isupper()
        case _:
            return False


def _name_of(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


# --- changes -----------------------------------------------------------------------------------

Node = TypeVar("Node", bound=ast.AST)


def _with(node: Node, **fields: object) -> Node:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _without(values: list[Node], index: int) -> list[Node]:
    return values[:index] + values[index + 1 :]


def _variants(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield each change to a node, as its kind and the node to put in its place."""
    if isinstance(node, ast.stmt):
        yield from _changed_statements(node)
    elif isinstance(node, ast.match_case):
        if node.guard:
            yield "guard", _with(node, guard=None)
    elif isinstance(node, ast.comprehension):
        for index in range(len(node.ifs)):
            yield "filter", _with(node, ifs=_without(node.ifs, index))
    elif isinstance(node, ast.expr):
        yield from _changed_expressions(node)


def _changed_statements(node: ast.stmt) -> Iterator[tuple[str, ast.AST]]:
    nothing = ast.Pass()
    match node:
        case ast.If():
            yield "condition", _with(node, test=ast.Constant(value=True))
            yield "condition", _with(node, test=ast.Constant(value=False))
        case ast.While():
            yield "condition", _with(node, test=ast.Constant(value=False))
        case ast.With(items=items) | ast.AsyncWith(items=items):
            if not any(item.optional_vars for item in items):
                yield "context", ast.If(test=ast.Constant(value=True), body=node.body, orelse=[])
        case ast.Try(handlers=handlers):
            for index in range(len(handlers)):
                left = _without(handlers, index)
                if left or node.finalbody:
                    yield "handler", _with(node, handlers=left, orelse=node.orelse if left else [])
                else:
                    body = node.body + node.orelse
                    yield "handler", ast.If(test=ast.Constant(value=True), body=body, orelse=[])
        case ast.Expr():
            yield "call", nothing
        case ast.Assign(targets=targets):
            read = {each.id for each in ast.walk(node.value) if isinstance(each, ast.Name)}
            stored = [each.id for each in targets if isinstance(each, ast.Name)]
            if not stored or read.intersection(stored):
                yield "assignment", nothing
        case ast.AnnAssign(target=ast.Attribute()) | ast.AugAssign() | ast.Delete():
            yield "assignment", nothing
        case ast.Return(value=value) if value and not isinstance(value, ast.Constant):
            yield "return", _with(node, value=ast.Constant(None))
        case ast.Raise():
            yield "raise", nothing
        case ast.Continue() | ast.Break():
            yield "jump", nothing
        case _:
            pass
    if isinstance(node, ast.AugAssign) and type(node.op) in _ARITHMETIC:
        yield "arithmetic", _with(node, op=_ARITHMETIC[type(node.op)]())


def _changed_expressions(node: ast.expr) -> Iterator[tuple[str, ast.AST]]:
    match node:
        case ast.Compare(ops=ops):
            for index, op in enumerate(ops):
                changed = [*ops[:index], _COMPARISONS[type(op)](), *ops[index + 1 :]]
                yield "comparison", _with(node, ops=changed)
        case ast.BoolOp(op=op, values=values):
            yield "logic", _with(node, op=ast.Or() if isinstance(op, ast.And) else ast.And())
            for index in range(len(values)):
                left = _without(values, index)
                yield "operand", _with(node, values=left) if len(left) > 1 else left[0]
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield "sign", operand
        case ast.BinOp(op=op) if type(op) in _ARITHMETIC:
            yield "arithmetic", _with(node, op=_ARITHMETIC[type(op)]())
        case ast.IfExp(body=body, orelse=orelse):
            yield "condition", body
            yield "condition", orelse
        case ast.Constant(value=bool(value)):
            yield "flag", ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield "number", ast.Constant(value + 1)
        case ast.Constant(value=str(value)):
            yield "string", ast.Constant(f"XX{value}")
        case ast.Call(func=ast.Name(id=name)) if name in _FUNCTIONS:
            yield "function", _with(node, func=ast.Name(_FUNCTIONS[name], ast.Load()))
        case ast.Set(elts=items) | ast.List(elts=items) | ast.Tuple(elts=items, ctx=ast.Load()) if (
            len(items) > 1
        ):
            for index in range(len(items)):
                yield "element", _with(node, elts=_without(items, index))
        case ast.Dict(keys=keys, values=items):
            for index in range(len(items)):
                kept = [*keys[:index], *keys[index + 1 :]]
                yield "element", _with(node, keys=kept, values=_without(items, index))
        case _:
            pass
    if isinstance(node, ast.Call):
        for index, keyword in enumerate(node.keywords):
            if keyword.arg:
                yield "argument", _with(node, keywords=_without(node.keywords, index))


# --- texts and lines ---------------------------------------------------------------------------


def _text(node: ast.AST) -> str:
    """Return the first line of a statement without its body."""
    if isinstance(node, ast.If | ast.While | ast.For | ast.AsyncFor):
        node = _with(node, body=[ast.Pass()], orelse=[])
    return ast.unparse(node).strip().partition("\n")[0]


def _lines(statement: ast.stmt | ast.match_case) -> range:
    if isinstance(statement, ast.match_case):
        first = statement.pattern.lineno
        return range(first, max(first + 1, statement.body[0].lineno))
    body = getattr(statement, "body", None)
    if body:
        return range(statement.lineno, max(statement.lineno + 1, body[0].lineno))
    return range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
