"""Evaluate SPF records (RFC 7208) as far as this is possible without a message."""

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from ipaddress import ip_network

from app.doctor.dns_lookup import Address, DnsLookup

MAX_LOOKUPS = 10
_LOOKUP_TERMS = {"include", "a", "mx", "ptr", "exists", "redirect="}
_NAME = re.compile(r"^([^:/=]*=?)(.*)")
_DOMAIN = r":(?:%\{[^}]*\}|[^/%]|%[%_-])+"
_PREFIXES = r"(?:/(?:3[0-2]|[12]?\d))?(?://(?:12[0-8]|1[01]\d|\d\d?))?"
_VALID = re.compile(  # all terms except ip4 and ip6
    rf"[+~?-]?(?:all|ptr(?:{_DOMAIN})?|(?:include|exists){_DOMAIN}|(?:a|mx)(?:{_DOMAIN})?{_PREFIXES})"
    r"|[a-z][a-z0-9._-]*=.*",
    re.IGNORECASE,
)


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
    Like a receiver, stop at `all`.
    """
    result = SpfResult()
    result.default = _follow(domain, record, addresses, dns, result)
    return result


def terms_after_all(record: str) -> list[str]:
    """Return the mechanisms after the `all` term, which receivers never evaluate."""
    terms = iter(record.split()[1:])
    for term in terms:
        if _split_term(term)[1] == "all":
            return [later for later in terms if not _split_term(later)[1].endswith("=")]
    return []


def with_all_at_end(record: str, all_term: str) -> str:
    """Return a record that ends in this `all` term. If it was redirected, it includes the other record.

    Receivers ignore redirects in a record that has an `all` term.
    """
    terms = record.split()
    others = [term for term in terms if _split_term(term)[1] != "all"]
    if len(others) == len(terms):
        others = [re.sub("^redirect=", "include:", term, flags=re.IGNORECASE) for term in others]
    return " ".join([*others, all_term])


def _follow(
    domain: str, record: str, addresses: Collection[Address], dns: DnsLookup, result: SpfResult
) -> str:
    """Add a record to the result. Return the `all` term of the record or of its redirect target."""
    terms, redirect = record.split()[1:], ""
    result.errors += [f"“{term}” is not a valid term" for term in terms if not _is_valid(term)]
    for sign, name, value in map(_split_term, terms):
        if name == "all":
            return (sign or "+") + "all"
        result.lookups += name in _LOOKUP_TERMS
        if result.lookups > MAX_LOOKUPS:
            return ""
        is_pass, was_listed = sign in ("", "+"), result.lists_address
        if name in ("exists", "ptr") or "%{" in value:
            result.depends_on_mail = True
        elif name == "redirect=":
            redirect = value
        elif name == "include":
            _follow_domain(value, addresses, dns, result)
            result.lists_address = was_listed or (is_pass and result.lists_address)
        elif is_pass and _term_lists(domain, name, value, addresses, dns):
            result.lists_address = True
    return _follow_domain(redirect, addresses, dns, result) if redirect else ""


def _follow_domain(domain: str, addresses: Collection[Address], dns: DnsLookup, result: SpfResult) -> str:
    records = spf_records(dns.texts(domain))
    if len(records) != 1:
        result.errors.append(f"{domain} has {len(records) or 'no'} SPF record{'s' * (len(records) > 1)}")
        return ""
    return _follow(domain, records[0], addresses, dns, result)


def _split_term(term: str) -> tuple[str, str, str]:
    """Return the qualifier, the name in lower case and the value of a term. Names of modifiers end in "="."""
    sign = term[0] if term[0] in "+-~?" else ""
    [(name, value)] = _NAME.findall(term.removeprefix(sign))
    return sign, name.lower(), value.removeprefix(":")


def _is_valid(term: str) -> bool:
    """Return whether a term has the syntax that RFC 7208 requires. Modifiers can have any name."""
    _, name, value = _split_term(term)
    try:
        if name in ("ip4", "ip6"):
            return ip_network(value, strict=False).version == int(name[2:])
    except ValueError:
        return False
    return bool(_VALID.fullmatch(term))


def _term_lists(domain: str, name: str, value: str, addresses: Collection[Address], dns: DnsLookup) -> bool:
    """Return whether an ip4, ip6, a or mx term lists one of the addresses."""
    host, slash, length = value.partition("/")
    hosts: list[str] = []
    if name in ("ip4", "ip6"):
        return _network_contains(value, addresses)
    if name == "a":
        hosts = [host or domain]
    elif name == "mx":
        hosts = dns.mail_exchanges(host or domain)
    prefix = slash + length.partition("/")[0] if slash and length[:1] != "/" else ""
    resolved = [address for name in hosts for address in dns.addresses(name)]
    return any(
        _network_contains(f"{address}{prefix if address.version == 4 else ''}", addresses)
        for address in resolved
    )


def _network_contains(text: str, addresses: Collection[Address]) -> bool:
    try:
        network = ip_network(text, strict=False)
    except ValueError:
        return False
    return any(address.version == network.version and address in network for address in addresses)
