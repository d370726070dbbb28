"""The service, or the gateway in this terminal."""

import enum
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import click

from gateway.errors import CannotStart, HoldfastError
from gateway.setup.asking import Asker, Ended, confirm

_SYSTEMD = Path("/run/systemd/system")
"""Is there where systemd has started the machine, and nowhere else."""
_MODULE = "gateway.cli.service"


class How(enum.Enum):
    """What happens after the configuration is written."""

    SERVICE = "service"
    HERE = "here"
    LATER = "later"


def no_service(systemd: Path = _SYSTEMD) -> str:
    """Why there can be no service here; "" when there can."""
    if find_spec(_MODULE) is None or not systemd.is_dir():
        return "systemd does not run this machine, so there is no service to install"
    return ""


def ask_how(asker: Asker, wanted: bool | None, why_not: str, *, alone: bool) -> How:
    """Ask how it is to be started; `alone`: nobody is there who could look at this terminal."""
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


def install_service(arguments: Sequence[str], say: Callable[[str], None]) -> None:
    """Install and start it, as `holdfast service install` does."""
    command: click.Command = import_module(_MODULE).service
    try:
        command.main(["install", *arguments], prog_name="holdfast service", standalone_mode=False)
    except HoldfastError as error:
        for line in error.lines:
            say(f"✗ {line}")
        msg = "The configuration is written; only the service is not installed."
        raise CannotStart(msg) from error
