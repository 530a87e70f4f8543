"""PURE. Check the IP addresses of a host. Each must be public or allowed by the operator."""

from collections.abc import Collection
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Self

Network = IPv4Network | IPv6Network

# The standard library's `is_global` is not used, because its result differs between Python releases.
# Source: the IANA special-purpose address registries (RFC 6890 and its updates).
_SPECIAL_IPV4 = tuple(
    ip_network(network)
    for network in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
        "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15",
        "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
    )
)  # fmt: skip
_UNICAST_IPV6 = IPv6Network("2000::/3")  # global unicast; the rest is local, multicast or reserved
_SPECIAL_IPV6 = tuple(
    ip_network(network)
    for network in (
        "2001::/23",  # protocol assignments, such as Teredo
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: a relay would forward to any IPv4 address
        "3fff::/20",  # documentation
    )
)
_NAT64 = IPv6Network("64:ff9b::/96")  # addresses by which a network without IPv4 reaches IPv4 hosts


@dataclass(frozen=True, slots=True)
class Allowed:
    """The private hosts and networks that may be reached by HTTP, as configured by the operator."""

    hosts: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()

    @classmethod
    def parse(cls, entries: Collection[str]) -> Self:
        """Parse a list of host names, addresses and networks."""
        hosts, networks = set(), []
        for entry in entries:
            try:
                networks.append(ip_network(entry, strict=False))
            except ValueError:
                hosts.add(entry.lower())
        return cls(frozenset(hosts), tuple(networks))

    def may_permit_host(self, host: str) -> bool:
        """Return False for a private address or a name of this machine unless the operator allows it.

        Return True for all other names, because they are resolved and checked when their source is polled.
        """
        host = host.lower()
        try:
            return host in self.hosts or self.permits(host)
        except ValueError:
            return host != "localhost" and not host.endswith(".localhost")

    def includes(self, host: str) -> bool:
        """Return whether a host is a name that the operator listed, or an address in a listed network."""
        try:
            return host in self.hosts or any(ip_address(host) in network for network in self.networks)
        except ValueError:
            return False

    def permits(self, address: str) -> bool:
        """Return whether an IP address is public or in an allowed network.

        Raise ValueError if `address` is not an IP address.
        """
        ip = ip_address(address.partition("%")[0])
        if isinstance(ip, IPv6Address):  # it may contain an IPv4 address
            ip = IPv4Address(int(ip) & 0xFFFF_FFFF) if ip in _NAT64 else ip.ipv4_mapped or ip
        if isinstance(ip, IPv4Address):
            public = not any(ip in network for network in _SPECIAL_IPV4)
        else:
            public = ip in _UNICAST_IPV6 and not any(ip in network for network in _SPECIAL_IPV6)
        return public or any(ip in network for network in self.networks)
