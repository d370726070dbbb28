"""`holdfast service` with a systemctl that records its calls."""

import contextlib
import json
import os
import stat
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from gateway.config.loader import SERVICE_HOME, read_environment
from gateway.errors import HoldfastError
from gateway.operate.cli.service import ServiceContext, service
from gateway.operate.systemd import plan, program
from gateway.operate.systemd.manager import ServiceManager, StepFailed, write_atomically
from gateway.operate.systemd.scope import ServiceScope, machine_scope, user_scope
from gateway.operate.systemd.unit import MIN_SYSTEMD_VERSION
from gateway.process.exit import run_to_exit_code

SYSTEMCTL = """#!/bin/sh
echo "systemctl $*" >>"$0.calls"
case "$*" in
--version) echo "systemd 256 (256.7)" ;;
*show*) cat "$0.shown" ;;
*start*) [ ! -e "$0.fails" ] || { echo "Job failed." >&2; exit 1; } ;;
esac
"""
JOURNALCTL = (
    '#!/bin/sh\necho "journalctl $*" >>"$0.calls"\necho "2026-11-19 holdfast: the last words"\n'
)
LOGINCTL = "#!/bin/sh\necho no\n"

RUNS = """LoadState=loaded
ActiveState=active
StatusText=Answering on telegram; idle.
MainPID=4711
NRestarts=2
UnitFileState=enabled
"""
STOPPED = "ActiveState=failed\nMainPID=0\nNRestarts=0\nUnitFileState=disabled\n"


class Place:
    """A machine whose files are in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        for name, text in (
            ("systemctl", SYSTEMCTL),
            ("journalctl", JOURNALCTL),
            ("loginctl", LOGINCTL),
        ):
            (self.bin / name).write_text(text)
            (self.bin / name).chmod(0o755)
        self.shows(STOPPED)
        machine = replace(
            machine_scope(folder / "state"),
            unit_path=folder / "etc/systemd/system/holdfast.service",
            credentials_folder=folder / "etc/holdfast/credentials",
        )
        environ = {
            **{
                name: value
                for name, value in read_environment().items()
                if name.startswith("COVERAGE")
            },
            "HOME": str(folder / "home"),
            "PATH": f"{self.bin}:/usr/bin:/bin",
        }
        self.here = ServiceContext(environ, is_root=True, has_systemd=True, machine_scope=machine)

    def shows(self, text: str) -> None:
        (self.bin / "systemctl.shown").write_text(text)

    def fails(self) -> None:
        (self.bin / "systemctl.fails").touch()

    def calls(self, command: str = "systemctl") -> list[str]:
        """Return the calls since the last look, except queries."""
        file = self.bin / f"{command}.calls"
        said = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return [line for line in said if " show " not in line and "--version" not in line]

    def run(self, *words: str, here: ServiceContext | None = None, **env: str) -> Result:
        chosen = here or self.here
        chosen = replace(chosen, environ={**chosen.environ, **env})
        nothing = {
            name: None for name in read_environment() if name.startswith(("OPENAI", "ANTHROPIC"))
        }
        return CliRunner(env={**nothing, **chosen.environ}).invoke(
            service, list(words), obj=chosen, catch_exceptions=True
        )


@contextlib.contextmanager
def shown_to_all(text: str) -> Iterator[Path]:
    """A configuration that the machine's service can see, unlike the tests' temporary folder."""
    config = Path("/dev/shm") / f"holdfast-{os.getpid()}.toml"  # noqa: S108 - visible to services
    config.write_text(text)
    config.chmod(0o644)
    try:
        yield config
    finally:
        config.unlink()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def trouble(result: Result) -> str:
    """Return the program's error message and exit code."""
    assert isinstance(result.exception, HoldfastError), result.output
    return str(result.exception)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# --- install -----------------------------------------------------------------------------------


