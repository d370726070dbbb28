"""Settings as text: the output can be loaded again, and the documentation is up to date."""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from agent.settings import AgentSettings, McpSettings, ModelSettings, TargetSettings
from gateway.config.loader import ConfigOptions, LoadedConfig, load
from gateway.config.render import build_schema, render_documentation, render_settings
from gateway.settings import HttpSettings, LimitSettings, RouteSettings, Settings, UserLimits
from platforms.core.contract import PlatformSpec
from platforms.core.registry import load_specs
from sessions.settings import StoreSettings
from sessions.values.duration import Duration
from sessions.values.secret import Secret

ROOT = Path(__file__).parents[3]


class PigeonSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A platform of another package."""

    token: Secret
    patience: Duration = Duration(90)


def never_built(*_: object) -> Any:
    raise AssertionError


SPECS = {
    "pigeon": PlatformSpec(
        "pigeon", PigeonSettings, build=never_built, secrets={"token": "PIGEON_TOKEN"}
    )
}

RICH = Settings(
    model=ModelSettings(
        provider="openai",
        name="m",
        base_url="http://x",
        api_key=Secret("hunter2"),
        fallback=(TargetSettings(provider="openai", name="n", base_url="http://y"),),
    ),
    store=StoreSettings(url=Secret("postgresql://ann:hunter2@db/x")),
    agent=AgentSettings(system_prompt='line 1\nline "2" \\ \x7f \u2028 😀'),
    mcp=(
        McpSettings(name="a", command="c", args=("x", "y"), env={"K E Y": Secret("hunter2")}),
        McpSettings(name="b", url="https://ann:hunter2@host", enabled_tools=()),
    ),
    limits=LimitSettings(users={"telegram:1": UserLimits(messages_per_minute=3)}),
    platforms={"pigeon": PigeonSettings(token=Secret("hunter2"))},
    http=HttpSettings(ui=False),
    route=(RouteSettings(match="telegram:*", tools=()),),
)


def read_back(text: str, folder: Path) -> LoadedConfig:
    path = folder / "holdfast.toml"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    return load(ConfigOptions(path), {"HOME": "/nowhere"}, SPECS)


@pytest.mark.parametrize("settings", [RICH, Settings(model=ModelSettings(name="demo"))])
def test_rendered_settings_with_secrets_can_be_loaded(settings: Settings, tmp_path: Path) -> None:
    assert read_back(render_settings(settings, secrets=True), tmp_path).settings == settings


def test_rendered_settings_without_secrets_are_valid_toml() -> None:
    text = render_settings(RICH)
    assert "hunter2" not in text
    shown = tomllib.loads(text)
    assert shown["model"]["api_key"] == "***"
    assert shown["store"]["url"] == "postgresql://ann:***@db/x"
    assert shown["mcp"][0]["env"] == {"K E Y": "***"}
    assert shown["mcp"][1]["url"] == "https://ann:***@host"


def test_each_rendered_value_has_its_origin(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.toml"
    path.write_text("[http]\nport = 5\n[[route]]\nmatch = 'x'\n")
    options = ConfigOptions(path, ("http.ui=false",))
    found = load(options, {"PIGEON_TOKEN": "coo", "HOME": "/nowhere"}, SPECS)
    lines = render_settings(found.settings, found.sources).splitlines()
    assert f"port = 5  # {path}:2" in lines
    assert f'match = "x"  # {path}:4' in lines
    assert "ui = false  # --set http.ui=false" in lines
    assert 'token = "***"  # PIGEON_TOKEN' in lines
    assert 'host = "127.0.0.1"' in lines  # a default has no origin
    assert "# api_key is not set" in lines


@given(st.text(), st.dictionaries(st.text(min_size=1), st.text(min_size=1), max_size=3))
def test_any_text_survives_rendering_and_loading(prompt: str, env: dict[str, str]) -> None:
    server = McpSettings(name="a", command="c", env={k: Secret(v) for k, v in env.items()})
    settings = Settings(agent=AgentSettings(system_prompt=prompt), mcp=(server,))
    parsed = tomllib.loads(render_settings(settings, secrets=True))
    assert parsed["agent"]["system_prompt"] == prompt
    assert parsed["mcp"][0]["env"] == env


# --- schema ------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [RICH, Settings()])
def test_schema_accepts_valid_settings(settings: Settings) -> None:
    made = build_schema(SPECS)
    jsonschema.Draft202012Validator.check_schema(made)
    jsonschema.validate(tomllib.loads(render_settings(settings, secrets=True)), made)


@pytest.mark.parametrize(
    "text",
    [
        "[http]\nhots = 'x'",
        "[http]\nport = 'x'",
        "[zzz]",
        "[platforms.icq]",
        "[platforms.pigeon]\n",
        "[platforms.pigeon]\ntoken = 5",
        "[gateway]\nbusy = 'never'",
    ],
)
def test_schema_refuses_invalid_settings(text: str) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(tomllib.loads(text), build_schema(SPECS))


def test_schema_is_valid_json() -> None:
    assert json.loads(msgspec.json.encode(build_schema(SPECS)))["title"] == "Holdfast"


# --- pages -------------------------------------------------------------------------------------


def keys_of(kind: type[Struct]) -> Iterator[str]:
    yield from (field.encode_name for field in msgspec.structs.fields(kind))


def test_page_lists_every_key_with_default_and_description() -> None:
    page = render_documentation(SPECS)
    for section in msgspec.structs.fields(Settings):
        if isinstance(section.type, type) and issubclass(section.type, Struct):
            for key in keys_of(section.type):
                assert f"`{key}`" in page or f"{section.name}.{key}" in page, key
    assert "| `port` | a whole number from 0 to 65535 | `8420` |" in page
    assert "| `token` | a secret | required | Environment: `PIGEON_TOKEN`. |" in page
    assert '| `patience` | a duration | `"1m 30s"` |' in page
    assert "## `[limits.users.NAME]`" in page
    assert "## `[[model.fallback]]`" in page
    assert "| `sandbox` | one of" in page
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert all(row.replace("\\|", "").count("|") == 5 for row in rows)


def test_every_setting_has_a_description() -> None:
    page = render_documentation({})
    assert not re.findall(r"^\| `\w+` .*\|  \|$", page, re.MULTILINE)


def test_configuration_page_is_up_to_date() -> None:
    written = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
    assert written == render_documentation(load_specs()), (
        "run: python -m scripts.configuration_docs"
    )


def uncommented(text: str) -> str:
    """Uncomment the settings of an example; comments in words have a space after the #."""
    return re.sub(r"^#(?=[\[a-z])", "", text, flags=re.MULTILINE)


