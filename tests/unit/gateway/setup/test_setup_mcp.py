"""The question about well-known MCP servers."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from agent.settings import McpSettings
from gateway.operate.setup.asking import AnswerError
from gateway.operate.setup.draft import ConfigDraft
from gateway.operate.setup.flags import FlagPrompter
from gateway.operate.setup.mcp_servers import KNOWN_SERVERS, ask_mcp_servers
from gateway.operate.setup.places import ConfigTarget
from tests.unit.gateway.setup.setup_kit import Person


def asked(
    tmp_path: Path, person: Person | FlagPrompter, text: str = "", *, programs: str = "npx uvx"
) -> list[dict[str, Any]]:
    """Ask, and return the `[[mcp]]` tables of the new configuration."""
    draft = ConfigDraft(text, lambda name: f"file:{name}")
    target = ConfigTarget(tmp_path / "holdfast.toml", {}, 1000)
    ask_mcp_servers(person, draft, target, lambda program, _: program in programs.split())
    found: list[dict[str, Any]] = tomllib.loads(draft.render()).get("mcp", [])
    return found


def test_enter_adds_no_server(tmp_path: Path) -> None:
    person = Person("")
    assert asked(tmp_path, person) == []
    (question,) = person.words
    assert question.startswith("MCP servers to add (time, fetch, git, filesystem, memory,")


def test_named_servers_are_added_with_their_command_lines(tmp_path: Path) -> None:
    assert asked(tmp_path, Person("Time, fetch play")) == [
        {"name": "time", "command": "uvx", "args": ["mcp-server-time"]},
        {"name": "fetch", "command": "uvx", "args": ["mcp-server-fetch"]},
        {
            "name": "playwright",
            "command": "npx",
            "args": ["-y", "@playwright/mcp@latest", "--headless"],
        },
    ]


def test_servers_that_need_a_place_ask_for_it(tmp_path: Path) -> None:
    person = Person("filesystem memory", str(tmp_path / "missing"), str(tmp_path), "")
    files, memory = asked(tmp_path, person)
    assert person.refused == [f"There is no folder {tmp_path / 'missing'}."]
    assert files["args"][-1] == str(tmp_path)
    assert memory["env"] == {"MEMORY_FILE_PATH": str(tmp_path / "memory.jsonl")}


def test_an_unknown_name_is_asked_again(tmp_path: Path) -> None:
    person = Person("tine", "time")
    (time,) = asked(tmp_path, person)
    assert time["name"] == "time"
    assert "There is no server 'tine' here" in person.refused[0]
    assert "time" in person.refused[0]


def test_only_servers_whose_program_is_installed_and_that_are_new_are_offered(
    tmp_path: Path,
) -> None:
    person = Person("")
    asked(tmp_path, person, '[[mcp]]\nname = "fetch"\ncommand = "uvx"\n', programs="uvx")
    assert person.words == ["MCP servers to add (time, git, or none)"]
    nothing = Person()
    assert asked(tmp_path, nothing, programs="") == []
    assert nothing.asked == []


def test_without_a_person_nothing_is_asked_said_or_added(tmp_path: Path) -> None:
    said: list[str] = []
    assert asked(tmp_path, FlagPrompter({}, said.append)) == []
    person = Person()
    assert asked(tmp_path, FlagPrompter({"usd": "5"}, said.append, person)) == []
    assert person.asked == []
    assert said == []


def test_every_known_server_is_a_valid_configuration(tmp_path: Path) -> None:
    places = [str(tmp_path) for each in KNOWN_SERVERS if each.question]
    for table in asked(tmp_path, Person(" ".join(each.name for each in KNOWN_SERVERS), *places)):
        env = dict.fromkeys(table.get("env", {}))
        settings = McpSettings(
            name=table["name"], command=table["command"], args=tuple(table["args"])
        )
        assert list(settings.conflicts()) == []
        assert len(settings.name) <= 32
        assert all(name.isupper() for name in env)


def test_a_wrong_name_on_the_command_line_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(AnswerError, match="no server 'x'"):
        asked(tmp_path, FlagPrompter({"mcp": "x"}, print))
