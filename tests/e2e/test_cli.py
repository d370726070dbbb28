"""The command `holdfast`, run as people and scripts run it."""

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import pytest
from click.testing import CliRunner

from gateway.config.loader import read_environment
from gateway.operate.cli import is_supported_system, root
from tests.fakes import warm_start

HOLDFAST = str(Path(sys.executable).with_name("holdfast"))
PATIENCE = 40.0
RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


class RunningDaemon(NamedTuple):
    """A daemon, and what it prints."""

    process: warm_start.WarmProcess
    said: TextIO


class Place:
    """A temporary state folder, and the command on it."""

    def __init__(self, folder: Path, model: str) -> None:
        self.home = folder / "state"
        self.folder = folder
        self.env = {
            **{
                n: v
                for n, v in read_environment().items()
                if n.startswith(("PATH", "COVERAGE", "LANG"))
            },
            "HOME": str(folder),
            "HOLDFAST_HOME": str(self.home),
            "OPENAI_BASE_URL": model,
            "OPENAI_API_KEY": "key-of-the-test",
        }

    def popen(self, *args: str, **more: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [HOLDFAST, *args], env=self.env, cwd=self.folder, text=True, bufsize=1, **more
        )

    def run(self, *args: str, said: str = "") -> subprocess.CompletedProcess[str]:
        return warm_start.run(*args, env=self.env, cwd=self.folder, said=said)

    def json(self, *args: str) -> Any:
        found = self.run(*args, "--json")
        assert found.returncode == 0, found.stderr
        return json.loads(found.stdout)

    @contextlib.contextmanager
    def daemon(self, *args: str) -> Iterator[RunningDaemon]:
        out, stdout = os.pipe()
        words = ("run", "--set", "http.port=0", *args)
        process = warm_start.start(*words, env=self.env, cwd=self.folder, stdout=stdout)
        os.close(stdout)
        with os.fdopen(out, encoding="utf-8") as said:
            try:
                assert "Holdfast is running" in said.readline()
                yield RunningDaemon(process, said)
            finally:
                process.terminate()
                said.read()
                process.wait(PATIENCE)


class Running(NamedTuple):
    """A state folder with a running daemon."""

    place: Place
    pid: int


class Chat(NamedTuple):
    """A state folder and the ended `holdfast chat` that used it."""

    place: Place
    ended: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def model() -> Iterator[str]:
    """A model that echoes the message, a word every tenth of a second."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.fakes.model_server", "--delay", "0.1"],
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdout
        yield server.stdout.readline().strip()
        server.kill()


@pytest.fixture
def place(tmp_path: Path, model: str) -> Place:
    return Place(tmp_path, model)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, model: str) -> Iterator[Running]:
    """A daemon shared by tests that leave it running and do not depend on each other's changes."""
    place = Place(tmp_path_factory.mktemp("running"), model)
    with place.daemon() as daemon:
        yield Running(place, daemon.process.pid)


# --- without a daemon ------------------------------------------------------------------------


def test_the_version_is_printed_at_once(place: Place) -> None:
    found = subprocess.run(
        [HOLDFAST, "version"], env=place.env, capture_output=True, text=True, check=True
    )
    assert re.fullmatch(r"holdfast \d+\.\d+\.\d+\S*\n", found.stdout)


@pytest.mark.parametrize("command", ["version", "--version", "--help"])
def test_the_start_of_every_command_imports_little(command: str) -> None:
    program = (
        "import sys; sys.argv = ['holdfast', sys.argv[1]]; import gateway.operate.cli\n"
        "try: gateway.operate.cli.main()\n"
        "except SystemExit: print(*sys.modules, sep='\\n')"
    )
    found = subprocess.run(
        [sys.executable, "-c", program, command], capture_output=True, text=True, check=True
    )
    heavy = {"asyncio", "msgspec", "sqlalchemy", "starlette", "openai", "gateway.config.loader"}
    assert not heavy & set(found.stdout.splitlines())


def test_another_system_is_refused_in_one_sentence() -> None:
    assert not is_supported_system("win32")
    program = (
        "import sys; sys.argv = ['holdfast', 'run']; sys.platform = 'darwin'\n"
        "import gateway.operate.cli; gateway.operate.cli.main()"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (found.returncode, found.stdout) == (1, "")
    assert found.stderr.startswith("holdfast: Holdfast runs on Linux only.")
    assert found.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["status", "link"])
