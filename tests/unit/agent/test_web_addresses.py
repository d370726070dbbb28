"""The test for addresses of the public internet."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.web.addresses import is_public

PUBLIC = (
    "1.1.1.1",
    "8.8.8.8",
    "9.255.255.255",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "192.167.255.255",
    "192.169.0.0",
    "223.255.255.255",
    "2606:4700:4700::1111",
    "2001:4860:4860::8888",
    "2001:200::1",
    "2a00:1450:4001::1",
    "2003::1",
)

NOT_PUBLIC = {
    "loopback": "127.0.0.1",
    "all of loopback": "127.255.255.255",
    "no address": "0.0.0.0",  # noqa: S104 - nothing is bound
    "this network": "0.1.2.3",
    "private 10": "10.0.0.1",
    "private 172": "172.16.0.1",
    "end of private 172": "172.31.255.255",
    "private 192": "192.168.1.1",
    "CGNAT": "100.64.0.1",
    "end of CGNAT": "100.127.255.255",
    "metadata of Alibaba": "100.100.100.200",
    "link-local": "169.254.0.1",
    "metadata of rented machines": "169.254.169.254",
    "metadata of Oracle": "192.0.0.192",
    "metadata of Azure": "168.63.129.16",
    "documentation": "192.0.2.1",
    "documentation 2": "198.51.100.1",
    "documentation 3": "203.0.113.1",
    "benchmarks": "198.19.0.1",
    "6to4 relay": "192.88.99.1",
    "multicast": "224.0.0.1",
    "end of multicast": "239.255.255.255",
    "reserved": "240.0.0.1",
    "broadcast": "255.255.255.255",
    "IPv6 loopback": "::1",
    "IPv6 no address": "::",
    "IPv4-compatible": "::8.8.8.8",
    "IPv4-mapped private": "::ffff:10.0.0.1",
    "IPv4-mapped public": "::ffff:8.8.8.8",
    "IPv4-translated": "::ffff:0:8.8.8.8",
    "NAT64": "64:ff9b::7f00:1",
    "NAT64 of one's own": "64:ff9b:1::1",
    "discard": "100::1",
    "Teredo": "2001::1",
    "ORCHID": "2001:20::1",
    "IPv6 benchmarks": "2001:2::1",
    "IPv6 documentation": "2001:db8::1",
    "IPv6 documentation 2": "3fff::1",
    "6to4 of loopback": "2002:7f00:1::",
    "ISATAP": "2a00:1450:4001::5efe:a00:1",
    "ISATAP 2": "2a00:1450:4001::200:5efe:a00:1",
    "ULA": "fc00::1",
    "ULA in use": "fd12:3456:789a::1",
    "IPv6 metadata": "fd00:ec2::254",
    "IPv6 link-local": "fe80::1",
    "IPv6 link-local with a zone": "fe80::1%eth0",
    "a zone at a public number": "2606:4700:4700::1111%1",
    "site-local": "fec0::1",
    "segment routing": "5f00::1",
    "IPv6 multicast": "ff02::1",
    "a name": "localhost",
    "one number": "2130706433",
    "octal": "0177.0.0.1",
    "hexadecimal": "0x7f.0.0.1",
    "short": "127.1",
    "nothing": "",
    "blank": " 8.8.8.8",
    "in brackets": "[2606:4700:4700::1111]",
}


@pytest.mark.parametrize("address", PUBLIC)
def test_allocated_addresses_are_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("address", NOT_PUBLIC.values(), ids=NOT_PUBLIC)
def test_special_addresses_are_not_public(address: str) -> None:
    assert not is_public(address)


@given(st.ip_addresses())
def test_no_address_that_python_calls_private_is_public(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    other = address.is_private or address.is_multicast or address.is_loopback
    assert not (other or address.is_link_local or address.is_reserved) or not is_public(
        str(address)
    )


@given(st.ip_addresses(v=4), st.sampled_from(["::ffff:", "::", "64:ff9b::", "::ffff:0:"]))
def test_an_address_with_an_embedded_ipv4_address_is_not_public(
    address: ipaddress.IPv4Address, before: str
) -> None:
    assert not is_public(f"{before}{address}")
