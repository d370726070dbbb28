"""The closed list of everything that is looked at, in the order in which it is told."""

from collections.abc import Iterator

from gateway.operate.doctor.access import entry
from gateway.operate.doctor.certificates import certificates
from gateway.operate.doctor.chats import chats
from gateway.operate.doctor.check import Check
from gateway.operate.doctor.clock import hours
from gateway.operate.doctor.configuration import configuration, environment_names
from gateway.operate.doctor.context import Case
from gateway.operate.doctor.daemon import daemon
from gateway.operate.doctor.database import SECONDS as DATABASE_SECONDS
from gateway.operate.doctor.database import database
from gateway.operate.doctor.disk import disk
from gateway.operate.doctor.installation import additions, packages, sqlite
from gateway.operate.doctor.models import models
from gateway.operate.doctor.permissions import modes
from gateway.operate.doctor.port import port
from gateway.operate.doctor.report import CONFIGURATION
from gateway.operate.doctor.sandbox import sandbox
from gateway.operate.doctor.service import SECONDS as SERVICE_SECONDS
from gateway.operate.doctor.service import Services
from gateway.operate.doctor.spending import spending


def all_checks(case: Case, services: Services | None = None) -> Iterator[Check]:
    """Give the checks for this case; `services` are those that systemd may run."""
    yield Check(CONFIGURATION, configuration, unread=True)
    yield Check(CONFIGURATION, environment_names, unread=True)
    yield Check("files", modes, unread=True)
    yield Check("program", packages, unread=True)
    yield Check("program", additions, unread=True)
    yield Check("certificates", certificates, unread=True)
    yield from chats(case)
    yield from models(case)
    yield Check("database", database, DATABASE_SECONDS + 2)
    yield Check("database", sqlite, unread=True)
    yield Check("disk", disk, unread=True)
    yield Check("clock", hours, remote=True)
    yield Check("gateway", daemon, unread=True)
    yield Check("gateway", port)
    if services:
        yield Check("service", services.look, SERVICE_SECONDS, unread=True)
    yield Check("sandbox", sandbox)
    yield Check("access", entry)
    yield Check("access", spending)
