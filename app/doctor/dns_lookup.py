"""DNS queries with a deadline, and the parser for the tag=value lists in TXT records."""

from ipaddress import IPv4Address, IPv6Address, ip_address
from time import monotonic

import dns.exception
import dns.resolver
import dns.reversename

Address = IPv4Address | IPv6Address

QUERY_TIMEOUT, TOTAL_TIMEOUT = 2.5, 9.0  # seconds, for one query and for all queries together


class DnsError(Exception):
    """A DNS query failed or timed out."""


class DnsLookup:
    """DNS queries with a shared deadline. They return [] if there are no records, or raise DnsError."""

    def __init__(self, resolver: dns.resolver.Resolver | None) -> None:
        self._resolver = resolver
        self._deadline = monotonic() + TOTAL_TIMEOUT

    def _query(self, name: str, record_type: str) -> list[str]:
        timeout = min(QUERY_TIMEOUT, self._deadline - monotonic())
        if timeout <= 0:
            raise DnsError(f"{record_type} of {name}: the name servers are too slow")
        try:
            self._resolver = self._resolver or dns.resolver.Resolver()
            answer = self._resolver.resolve(name.rstrip(".") + ".", record_type, lifetime=timeout)
        except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer):
            return []
        except (dns.exception.DNSException, OSError, UnicodeError) as fault:
            raise DnsError(f"{record_type} of {name}: {' '.join(str(fault).split())}") from None
        if record_type != "TXT":
            return [record.to_text() for record in answer]
        # A TXT record may consist of several strings (RFC 7208 3.3, RFC 6376 3.6.2.2).
        return [b"".join(record.strings).decode("utf-8", "replace") for record in answer]

    def can_resolve_root(self) -> bool:
        """Return whether the root zone resolves. On a closed network, all queries may return NXDOMAIN."""
        return bool(self._query(".", "NS"))

    def texts(self, name: str) -> list[str]:
        """Return the TXT records of a name."""
        return self._query(name, "TXT")

    def addresses(self, host: str) -> list[Address]:
        """Return the addresses in the A and AAAA records of a host. If `host` is an IP address, return it."""
        try:
            return [ip_address(host)]
        except ValueError:
            return [ip_address(text) for kind in ("A", "AAAA") for text in self._query(host, kind)]

    def mail_exchanges(self, domain: str) -> list[str]:
        """Return the MX hosts of a domain. An empty host name means "no mail accepted" (RFC 7505)."""
        return [record.split()[1].rstrip(".") for record in self._query(domain, "MX")]

    def host_names(self, address: Address) -> list[str]:
        """Return the host names in the PTR records of an address."""
        reverse = dns.reversename.from_address(str(address)).to_text()
        return [name.rstrip(".") for name in self._query(reverse, "PTR")]


def parse_tags(text: str) -> dict[str, str]:
    """Parse the tag=value list of a DKIM signature, DKIM record or DMARC record (RFC 6376, 3.2)."""
    parts = (part.partition("=") for part in text.split(";"))
    return {name.strip(): "".join(value.split()) for name, _, value in parts if name.strip()}
