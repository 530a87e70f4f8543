"""What an SPF record says (RFC 7208), as far as it can be said without a mail at hand."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from ipaddress import ip_network

from app.doctor.dns_lookup import Address, DnsLookup

MOST_LOOKUPS = 10
_ASKS = {"include", "a", "mx", "ptr", "exists", "redirect"}


@dataclass
class Reading:
    """What following a record through all that it includes has shown."""

    lookups: int = 0
    lists: bool = False  # one of the addresses that were asked about
    depends: bool = False  # on the mail at hand, by a macro, `ptr` or `exists`
    broken: list[str] = field(default_factory=list)
    end: str = ""  # how the record itself ends: "-all", "~all", "?all", "+all", or "" where it does not say


def records(texts: Collection[str]) -> list[str]:
    """The SPF records among the TXT records of a domain."""
    return [text for text in texts if text.lower() == "v=spf1" or text.lower().startswith("v=spf1 ")]


def read(domain: str, record: str, asked: Collection[Address], names: DnsLookup) -> Reading:
    """Follow a record as a receiver does, to see whether it lists any of these addresses."""
    reading = Reading()
    reading.end = _follow(domain, record, asked, names, reading)
    return reading


def _follow(domain: str, record: str, asked: Collection[Address], names: DnsLookup, into: Reading) -> str:
    """Add what a record says; how it ends, by itself or by what it redirects to."""
    end = redirect = ""
    for sign, name, value in _terms(record):
        into.lookups += name in _ASKS
        if into.lookups > MOST_LOOKUPS:
            return end
        if name == "all":
            end = (sign or "+") + "all"
        elif name in ("exists", "ptr") or "%{" in value:
            into.depends = True
        elif name == "redirect":
            redirect = value
        elif name == "include":
            _enter(value, asked, names, into)
        elif sign in ("", "+") and _lists(domain, name, value, asked, names, into):
            into.lists = True
    return end or (_enter(redirect, asked, names, into) if redirect else "")


def _enter(domain: str, asked: Collection[Address], names: DnsLookup, into: Reading) -> str:
    found = records(names.texts(domain))
    if len(found) != 1:
        into.broken.append(f"{domain} has {len(found) or 'no'} SPF record{'s' * (len(found) > 1)}")
        return ""
    return _follow(domain, found[0], asked, names, into)


def _terms(record: str) -> Iterator[tuple[str, str, str]]:
    """The qualifier, the name in lower case and the value of each term."""
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


def _lists(
    domain: str, name: str, value: str, asked: Collection[Address], names: DnsLookup, into: Reading
) -> bool:
    host, slash, length = value.partition("/")
    hosts: list[str] = []
    if name in ("ip4", "ip6"):
        return _within(asked, value, into)
    if name == "a":
        hosts = [host or domain]
    elif name == "mx":
        hosts = names.exchanges(host or domain)
    prefix = slash + length.partition("/")[0] if slash and length[:1] != "/" else ""
    found = [address for each in hosts for address in names.addresses(each)]
    return any(
        _within(asked, f"{address}{prefix if address.version == 4 else ''}", into) for address in found
    )


def _within(asked: Collection[Address], network: str, into: Reading) -> bool:
    try:
        net = ip_network(network, strict=False)
    except ValueError:
        into.broken.append(f"“{network}” is no address")
        return False
    return any(address.version == net.version and address in net for address in asked)
