"""Sans-IO: addresses that only this machine can reach.

The only name that counts is `localhost`, because other names are resolved elsewhere and may change.
"""

import ipaddress

_LOOPBACK_NAMES = frozenset({"localhost", "localhost."})


def normalize_host(host: str) -> str:
    """Normalise a host: no brackets, lower case, IPv4-mapped addresses as IPv4."""
    bare = host.strip().removeprefix("[").removesuffix("]").lower()
    address = _parse_address(bare)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped) if mapped else bare


def is_loopback(host: str) -> bool:
    """Return True if the host is an address of this machine only."""
    bare = normalize_host(host)
    address = _parse_address(bare)
    return address.is_loopback if address else bare in _LOOPBACK_NAMES


def _parse_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
