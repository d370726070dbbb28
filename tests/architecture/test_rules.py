"""Rules about the tree that no linter knows."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("gateway", "platforms", "agent", "sessions")

BOUNDARIES = {
    "sessions/actor.py": "a turn, and an event of its conversation",
    "gateway/supervision.py": "an adapter that runs",
    "gateway/attachments.py": "an adapter that fetches a file, and who writes speech down",
    "gateway/asides.py": "a command that runs beside its conversation",
    "gateway/delivery/link.py": "an adapter that delivers",
    "agent/tools/run.py": "a tool",
    "agent/tools/mcp/link.py": "a connection to a server of tools",
    "gateway/http/guard.py": "a web request",
    "gateway/control.py": "a request of the command line",
    "gateway/doctor/run.py": "a check of the doctor",
    "gateway/doctor/aside.py": "work in a thread of the doctor's, whose error its caller gets",
    "platforms/web/api.py": "a web request that stores a message",
}
"""Where one broken thing must not take others down; nowhere else is every exception caught."""


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
    names = {"telegram", "discord", "slack"}
    for path in (ROOT / "gateway").rglob("*.py"):
        if path.name in {"run.py", "config_model.py", "settings.py"}:
            continue  # tell people how to configure them
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Compare):
                compared = [each for each in ast.walk(node) if isinstance(each, ast.Constant)]
                assert not any(each.value in names for each in compared), path
