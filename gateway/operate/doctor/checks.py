"""The closed list of all checks, in the order of the report."""

from collections.abc import Iterator

from gateway.operate.doctor import database, service
from gateway.operate.doctor.access import check_access
from gateway.operate.doctor.certificates import check_certificates
from gateway.operate.doctor.chats import platform_checks
from gateway.operate.doctor.check import Check
from gateway.operate.doctor.clock import check_clock
from gateway.operate.doctor.configuration import check_configuration, check_environment
from gateway.operate.doctor.context import DoctorContext
from gateway.operate.doctor.daemon import check_daemon
from gateway.operate.doctor.database import check_database
from gateway.operate.doctor.disk import check_disk
from gateway.operate.doctor.installation import check_packages, check_plugins, check_sqlite
from gateway.operate.doctor.mcp import mcp_checks
from gateway.operate.doctor.models import model_checks
from gateway.operate.doctor.permissions import check_permissions
from gateway.operate.doctor.port import check_port
from gateway.operate.doctor.report import CONFIGURATION_GROUP
from gateway.operate.doctor.sandbox import check_sandbox
from gateway.operate.doctor.service import ServiceCheck
from gateway.operate.doctor.spending import check_spending


def all_checks(context: DoctorContext, services: ServiceCheck | None = None) -> Iterator[Check]:
    """Yield all checks for this context; without `services`, systemd is not checked."""
    yield Check(CONFIGURATION_GROUP, check_configuration, works_without_config=True)
    yield Check(CONFIGURATION_GROUP, check_environment, works_without_config=True)
    yield Check("files", check_permissions, works_without_config=True)
    yield Check("program", check_packages, works_without_config=True)
    yield Check("program", check_plugins, works_without_config=True)
    yield Check("certificates", check_certificates, works_without_config=True)
    yield from platform_checks(context)
    yield from model_checks(context)
    yield from mcp_checks(context)
    yield Check("database", check_database, database.TIMEOUT_SECONDS + 2)
    yield Check("database", check_sqlite, works_without_config=True)
    yield Check("disk", check_disk, works_without_config=True)
    yield Check("clock", check_clock, needs_network=True)
    yield Check("gateway", check_daemon, works_without_config=True)
    yield Check("gateway", check_port)
    if services:
        yield Check("service", services.run, service.TIMEOUT_SECONDS, works_without_config=True)
    yield Check("sandbox", check_sandbox)
    yield Check("access", check_access)
    yield Check("access", check_spending)
