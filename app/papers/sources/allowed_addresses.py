"""PURE. Check the addresses of a host: public ones are allowed, and those that the operator allows."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# `is_global` of the standard library is not used: its result differs between releases.
# Source: the IANA special-purpose address registries (RFC 6890 and its updates).
_SPECIAL_IPV4 = tuple(
    ip_network(network)
    for network in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
        "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15",
        "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
    )
)  # fmt: skip
_UNICAST_IPV6 = IPv6Network("2000::/3")  # all that IANA assigns; the rest is local, multicast or reserved
_SPECIAL_IPV6 = tuple(
    ip_network(network)
    for network in (
        "2001::/23",  # protocol assignments, such as Teredo
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: a relay would forward to any IPv4 address
        "3fff::/20",  # documentation
    )
)
_NAT64 = IPv6Network("64:ff9b::/96")  # how a network without IPv4 reaches IPv4


@dataclass(frozen=True, slots=True)
class Allowed:
    """The private hosts and networks from which the operator allows feeds to be fetched."""

    hosts: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()

    @classmethod
    def parse(cls, entries: Collection[str]) -> Allowed:
        """Parse a list of host names, addresses and networks."""
        networks = {entry: network for entry in entries if (network := _network(entry))}
        hosts = frozenset(entry.lower() for entry in entries if entry not in networks)
        return cls(hosts, tuple(networks.values()))

    def permits(self, address: str) -> bool:
        """Return whether an address is public or in an allowed network."""
        ip = _unwrap(ip_address(address.partition("%")[0]))
        return _is_public(ip) or any(ip in network for network in self.networks)


def _network(entry: str) -> Network | None:
    try:
        return ip_network(entry, strict=False)
    except ValueError:
        return None


def _unwrap(address: Address) -> Address:
    """Return the IPv4 address in an IPv6 address (NAT64 or IPv4-mapped), or the address itself."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address


def _is_public(address: Address) -> bool:
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _SPECIAL_IPV4)
    return address in _UNICAST_IPV6 and not any(address in network for network in _SPECIAL_IPV6)
