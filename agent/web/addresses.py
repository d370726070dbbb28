"""Sans-IO: the test for public IP addresses.

An attacker's host name can resolve to this machine, its network or a cloud metadata service. The
tables here replace `ipaddress.is_global`, which differs between Python versions and ignores IPv6
addresses with an embedded IPv4 address.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

_NOT_PUBLIC_4 = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this host, on many systems
            "10.0.0.0/8",
            "100.64.0.0/10",  # carrier-grade NAT
            "127.0.0.0/8",
            "168.63.129.16/32",  # Azure's platform service, in a public range
            "169.254.0.0/16",  # link-local; cloud metadata services are at 169.254.169.254
            "172.16.0.0/12",
            "192.0.0.0/24",  # protocol assignments
            "192.0.2.0/24",  # documentation
            "192.88.99.0/24",  # 6to4 relays
            "192.168.0.0/16",
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, broadcast
        ),
    )
)
_PUBLIC_6 = IPv6Network("2000::/3")
"""Global unicast; excludes loopback, ULA, link-local, multicast, IPv4-mapped and NAT64."""

_NOT_PUBLIC_6 = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocol assignments; Teredo, with an embedded IPv4 address
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4, with an embedded IPv4 address
            "3fff::/20",  # documentation
        ),
    )
)
_ISATAP = (0x00005EFE, 0x02005EFE)
"""Third 32 bits of an ISATAP address, whose last 32 bits are an IPv4 address."""


def is_public(address: str) -> bool:
    """Return True for an IP address on the public internet; False also for anything else."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, IPv4Address):
        return not any(parsed in network for network in _NOT_PUBLIC_4)
    return _is_public_6(parsed)


def _is_public_6(address: IPv6Address) -> bool:
    if address.scope_id is not None or address not in _PUBLIC_6:
        return False
    is_isatap = int(address) >> 32 & 0xFFFFFFFF in _ISATAP
    return not is_isatap and not any(address in network for network in _NOT_PUBLIC_6)
