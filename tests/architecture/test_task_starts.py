"""Where a task may be started with `create_task`, and where only with `start_task`.

A task group refuses tasks as soon as one of its tasks has failed. Inside its `async with` block that
cannot happen, because the failure cancels the block first. A group from anywhere else may be ending.
"""

import ast
from collections.abc import Iterator

from scripts.code_figures import Module

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
LOOPS = {"loop", "asyncio.get_running_loop()"}
HELPER = "sessions/values/tasks.py"


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Return the nodes of a function without those of the functions inside."""
    for child in ast.iter_child_nodes(function):
        yield child
        if not isinstance(child, FUNCTIONS):
            yield from own_nodes(child)


def groups_opened_in(nodes: list[ast.AST]) -> set[str]:
    return {
        ast.unparse(item.optional_vars)
        for node in nodes
        if isinstance(node, ast.AsyncWith)
        for item in node.items
        if item.optional_vars
    }


def unsafe_starts(tree: ast.Module) -> Iterator[str]:
    for scope in [tree, *(node for node in ast.walk(tree) if isinstance(node, FUNCTIONS))]:
        nodes = list(own_nodes(scope))
        safe = groups_opened_in(nodes) | LOOPS
        for node in nodes:
            if isinstance(node, ast.Attribute) and node.attr == "create_task":
                group = ast.unparse(node.value)
                if group not in safe:
                    yield f"line {node.lineno}: {group}"


def test_a_group_that_may_be_ending_gets_its_tasks_from_start_task(modules: list[Module]) -> None:
    found = {
        module.path: starts
        for module in modules
        if module.path != HELPER and (starts := [*unsafe_starts(module.tree)])
    }
    assert found == {}, "use sessions.values.tasks.start_task"
