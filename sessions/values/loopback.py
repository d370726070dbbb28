"""Sans-IO: which addresses only this machine can reach.

No name but `localhost` counts: what a name means is decided elsewhere, and may change.
"""

import ipaddress

LOOPBACK_NAMES = frozenset({"localhost", "localhost."})


def normalize_host(host: str) -> str:
    """Write an address as it is listened on: no brackets, and IPv4 as what it is."""
    bare = host.strip().removeprefix("[").removesuffix("]").lower()
    address = _parse_address(bare)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped) if mapped else bare


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine can connect to it, or from it."""
    bare = normalize_host(host)
    address = _parse_address(bare)
    return address.is_loopback if address else bare in LOOPBACK_NAMES


def _parse_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
