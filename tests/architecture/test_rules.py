"""Rules about the tree that no linter knows."""

import ast
from collections.abc import Iterable, Iterator

from platforms.core.registry import known_names
from scripts.code_figures import Module

CODE = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)

BOUNDARIES = {
    "sessions/conversation/actor.py": "a turn, and an event of its conversation",
    "gateway/connections/supervision.py": "an adapter that runs",
    "gateway/media/fetch.py": "an adapter that fetches a file, and who writes speech down",
    "gateway/side_requests/jobs.py": "a command that runs beside its conversation",
    "gateway/delivery/link.py": "an adapter that delivers",
    "agent/tools/run.py": "a tool",
    "agent/tools/mcp/link.py": "a connection to a server of tools",
    "gateway/http/guard.py": "a web request",
    "gateway/process/control_socket.py": "a request of the command line",
    "gateway/operate/doctor/run.py": "a check of the doctor, and its threads, whose errors the caller gets",
    "platforms/web/api.py": "a web request that stores a message",
}
"""Where one broken thing must not take others down; nowhere else is every exception caught."""


CONFIGURE_PLATFORMS = {
    "gateway/config/model_defaults.py",
    "gateway/operate/cli/run.py",
    "gateway/settings.py",
}
"""Files that tell people how to configure a platform, by its name."""


def catches_everything(handlers: Iterable[ast.ExceptHandler]) -> bool:
    return any(
        each.type is None
        or (isinstance(each.type, ast.Name) and each.type.id in {"Exception", "BaseException"})
        for each in handlers
    )


def test_every_exception_is_caught_only_at_the_boundaries(modules: list[Module]) -> None:
    found = {each.path for each in modules if catches_everything(each.handlers)}
    assert found == set(BOUNDARIES)


def test_the_core_never_asks_which_platform_it_talks_to(modules: list[Module]) -> None:
    names = set(known_names()) - {"console", "web"}
    for module in modules:
        if not module.path.startswith("gateway/") or module.path in CONFIGURE_PLATFORMS:
            continue
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Compare):
                compared = [each for each in ast.walk(node) if isinstance(each, ast.Constant)]
                assert not any(each.value in names for each in compared), module.path


def reads_private_attribute_of_another(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        own = isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"}
        return node.attr.startswith("_") and not node.attr.endswith("__") and not own
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"getattr", "setattr", "hasattr"}
        and isinstance(node.args[1], ast.Constant)
        and str(node.args[1].value).startswith("_")
    )


def test_providers_use_only_public_attributes_of_their_libraries(modules: list[Module]) -> None:
    """An SDK or HTTP client may move a private attribute in any release."""
    for module in modules:
        if module.path.startswith("agent/providers/"):
            for node in ast.walk(module.tree):
                assert not reads_private_attribute_of_another(node), (
                    f"{module.path}: {ast.unparse(node)}"
                )


def imported_by_text(calls: Iterable[ast.Call]) -> Iterator[str]:
    for call in calls:
        match call:
            case ast.Call(
                func=ast.Name(id="import_module") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(module)), *_],
            ):
                yield module
            case _:
                pass


def test_modules_known_in_advance_are_imported_by_statements_that_tools_see(
    modules: list[Module],
) -> None:
    found = {
        module.path: imported
        for module in modules
        if (imported := [*imported_by_text(module.calls)])
    }
    assert found == {}, "import inside the function; see banned-module-level-imports in pyproject"


def is_number(value: ast.expr | None) -> bool:
    match value:
        case ast.Constant(value=int() | float()):
            return True
        case ast.BinOp(left=left, right=right):
            return is_number(left) and is_number(right)
        case ast.Tuple(elts=items):
            return all(is_number(item) for item in items)
        case _:
            return False


def numbers_after_code(module: ast.Module) -> Iterator[str]:
    seen_code = False
    for node in module.body:
        seen_code = seen_code or isinstance(node, CODE)
        if seen_code and isinstance(node, ast.Assign | ast.AnnAssign) and is_number(node.value):
            yield ast.unparse(node)


def test_constant_numbers_stand_before_the_first_class_or_function(modules: list[Module]) -> None:
    found = {
        module.path: numbers
        for module in modules
        if (numbers := [*numbers_after_code(module.tree)])
        and "migrations" not in module.path.split("/")
    }
    assert found == {}
