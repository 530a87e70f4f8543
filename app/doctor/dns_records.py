"""Check DNS records: MX, SPF, DKIM, DMARC, MTA-STS and TLS-RPT for our domain, and PTR for the relay."""

from collections.abc import Iterator

import dns.resolver

from app.doctor import configuration, dkim_keys, spf
from app.doctor.dns_lookup import Address, DnsError, DnsLookup, parse_tags
from app.doctor.findings import Finding, Level, error, ok, warning
from app.settings import Settings
from app.text.in_words import count_of


def check(settings: Settings, resolver: dns.resolver.Resolver | None = None) -> Iterator[Finding]:
    """Check the DNS records of our sender domain and of the relay, within ten seconds."""
    domain = settings.mail_domain
    if not configuration.is_public_domain(domain):
        yield ok("dns", f"no records were checked, because {domain} is not a public domain")
        return
    lookup = DnsLookup(resolver)
    try:
        mx = _check_mx(domain, lookup)
        if mx.level is Level.ERROR and not lookup.can_resolve_root():
            raise DnsError("the resolver does not resolve public names")
        yield mx
    except DnsError as fault:
        message = f"no resolver answered, so the DNS records were not checked ({fault})"
        yield warning("dns", message, "run the doctor again on a machine that can resolve names")
        return
    for name, check_records in {
        "spf": _check_spf,
        "dkim": dkim_keys.check_records,
        "dmarc": _check_dmarc,
        "ptr": _check_ptr,
        "mta-sts": _check_tls_policies,
    }.items():
        try:
            yield from check_records(settings, lookup)
        except DnsError as fault:
            yield warning(name, f"the records could not be looked up: {fault}", "run the doctor again")


def _check_mx(domain: str, lookup: DnsLookup) -> Finding:
    """Check that the domain accepts mail, because bounces are sent to return paths on this domain."""
    hosts = lookup.mail_exchanges(domain)
    if any(hosts):
        return ok("mx", f"bounces are sent to {', '.join(sorted(hosts))}")
    if not hosts and lookup.addresses(domain):
        return ok("mx", f"bounces are sent to {domain} itself, which has an address, but no MX record")
    problem = "accepts no mail (MX 0 .)" if hosts else "has neither an MX record nor an address"
    return error(
        "mx",
        f"{domain} {problem}: bounces are lost, and many servers refuse mail from such a domain",
        f"publish an MX record of {domain} that names your mail server",
    )


def _check_spf(settings: Settings, lookup: DnsLookup) -> Iterator[Finding]:
    domain = settings.mail_domain
    records = spf.spf_records(lookup.texts(domain))
    addresses = _public_relay_addresses(settings, lookup)
    if not records:
        terms = _ip_terms(addresses) or "include:… (see the documentation of your relay's provider)"
        message = f"{domain} has no SPF record; large providers require one from bulk senders"
        yield warning("spf", message, f"publish the TXT record of {domain}: v=spf1 {terms} ~all")
        return
    if len(records) > 1:
        message = f"{domain} has {len(records)} SPF records, so receivers ignore all of them"
        yield error("spf", message, "merge them into one TXT record")
        return
    result = spf.evaluate(domain, records[0], addresses, lookup)
    if result.lookups > spf.MAX_LOOKUPS:
        message = f"the record of {domain} needs over {spf.MAX_LOOKUPS} lookups, so receivers ignore it"
        fix = "remove the include: of providers that you no longer use, or list networks with ip4:"
        yield error("spf", message, fix)
    elif result.errors:
        fix = "correct or remove the invalid part: one error invalidates the whole record"
        yield error("spf", f"the record of {domain} has an error: {'; '.join(result.errors)}", fix)
    elif result.default not in ("~all", "-all"):
        message = (
            f"the record of {domain} ends in {result.default or 'nothing'}: it does not exclude other senders"
        )
        yield warning("spf", message, f"publish: {spf.with_all_at_end(records[0], '~all')}")
    elif unused := spf.terms_after_all(records[0]):
        message = (
            f"the record of {domain} lists {' '.join(unused)} after {result.default}: receivers ignore it"
        )
        yield warning("spf", message, f"publish: {spf.with_all_at_end(records[0], result.default)}")
    else:
        yield _check_relay_is_listed(settings, addresses, result)


def _ip_terms(addresses: list[Address]) -> str:
    return " ".join(f"ip{address.version}:{address}" for address in addresses)


