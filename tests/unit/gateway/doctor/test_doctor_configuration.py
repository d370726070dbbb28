"""Doctor checks of the configuration and the environment variables."""

from collections.abc import Mapping
from pathlib import Path

from gateway.config.loader import ConfigOptions
from gateway.operate.doctor.configuration import check_configuration, check_environment
from gateway.operate.doctor.context import DoctorContext, collect_context
from platforms.core import registry
from platforms.core.registry import load_specs
from sessions.values.clock import SystemClock
from tests.fakes.case import only, told

MODEL = '[model]\nprovider = "openai"\nname = "m"\napi_key = "sk-secret"\n'


async def case(
    folder: Path, text: str = "", environ: Mapping[str, str] | None = None
) -> DoctorContext:
    file = folder / "holdfast.toml"
    file.write_text(text)
    file.chmod(0o600)
    given = {"HOME": str(folder), "HOLDFAST_HOME": str(folder / "state"), **(environ or {})}
    return await collect_context(ConfigOptions(file), given, load_specs(), clock=SystemClock())


async def test_a_valid_configuration_is_named(tmp_path: Path) -> None:
    found = await check_configuration(await case(tmp_path, MODEL))
    assert told(found) == [("ok", "file")]
    assert str(tmp_path / "holdfast.toml") in found[0].text


async def test_every_problem_is_reported_with_its_line(tmp_path: Path) -> None:
    taken = await case(tmp_path, "[gateway]\nbuzy = 1\n[http]\nport = -1\n")
    found = await check_configuration(taken)
    assert [each.level for each in found] == ["fail", "fail"]
    assert "holdfast.toml:2" in found[0].text
    assert "config check" in found[0].fix
    assert taken.loaded is None


async def test_a_misspelt_holdfast_variable_is_an_error(tmp_path: Path) -> None:
    (found,) = await check_configuration(
        await case(tmp_path, "", {"HOLDFAST_GATEWAY__BUSI": "queue"})
    )
    assert (found.level, "gateway.busi" in found.text) == ("fail", True)


async def test_secrets_readable_by_others_are_reported_as_fixable(tmp_path: Path) -> None:
    taken = await case(tmp_path, f'{MODEL}[platforms.telegram]\ntoken = "123:abc"\n')
    assert taken.config_path
    taken.config_path.chmod(0o644)
    again = await collect_context(
        ConfigOptions(taken.config_path), taken.environ, load_specs(), clock=SystemClock()
    )
    found = only(await check_configuration(again), "secret")
    assert (found.level, found.mend) == ("warn", "modes")
    assert "chmod 600" in found.fix
    assert "model.api_key" in found.text
    assert "and 1 more there" in found.text


async def test_an_entry_that_matches_nobody_is_reported(tmp_path: Path) -> None:
    found = await check_configuration(await case(tmp_path, '[access]\nallow = ["telegam:1"]\n'))
    assert "telegam" in only(found, "setting").text


async def test_misspelt_variable_names_are_reported_unless_the_right_one_is_set(
    tmp_path: Path,
) -> None:
    environ = {"OPENAI_KEY": "sk-x", "TELEGRAM_TOKEN": "t", "OPENAI_ORG_ID": "o", "OPENAI_X": ""}
    found = await check_environment(await case(tmp_path, "", environ))
    assert {(each.text.split()[0], each.fix.split()[1]) for each in found} == {
        ("OPENAI_KEY", "OPENAI_API_KEY,"),
        ("TELEGRAM_TOKEN", "TELEGRAM_BOT_TOKEN,"),
    }
    set_too = {"OPENAI_KEY": "x", "OPENAI_API_KEY": "y", "UNRELATED": "z"}
    assert await check_environment(await case(tmp_path, "", set_too)) == []


async def test_a_token_for_a_missing_platform_package_is_reported(tmp_path: Path) -> None:
    taken = await case(tmp_path, "", {"SLACK_BOT_TOKEN": "xoxb-1"})
    assert await check_environment(taken) == []
    without = {name: spec for name, spec in load_specs().items() if name != "slack"}
    bare = await collect_context(
        ConfigOptions(taken.config_path), taken.environ, without, clock=SystemClock()
    )
    assert "slack" in registry.known_names()
    (found,) = await check_environment(bare)
    assert "holdfast[slack]" in found.fix
