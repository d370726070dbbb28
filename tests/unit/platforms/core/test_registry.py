import subprocess
import sys
from pathlib import Path

import pytest

from platforms import console
from platforms.core.registry import (
    PlatformNotInstalled,
    UnknownPlatform,
    find_platform,
    known_names,
    load_specs,
)
from tests.fakes.distribution import write_distribution

OURS = """\
import msgspec
from platforms.core.contract import PlatformSpec


class Config(msgspec.Struct):
    pass


SPEC = PlatformSpec(name="{name}", config=Config, build=lambda config, around: None)
"""


@pytest.fixture
def other_distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install platforms that work, lack a library, and have the name of a built-in one."""
    modules = {
        "holdfast_irc": OURS.format(name="irc"),
        "holdfast_matrix": "import a_library_that_nobody_has\n",
        "holdfast_console": OURS.format(name="console"),
    }
    for module, source in modules.items():
        (tmp_path / f"{module}.py").write_text(source)
    lines = [f"{module.partition('_')[2]} = {module}:SPEC" for module in modules]
    write_distribution(tmp_path, "holdfast-more", "\n".join(["[holdfast.platforms]", *lines, ""]))
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_known_names_exclude_shared_code_and_the_test_kit() -> None:
    assert {"console", "web"} <= set(known_names())
    assert not {"core", "memory"} & set(known_names())


@pytest.mark.process
def test_listing_names_imports_no_platform() -> None:
    code = (
        "import sys; from platforms.core.registry import known_names; known_names();"
        "sys.exit(any(name.startswith(('platforms.console', 'platforms.web')) for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_platform_is_found_by_the_name_of_its_module() -> None:
    assert find_platform("console") is console.SPEC


@pytest.mark.usefixtures("other_distribution")
def test_other_distributions_add_platforms_but_cannot_replace_built_in_ones() -> None:
    assert {"irc", "matrix", "console"} <= set(known_names())
    assert find_platform("irc").name == "irc"
    assert find_platform("console") is console.SPEC


@pytest.mark.usefixtures("other_distribution")
def test_a_missing_library_is_reported_and_its_platform_skipped() -> None:
    with pytest.raises(PlatformNotInstalled, match=r"install holdfast\[matrix\]"):
        find_platform("matrix")
    assert "matrix" not in load_specs()
    assert {"irc", "console"} <= set(load_specs())


def test_an_unknown_platform_error_suggests_the_nearest_name() -> None:
    with pytest.raises(UnknownPlatform, match="Did you mean console"):
        find_platform("consle")


def test_an_import_error_inside_a_platform_is_not_a_missing_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "holdfast_bad.py").write_text("import platforms.core.no_such_module\n")
    write_distribution(tmp_path, "bad", "[holdfast.platforms]\nbad = holdfast_bad:SPEC\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        find_platform("bad")