def test_install_writes_the_unit_stores_the_secrets_and_starts_the_service(place: Place) -> None:
    place.shows(STOPPED.replace("failed", "inactive"))
    done = place.run("install", TELEGRAM_BOT_TOKEN="1:abc", HOLDFAST_GATEWAY__DRAIN_SECONDS="10")
    assert done.exception is None, done.output
    assert place.calls() == [
        "systemctl daemon-reload",
        "systemctl enable holdfast.service",
        "systemctl start holdfast.service",
    ]
    scope = place.here.machine_scope
    text = scope.unit_path.read_text()
    assert "TimeoutStopSec=40" in text
    assert "RestartSteps" in text  # supported by this systemd
    assert f"ExecStart={program.find_program()} run" in text
    assert mode(scope.unit_path) == 0o644
    assert mode(scope.credentials_folder) == 0o700
    token = scope.credentials_folder / "TELEGRAM_BOT_TOKEN"
    assert (token.read_text(), mode(token)) == ("1:abc\n", 0o600)
    assert "1:abc" not in done.output
    assert "service logs -f" in done.output
    left = sorted(
        each.name
        for each in (*scope.unit_path.parent.iterdir(), *scope.credentials_folder.iterdir())
    )
    assert left == ["HOLDFAST_GATEWAY__DRAIN_SECONDS", "TELEGRAM_BOT_TOKEN", "holdfast.service"]


def test_a_dry_run_prints_everything_except_secrets_and_changes_nothing(place: Place) -> None:
    guest = replace(place.here, is_root=False, has_systemd=False)
    before = sorted(place.folder.rglob("*"))
    done = place.run("install", "--dry-run", here=guest, TELEGRAM_BOT_TOKEN="1:abc")
    assert done.exception is None, done.output
    assert "1:abc" not in done.output
    assert (
        f"write {place.here.machine_scope.credentials_folder}/TELEGRAM_BOT_TOKEN (mode 600)"
        in done.output
    )
    assert "    Type=notify" in done.output
    assert done.output.endswith(
        "systemctl daemon-reload\n"
        "systemctl enable holdfast.service\n"
        "systemctl start holdfast.service\n"
    )
    assert place.calls() == []
    (place.bin / "systemctl.calls").unlink(missing_ok=True)
    assert sorted(place.folder.rglob("*")) == before


def test_secrets_the_service_already_has_are_not_written_again(place: Place) -> None:
    place.run("install", TELEGRAM_BOT_TOKEN="1:abc", OPENAI_API_KEY="sk-1")
    done = place.run("install", "--dry-run", TELEGRAM_BOT_TOKEN="1:abc", OPENAI_API_KEY="sk-2")
    assert "OPENAI_API_KEY (mode 600)" in done.output
    assert "TELEGRAM_BOT_TOKEN (mode" not in done.output


def test_a_running_service_continues_until_it_is_restarted(place: Place) -> None:
    place.shows(RUNS)
    done = place.run("install")
    assert "restart" not in " ".join(place.calls())
    assert "To apply this installation:" in done.output
    assert "Answering on telegram" in done.output


def test_a_failed_start_shows_the_last_log_lines(place: Place) -> None:
    place.fails()
    said = trouble(place.run("install"))
    assert "systemctl start holdfast.service failed (1): Job failed." in said
    assert "the last words" in said


def test_a_user_installs_without_root_and_is_told_about_lingering(place: Place) -> None:
    guest = replace(place.here, is_root=False)
    done = place.run("install", "--user", here=guest, TELEGRAM_BOT_TOKEN="1:abc")
    assert done.exception is None, done.output
    home = place.folder / "home"
    assert "DynamicUser" not in (home / ".config/systemd/user/holdfast.service").read_text()
    assert (home / ".config/holdfast/credentials/TELEGRAM_BOT_TOKEN").exists()
    assert place.calls()[-1] == "systemctl --user start holdfast.service"
    assert "loginctl enable-linger" in done.output
    assert "service status --user" in done.output


def test_a_users_other_state_folder_is_written_into_the_unit(place: Place) -> None:
    state = place.folder / "my state"
    done = place.run("install", "--user", "--dry-run", HOLDFAST_HOME=str(state))
    assert f'Environment="HOLDFAST_HOME={state}"' in done.output


