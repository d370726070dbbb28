"""How it is started: as a service, or in this terminal; and that its owner shows up."""

import enum
from pathlib import Path
from typing import Protocol

from gateway.errors import CannotStart
from gateway.operate.setup.asking import Asker, Ended, confirm


class How(enum.Enum):
    """What happens after the configuration is written."""

    SERVICE = "service"
    HERE = "here"
    LATER = "later"


class Machine(Protocol):
    """What can be done on this machine."""

    def running(self) -> bool:
        """Whether the gateway runs already."""
        ...

    def install(self) -> None:
        """Install the service, and start it."""
        ...

    def restart(self) -> bool:
        """Restart the service; False where there is none."""
        ...

    def run(self) -> None:
        """Be the gateway, until it is stopped."""
        ...

    def greet_owner(self) -> None:
        """Tell how to become the owner of the running gateway, and wait for who does."""
        ...

    def how_to_run(self) -> str:
        """The command that starts the gateway."""
        ...


def no_service(systemd: Path) -> str:
    """Why there can be no service here; "" when there can."""
    if systemd.is_dir():
        return ""
    return "systemd does not run this machine, so there is no service to install"


def ask_how(asker: Asker, why_not: str, *, wanted: bool | None, alone: bool) -> How:
    """Ask how it is to be started.

    `wanted`: what the command line says of the service; `alone`: nobody looks at this terminal.
    """
    if wanted and why_not:
        msg = f"{why_not[0].upper()}{why_not[1:]}; start it with `holdfast run`."
        raise CannotStart(msg)
    if wanted:
        return How.SERVICE
    if alone:
        return How.LATER
    try:
        if wanted is None and not why_not:
            words = "Install it as a service, which starts with the machine"
            if confirm(asker, "service", words, default=True):
                return How.SERVICE
        if confirm(asker, "start", "Start it now, in this terminal", default=True):
            return How.HERE
    except Ended:  # all that matters is answered
        pass
    return How.LATER


def begin(
    asker: Asker, machine: Machine, how: How, why_not: str, *, changed: bool, alone: bool
) -> None:
    """Do what was wished for; `changed`: what runs already has another configuration."""
    match how:
        case How.SERVICE:
            machine.install()
            machine.greet_owner()
        case How.HERE:
            machine.run()
        case _ if not machine.running():
            asker.say(f"Start it: {machine.how_to_run()}")
        case _ if changed and (alone or why_not or not _restarted(asker, machine)):
            asker.say("Holdfast runs with what was configured before, until it is restarted.")
        case _:
            machine.greet_owner()


def _restarted(asker: Asker, machine: Machine) -> bool:
    """Have the service take over what is configured now, where there is one and it is wished."""
    try:
        words = "Restart the service with it now"
        return confirm(asker, "restart", words, default=True) and machine.restart()
    except Ended:
        return False
