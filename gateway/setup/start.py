"""How it is started: as a service, or in this terminal."""

import enum
from pathlib import Path

from gateway.errors import CannotStart
from gateway.setup.asking import Asker, Ended, confirm


class How(enum.Enum):
    """What happens after the configuration is written."""

    SERVICE = "service"
    HERE = "here"
    LATER = "later"


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