@pytest.mark.parametrize(
    ("text", "found", "missing"),
    [
        ('[tools]\nenabled = ["files"]', "RestrictNamespaces=yes", "ReadWritePaths"),
        ("[http]\nport = 443", "AmbientCapabilities=CAP_NET_BIND_SERVICE", "PrivateUsers"),
        ('[agent]\nworkspace = "/srv/work"', "ReadWritePaths=-/srv/work", "CAP_NET"),
        ('[store]\nurl = "sqlite:////srv/db/h.db"', "ReadWritePaths=-/srv/db", "CAP_NET"),
    ],
)
def test_the_unit_follows_the_configuration(
    place: Place, text: str, found: str, missing: str
) -> None:
    with shown_to_all(text) as config:
        done = place.run("install", "--dry-run", "--config", str(config))
    assert f"run --config {config}" in done.output
    assert found in done.output
    assert missing not in done.output


def test_variables_referenced_by_the_configuration_are_stored(place: Place) -> None:
    config = place.folder / "holdfast.toml"
    config.write_text('[model]\napi_key = "env:MY_KEY"\nname = "m"\n')
    done = place.run("install", "--user", "--dry-run", "--config", str(config), MY_KEY="sk-1")
    assert "credentials/MY_KEY (mode 600)" in done.output
    assert f"run --config {config}" in done.output


def test_a_private_configuration_is_refused(place: Place) -> None:
    with shown_to_all("") as config:
        config.chmod(0o600)
        assert f"chmod 644 {config}" in trouble(place.run("install", "--config", str(config)))


def test_a_configuration_in_a_home_is_refused(place: Place) -> None:
    config = Path("/tmp") / f"holdfast-{os.getpid()}.toml"  # noqa: S108 - hidden from services
    config.write_text("")
    try:
        said = trouble(place.run("install", "--config", str(config)))
    finally:
        config.unlink()
    assert f"Move it: mv {config} " in said
    assert place.calls() == []


# --- permissions and scopes --------------------------------------------------------------------


@pytest.mark.parametrize("what", ["install", "uninstall", "start", "stop", "restart", "reload"])
def test_changing_the_machines_service_needs_root(place: Place, what: str) -> None:
    place.run("install")
    place.calls()
    said = trouble(place.run(what, here=replace(place.here, is_root=False)))
    assert "needs root: sudo " in said
    assert f"service {what}. " in said
    assert "\n" not in said
    assert place.calls() == []


@pytest.mark.parametrize("what", ["install", "uninstall", "start", "status", "logs"])
def test_without_systemd_one_sentence_names_the_alternative(place: Place, what: str) -> None:
    said = trouble(place.run(what, here=replace(place.here, has_systemd=False)))
    assert "This machine does not run systemd" in said
    assert "holdfast run" in said
    assert "\n" not in said


@pytest.mark.parametrize("option", ["", "--user"])
def test_a_service_that_is_not_installed_cannot_be_started(place: Place, option: str) -> None:
    said = trouble(place.run("start", *filter(None, [option])))
    assert said.endswith(f"Install it with: holdfast service install {option}".rstrip())


def test_without_a_machine_service_the_users_service_is_used(place: Place) -> None:
    place.run("install", "--user")
    place.calls()
    assert place.run("restart", here=replace(place.here, is_root=False)).exception is None
    assert place.calls() == ["systemctl --user restart holdfast.service"]


# --- the installed service ---------------------------------------------------------------------


@pytest.mark.parametrize("what", ["start", "stop", "restart", "reload"])
def test_commands_go_to_systemd_and_print_the_state(place: Place, what: str) -> None:
    place.run("install")
    place.calls()
    place.shows(RUNS)
    done = place.run(what)
    assert place.calls() == [f"systemctl {what} holdfast.service"]
    assert done.output == "active: Answering on telegram; idle.\n"


def test_a_failed_command_shows_the_last_log_lines(place: Place) -> None:
    place.run("install")
    place.fails()
    assert "the last words" in trouble(place.run("restart"))