def test_commands_that_only_ask_the_daemon_do_not_load_the_database(
    place: Place, command: str
) -> None:
    program = (
        "import sys; sys.argv = ['holdfast', sys.argv[1]]; import gateway.operate.cli\n"
        "try: gateway.operate.cli.main()\n"
        "except SystemExit: print(*sys.modules, sep='\\n')"
    )
    found = subprocess.run(
        [sys.executable, "-c", program, command],
        capture_output=True,
        text=True,
        check=True,
        env=place.env,
    )
    loaded = set(found.stdout.splitlines())
    assert "gateway.process.control_socket" in loaded
    assert not {"sqlalchemy", "starlette", "openai"} & loaded


def test_every_command_is_listed_and_explained(place: Place) -> None:
    listed = place.run("--help").stdout
    assert "Usage: holdfast run" in place.run("run", "--help").stdout
    for command in (
        *("run", "chat", "link", "status", "send", "why", "version"),
        *("sessions", "pair", "config", "backup", "restore", "db"),
    ):
        assert re.search(rf"^  {command} ", listed, re.MULTILINE)
        explained = CliRunner().invoke(root, [command, "--help"], prog_name="holdfast")
        assert (explained.exit_code, explained.stderr) == (0, "")
        assert explained.stdout.startswith(f"Usage: holdfast {command} ")


def test_a_misspelt_command_is_wrong_usage_with_a_suggestion(place: Place) -> None:
    found = place.run("statsu")
    assert found.returncode == 2
    assert "Did you mean 'status'?" in found.stderr
    assert place.run("sessions", "show").returncode == 2
    assert place.run("run", "--nonsense").returncode == 2


@pytest.mark.parametrize(
    "command",
    [
        ("link",),
        ("send", "telegram:1001", "hello"),
        ("sessions", "delete", "s_1"),
        ("sessions", "stop", "s_1"),
        ("sessions", "resume", "s_1"),
        ("pair", "list"),
        ("pair", "claim"),
        ("pair", "approve", "CODE"),
        ("pair", "revoke", "telegram:1001"),
    ],
)
def test_commands_that_need_a_daemon_report_a_missing_one(
    place: Place, command: tuple[str, ...]
) -> None:
    found = place.run(*command)
    assert found.returncode == 1
    assert found.stderr.count("\n") == 1
    assert "Holdfast is not running" in found.stderr
    assert "holdfast run" in found.stderr


def test_status_without_a_daemon_exits_with_1(place: Place) -> None:
    found = place.run("status")
    assert found.returncode == 1
    assert found.stdout == f"Holdfast is not running on {place.home}.\n"
    found = place.run("status", "--json")
    assert (found.returncode, json.loads(found.stdout)) == (1, {"state": "not running"})


def test_reading_a_missing_store_is_reported_in_one_sentence(place: Place) -> None:
    for command in (("sessions", "list"), ("db", "check"), ("why", "telegram:1001")):
        found = place.run(*command)
        assert found.returncode == 1
        assert found.stderr.count("\n") == 1
        assert "Traceback" not in found.stderr


def test_an_invalid_configuration_exits_with_78_and_lists_every_problem(place: Place) -> None:
    file = place.folder / "holdfast.toml"
    file.write_text('[http]\nprot = 8420\n[gateway]\ndrain_seconds = "long"\n')
    for command in (("config", "check"), ("run",), ("sessions", "list"), ("chat",)):
        found = place.run(*command)
        assert found.returncode == 78, command
        assert "holdfast.toml:2" in found.stderr
        assert "holdfast.toml:4" in found.stderr
        assert "Traceback" not in found.stderr
    report = json.loads(place.run("config", "check", "--json").stdout)
    assert not report["ok"]
    assert len(report["problems"]) == 2
    file.write_text("")
    assert place.json("config", "check")["ok"]
    assert "valid (holdfast.toml)" in place.run("config", "check").stdout


def test_the_configuration_is_shown_without_secrets_unless_requested(place: Place) -> None:
    shown = place.run("config", "show", "--set", "http.port=1234").stdout
    assert "port = 1234" in shown
    assert "key-of-the-test" not in shown
    assert "key-of-the-test" in place.run("config", "show", "--secrets").stdout
    assert "http" in json.loads(place.run("config", "schema").stdout)["properties"]


