"""TLS roots: certificates that only some of the libraries trust.

Each library has its own trust store: httpx, used for Telegram, ships the public roots; httpx2, used
for models, asks the system; aiohttp, used for Discord and Slack, takes OpenSSL's default.
"""

import asyncio
import contextlib
import re
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx2
from msgspec import Struct

from gateway.operate.doctor.context import DoctorContext
from sessions.values.finding import Finding, fail, ok, warn

_LOCAL_ROOT_FOLDERS = (
    Path("/usr/local/share/ca-certificates"),  # Debian, Ubuntu, Alpine
    Path("/etc/pki/ca-trust/source/anchors"),  # Fedora, RHEL
    Path("/etc/ca-certificates/trust-source/anchors"),  # Arch
)
"""Folders in which an administrator places additional roots for the system's trust store."""

_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
)
_HASHED_NAME = re.compile(r"[0-9a-f]{8}\.\d")
_FEW_CERTIFICATES = 20
_CA_FILE_VARIABLE = "SSL_CERT_FILE"


class TlsLibrary(Struct, frozen=True):
    """A library that makes TLS connections."""

    name: str  # with its purpose, for messages
    create_context: Callable[[], ssl.SSLContext]
    reads_system_store: bool = True  # also loads OpenSSL's default locations on demand


def _create_httpx_context() -> ssl.SSLContext:
    import httpx  # noqa: PLC0415 - only installed with Telegram

    return httpx.create_ssl_context()


LIBRARIES = (
    TlsLibrary("httpx (Telegram)", _create_httpx_context, reads_system_store=False),
    TlsLibrary("httpx2 (models)", httpx2.create_ssl_context),
    TlsLibrary("OpenSSL (Discord, Slack)", ssl.create_default_context),
)


async def check_certificates(context: DoctorContext) -> Sequence[Finding]:
    """Compare the roots that the libraries trust."""
    return await asyncio.to_thread(
        lambda: [*_find_problems(context.environ, _LOCAL_ROOT_FOLDERS, LIBRARIES)]
    )


def _find_problems(
    environ: Mapping[str, str], folders: Iterable[Path], libraries: Iterable[TlsLibrary]
) -> Iterator[Finding]:
    own: dict[bytes, str] = {}
    if named := environ.get(_CA_FILE_VARIABLE):
        path = Path(named)
        try:
            listed = _read_certificates(path)
        except (OSError, ValueError, ssl.SSLError) as error:
            why = getattr(error, "strerror", None) or str(error)
            yield fail(
                "roots",
                f"{_CA_FILE_VARIABLE} names {path}, which contains no readable certificates: {why}",
                f"Correct {_CA_FILE_VARIABLE}, or unset it.",
            )
            return
        if len(listed) < _FEW_CERTIFICATES:
            yield warn(
                "roots",
                f"{_CA_FILE_VARIABLE} names {path} with only {len(listed)} certificates, so public services "
                "are not trusted",
                f"Add yours to the system's trust store, and set {_CA_FILE_VARIABLE}={_bundle_path()}.",
            )
        own |= dict.fromkeys(listed, str(path))
    own = (
        {**_read_local_roots(folders), **own}
        if len(own) < _FEW_CERTIFICATES
        else _read_local_roots(folders)
    )
    yield from _compare_libraries(own, libraries)


def _compare_libraries(
    own: Mapping[bytes, str], libraries: Iterable[TlsLibrary]
) -> Iterator[Finding]:
    missing = False
    names = []
    for library in libraries:
        try:
            trusted = _trusted_roots(library.create_context())
            if library.reads_system_store or not trusted:
                trusted |= _system_roots()
        except ModuleNotFoundError:
            continue
        names.append(library.name)
        if not trusted:
            missing = True
            yield fail(
                "roots",
                f"{library.name} trusts no certificate at all",
                "Install the package ca-certificates.",
            )
            continue
        unknown = sorted({where for root, where in own.items() if root not in trusted})
        if unknown:
            missing = True
            yield warn(
                "roots",
                f"{library.name} does not trust {', '.join(unknown)}, which this machine trusts",
                f"Set {_CA_FILE_VARIABLE}={_bundle_path()} for Holdfast, also in its systemd unit; all "
                "libraries read it.",
            )
    if not missing:
        extra = f"; local roots trusted by all libraries: {len(own)}" if own else ""
        yield ok("roots", f"public certificates are trusted{extra}")


def _read_local_roots(folders: Iterable[Path]) -> dict[bytes, str]:
    """Return the roots that an administrator added to this machine, and their files."""
    found: dict[bytes, str] = {}
    for folder in folders:
        for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
            if path.suffix in {".crt", ".pem"} and path.is_file():
                try:
                    found |= dict.fromkeys(_read_certificates(path), str(path))
                except (OSError, ValueError, ssl.SSLError):
                    continue  # not a certificate, despite its name
    return found


def _read_certificates(path: Path) -> list[bytes]:
    """Return all certificates of a file; raise `ValueError` if there are none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cafile=str(path))
    found = list(_trusted_roots(context))
    if not found:
        msg = "it contains none"
        raise ValueError(msg)
    return found


def _trusted_roots(context: ssl.SSLContext) -> set[bytes]:
    """Return the roots a context has loaded; roots in a folder are loaded only on demand.

    truststore, which httpx2 uses to ask the system, keeps the real context in `_ctx`.
    """
    inner: Any = getattr(context, "_ctx", context)
    return set(inner.get_ca_certs(binary_form=True))


def _system_roots() -> set[bytes]:
    """Return the roots at OpenSSL's default locations, else at the usual bundle paths."""
    paths = ssl.get_default_verify_paths()  # honours SSL_CERT_FILE and SSL_CERT_DIR
    found: set[bytes] = set()
    files = [Path(paths.cafile)] if paths.cafile else []
    if paths.capath:
        files += [
            path for path in Path(paths.capath).iterdir() if _HASHED_NAME.fullmatch(path.name)
        ]
    for path in files or [Path(path) for path in _BUNDLES if Path(path).exists()][:1]:
        with contextlib.suppress(OSError, ValueError, ssl.SSLError):
            found |= set(_read_certificates(path))
    return found


def _bundle_path() -> str:
    return next((path for path in _BUNDLES if Path(path).exists()), _BUNDLES[0])