def _check_relay_is_listed(settings: Settings, addresses: list[Address], result: spf.SpfResult) -> Finding:
    lookups = count_of(result.lookups, "lookup")
    message = f"the record of {settings.mail_domain} ends in {result.default}, after {lookups}"
    if not addresses:
        return ok(
            "spf",
            f"{message}; the public address of {settings.smtp_host} cannot be determined from this machine",
            "make sure that the record lists the address in the Received headers of a delivered email",
        )
    addresses_text = ", ".join(map(str, addresses))
    if result.lists_address:
        return ok("spf", f"{message}, and it lists the relay's address ({addresses_text})")
    message += f"; it does not list the relay's own address ({addresses_text})"
    if result.depends_on_mail:
        message += ", as far as can be determined without an email"
    if f".{settings.smtp_host}".endswith(f".{settings.mail_domain}"):
        fix = f"if the relay sends from this address, put {_ip_terms(addresses)} before {result.default}"
        return warning("spf", message, fix)
    advice = "ignore this if your provider sends from other addresses, which its include: term lists"
    return ok("spf", message, advice)


def _public_relay_addresses(settings: Settings, lookup: DnsLookup) -> list[Address]:
    return [address for address in lookup.addresses(settings.smtp_host) if address.is_global]


def _check_dmarc(settings: Settings, lookup: DnsLookup) -> Iterator[Finding]:
    domain = settings.mail_domain
    labels = domain.split(".")
    for start in range(max(1, len(labels) - 1)):  # from the domain up to its second-level domain
        name = "_dmarc." + ".".join(labels[start:])
        texts = lookup.texts(name)
        records = [text for text in texts if text.replace(" ", "").lower().startswith("v=dmarc1")]
        if records:
            break
    if not records:
        yield warning(
            "dmarc",
            f"{domain} has no DMARC record; large providers require one from bulk senders",
            f"publish the TXT record of _dmarc.{domain}: v=DMARC1; p=none; rua=mailto:postmaster@{domain}",
        )
    elif len(records) > 1:
        message = f"{name} has {len(records)} DMARC records, so receivers ignore all of them"
        yield warning("dmarc", message, "keep one of them")
    else:
        tags = parse_tags(records[0])
        policy = (tags.get("sp") if name != f"_dmarc.{domain}" else "") or tags.get("p", "")
        if policy.lower() not in ("none", "quarantine", "reject"):
            fix = f"publish: {records[0].rstrip('; ')}; p=none"
            yield warning("dmarc", f"the record of {name} has no valid policy", fix)
            return
        alignment = "From, return path and signatures all use that domain, so SPF or DKIM alone is enough"
        advice = (
            "" if tags.get("rua") else f"add rua=mailto:postmaster@{domain} to receive reports of forgeries"
        )
        yield ok("dmarc", f"the policy of {domain} is {policy.lower()} (from {name}); {alignment}", advice)


def _check_tls_policies(settings: Settings, lookup: DnsLookup) -> Iterator[Finding]:
    """Check the optional TLS records for mail to the domain, such as bounces. Suggest missing records."""
    domain = settings.mail_domain
    for check_name, name, version, purpose, advice in (
        (
            "mta-sts",
            f"_mta-sts.{domain}",
            "v=stsv1",
            "makes servers send bounces only over verified TLS (RFC 8461)",
            f"publish _mta-sts.{domain}: v=STSv1; id=1, and serve https://mta-sts.{domain}/.well-known/mta-sts.txt",
        ),
        (
            "tls-rpt",
            f"_smtp._tls.{domain}",
            "v=tlsrptv1",
            "provides reports of failed TLS connections (RFC 8460)",
            f"publish _smtp._tls.{domain}: v=TLSRPTv1; rua=mailto:postmaster@{domain}",
        ),
    ):
        has_record = any(text.replace(" ", "").lower().startswith(version) for text in lookup.texts(name))
        state = "has a record, which" if has_record else "has no record; such a record"
        yield ok(check_name, f"{name} {state} {purpose}", "" if has_record else advice)


def _check_ptr(settings: Settings, lookup: DnsLookup) -> Iterator[Finding]:
    addresses = _public_relay_addresses(settings, lookup)
    if not addresses:
        yield ok(
            "ptr",
            f"the relay {settings.smtp_host} has no public address; the address that it sends from needs a "
            "PTR record, which cannot be checked from here",
        )
    for address in addresses:
        names = lookup.host_names(address)
        confirmed = [name for name in names if address in lookup.addresses(name)]
        if confirmed:
            yield ok("ptr", f"the relay's address {address} is named {confirmed[0]}, which resolves back")
            continue
        problem = f"has the name {names[0]}, which does not resolve back" if names else "has no PTR record"
        yield warning(
            "ptr",
            f"the relay's address {address} {problem}: large providers refuse emails from it",
            f"ask the provider of {address} to set its PTR record to a name that resolves to this address",
        )
