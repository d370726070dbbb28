"""`--json`: every command prints exactly one JSON document on standard output, also on failure."""

import contextlib
import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from gateway.operate.cli import root
from tests.e2e.test_cli import PATIENCE, Place

WITHOUT = {
    *("run", "chat", "config schema", "config discord-invite", "config slack-manifest"),
    *("service install", "service uninstall", "service start", "service stop"),
    *("service restart", "service logs"),
}
"""Commands without `--json`: their output is a conversation, a document, a log, or one word."""


@pytest.fixture(scope="module")
def model() -> Iterator[str]:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.fakes.model_server"], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout
        yield server.stdout.readline().strip()
        server.kill()


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory, model: str) -> Place:
    """A state folder that does not exist yet."""
    return Place(tmp_path_factory.mktemp("fresh"), model)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, model: str) -> Iterator[Place]:
    """A daemon shared by tests that leave it running."""
    place = Place(tmp_path_factory.mktemp("running"), model)
    with place.daemon():
        yield place


def commands(group: click.Group, before: str = "") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found
        if isinstance(found, click.Group):
            yield from commands(found, f"{before}{name} ")
        else:
            yield before + name, found


def test_every_command_whose_result_a_program_reads_has_the_option() -> None:
    with_json = {
        name
        for name, command in commands(root)
        if any("--json" in each.opts for each in command.params)
    }
    assert {name for name, _ in commands(root)} - with_json == WITHOUT


def test_the_version_is_printed_as_json_without_slow_imports(fresh: Place) -> None:
    found = fresh.json("version")
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", found["version"])
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))


def test_the_configuration_in_force_is_json_with_the_source_of_each_value(fresh: Place) -> None:
    found = fresh.json(
        "config", "show", "--set", "http.port=1234", "--set", 'store.url="sqlite:////tmp/a.db"'
    )
    assert list(found) == ["file", "state", "values", "sources"]
    assert found["file"] is None
    assert found["state"] == str(fresh.home)
    assert found["values"]["http"]["port"] == 1234
    assert found["sources"]["http.port"] == "--set http.port=1234"
    assert found["values"]["model"]["api_key"] == "***"
    assert found["sources"]["model.api_key"] == "OPENAI_API_KEY"
    assert found["values"]["model"]["temperature"] is None
    assert found["values"]["gateway"]["stale_after"] == "1d"
    shown = fresh.json("config", "show", "--secrets")
    assert shown["values"]["model"]["api_key"] == "key-of-the-test"


def test_a_password_in_an_address_is_masked_in_json(fresh: Place) -> None:
    found = fresh.json("config", "show", "--set", 'store.url="postgresql://me:sesame@host/db"')
    assert found["values"]["store"]["url"] == "postgresql://me:***@host/db"


def test_a_link_is_json_with_the_tunnel_for_other_machines(running: Place) -> None:
    found = running.json("link")
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/enter/\S+", found["url"])
    assert re.fullmatch(r"ssh -L (\d+):127\.0\.0\.1:\1 \S+", found["tunnel"])
    assert running.json("link", "--base-url", "https://chat.example.org")["tunnel"] is None


def test_a_claim_code_is_json(running: Place) -> None:
    found = running.json("pair", "claim")
    assert re.fullmatch(r"[A-Z0-9]{8}", found["code"])
    assert found["links"] == {}


def test_control_of_sessions_is_json(running: Place) -> None:
    running.run("chat", said="hello\n")
    id_ = running.json("sessions", "list")[0]["id"]
    assert running.json("sessions", "stop", id_) == {"id": id_, "state": "active", "stopped": 0}
    assert running.json("sessions", "stop", "--all") == {"stopped": 0}
    assert running.json("sessions", "delete", id_) == {"id": id_, "state": "closed"}


def test_a_changed_configuration_is_reported_as_json(running: Place) -> None:
    found = running.json("service", "reload")
    assert "summary" in found


def test_the_database_is_upgraded_and_checked_with_json(tmp_path: Path, model: str) -> None:
    place = Place(tmp_path, model)
    assert place.json("db", "upgrade") == {"compacted": None}
    assert place.json("db", "check") == {"ok": True, "problems": []}
    place.run("chat", said="hello\n")
    with contextlib.closing(sqlite3.connect(place.home / "holdfast.db")) as database:
        database.execute("DELETE FROM sessions")  # without foreign keys, unlike the gateway
        database.commit()
    found = place.run("db", "check", "--json")
    document = json.loads(found.stdout)
    assert (found.returncode, document["ok"]) == (1, False)
    assert document["problems"]


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        (("sessions", "list"), list),
        (("pair", "list"), list),
        (("doctor", "--offline"), list),
        (("status",), dict),
        (("config", "check"), dict),
        (("link",), dict),
    ],
)
def test_lists_are_lists_and_everything_else_is_an_object(
    running: Place, command: tuple[str, ...], kind: type
) -> None:
    assert isinstance(running.json(*command), kind)


def test_a_message_that_was_sent_by_a_command_is_traced_as_json(running: Place) -> None:
    sent = running.json("send", "console:terminal", "note")
    assert sent["state"] == "sent"
    (found,) = running.json("why", sent["id"])
    assert (found["message"], found["turn"]) == (None, None)
    assert [each["id"] for each in found["items"]] == [sent["id"]]


# --- failures ------------------------------------------------------------------------------------


def failure(place: Place, *command: str) -> tuple[int, dict[str, Any], str]:
    """Run a command that fails; return exit code, document and standard error."""
    found = place.run(*command, "--json")
    document = json.loads(found.stdout)
    assert document["exit_code"] == found.returncode
    return found.returncode, document, found.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("link",),
        ("send", "telegram:1001", "hello"),
        ("pair", "list"),
        ("pair", "approve", "CODE"),
        ("sessions", "stop", "s_1"),
        ("sessions", "list"),
        ("db", "check"),
        ("why", "telegram:1"),
        ("backup", "/nowhere/at/all.tar"),
    ],
)
def test_a_failure_is_one_document_on_stdout_and_a_sentence_on_stderr(
    fresh: Place, command: tuple[str, ...]
) -> None:
    code, document, said = failure(fresh, *command)
    assert code == 1
    assert said == f"holdfast: {document['error']}\n"


def test_a_wrong_configuration_is_one_document_with_exit_code_78(fresh: Place) -> None:
    code, document, _ = failure(fresh, "sessions", "list", "--set", "http.prt=1")
    assert code == 78
    assert "http.prt" in document["error"]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("pair", "aprove"), "approve"),
        (("statsu",), "status"),
        (("sessions", "show"), "SESSION"),
        (("status", "--nonsense"), "--nonsense"),
    ],
)
def test_wrong_usage_is_one_document_with_exit_code_2(
    fresh: Place, command: tuple[str, ...], words: str
) -> None:
    code, document, said = failure(fresh, *command)
    assert code == 2
    assert words in document["error"]
    assert "Usage:" in said
    assert "Usage:" not in document["error"]


def test_an_option_value_named_like_the_option_does_not_ask_for_json(fresh: Place) -> None:
    found = fresh.run("send", "telegram:1001", "--", "--json")
    assert (found.returncode, found.stdout) == (1, "")


def test_a_backup_to_standard_output_cannot_be_json(running: Place) -> None:
    code, document, _ = failure(running, "backup", "-")
    assert code == 2
    assert "standard output" in document["error"]


def test_a_reader_that_goes_away_ends_a_command_quietly(running: Place) -> None:
    with running.popen(
        "config", "schema", stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout
        process.stdout.close()
        assert process.stderr
        assert process.stderr.read() == ""
        process.wait(PATIENCE)
