"""From a fresh machine and a bot token to an answer in Telegram."""

import json
import stat
import sys
import tomllib
from pathlib import Path

from tests.fakes.model_script import words
from tests.fakes.model_server import ModelServer
from tests.fakes.telegram.server import TOKEN, serving
from tests.faults.first_run import Newcomer, newcomer

HOLDFAST = Path(sys.executable).with_name("holdfast")


def is_empty(folder: Path) -> bool:
    return not any(folder.iterdir())


async def test_the_wizard_at_a_terminal_leads_to_an_answer(tmp_path: Path) -> None:
    async with newcomer(HOLDFAST, tmp_path) as person:
        await person.set_up(start=True)
        secret = person.secrets / "TELEGRAM_BOT_TOKEN"
        assert secret.read_text() == f"{TOKEN}\n"
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600
        assert TOKEN not in person.config.read_text()


async def test_ctrl_c_at_the_last_question_changes_nothing(tmp_path: Path) -> None:
    async with newcomer(HOLDFAST, tmp_path) as person, person.at_terminal("setup") as seat:
        await seat.sees("Platforms ")
        seat.types("telegram\n")
        await seat.sees("Telegram bot token: ")
        seat.types(f"{TOKEN}\n")
        await person.reaches_last_question(seat)
        seat.types("\x03")
        await seat.sees("Nothing was changed")
        assert await seat.ends() == 130
    assert not person.config.exists()
    assert is_empty(person.secrets)


async def test_a_script_beside_a_running_gateway_configures_it_and_waits_for_the_owner(
    tmp_path: Path,
) -> None:
    async with newcomer(HOLDFAST, tmp_path) as person:
        await person.set_up_by_flags()
        assert tomllib.loads(person.config.read_text())["model"]["name"] == "scripted"
        async with person.at_terminal("run") as gateway:
            await gateway.sees("There is no admin yet")
            flags = ("--platform", "telegram", "--base-url", person.env["OPENAI_BASE_URL"])
            async with person.at_terminal("setup", *flags) as seat:
                await seat.sees(r"Telegram bot token \[keep it\]: ")
                seat.types("\n")
                await seat.sees("is unchanged and valid")
                await person.becomes_owner(seat)
                await seat.sees("✓ You are the owner: Ada")
                assert await seat.ends() == 0
            await person.is_answered()
            said = await person.gives(
                "setup", *flags, "--non-interactive", "--no-check", "--model", "x"
            )
            assert said == ""
            gateway.types("\x03")
            assert await gateway.ends() == 0
        assert 'name = "x"' in person.config.read_text()


async def test_the_json_of_setup_lists_the_warnings_that_a_person_sees(tmp_path: Path) -> None:
    async with serving() as telegram, ModelServer(lambda _: words("no tools")) as service:
        person = Newcomer(HOLDFAST, tmp_path, telegram, service.url)
        flags = ("--non-interactive", "--telegram-token", "-", "--no-service", "--json")
        (warning,) = json.loads(await person.gives("setup", *flags, said=TOKEN))["warnings"]
        assert "tool" in warning
