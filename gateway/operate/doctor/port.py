"""The HTTP port: free for a gateway that would start, or already ours."""

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
    """Try to listen there for a moment, unless our own gateway does."""
    http = context.settings.http
    where = f"{http.host}:{http.port}"
    ours = urlsplit(context.daemon.url).port if context.daemon.url else None
    if ours is not None:
        if http.port in {0, ours}:
            return [ok("port", f"{ours} is ours")]
        return [
            warn(
                "port",
                f"the gateway listens on port {ours}, and {http.port} is configured",
                "Restart it when it suits, so that it takes up the configuration.",
            )
        ]
    if http.port == 0:
        return [ok("port", "any free one")]
    try:
        await asyncio.to_thread(_try_listen, http.host, http.port)
    except OSError as error:
        return [_bind_failure(where, error)]
    return [ok("port", f"{where} is free")]


def _try_listen(host: str, number: int) -> None:
    """Bind as the gateway would; nobody can connect meanwhile."""
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
            "Stop it (`ss -ltnp` names it), or set http.port to another one.",
        )
    if error.errno == errno.EACCES:
        return fail(
            "port",
            f"this user may not listen on {where}",
            "Set http.port to 1024 or more, and let a proxy serve the low port.",
        )
    why = error.strerror or os.strerror(error.errno or 0)
    return fail("port", f"nothing can listen on {where}: {why}", "Correct http.host.")