def test_a_file_named_on_the_command_line_is_read(place: Place) -> None:
    (place.folder / "other.toml").write_text("[http]\nport = 4321\n")
    assert "port = 4321" in place.run("config", "show", "--config", "other.toml").stdout


def test_the_database_is_created_and_checked(place: Place) -> None:
    assert place.run("db", "upgrade").returncode == 0
    assert place.run("db", "check").stdout == "No damage found in the database.\n"
    assert place.run("sessions", "list").stdout == "No sessions yet.\n"
    assert place.json("sessions", "list") == []


def test_a_damaged_database_exits_with_1_and_a_sentence(place: Place) -> None:
    assert place.run("db", "upgrade").returncode == 0
    database = place.home / "holdfast.db"
    whole = database.read_bytes()
    database.write_bytes(whole[:8192] + b"\xff" * 20_000 + whole[28_192:])
    found = place.run("db", "check")
    assert found.returncode == 1
    assert "holdfast: " in found.stderr
    assert "Traceback" not in found.stderr


# --- a chat through pipes --------------------------------------------------------------------


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory, model: str) -> Chat:
    """A chat that has ended, shared by tests that only read what it left."""
    place = Place(tmp_path_factory.mktemp("chat"), model)
    return Chat(place, place.run("chat", said="hello\nagain\n"))


def test_a_chat_on_a_pipe_prints_the_answer_and_ends(chat: Chat) -> None:
    ended = chat.ended
    assert (ended.returncode, ended.stdout) == (0, "echo: hello\nagain\n")
    assert ended.stderr == ""


def test_a_session_can_be_read_afterwards(chat: Chat) -> None:
    place = chat.place
    (listed,) = place.json("sessions", "list")
    assert listed["key"] == "console:terminal"
    assert (listed["state"], listed["reason"], listed["messages"]) == ("active", None, 2)
    assert list(listed) == [
        *("id", "key", "state", "reason", "title", "messages", "created_at", "updated_at")
    ]
    assert RFC3339.fullmatch(listed["created_at"])
    shown = place.json("sessions", "show", listed["id"][:-3])
    assert shown["history"] == [
        {"role": "user", "content": "hello\nagain"},
        {"role": "assistant", "content": "echo: hello\nagain"},
    ]
    (turn,) = shown["turns"]
    assert list(turn) == ["id", "state", "started_at", "finished_at", "attempts"]
    assert (turn["state"], turn["attempts"]) == ("done", 1)
    assert RFC3339.fullmatch(turn["finished_at"])
    text = place.run("sessions", "show", listed["id"]).stdout
    assert "assistant: echo: hello\nagain" in text
    assert (
        "## assistant\n\necho: hello\nagain" in place.run("sessions", "export", listed["id"]).stdout
    )
    assert place.json("sessions", "export", listed["id"]) == shown
    assert listed["id"] in place.run("sessions", "list").stdout
    unknown = place.run("sessions", "show", "s_nothing")
    assert unknown.returncode == 1
    assert "No session has the id s_nothing" in unknown.stderr


def test_why_shows_the_timeline_of_a_message(chat: Chat) -> None:
    place = chat.place
    (way,) = place.json("why", "console:terminal")
    assert way["state"] == "done"
    assert way["turn"]["state"] == "done"
    assert [item["state"] for item in way["items"]] == ["sent"]
    told = place.run("why", way["message"]).stdout
    steps = ["received and stored", "started", "turn done", "answer sent"]
    positions = [told.index(step) for step in steps]
    assert positions == sorted(positions)
    assert place.run("why", "telegram:1").returncode == 1


# --- with a daemon ---------------------------------------------------------------------------


def test_a_daemon_prints_its_greeting_answers_and_stops(place: Place) -> None:
    with place.daemon() as daemon:
        assert re.search(r"http://127\.0\.0\.1:\d+/ \(`\S+ link` prints", daemon.said.readline())
        status = place.json("status")
        assert status["state"] == "running"
        assert RFC3339.fullmatch(status["started_at"])
        assert status["platforms"]["console"] == "connected"
        assert "console" in place.run("status").stdout
        link = place.run("link")
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/enter/\S+\n", link.stdout)
        assert re.search(r"ssh -L (\d+):127\.0\.0\.1:\1 ", link.stderr)
        public = place.run("link", "--base-url", "https://chat.example.org")
        assert public.stdout.startswith("https://chat.example.org/enter/")
        assert "ssh" not in public.stderr
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.process.wait(PATIENCE) == 0
    assert place.run("status").returncode == 1