def test_uninstall_names_what_it_keeps(place: Place) -> None:
    place.run("install", TELEGRAM_BOT_TOKEN="1:abc")
    place.calls()
    done = place.run("uninstall")
    assert place.calls() == [
        "systemctl stop holdfast.service",
        "systemctl disable holdfast.service",
        "systemctl daemon-reload",
        "systemctl reset-failed holdfast.service",
    ]
    scope = place.here.machine_scope
    assert not scope.unit_path.exists()
    assert (scope.credentials_folder / "TELEGRAM_BOT_TOKEN").exists()
    assert str(scope.state_folder) in done.output
    assert str(scope.credentials_folder.parent) in done.output


def test_status_is_available_as_text_and_json(place: Place) -> None:
    place.run("install")
    place.shows(RUNS)
    guest = replace(place.here, is_root=False)
    done = place.run("status", here=guest)
    assert done.exit_code == 0
    assert "active: Answering on telegram; idle." in done.output
    assert "2 after failures" in done.output
    assert "starts at boot" in done.output
    assert "sudo holdfast status" in done.output
    found = json.loads(place.run("status", "--json").output)
    assert found == {
        "unit": str(place.here.machine_scope.unit_path),
        "state": "active",
        "status": "Answering on telegram; idle.",
        "pid": 4711,
        "restarts": 2,
        "enabled": True,
    }
    place.shows(STOPPED)
    done = place.run("status")
    assert done.exit_code == 1
    assert "is not enabled" in done.output
    assert "holdfast service logs" in done.output
    stopped = place.run("status", "--json")
    assert stopped.exit_code == 1
    assert json.loads(stopped.output)["pid"] is None


def test_root_also_sees_the_daemons_status(place: Place) -> None:
    place.run("install")
    place.shows(RUNS)
    done = place.run("status", HOLDFAST_HOME=str(place.folder / "nobody"))
    assert "Holdfast is not running on" in done.output  # the service exists only in the stand-in
    assert done.exit_code == 1


