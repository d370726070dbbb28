"""Doctor checks of the service, with a scripted systemd."""

import os
import pwd
from pathlib import Path

import pytest
from msgspec.structs import replace

from gateway.errors import CannotStart
from gateway.operate.cli.service import unit_text
from gateway.operate.doctor.context import DoctorContext
from gateway.operate.doctor.service import ServiceCheck, first_difference
from gateway.operate.systemd.manager import ServiceManager
from gateway.operate.systemd.scope import ServiceScope, user_scope
from sessions.values.finding import Finding
from tests.fakes.case import case_of, only, told

ME = pwd.getpwuid(os.geteuid()).pw_name
WELL = {"ActiveState": "active", "UnitFileState": "enabled", "StatusText": "Answering."}


class Machine:
    """A stand-in for a user's systemd."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        self.state = folder / ".local/share/holdfast"
        self.scope = user_scope(folder, None, self.state)
        self.answers(WELL)
        self.lingers("yes")

    @property
    def environ(self) -> dict[str, str]:
        path = f"{self.folder / 'bin'}:{os.defpath}"
        return {"PATH": path, "HOME": str(self.folder), "USER": ME}

    def program(self, name: str, text: str) -> None:
        file = self.folder / "bin" / name
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)

    def answers(self, shown: dict[str, str]) -> None:
        lines = "\n".join(f"{name}={value}" for name, value in shown.items())
        self.program(
            "systemctl",
            f'case "$*" in --version) echo "systemd 252 (252.1)";; *) cat <<EOF\n{lines}\nEOF\n;; esac',
        )

    def lingers(self, word: str) -> None:
        self.program("loginctl", f"echo {word}")

    def case(self) -> DoctorContext:
        return case_of(self.state, self.environ)

    def install(self) -> None:
        case = self.case()
        assert case.loaded
        version = ServiceManager(self.scope, self.environ).systemd_version()
        self.scope.unit_path.parent.mkdir(parents=True, exist_ok=True)
        self.scope.unit_path.write_text(unit_text(case.loaded, self.scope, version))

    async def looked(self, *scopes: ServiceScope, booted: bool = True) -> list[Finding]:
        services = ServiceCheck(booted, scopes or (self.scope,), render_unit=unit_text)
        return list(await services.run(self.case()))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setenv("HOME", str(tmp_path))
    made = Machine(tmp_path)
    # `ServiceManager` finds programs on the PATH of this process.
    monkeypatch.setenv("PATH", made.environ["PATH"])
    return made


async def test_without_a_service_the_install_command_is_shown(machine: Machine) -> None:
    found = await machine.looked()
    assert told(found) == [("ok", "service")]
    assert "holdfast service install" in found[0].text
    assert "install" not in (await machine.looked(booted=False))[0].text.replace("installed", "")


async def test_an_up_to_date_unit_is_ok(machine: Machine) -> None:
    machine.install()
    found = await machine.looked()
    assert told(found) == [("ok", "service"), ("ok", "unit"), ("ok", "linger")]
    assert found[0].text == "active: Answering."
    assert told(await machine.looked(booted=False)) == [("ok", "unit")]


async def test_a_changed_or_older_unit_is_reported_with_the_line(machine: Machine) -> None:
    machine.install()
    unit = machine.scope.unit_path
    unit.write_text(unit.read_text().replace("Type=notify", "Type=simple"))
    found = only(await machine.looked(), "unit")
    assert found.level == "warn"
    assert "Type=simple" in found.text
    assert "holdfast service install --user" in found.fix


async def test_other_comments_in_a_unit_change_nothing_for_systemd(machine: Machine) -> None:
    machine.install()
    unit = machine.scope.unit_path
    header, _, rest = unit.read_text().partition("[Unit]")
    assert header.startswith("#")
    unit.write_text(f"# Written by an older version.\n; kept\n\n[Unit]{rest}  # the end\n\n")
    assert only(await machine.looked(), "unit").level == "ok"


def test_the_first_different_line_is_named() -> None:
    assert first_difference("a\nb\n", "a\nb\n") == ""
    assert first_difference("a\nb\n", "a\nc\n") == "line 2 is “b”, not “c”"
    assert first_difference("a\n", "a\nc\n") == "line 2 is “”, not “c”"
    assert first_difference("# 1\n\na\nb\n", "a\nc\n") == "line 4 is “b”, not “c”"
    assert first_difference("a\nb\n# end\n", "a\n") == "line 2 is “b”, not “”"


@pytest.mark.parametrize(
    ("shown", "level", "words"),
    [
        ({"ActiveState": "failed", "ExecMainStatus": "78"}, "fail", "exit code 78"),
        ({"ActiveState": "inactive"}, "warn", "not running (inactive)"),
        ({"UnitFileState": "disabled"}, "warn", "does not start at boot"),
        ({"NRestarts": "7"}, "warn", "7 times after failures"),
    ],
)
async def test_a_service_that_is_not_running_well_is_reported(
    machine: Machine, shown: dict[str, str], level: str, words: str
) -> None:
    machine.install()
    machine.answers({**WELL, **shown})
    troubles = [each for each in await machine.looked() if each.level != "ok"]
    assert [(each.level, words in each.text) for each in troubles] == [(level, True)]
    assert troubles[0].fix


async def test_a_service_that_stops_at_logout_is_reported(machine: Machine) -> None:
    machine.install()
    machine.lingers("no")
    found = only(await machine.looked(), "linger")
    assert (found.level, f"enable-linger {ME}" in found.fix) == ("warn", True)


async def test_two_installed_services_are_reported(machine: Machine, tmp_path: Path) -> None:
    machine.install()
    other = ServiceScope(
        is_user=False,
        unit_path=tmp_path / "m.service",
        credentials_folder=tmp_path,
        state_folder=tmp_path / "other",
    )
    other.unit_path.touch()
    found = await machine.looked(other, machine.scope)
    assert "installed twice" in found[0].text
    elsewhere = only(found, "state folder")
    assert f"sudo HOLDFAST_HOME={other.state_folder}" in elsewhere.fix


async def test_problems_with_systemd_or_the_unit_file_are_reported(machine: Machine) -> None:
    machine.install()
    (machine.folder / "bin" / "systemctl").unlink()
    (machine.folder / "bin" / "loginctl").unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(machine.folder / "bin"))
        bare = replace(machine.case(), environ={"PATH": str(machine.folder / "bin"), "USER": ME})
        found = await ServiceCheck(
            has_systemd=True, scopes=(machine.scope,), render_unit=unit_text
        ).run(bare)
    assert told(found) == [("warn", "service"), ("ok", "unit"), ("warn", "linger")]

    def none(*_: object) -> str:
        msg = "the program is gone"
        raise CannotStart(msg)

    found = await ServiceCheck(has_systemd=False, scopes=(machine.scope,), render_unit=none).run(
        machine.case()
    )
    assert "the program is gone" in only(found, "unit").text
    unread = replace(machine.case(), loaded=None)
    assert (
        await ServiceCheck(has_systemd=False, scopes=(machine.scope,), render_unit=none).run(unread)
        == []
    )
