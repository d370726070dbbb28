"""Sans-IO: which numbers belong to the public internet.

A name that anybody may choose can lead to this machine, its neighbours or the service that hands a
rented machine its keys. Our own tables instead of `ipaddress.is_global`: that answers differently
from one Python to the next, and knows nothing of numbers that carry another one inside.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

_NOT_PUBLIC_4 = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this machine, to many systems
            "10.0.0.0/8",
            "100.64.0.0/10",  # behind a provider's translation (CGNAT)
            "127.0.0.0/8",
            "168.63.129.16/32",  # Azure's own service, on a number that looks public
            "169.254.0.0/16",  # link-local; keys of rented machines lie at 169.254.169.254
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
"""All that is given out. Outside of it: loopback, ULA, link-local, multicast, IPv4-mapped, NAT64."""

_NOT_PUBLIC_6 = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocol assignments; Teredo, which carries an IPv4 number inside
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4, which carries an IPv4 number inside
            "3fff::/20",  # documentation
        ),
    )
)
_ISATAP = (0x00005EFE, 0x02005EFE)
"""The third quarter of a number whose last one is an IPv4 number."""


def is_public(address: str) -> bool:
    """Tell whether an address, as numbers, is one that anybody could reach from anywhere."""
    try:
        number = ip_address(address)
    except ValueError:
        return False
    if isinstance(number, IPv4Address):
        return not any(number in network for network in _NOT_PUBLIC_4)
    return _is_public_6(number)


def _is_public_6(number: IPv6Address) -> bool:
    if number.scope_id is not None or number not in _PUBLIC_6:
        return False
    carries_another = int(number) >> 32 & 0xFFFFFFFF in _ISATAP
    return not carries_another and not any(number in network for network in _NOT_PUBLIC_6)
