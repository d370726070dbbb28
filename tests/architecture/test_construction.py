"""Objects of the gateway are complete when their constructor returns."""

import ast
from collections.abc import Iterator, Sequence

from scripts.code_figures import Module

Function = ast.FunctionDef | ast.AsyncFunctionDef

ENTRIES = "entries of the delivery queue are records that lane, outbox and queue share"

CHANGE_OTHERS = {
    "gateway/delivery/lane.py": ENTRIES,
    "gateway/delivery/outbox.py": ENTRIES,
    "gateway/delivery/queue.py": ENTRIES,
    "gateway/http/client_timeouts.py": "a flag of uvicorn's request cycle",
    "gateway/operate/backup/writing.py": "the constructor of `tarfile.TarInfo` takes only a name",
    "gateway/operate/cli/__init__.py": "`sys.excepthook`",
    "gateway/process/restart.py": "the record of a waiting restart is private to this module",
}
"""Files that assign to attributes of other objects, with the reason."""

CREATED_LATE = {
    "gateway/operate/selftest/plain_http.py: Connection._transport": "asyncio passes the transport "
    "to `connection_made`",
}
"""Attributes that do not exist when the constructor returns, with the reason."""


def of_gateway(modules: Sequence[Module]) -> list[Module]:
    return [each for each in modules if each.path.startswith("gateway/")]


def assigned_attributes(tree: ast.AST) -> Iterator[ast.Attribute]:
    """Yield the attributes that assignments set; `+=` and `del` count as a change, not as one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign) and node.value:
            targets = [node.target]
        else:
            continue
        for target in targets:
            for each in ast.walk(target):
                if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store):
                    yield each


def is_own(attribute: ast.Attribute) -> bool:
    return isinstance(attribute.value, ast.Name) and attribute.value.id == "self"


def own_attributes(function: Function) -> set[str]:
    return {each.attr for each in assigned_attributes(function) if is_own(each)}


def called_methods(function: Function) -> set[str]:
    return {
        node.func.attr
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "self"
    }


def late_attributes(described: ast.ClassDef) -> set[str]:
    """Return the attributes that no constructor sets, nor a method that the constructor calls."""
    methods = {each.name: each for each in described.body if isinstance(each, Function)}
    constructor = methods.get("__init__")
    if constructor is None:
        return set()
    first = [constructor, *(methods[name] for name in called_methods(constructor) & set(methods))]
    known = set(methods).union(*map(own_attributes, first))  # a setter is a method
    return set[str]().union(*map(own_attributes, methods.values())) - known


def test_attributes_of_other_objects_are_set_only_in_listed_files(modules: list[Module]) -> None:
    found = {
        module.path
        for module in of_gateway(modules)
        if any(not is_own(attribute) for attribute in assigned_attributes(module.tree))
    }
    assert found == set(CHANGE_OTHERS)


def test_every_attribute_exists_when_the_constructor_returns(modules: list[Module]) -> None:
    late = {
        f"{module.path}: {described.name}.{attribute}"
        for module in of_gateway(modules)
        for described in module.classes
        for attribute in late_attributes(described)
    }
    assert late == set(CREATED_LATE)


def test_late_assignments_are_recognized() -> None:
    tree = ast.parse(
        "class Gateway:\n"
        "    def __init__(self):\n"
        "        self.store = None\n"
        "        self.prepare()\n"
        "    def prepare(self):\n"
        "        self.pool = 1\n"
        "    def start(self, health):\n"
        "        self.store, health.pool = 1, 2\n"
        "        self.late: int = 3\n"
    )
    (described,) = tree.body
    assert isinstance(described, ast.ClassDef)
    assert late_attributes(described) == {"late"}
    assert [each.attr for each in assigned_attributes(tree) if not is_own(each)] == ["pool"]