def test_example_configuration_changes_nothing(tmp_path: Path) -> None:
    text = (ROOT / "deploy/holdfast.example.toml").read_text(encoding="utf-8")
    plain = Settings(model=ModelSettings(name="demo"))
    assert read_back(text, tmp_path).settings == plain


def test_example_configuration_is_valid_with_all_lines_enabled(tmp_path: Path) -> None:
    text = uncommented((ROOT / "deploy/holdfast.example.toml").read_text(encoding="utf-8"))
    (tmp_path / "key").write_text("k")
    text = text.replace("file:/etc/holdfast/api_key", "file:key")
    text = text.replace('url = "sqlite', '#url = "sqlite')  # a second example of the key
    path = tmp_path / "holdfast.toml"
    path.write_text(text)
    path.chmod(0o600)
    found = load(ConfigOptions(path), {"OPENAI_API_KEY": "k", "TICKETS_TOKEN": "t"}, SPECS).settings
    for section in ("gateway", "model", "agent", "tools", "sessions", "access", "limits", "http"):
        assert section in text
    assert found.route[0].model == found.model.fallback[0].name
    assert found.gateway == Settings().gateway  # the example states the real defaults
    assert found.access.admins


# --- imports -----------------------------------------------------------------------------------


@pytest.mark.process
def test_loading_the_configuration_imports_no_heavy_library() -> None:
    program = "import sys, gateway.config.loader, gateway.config.render; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    heavy = {"asyncio", "sqlalchemy", "starlette", "uvicorn", "openai", "httpx2", "aiohttp", "ssl"}
    assert heavy.isdisjoint(done.stdout.split())