def test_logs_are_those_of_the_unit(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    place.run("install")
    assert place.run("logs", "-f", "-n", "5").exit_code == 0
    (call,) = place.calls("journalctl")
    assert call == (
        "journalctl --unit=holdfast.service --lines=5 --output=short-iso --no-hostname --no-pager "
        "--follow"
    )
    assert "the last words" in capfd.readouterr().out


# --- the parts ---------------------------------------------------------------------------------


def manager_of(place: Place, environ: Mapping[str, str] | None = None) -> ServiceManager:
    return ServiceManager(place.here.machine_scope, environ or place.here.environ)


def test_systemd_commands_get_no_secrets_in_their_environment(place: Place) -> None:
    (place.bin / "systemctl").write_text('#!/bin/sh\nenv >"$0.env"\n')
    manager_of(place, {**place.here.environ, "OPENAI_API_KEY": "sk-1"}).show_properties()
    assert "sk-1" not in (place.bin / "systemctl.env").read_text()


def test_an_unknown_systemd_version_counts_as_the_oldest_supported(place: Place) -> None:
    (place.bin / "systemctl").write_text("#!/bin/sh\necho what\n")
    assert manager_of(place).systemd_version() == MIN_SYSTEMD_VERSION
    (place.bin / "systemctl").unlink()
    nowhere = {"PATH": str(place.bin)}
    assert manager_of(place, nowhere).systemd_version() == MIN_SYSTEMD_VERSION
    with pytest.raises(StepFailed, match="systemctl was not found"):
        manager_of(place, nowhere).show_properties()
    (place.bin / "journalctl").unlink()
    with pytest.raises(StepFailed, match="journalctl was not found"):
        manager_of(place, nowhere).show_log(lines=1, follow=False)


def test_a_command_that_hangs_is_aborted(place: Place) -> None:
    (place.bin / "systemctl").write_text("#!/bin/sh\nexec sleep 60\n")
    with pytest.raises(StepFailed, match=r"did not finish within 0\.05 s"):
        manager_of(place).run_step(plan.RunCommand(("systemctl", "start"), timeout_seconds=0.05))


def test_a_command_that_may_fail_does_not_stop_the_installation(place: Place) -> None:
    manager_of(place).run_step(plan.RunCommand(("false",), may_fail=True))
    with pytest.raises(StepFailed, match=r"^false failed \(1\)\.$"):
        manager_of(place).run_step(plan.RunCommand(("false",)))


def test_an_unwritable_path_is_named(place: Place) -> None:
    (place.folder / "file").touch()
    with pytest.raises(StepFailed, match="file/unit cannot be written: Not a directory"):
        manager_of(place).run_step(plan.RemoveFile(place.folder / "file/unit"))


def test_files_are_written_atomically(place: Place) -> None:
    target = place.folder / "target"
    target.write_text("old")
    before = {each.name for each in place.folder.iterdir()}
    with pytest.raises(UnicodeEncodeError):
        write_atomically(target, "\udcff", 0o600)
    assert target.read_text() == "old"
    assert {each.name for each in place.folder.iterdir()} == before
    write_atomically(target, "new", 0o640)
    assert (target.read_text(), mode(target)) == ("new", 0o640)


def test_the_user_manager_is_found_without_xdg_runtime_dir(place: Place) -> None:
    (place.bin / "systemctl").write_text('#!/bin/sh\necho "StatusText=$XDG_RUNTIME_DIR"\n')
    scope = user_scope(place.folder, None, place.folder)
    runtime = f"/run/user/{os.geteuid()}"
    shown = ServiceManager(scope, place.here.environ).show_properties()["StatusText"]
    assert shown == (runtime if Path(runtime).is_dir() else "")
    given = {**place.here.environ, "XDG_RUNTIME_DIR": "/run/mine"}
    assert ServiceManager(scope, given).show_properties()["StatusText"] == "/run/mine"


def test_paths_in_homes_are_hidden_once() -> None:
    places = map(Path, ("/usr", "/home/ann/h/.venv", "/home/ann/h", "/root/py", "/homes/x"))
    assert program.hidden_folders(places) == (Path("/home/ann/h"), Path("/root/py"))


def test_paths_unreadable_for_others_are_found(tmp_path: Path) -> None:
    file, folder = tmp_path / "file", tmp_path / "folder"
    file.touch(0o644)
    folder.mkdir(0o755)
    assert program.first_private_path((file, folder)) is None
    folder.chmod(0o744)
    assert program.first_private_path((file, folder)) == folder
    file.chmod(0o754)
    assert program.first_private_path((file, folder)) == file


def test_the_real_context_is_detected_by_default() -> None:
    now = ServiceContext.detect()
    assert now.is_root == (os.geteuid() == 0)
    assert now.machine_scope == machine_scope(SERVICE_HOME)
    assert now.scope(user=True).unit_path.name == "holdfast.service"


def test_errors_exit_with_their_code(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    def run() -> None:
        service(["start"], obj=replace(place.here, has_systemd=False), standalone_mode=False)

    assert run_to_exit_code(run) == 1
    assert capsys.readouterr().err.startswith("holdfast: This machine does not run systemd")


def test_an_invalid_configuration_is_reported_before_any_step(place: Place) -> None:
    done = place.run("install", HOLDFAST_HTTP__PORT="many")
    assert run_to_exit_code(lambda: _raise(done.exception)) == 78
    assert place.calls() == []
    assert not place.here.machine_scope.unit_path.exists()


def _raise(error: BaseException | None) -> None:
    assert error
    raise error


def test_scopes_match_the_paths_systemd_uses() -> None:
    home = Path("/home/ann")
    assert user_scope(home, None, home).unit_path == home / ".config/systemd/user/holdfast.service"
    assert user_scope(home, Path("/c"), home).unit_path == Path("/c/systemd/user/holdfast.service")
    assert isinstance(machine_scope(home), ServiceScope)
    assert subprocess.list2cmdline(
        user_scope(home, None, home).journalctl(lines=1, follow=False)
    ) == (
        "journalctl --user-unit=holdfast.service --lines=1 --output=short-iso --no-hostname "
        "--no-pager"
    )
