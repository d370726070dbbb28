"""Rules about the tree that no linter knows."""

import ast
from pathlib import Path

from platforms.core.registry import known_names

ROOT = Path(__file__).parents[2]
PACKAGES = ("gateway", "platforms", "agent", "sessions")

BOUNDARIES = {
    "sessions/conversation/actor.py": "a turn, and an event of its conversation",
    "gateway/connections/supervision.py": "an adapter that runs",
    "gateway/media/fetch.py": "an adapter that fetches a file, and who writes speech down",
    "gateway/side_requests/service.py": "a command that runs beside its conversation",
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


def sources() -> list[Path]:
    return [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]


def catches_everything(tree: ast.AST) -> bool:
    return any(
        isinstance(node, ast.ExceptHandler)
        and (
            node.type is None
            or (isinstance(node.type, ast.Name) and node.type.id in {"Exception", "BaseException"})
        )
        for node in ast.walk(tree)
    )


def test_every_exception_is_caught_only_at_the_boundaries() -> None:
    found = {
        str(path.relative_to(ROOT))
        for path in sources()
        if catches_everything(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert found == set(BOUNDARIES)


def test_the_core_never_asks_which_platform_it_talks_to() -> None:
    names = set(known_names()) - {"console", "web"}
    for path in (ROOT / "gateway").rglob("*.py"):
        if str(path.relative_to(ROOT)) in CONFIGURE_PLATFORMS:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Compare):
                compared = [each for each in ast.walk(node) if isinstance(each, ast.Constant)]
                assert not any(each.value in names for each in compared), path


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


def test_providers_use_only_public_attributes_of_their_libraries() -> None:
    """An SDK or HTTP client may move a private attribute in any release."""
    for path in (ROOT / "agent/providers").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            assert not reads_private_attribute_of_another(node), f"{path}: {ast.unparse(node)}"
