"""Starting the gateway after the set-up: as a service or in this terminal."""

import enum
from pathlib import Path
from typing import Protocol

from gateway.errors import CannotStart
from gateway.operate.setup.asking import InputEnded, Prompter, confirm


class StartMode(enum.Enum):
    """Way to start the gateway after the set-up."""

    SERVICE = "service"
    FOREGROUND = "here"
    LATER = "later"


class SetupActions(Protocol):
    """Actions on this machine."""

    def is_running(self) -> bool:
        """Return True if the gateway is running."""
        ...

    def install_service(self) -> None:
        """Install and start the service."""
        ...

    def restart_service(self) -> bool:
        """Restart the service; return False if there is none."""
        ...

    def run_gateway(self) -> None:
        """Run the gateway in this process until a stop signal."""
        ...

    def wait_for_owner(self) -> None:
        """Print how to become the owner of the running gateway, and wait for the owner."""
        ...

    def run_command(self) -> str:
        """Return the command that starts the gateway."""
        ...


def no_service_reason(systemd: Path) -> str:
    """Return why no service can be installed here; empty if one can."""
    if systemd.is_dir():
        return ""
    return "this machine does not run systemd, so no service can be installed"


def ask_start_mode(
    prompter: Prompter, no_service: str, *, wanted: bool | None, non_interactive: bool
) -> StartMode:
    """Ask how to start the gateway.

    `wanted` is the command line's `--service`; with `non_interactive` there is no person to ask.
    """
    if wanted and no_service:
        msg = f"{no_service[0].upper()}{no_service[1:]}. Start Holdfast with `holdfast run`."
        raise CannotStart(msg)
    if wanted:
        return StartMode.SERVICE
    if non_interactive:
        return StartMode.LATER
    try:
        if wanted is None and not no_service:
            words = "Install Holdfast as a service that starts at boot"
            if confirm(prompter, "service", words, default=True):
                return StartMode.SERVICE
        if confirm(prompter, "start", "Start it now in this terminal", default=True):
            return StartMode.FOREGROUND
    except InputEnded:  # all required questions are answered
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
    """Start the gateway as chosen; `changed` if a running gateway has an older configuration."""
    match mode:
        case StartMode.SERVICE:
            actions.install_service()
            actions.wait_for_owner()
        case StartMode.FOREGROUND:
            actions.run_gateway()
        case StartMode.LATER if not actions.is_running():
            prompter.say(f"Start Holdfast with: {actions.run_command()}")
        case StartMode.LATER if changed and (
            non_interactive or no_service or not _offer_restart(prompter, actions)
        ):
            prompter.say("Holdfast keeps using the previous configuration until it is restarted.")
        case StartMode.LATER:
            actions.wait_for_owner()


def _offer_restart(prompter: Prompter, actions: SetupActions) -> bool:
    """Offer to restart the service; return True after a restart."""
    try:
        words = "Restart the service now to apply the changes"
        return confirm(prompter, "restart", words, default=True) and actions.restart_service()
    except InputEnded:
        return False
