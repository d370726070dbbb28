"""`holdfast mcp`: servers in the configuration, and trial connections to real programs."""

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gateway.errors import ConfigError
from gateway.operate.cli.mcp import mcp
from gateway.operate.mcp.client_json import ImportedServer, read_client_json

ODD_SERVER = Path(__file__).parents[2] / "fakes" / "mcp_odd_server.py"


class Machine:
    """A home folder with a configuration, and the command."""

    def __init__(self, home: Path) -> None:
        self.config = home / "holdfast.toml"
        self.config.write_text('# mine\n[gateway]\nlog_level = "info"  # keep\n')

    def run(self, *words: str, stdin: str = "") -> Result:
        command, *rest = words
        return CliRunner().invoke(mcp, [command, "--config", str(self.config), *rest], input=stdin)

    def done(self, *words: str, stdin: str = "") -> str:
        result = self.run(*words, stdin=stdin)
        assert result.exit_code == 0, (result.output, result.exception)
        return result.output

    @property
    def servers(self) -> list[dict[str, Any]]:
        servers: list[dict[str, Any]] = tomllib.loads(self.config.read_text())["mcp"]
        return servers


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GH_HOST", "git.example")
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "state"))
    return Machine(tmp_path)


def test_a_program_and_an_address_are_added_and_comments_stay(machine: Machine) -> None:
    out = machine.done("add", "--cwd", "/srv", "post", "--", "post-mcp", "--root", "x")
    assert "Added to" in out
    assert "holdfast mcp test post" in out
    machine.done("add", "--header", "Authorization=Bearer s3cret", "wiki", "https://w.example/mcp")
    assert machine.config.read_text().startswith('# mine\n[gateway]\nlog_level = "info"  # keep\n')
    post, wiki = machine.servers
    assert post == {
        "name": "post",
        "command": "post-mcp",
        "args": ["--root", "x"],
        "cwd": "/srv",
    }
    assert wiki["url"] == "https://w.example/mcp"
    reference = wiki["headers"]["Authorization"]
    assert reference == "file:credentials/MCP_WIKI_AUTHORIZATION"
    secret = machine.config.parent / "credentials" / "MCP_WIKI_AUTHORIZATION"
    assert secret.read_text() == "Bearer s3cret\n"
    assert secret.stat().st_mode & 0o777 == 0o600
    assert "s3cret" not in machine.config.read_text()


def test_a_name_that_is_taken_or_a_wrong_setting_changes_nothing(machine: Machine) -> None:
    machine.done("add", "post", "post-mcp")
    before = machine.config.read_text()
    for words in (
        ("post", "other"),
        ("bad name", "x"),
        ("--header", "A=b", "c", "program"),
    ):
        assert machine.run("add", *words).exit_code != 0
    assert machine.config.read_text() == before


def test_the_servers_of_another_client_are_imported_once(machine: Machine) -> None:
    found = {
        "mcpServers": {
            "git hub": {
                "command": "npx",
                "args": ["-y", "server"],
                "env": {"GITHUB_TOKEN": "ghp_1", "LOG": "debug", "HOST": "${env:GH_HOST}"},
                "disabledTools": ["delete_repo"],
            },
            "docs": {"type": "sse", "serverUrl": "https://d.example/sse", "disabled": True},
        }
    }
    assert "git-hub, docs" in machine.done("import", "-", stdin=json.dumps(found))
    hub, docs = machine.servers
    assert hub == {
        "name": "git-hub",
        "command": "npx",
        "args": ["-y", "server"],
        "env": {
            "GITHUB_TOKEN": "file:credentials/MCP_GIT_HUB_GITHUB_TOKEN",
            "LOG": "debug",
            "HOST": "env:GH_HOST",
        },
        "tools": {"deny": ["delete_repo"]},
    }
    assert docs == {"name": "docs", "url": "https://d.example/sse", "disabled": True}
    again = machine.done("import", "--json", "-", stdin=json.dumps(found))
    assert json.loads(again)["skipped"] == ["git-hub", "docs"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("[]", "no servers"),
        ('{"mcpServers": {}}', "no servers"),
        ('{"a": {"command": 5}}', "'a' cannot be read"),
        ('{"a": {}}', "either a command or a url"),
        ('{"a": {"command": "x", "args": ["${input:key}"]}}', r"\$\{input:key\}"),
    ],
)
def test_what_cannot_be_imported_is_named(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_client_json(text)


def test_other_forms_of_the_file_are_read() -> None:
    (server,) = read_client_json('{"servers": {"a": {"url": "http://x/mcp", "enabled": false}}}')
    assert server == ImportedServer(name="a", url="http://x/mcp", disabled=True)


@pytest.mark.process
def test_a_server_is_tried_and_its_tools_are_listed(machine: Machine) -> None:
    machine.done("add", "odd", "--", sys.executable, str(ODD_SERVER), "old")
    out = machine.done("test")
    assert "odd: 3 tools" in out
    assert "  refuse: may have effects" in out
    (record,) = json.loads(machine.done("test", "--json", "odd"))
    assert [tool["offered_as"] for tool in record["tools"]] == ["odd_a", "odd_odd", "odd_refuse"]


@pytest.mark.process
def test_a_server_that_fails_is_described_with_the_cause(machine: Machine) -> None:
    code = "import sys; print('KeyError: no TOKEN', file=sys.stderr); sys.exit(1)"
    machine.done("add", "bad", "--", sys.executable, "-c", code)
    result = machine.run("test", "bad")
    assert result.exit_code == 1
    assert "(it printed: KeyError: no TOKEN)" in result.output
    assert machine.run("test", "none").exit_code != 0


def test_the_list_names_each_server_and_its_state(machine: Machine) -> None:
    assert "No MCP server is configured" in machine.done("list")
    machine.done("add", "post", "post-mcp")
    (row,) = json.loads(machine.done("list", "--json"))
    assert row == {"name": "post", "address": "post-mcp", "state": "unknown"}


def test_a_login_of_each_person_is_made_in_a_chat(machine: Machine) -> None:
    with machine.config.open("a") as config:
        config.write('[[mcp]]\nname = "wiki"\nurl = "http://127.0.0.1:9/mcp"\nlogin = "person"\n')
    result = machine.run("login", "wiki")
    assert isinstance(result.exception, ConfigError)
    assert "each person logs in in a private chat, with /mcp login wiki" in str(result.exception)
