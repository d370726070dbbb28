"""Refusal of a model service at the address of the gateway itself, which would ask itself.

This is no check of loading: in a shell that exports the address for a client of the gateway, all
other commands must keep working.
"""

from collections.abc import Iterator
from urllib.parse import urlsplit

from gateway.config.layers import format_path
from gateway.config.loader import LoadedConfig
from gateway.errors import ConfigError
from gateway.settings import HttpSettings, KeyPath
from sessions.values.loopback import is_loopback, normalize_host

_DEFAULT_PORTS = {"http": 80, "https": 443}
_EVERY_ADDRESS = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - compared, not bound


def refuse_own_address(loaded: LoadedConfig) -> None:
    """Raise `ConfigError` if a model has the address of this gateway."""
    problems = tuple(own_address_problems(loaded))
    if problems:
        raise ConfigError(*problems)


def own_address_problems(loaded: LoadedConfig) -> Iterator[str]:
    """Yield a line for each model whose `base_url` is the address of this gateway."""
    settings = loaded.settings
    paths: list[tuple[KeyPath, str | None]] = [(("model", "base_url"), settings.model.base_url)]
    paths += [
        (("model", "fallback", index, "base_url"), fallback.base_url)
        for index, fallback in enumerate(settings.model.fallback)
    ]
    for path, url in paths:
        if url and is_own_address(url, settings.http):
            source = loaded.sources.get(path) or str(loaded.path or "configuration")
            advice = f"unset {source}" if source.isupper() else "set the address of a model service"
            yield (
                f"{source}: {format_path(path)} {url} is the address of this gateway itself "
                f"(http.port is {settings.http.port}), which would ask itself; {advice}"
            )


def is_own_address(url: str, http: HttpSettings) -> bool:
    """Return True if a request to the URL reaches the gateway's own port."""
    try:
        place = urlsplit(url)
        port = place.port or _DEFAULT_PORTS.get(place.scheme)
    except ValueError:
        return False
    if not http.port or port != http.port:
        return False
    host, bound = normalize_host(place.hostname or ""), normalize_host(http.host)
    serves_loopback = bound in _EVERY_ADDRESS or is_loopback(bound)
    return host == bound or (serves_loopback and (is_loopback(host) or host in _EVERY_ADDRESS))
