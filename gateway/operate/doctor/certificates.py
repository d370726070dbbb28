"""TLS roots: what each of the libraries trusts, and what only some of them do.

They differ: httpx, which makes the trust for Telegram, brings the public roots along; httpx2, for
models, asks the system; aiohttp, for Discord and Slack, takes OpenSSL's default.
"""

import asyncio
import contextlib
import re
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from msgspec import Struct

from gateway.operate.doctor.context import DoctorContext
from sessions.values.finding import Finding, fail, ok, warn

LOCAL_ROOT_FOLDERS = (
    Path("/usr/local/share/ca-certificates"),  # Debian, Ubuntu, Alpine
    Path("/etc/pki/ca-trust/source/anchors"),  # Fedora, RHEL
    Path("/etc/ca-certificates/trust-source/anchors"),  # Arch
)
"""Where an administrator puts roots of their own, for the system's store to take them up."""

_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
)
_HASHED_NAME = re.compile(r"[0-9a-f]{8}\.\d")
_FEW_CERTIFICATES = 20
_CA_FILE_VARIABLE = "SSL_CERT_FILE"


class TlsLibrary(Struct, frozen=True):
    """A library that speaks TLS."""

    name: str  # and as people know what it does
    create_context: Callable[[], ssl.SSLContext]
    reads_system_store: bool = True  # it also takes what lies where OpenSSL looks by default


def _context_factory(module: str) -> Callable[[], ssl.SSLContext]:
    def made() -> ssl.SSLContext:
        context: ssl.SSLContext = import_module(module).create_ssl_context()
        return context

    return made


LIBRARIES = (
    TlsLibrary("httpx (Telegram)", _context_factory("httpx"), reads_system_store=False),
    TlsLibrary("httpx2 (models)", _context_factory("httpx2")),
    TlsLibrary("OpenSSL (Discord, Slack)", ssl.create_default_context),
)


async def check_certificates(context: DoctorContext) -> Sequence[Finding]:
    """Compare what they trust."""
    return await asyncio.to_thread(
        lambda: [*_find_problems(context.environ, LOCAL_ROOT_FOLDERS, LIBRARIES)]
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
                f"{_CA_FILE_VARIABLE} names {path}, which holds no certificates that can be read: {why}",
                f"Correct {_CA_FILE_VARIABLE}, or unset it.",
            )
            return
        if len(listed) < _FEW_CERTIFICATES:
            yield warn(
                "roots",
                f"{_CA_FILE_VARIABLE} names {path}, which has {len(listed)} certificates: the public ones "
                "are not trusted",
                f"Add yours to the system's store, and set {_CA_FILE_VARIABLE}={_bundle_path()}.",
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
                f"{library.name} does not trust {', '.join(unknown)}, which others here do",
                f"Set {_CA_FILE_VARIABLE}={_bundle_path()} for Holdfast (in its unit, too): all read that.",
            )
    if not missing:
        extra = f"; {len(own)} of your own are trusted by all" if own else ""
        yield ok("roots", f"public certificates are trusted{extra}")


def _read_local_roots(folders: Iterable[Path]) -> dict[bytes, str]:
    """Roots that somebody added to this machine, and where they lie."""
    found: dict[bytes, str] = {}
    for folder in folders:
        for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
            if path.suffix in {".crt", ".pem"} and path.is_file():
                try:
                    found |= dict.fromkeys(_read_certificates(path), str(path))
                except (OSError, ValueError, ssl.SSLError):
                    continue  # no certificate, whatever it is called
    return found


def _read_certificates(path: Path) -> list[bytes]:
    """Read all certificates of a file; raises when there is none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cafile=str(path))
    found = list(_trusted_roots(context))
    if not found:
        msg = "there is none in it"
        raise ValueError(msg)
    return found


def _trusted_roots(context: ssl.SSLContext) -> set[bytes]:
    """All roots that a context has read; those of a folder are read only when they are needed.

    truststore, by which httpx2 asks the system, keeps the real context inside of its own.
    """
    inner: Any = getattr(context, "_ctx", context)
    return set(inner.get_ca_certs(binary_form=True))


def _system_roots() -> set[bytes]:
    """What lies where OpenSSL looks by default, or where systems keep it if that is nothing."""
    paths = ssl.get_default_verify_paths()  # these know of SSL_CERT_FILE and SSL_CERT_DIR
    found: set[bytes] = set()
    files = [Path(paths.cafile)] if paths.cafile else []
    if paths.capath:
        files += [
            each for each in Path(paths.capath).iterdir() if _HASHED_NAME.fullmatch(each.name)
        ]
    for path in files or [Path(each) for each in _BUNDLES if Path(each).exists()][:1]:
        with contextlib.suppress(OSError, ValueError, ssl.SSLError):
            found |= set(_read_certificates(path))
    return found


def _bundle_path() -> str:
    return next((each for each in _BUNDLES if Path(each).exists()), _BUNDLES[0])
