"""What other mail servers see of us in the DNS: SPF, DKIM, DMARC, where bounces go, and the relay's name."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import suppress

import dns.resolver
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from app.doctor import configuration, spf, tags
from app.doctor.dns_lookup import Address, DnsLookup, NoAnswer
from app.doctor.findings import Finding, Level, error, warning, well
from app.errors import InvalidSettings
from app.mail import dkim
from app.settings import Settings


def look(settings: Settings, resolver: dns.resolver.Resolver | None = None) -> Iterator[Finding]:
    """Ask the DNS about the domain of our mails, and about the relay. Ends within ten seconds."""
    domain = settings.mail_domain
    if not configuration.is_public_domain(domain):
        yield well("dns", f"was not asked: other mail servers cannot know {domain}")
        return
    names = DnsLookup(resolver)
    try:
        first = _bounces(domain, names)
        if first.level is Level.ERROR and not names.has_a_root():
            raise NoAnswer("the one that is asked knows no name of the internet")
        yield first
    except NoAnswer as fault:
        said = f"no resolver answered: the DNS was not looked at ({fault})"
        yield warning("dns", said, "run the doctor again where names can be resolved")
        return
    for check, part in {"spf": _spf, "dkim": _dkim, "dmarc": _dmarc, "ptr": _ptr}.items():
        try:
            yield from part(settings, names)
        except NoAnswer as fault:
            yield warning(check, f"could not be looked up: {fault}", "run the doctor again")


def _bounces(domain: str, names: DnsLookup) -> Finding:
    """Return paths are on the From domain: what cannot be sent comes back to it."""
    exchanges = names.exchanges(domain)
    if any(exchanges):
        return well("mx", f"what comes back goes to {', '.join(sorted(exchanges))}")
    if not exchanges and names.addresses(domain):
        return well("mx", f"what comes back goes to {domain} itself: it has an address, and no MX record")
    said = "takes no mail (MX 0 .)" if exchanges else "has neither an MX record nor an address"
    return error(
        "mx",
        f"{domain} {said}: bounces are lost, and many servers refuse mails from such a domain",
        f"publish an MX record of {domain} that names a mail server of yours",
    )


def _spf(settings: Settings, names: DnsLookup) -> Iterator[Finding]:
    domain = settings.mail_domain
    found = spf.spf_records(names.texts(domain))
    relay = _public(settings, names)
    listed = " ".join(f"ip{each.version}:{each}" for each in relay) or "include:… of your relay's provider"
    if not found:
        said = f"{domain} has no SPF record, which the large providers ask of everybody who writes to many"
        yield warning("spf", said, f"publish the TXT record of {domain}: v=spf1 {listed} ~all")
    elif len(found) > 1:
        said = f"{domain} has {len(found)} SPF records, and so, by the rules, none"
        yield error("spf", said, "publish one TXT record that says what they say together")
    else:
        yield _read_spf(settings, found[0], relay, names)


def _read_spf(settings: Settings, record: str, relay: list[Address], names: DnsLookup) -> Finding:
    domain = settings.mail_domain
    read = spf.evaluate(domain, record, relay, names)
    if read.lookups > spf.MAX_LOOKUPS:
        said = f"the record of {domain} needs over {spf.MAX_LOOKUPS} lookups, and so, by the rules, is none"
        return error(
            "spf", said, "leave out includes of providers that you no longer use, or name networks by ip4:"
        )
    if read.broken:
        fix = "mend it, or leave out the part that it concerns: one error makes all of the record void"
        return error("spf", f"the record of {domain} has an error: {'; '.join(read.broken)}", fix)
    if read.end not in ("~all", "-all"):
        said = (
            f"the record of {domain} ends in {read.end or 'nothing'}: it says of nobody that they are not you"
        )
        return warning("spf", said, f"publish: {_ending_well(record)}")
    return _listed(settings, relay, read)


def _ending_well(record: str) -> str:
    kept = [term for term in record.split() if not term.lower().endswith("all") or len(term) > len("+all")]
    return " ".join([*kept, "~all"])


def _listed(settings: Settings, relay: list[Address], read: spf.SpfResult) -> Finding:
    shown = f"the record of {settings.mail_domain} ends in {read.end}, after {read.lookups} lookups"
    if not relay:
        return well(
            "spf",
            f"{shown}; by which address {settings.smtp_host} reaches the world cannot be seen from here",
            "the record has to list that address: a mail sent elsewhere shows it in its Received headers",
        )
    addresses = ", ".join(map(str, relay))
    if read.lists:
        return well("spf", f"{shown}, and it lists the relay's address ({addresses})")
    said = f"{shown}; the relay's own address ({addresses}) is not in it"
    if read.depends:
        said += ", as far as can be told: it depends on the mail at hand"
    if settings.smtp_host.endswith(settings.mail_domain):
        terms = " ".join(f"ip{each.version}:{each}" for each in relay)
        return warning("spf", said, f"if the relay sends from there, put {terms} before {read.end}")
    advice = "no matter where your provider sends from other addresses, which its include: lists"
    return well("spf", said, advice)


def _public(settings: Settings, names: DnsLookup) -> list[Address]:
    """The addresses of the relay by which the world could know it."""
    return [each for each in names.addresses(settings.smtp_host) if each.is_global]


def _dkim(settings: Settings, names: DnsLookup) -> Iterator[Finding]:
    if not settings.dkim_keys:
        yield warning(
            "dkim",
            "no key is set: mails are signed only where the relay signs them, which cannot be seen here",
            f"unless the relay signs for {settings.mail_domain}: make one with `paperboy key dkim dkim.pem`, "
            "set PAPERBOY_DKIM_KEYS, and publish its record",
        )
    for setting in settings.dkim_keys:
        with suppress(InvalidSettings):  # which is said among the settings
            (key,) = dkim.load([setting])
            yield _published(key, settings.mail_domain, names)


def _published(key: dkim.Key, domain: str, names: DnsLookup) -> Finding:
    check, (name, record) = f"dkim {key.selector}", key.record(domain)
    fix = f"publish the TXT record of {name}: {record}"
    found = names.texts(name)
    if not found:
        return error(check, f"{name} has no record: nobody can verify our signatures", fix)
    if len(found) > 1:
        return error(check, f"{name} has {len(found)} records: which one counts is left to chance", fix)
    held = tags.read(found[0])
    if not held.get("p"):
        return error(check, f"the record of {name} has no key in it: p= is empty, which revokes it", fix)
    if held.get("k", "rsa") != key.algorithm or _public_half(held["p"]) != key.public:
        return error(
            check, f"the record of {name} has another key than ours: our signatures fail everywhere", fix
        )
    if "y" in held.get("t", "").split(":"):
        return warning(check, f"the record of {name} says that we are only testing (t=y)", fix)
    return well(check, f"{name} has the public half of our key")


def _public_half(published: str) -> bytes:
    """What `p=` holds; an RSA key is published in either of two shapes, and here always in one."""
    try:
        raw = base64.b64decode(published, validate=True)
    except ValueError:
        return b""
    try:
        key = serialization.load_der_public_key(raw)
    except (ValueError, UnsupportedAlgorithm):
        return raw  # Ed25519: the bare bytes
    return key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def _dmarc(settings: Settings, names: DnsLookup) -> Iterator[Finding]:
    domain = settings.mail_domain
    at, found = _policies(domain, names)
    if not found:
        yield warning(
            "dmarc",
            f"{domain} has no DMARC record, which the large providers ask of everybody who writes to many",
            f"publish the TXT record of _dmarc.{domain}: v=DMARC1; p=none; rua=mailto:postmaster@{domain}",
        )
    elif len(found) > 1:
        yield warning(
            "dmarc", f"{at} has {len(found)} DMARC records, and so, by the rules, none", "keep one of them"
        )
    else:
        said = tags.read(found[0])
        policy = (said.get("sp") if at != f"_dmarc.{domain}" else "") or said.get("p", "")
        if policy.lower() not in ("none", "quarantine", "reject"):
            yield warning(
                "dmarc", f"the record of {at} names no policy", f"publish: {found[0].rstrip('; ')}; p=none"
            )
            return
        aligned = "From, return path and signatures are all on that domain, so each of SPF and DKIM is enough"
        yield well("dmarc", f"the policy of {domain} is {policy.lower()} (by {at}); {aligned}")


def _policies(domain: str, names: DnsLookup) -> tuple[str, list[str]]:
    """The nearest records, from the domain up to, but not at, the top level."""
    labels = domain.split(".")
    for start in range(max(1, len(labels) - 1)):
        at = "_dmarc." + ".".join(labels[start:])
        found = [text for text in names.texts(at) if text.replace(" ", "").lower().startswith("v=dmarc1")]
        if found:
            return at, found
    return f"_dmarc.{domain}", []


def _ptr(settings: Settings, names: DnsLookup) -> Iterator[Finding]:
    relay = _public(settings, names)
    if not relay:
        yield well(
            "ptr",
            f"the relay {settings.smtp_host} has no public address: the one by which it sends needs a PTR "
            "record, which cannot be seen from here",
        )
    for address in relay:
        known = names.names_of(address)
        confirmed = [name for name in known if address in names.addresses(name)]
        if confirmed:
            yield well("ptr", f"the relay's address {address} is {confirmed[0]}, which leads back to it")
            continue
        said = f"names {known[0]}, which does not lead back to it" if known else "has no PTR record"
        yield warning(
            "ptr",
            f"the relay's address {address} {said}: large providers refuse mails from there",
            f"have whoever gave you {address} set its PTR record to the relay's name, which leads back",
        )
