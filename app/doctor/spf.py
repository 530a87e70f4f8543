"""Evaluate SPF records (RFC 7208) as far as this is possible without a message."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from ipaddress import ip_network

from app.doctor.dns_lookup import Address, DnsLookup

MAX_LOOKUPS = 10
_LOOKUP_TERMS = {"include", "a", "mx", "ptr", "exists", "redirect"}


@dataclass
class SpfResult:
    """The result of evaluating an SPF record and the records that it includes."""

    lookups: int = 0
    lists_address: bool = False  # the record lists one of the given addresses
    depends_on_mail: bool = False  # the record has a macro, `ptr` or `exists`
    errors: list[str] = field(default_factory=list)
    default: str = ""  # "-all", "~all", "?all" or "+all"; empty if there is no such term


def spf_records(texts: Collection[str]) -> list[str]:
    """Return the SPF records among the TXT records of a domain."""
    return [text for text in texts if text.lower() == "v=spf1" or text.lower().startswith("v=spf1 ")]


def evaluate(domain: str, record: str, addresses: Collection[Address], dns: DnsLookup) -> SpfResult:
    """Evaluate an SPF record, and determine whether it lists any of these addresses.

    Unlike a receiver, do not stop at the first match, so that errors after the match are also reported.
    """
    result = SpfResult()
    result.default = _follow(domain, record, addresses, dns, result)
    return result


def _follow(
    domain: str, record: str, addresses: Collection[Address], dns: DnsLookup, result: SpfResult
) -> str:
    """Add a record to the result. Return the `all` term of the record or of its redirect target."""
    default = redirect = ""
    for sign, name, value in _terms(record):
        result.lookups += name in _LOOKUP_TERMS
        if result.lookups > MAX_LOOKUPS:
            return default
        if name == "all":
            default = (sign or "+") + "all"
        elif name in ("exists", "ptr") or "%{" in value:
            result.depends_on_mail = True
        elif name == "redirect":
            redirect = value
        elif name == "include":
            _follow_domain(value, addresses, dns, result)
        elif sign in ("", "+") and _term_lists(domain, name, value, addresses, dns, result):
            result.lists_address = True
    return default or (_follow_domain(redirect, addresses, dns, result) if redirect else "")


def _follow_domain(domain: str, addresses: Collection[Address], dns: DnsLookup, result: SpfResult) -> str:
    records = spf_records(dns.texts(domain))
    if len(records) != 1:
        result.errors.append(f"{domain} has {len(records) or 'no'} SPF record{'s' * (len(records) > 1)}")
        return ""
    return _follow(domain, records[0], addresses, dns, result)


def _terms(record: str) -> Iterator[tuple[str, str, str]]:
    """Yield the qualifier, the name in lower case and the value of each term."""
    for term in record.split()[1:]:
        sign = term[0] if term[0] in "+-~?" else ""
        bare = term.removeprefix(sign)
        if "=" in bare.partition(":")[0].partition("/")[0]:
            name, _, value = bare.partition("=")
        elif ":" in bare:
            name, _, value = bare.partition(":")
        else:
            name, slash, length = bare.partition("/")
            value = slash + length
        yield sign, name.lower(), value


def _term_lists(
    domain: str, name: str, value: str, addresses: Collection[Address], dns: DnsLookup, result: SpfResult
) -> bool:
    """Return whether an ip4, ip6, a or mx term lists one of the addresses."""
    host, slash, length = value.partition("/")
    hosts: list[str] = []
    if name in ("ip4", "ip6"):
        return _network_contains(value, addresses, result)
    if name == "a":
        hosts = [host or domain]
    elif name == "mx":
        hosts = dns.mail_exchanges(host or domain)
    prefix = slash + length.partition("/")[0] if slash and length[:1] != "/" else ""
    resolved = [address for name in hosts for address in dns.addresses(name)]
    return any(
        _network_contains(f"{address}{prefix if address.version == 4 else ''}", addresses, result)
        for address in resolved
    )


def _network_contains(text: str, addresses: Collection[Address], result: SpfResult) -> bool:
    try:
        network = ip_network(text, strict=False)
    except ValueError:
        result.errors.append(f"“{text}” is not an IP address or network")
        return False
    return any(address.version == network.version and address in network for address in addresses)
