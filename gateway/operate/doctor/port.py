"""The HTTP port: free, or already used by this gateway."""

import asyncio
import errno
import os
import socket
from collections.abc import Sequence
from urllib.parse import urlsplit

from gateway.operate.doctor.context import DoctorContext
from sessions.values.finding import Finding, fail, ok, warn
from sessions.values.loopback import normalize_host


async def check_port(context: DoctorContext) -> Sequence[Finding]:
    """Try to bind the port, unless this state folder's gateway already listens."""
    http = context.settings.http
    where = f"{http.host}:{http.port}"
    in_use = urlsplit(context.daemon.url).port if context.daemon.url else None
    if in_use is not None:
        if http.port in {0, in_use}:
            return [ok("port", f"{in_use} is used by this gateway")]
        return [
            warn(
                "port",
                f"the gateway listens on port {in_use}, but {http.port} is configured",
                "Restart the gateway at a convenient time to apply the configuration.",
            )
        ]
    if http.port == 0:
        return [ok("port", "any free port")]
    try:
        await asyncio.to_thread(_try_listen, http.host, http.port)
    except OSError as error:
        return [_bind_failure(where, error)]
    return [ok("port", f"{where} is free")]


def _try_listen(host: str, number: int) -> None:
    """Bind as the gateway would, without listening."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        normalize_host(host), number, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with socket.socket(family, kind, protocol) as trying:
        trying.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        trying.bind(address)


def _bind_failure(where: str, error: OSError) -> Finding:
    if error.errno == errno.EADDRINUSE:
        return fail(
            "port",
            f"another program listens on {where}",
            "Stop that program (`ss -ltnp` names it), or set http.port to another port.",
        )
    if error.errno == errno.EACCES:
        return fail(
            "port",
            f"this user is not allowed to listen on {where}",
            "Set http.port to 1024 or more, and let a proxy serve the low port.",
        )
    why = error.strerror or os.strerror(error.errno or 0)
    return fail("port", f"cannot listen on {where}: {why}", "Correct http.host.")
