"""Proxies from the environment, as URL patterns for the `mounts` of an `httpx2.AsyncClient`.

httpx2 reads these variables only for a client without a custom transport. This module applies the
same rules, so that `HTTPS_PROXY` and `NO_PROXY` work as in any other program with httpx2.
"""

import ipaddress
import urllib.request

import httpx2


def environment_proxies() -> dict[str, str | None]:
    """Map URL patterns to proxies, or to None for hosts that are reached directly."""
    variables = urllib.request.getproxies()
    excluded = [entry.strip() for entry in variables.get("no", "").split(",")]
    if "*" in excluded:
        return {}
    proxies: dict[str, str | None] = {
        f"{scheme}://": url if "://" in url else f"http://{url}"
        for scheme in ("http", "https", "all")
        if (url := variables.get(scheme))
    }
    patterns = [_direct_pattern(entry) for entry in excluded if entry]
    return proxies | {pattern: None for pattern in patterns if pattern and _is_valid(pattern)}


def _direct_pattern(entry: str) -> str | None:
    """Return the pattern for one entry of `NO_PROXY`; None for an entry without a meaning."""
    if "://" in entry:
        return entry
    host, slash, prefix = entry.partition("/")
    try:
        version = ipaddress.ip_address(host).version
    except ValueError:
        if entry.startswith("[") or entry.lower() == "localhost":
            return f"all://{entry}"
        return None if slash else f"all://*{entry}"  # subdomains as well
    return f"all://[{host}]{slash}{prefix}" if version == 6 else f"all://{entry}"  # noqa: PLR2004


def _is_valid(pattern: str) -> bool:
    """Return False for a malformed pattern, with which httpx2 would refuse the whole client."""
    try:
        httpx2.AsyncClient(transport=httpx2.AsyncBaseTransport(), mounts={pattern: None})
    except (httpx2.InvalidURL, ValueError):
        return False
    return True
