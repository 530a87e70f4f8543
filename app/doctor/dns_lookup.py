"""How the DNS is asked: in time."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address
from time import monotonic

import dns.exception
import dns.resolver
import dns.reversename

Address = IPv4Address | IPv6Address

EACH, IN_ALL = 2.5, 9.0  # seconds for one answer, and for all of them


class NoAnswer(Exception):
    """The DNS did not answer."""


class DnsLookup:
    """Look-ups that end in time. What does not exist is empty; NoAnswer where nobody can tell."""

    def __init__(self, resolver: dns.resolver.Resolver | None) -> None:
        self._resolver = resolver
        self._until = monotonic() + IN_ALL

    def _ask(self, name: str, kind: str) -> list[str]:
        left = min(EACH, self._until - monotonic())
        if left <= 0:
            raise NoAnswer(f"{kind} of {name}: the answers take too long")
        try:
            self._resolver = self._resolver or dns.resolver.Resolver()
            answer = self._resolver.resolve(name.rstrip(".") + ".", kind, lifetime=left)
        except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer):
            return []
        except (dns.exception.DNSException, OSError, UnicodeError) as fault:
            raise NoAnswer(f"{kind} of {name}: {' '.join(str(fault).split())}") from None
        return [each.to_text() for each in answer] if kind != "TXT" else [_joined(each) for each in answer]

    def has_a_root(self) -> bool:
        """Whether the resolver speaks for the internet; one of a closed network denies everything."""
        return bool(self._ask(".", "NS"))

    def texts(self, name: str) -> list[str]:
        return self._ask(name, "TXT")

    def addresses(self, host: str) -> list[Address]:
        """Of a name; an address is its own."""
        try:
            return [ip_address(host)]
        except ValueError:
            return [ip_address(each) for kind in ("A", "AAAA") for each in self._ask(host, kind)]

    def exchanges(self, domain: str) -> list[str]:
        """The hosts that take mail for a domain; "" is the one that says that none does (RFC 7505)."""
        return [each.split()[1].rstrip(".") for each in self._ask(domain, "MX")]

    def names_of(self, address: Address) -> list[str]:
        reverse = dns.reversename.from_address(str(address)).to_text()
        return [each.rstrip(".") for each in self._ask(reverse, "PTR")]


def _joined(record: object) -> str:
    """A TXT record's strings as the one text that they are (RFC 7208 3.3, RFC 6376 3.6.2.2)."""
    return b"".join(record.strings).decode("utf-8", "replace")  # type: ignore[attr-defined]
