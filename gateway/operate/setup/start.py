"""How it is started: as a service, or in this terminal; and that its owner shows up."""

import enum
from pathlib import Path
from typing import Protocol

from gateway.errors import CannotStart
from gateway.operate.setup.asking import InputEnded, Prompter, confirm


class StartMode(enum.Enum):
    """What happens after the configuration is written."""

    SERVICE = "service"
    FOREGROUND = "here"
    LATER = "later"


class SetupActions(Protocol):
    """What can be done on this machine."""

    def is_running(self) -> bool:
        """Whether the gateway runs already."""
        ...

    def install_service(self) -> None:
        """Install the service, and start it."""
        ...

    def restart_service(self) -> bool:
        """Restart the service; False where there is none."""
        ...

    def run_gateway(self) -> None:
        """Be the gateway, until it is stopped."""
        ...

    def wait_for_owner(self) -> None:
        """Tell how to become the owner of the running gateway, and wait for who does."""
        ...

    def run_command(self) -> str:
        """The command that starts the gateway."""
        ...


def no_service_reason(systemd: Path) -> str:
    """Why there can be no service here; "" when there can."""
    if systemd.is_dir():
        return ""
    return "systemd does not run this machine, so there is no service to install"


def ask_start_mode(
    prompter: Prompter, no_service: str, *, wanted: bool | None, non_interactive: bool
) -> StartMode:
    """Ask how it is to be started.

    `wanted`: what the command line says of the service; `alone`: nobody looks at this terminal.
    """
    if wanted and no_service:
        msg = f"{no_service[0].upper()}{no_service[1:]}; start it with `holdfast run`."
        raise CannotStart(msg)
    if wanted:
        return StartMode.SERVICE
    if non_interactive:
        return StartMode.LATER
    try:
        if wanted is None and not no_service:
            words = "Install it as a service, which starts with the machine"
            if confirm(prompter, "service", words, default=True):
                return StartMode.SERVICE
        if confirm(prompter, "start", "Start it now, in this terminal", default=True):
            return StartMode.FOREGROUND
    except InputEnded:  # all that matters is answered
        pass
    return StartMode.LATER


def start_gateway(
    prompter: Prompter,
    actions: SetupActions,
    mode: StartMode,
    no_service: str,
    *,
    changed: bool,
    non_interactive: bool,
) -> None:
    """Do what was wished for; `changed`: what runs already has another configuration."""
    match mode:
        case StartMode.SERVICE:
            actions.install_service()
            actions.wait_for_owner()
        case StartMode.FOREGROUND:
            actions.run_gateway()
        case _ if not actions.is_running():
            prompter.say(f"Start it: {actions.run_command()}")
        case _ if changed and (
            non_interactive or no_service or not _offer_restart(prompter, actions)
        ):
            prompter.say("Holdfast runs with what was configured before, until it is restarted.")
        case _:
            actions.wait_for_owner()


def _offer_restart(prompter: Prompter, actions: SetupActions) -> bool:
    """Have the service take over what is configured now, where there is one and it is wished."""
    try:
        words = "Restart the service with it now"
        return confirm(prompter, "restart", words, default=True) and actions.restart_service()
    except InputEnded:
        return False