@pytest.mark.parametrize(
    ("host", "url", "tunnel"),
    [
        ("localhost", r"http://localhost:(\d+)/", r"ssh -L \1:127\.0\.0\.1:\1 "),
        ("[::1]", r"http://\[::1\]:(\d+)/", r"ssh -L \[::1\]:\1:\[::1\]:\1 "),
    ],
)
def test_the_ssh_tunnel_of_a_link_uses_the_listening_address(
    place: Place, host: str, url: str, tunnel: str
) -> None:
    with place.daemon("--set", f'http.host="{host}"'):
        link = place.run("link")
    assert re.search(rf"^{url}enter/\S+\n.*{tunnel}", link.stdout + link.stderr, re.DOTALL)


def test_an_invalid_key_file_hides_only_the_key(place: Place) -> None:
    place.home.mkdir()
    (place.home / "api_key").write_text("damaged")
    shown = place.run("config", "show")
    assert shown.returncode == 0
    assert "[http]" in shown.stdout
    assert "does not contain an API key" in shown.stderr
    secret = place.run("config", "show", "--secrets")
    assert (secret.returncode, secret.stdout) == (1, "")
    assert "does not contain an API key. Delete it" in secret.stderr
    started = place.run("run", "--set", "http.port=0")
    assert started.returncode == 1
    assert "does not contain an API key. Delete it" in started.stderr


def test_a_chat_joins_the_daemon_and_is_readable_meanwhile(place: Place) -> None:
    with place.daemon():
        found = place.run("chat", said="hello joined\n")
        assert (found.returncode, found.stdout) == (0, "echo: hello joined\n")
        (listed,) = place.json("sessions", "list")
        assert place.run("db", "check").returncode == 0
        assert place.run("sessions", "stop", listed["id"]).returncode == 0
        deleted = place.run("sessions", "delete", listed["id"][:-2])
        assert deleted.stdout == f"Deleted {listed['id']}.\n"
        assert place.run("sessions", "resume", "s_nothing").returncode == 1
        _until(lambda: place.json("sessions", "list")[0]["state"] == "closed")
        assert place.json("sessions", "list")[0]["reason"] == "deleted"


def test_a_message_sent_by_a_script_reaches_the_chat(running: Running) -> None:
    place = running.place
    assert place.run("send", "console:terminal", "first").returncode == 0
    assert place.json("send", "console:terminal", "second")["state"] == "sent"
    assert place.run("send", "console:terminal", "-", said="third\n").returncode == 0
    assert place.run("send", "console:terminal", "-").returncode == 2
    assert place.run("send", "telegram:1001", "nobody there").returncode == 1
    found = place.run("chat", said="/whoami\n").stdout
    assert found.startswith("first\nsecond\nthird\n")


def test_people_get_access_through_the_daemon(running: Running) -> None:
    place = running.place
    assert place.json("pair", "list") == []
    assert "No one has access yet" in place.run("pair", "list").stdout
    claim = place.run("pair", "claim")
    assert re.fullmatch(r"claim [A-Z0-9]{8}\n", claim.stdout)
    assert "No chat platform is configured" in claim.stderr
    assert "No open request" in place.run("pair", "approve", "WRONGONE").stderr
    assert place.run("pair", "revoke", "telegram:1001").returncode == 1


def test_a_second_daemon_is_refused_and_the_first_continues(running: Running) -> None:
    place = running.place
    second = place.run("run", "--set", "http.port=0")
    assert second.returncode == 1
    _, problem = second.stderr.splitlines()  # the first line names the configuration
    assert f"Another Holdfast (pid {running.pid}) is already running on {place.home}" in problem
    assert place.run("db", "upgrade").returncode == 1
    assert place.run("status").returncode == 0


def test_after_kill_9_the_next_start_works(place: Place) -> None:
    with place.daemon() as first:
        first.process.kill()
        first.process.wait(PATIENCE)
        assert (place.home / "control.sock").exists()  # left behind by kill -9
        assert place.run("status").returncode == 1
        with place.daemon():
            assert place.run("chat", said="back again\n").stdout == "echo: back again\n"


