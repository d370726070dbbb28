"""Every chat adapter keeps the same role in a module of the same name."""

from pathlib import Path

import pytest

PLATFORMS = Path(__file__).parents[2] / "platforms"

ROLES = (
    "config",
    "capabilities",
    "adapter",
    "receive",
    "decode",
    "send",
    "format",
    "errors",
    "rate_limit",
    "probe",
    "guide",
)
"""Modules of a chat adapter, one for each role."""

SPLIT_ROLES = {("telegram", "format"): ("format_rich", "format_entities")}
"""Roles that an adapter divides among several modules."""

MISSING_ROLES = {
    ("telegram", "rate_limit"): "The delivery queue keeps to the rates in `capabilities`; `http` "
    "holds back calls to a chat for as long as Telegram's 429 says.",
}
"""Roles for which an adapter has no module, each with the reason."""


CHAT_ADAPTERS = sorted(
    path.parent.name
    for path in PLATFORMS.glob("*/__init__.py")
    if path.parent.name not in {"core", "web"}
)


def has_module(platform: str, name: str) -> bool:
    return (PLATFORMS / platform / f"{name}.py").is_file()


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("platform", CHAT_ADAPTERS)
def test_an_adapter_has_the_module_of_each_role(platform: str, role: str) -> None:
    if (platform, role) in MISSING_ROLES:
        assert not has_module(platform, role), "remove the entry from MISSING_ROLES"
        return
    modules = SPLIT_ROLES.get((platform, role), (role,))
    assert [name for name in modules if not has_module(platform, name)] == []