def test_a_taken_port_is_reported_in_one_line_with_exit_code_1(
    running: Running, place: Place
) -> None:
    port = re.search(r":(\d+)", running.place.json("status")["url"])
    assert port
    found = place.run("run", "--set", f"http.port={port[1]}")
    assert found.returncode == 1
    _, problem = found.stderr.splitlines()  # the first line names the configuration
    assert port[1] in problem


# --- a chat on a terminal --------------------------------------------------------------------


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Screen:
    """A terminal with a person."""

    def __init__(self, place: Place, *args: str) -> None:
        self.seen = self.all = ""
        self.keyboard, theirs = pty.openpty()
        self.process = place.popen(
            *args,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        os.close(theirs)

    def press(self, keys: str) -> None:
        os.write(self.keyboard, keys.encode())

    def wait_for(self, text: str) -> None:
        """Read until the text appears; drop everything before it."""
        until = time.monotonic() + PATIENCE
        while text not in self.seen:
            assert time.monotonic() < until, self.seen
            if select.select([self.keyboard], [], [], 0.2)[0]:
                try:
                    more = os.read(self.keyboard, 65536)
                except OSError:
                    more = b""
                assert more, f"it ended: {self.seen}"
                self.seen += more.decode(errors="replace")
                self.all += more.decode(errors="replace")
        self.seen = self.seen[self.seen.index(text) + len(text) :]

    def code(self) -> int:
        """Wait for the end and return the exit code."""
        code = self.process.wait(PATIENCE)
        os.close(self.keyboard)
        return code


SLOW = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"


def test_a_person_chats_at_a_terminal_and_leaves(place: Place) -> None:
    screen = Screen(place, "chat")
    screen.wait_for("Ctrl-D leaves")
    screen.press("hello there\r")
    screen.wait_for("echo: hello there\r\n")
    screen.wait_for("> ")
    screen.press("\x04")
    assert screen.code() == 0


def test_ctrl_c_stops_the_answer_and_twice_leaves(place: Place) -> None:
    with place.daemon():
        screen = Screen(place, "chat")
        screen.wait_for("Ctrl-D leaves")
        screen.press(f"{SLOW}\r")
        screen.wait_for("echo: one two")
        screen.press("\x03")
        screen.wait_for("topped")
        screen.press("\x03")
        assert screen.code() == 0
        (session,) = place.json("sessions", "list")
        assert (session["state"], session["reason"]) == ("suspended", "stop")
        assert place.run("status").returncode == 0


def test_pasted_lines_are_one_message(place: Place) -> None:
    screen = Screen(place, "chat")
    screen.wait_for("Ctrl-D leaves")
    screen.press("first\rsecond\rthird\r")
    screen.wait_for("echo: first\r\nsecond\r\nthird\r\n")
    screen.press("\x04")
    assert screen.code() == 0


def test_a_notice_is_dim_and_on_its_own_line(place: Place) -> None:
    screen = Screen(place, "chat")
    screen.wait_for("Ctrl-D leaves")
    screen.press("/stop\r")
    screen.wait_for("\x1b[2mNo active task to stop.\x1b[0m\r\n")
    screen.press("\x04")
    assert screen.code() == 0


def test_sigterm_does_not_wait_for_the_answer_and_the_next_start_says_so(
    place: Place,
) -> None:
    screen = Screen(place, "chat")
    screen.wait_for("Ctrl-D leaves")
    screen.press(f"{SLOW} {SLOW} {SLOW}\r")
    screen.wait_for("echo: one two")
    screen.process.terminate()
    assert screen.code() == 0
    (session,) = place.json("sessions", "list")
    assert (session["state"], session["reason"]) == ("suspended", "restart")
    found = place.run("chat", said="/whoami\n").stdout
    assert "/resume" in found


def test_leaving_by_ctrl_d_finishes_the_answer(place: Place) -> None:
    screen = Screen(place, "chat")
    screen.wait_for("Ctrl-D leaves")
    screen.press(f"{SLOW}\r")
    screen.wait_for("echo: one two")
    screen.press("\x04")
    screen.wait_for("finished")
    assert screen.code() == 0
    (session,) = place.json("sessions", "list")
    assert (session["state"], session["messages"]) == ("active", 2)
    assert f"echo: {SLOW}" in place.run("chat", said="/whoami\n").stdout


def _until(true: Any) -> None:
    until = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < until
