"""The doctor checks DNS records. A real name server answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from app.doctor import dns_records
from app.doctor.findings import Finding, Level
from app.mail import dkim
from app.settings import Settings
from tests.support.dns_server import NameServer

RELAY = "93.184.215.14"  # of no meaning here but that it is public
OTHER = "8.8.4.4"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A service with two keys, whose relay sends by itself."""
    named = []
    for algorithm in dkim.Algorithm:
        dkim.create(algorithm, tmp_path / algorithm)
        named.append(f"{algorithm}1:{tmp_path / algorithm}")
    return Settings(
        _env_file=None,
        from_address="digest@paperboy.io",
        smtp_host="mail.paperboy.io",
        dkim_keys=tuple(named),
    )


@pytest.fixture
def names(settings: Settings) -> Iterator[NameServer]:
    """A zone in which all is well."""
    with NameServer() as server:
        server.set(".", "NS", "a.root-servers.net.")
        server.set("paperboy.io", "TXT", "v=spf1 mx -all", "something else")
        server.set("paperboy.io", "MX", "10 mail.paperboy.io.")
        server.set("mail.paperboy.io", "A", RELAY)
        server.set("14.215.184.93.in-addr.arpa", "PTR", "mail.paperboy.io.")
        server.set("_dmarc.paperboy.io", "TXT", "v=DMARC1; p=quarantine")
        for key in dkim.load(settings.dkim_keys):
            name, record = key.record("paperboy.io")
            server.set(name, "TXT", record)
        yield server


def run_check(settings: Settings, names: NameServer, **changed: object) -> dict[str, Finding]:
    """Return the findings by check, with some settings changed."""
    findings = dns_records.check(settings.model_copy(update=changed), names.resolver)
    return {finding.check: finding for finding in findings}


def test_a_domain_that_is_set_up_has_good_findings(settings: Settings, names: NameServer) -> None:
    """Everything was looked at, and all is well."""
    findings = run_check(settings, names)
    assert {name: each.level for name, each in findings.items()} == dict.fromkeys(
        ("mx", "spf", "dkim rsa1", "dkim ed255191", "dmarc", "ptr"), Level.OK
    )
    assert f"lists the relay's address ({RELAY})" in findings["spf"].message
    assert "quarantine" in findings["dmarc"].message
    assert "mail.paperboy.io, which resolves back" in findings["ptr"].message


def test_nobody_is_asked_about_a_domain_that_nobody_knows(settings: Settings, names: NameServer) -> None:
    """localhost.localdomain is known here alone."""
    findings = run_check(settings, names, from_address="paperboy@localhost.localdomain")
    assert (findings["dns"].level, not names.asked) == (Level.OK, True)


def test_a_resolver_that_is_silent_is_one_finding(settings: Settings, names: NameServer) -> None:
    """It does not keep the doctor waiting for each record."""
    names.silent = True
    started = monotonic()
    findings = run_check(settings, names)
    assert monotonic() - started < 10
    assert [*findings] == ["dns"]
    assert (findings["dns"].level, "no resolver answered" in findings["dns"].message) == (Level.WARNING, True)


def test_a_resolver_that_denies_everything_is_not_believed(settings: Settings, names: NameServer) -> None:
    """In a closed network there is no domain at all: that says nothing about this one."""
    names.zone.clear()
    findings = run_check(settings, names)
    assert {name: each.level for name, each in findings.items()} == {"dns": Level.WARNING}
    assert "no resolver answered" in findings["dns"].message


def test_a_resolver_that_fails_over_one_record_still_tells_the_others(
    settings: Settings, names: NameServer
) -> None:
    """What could not be looked up is said to be so, and is no fault of the domain's."""
    names.fail("_dmarc.paperboy.io", "TXT")
    findings = run_check(settings, names)
    assert (findings["dmarc"].level, "SERVFAIL" in findings["dmarc"].message) == (Level.WARNING, True)
    assert findings["ptr"].level is Level.OK


# --- where bounces go


def test_a_domain_without_mx_takes_its_mail_itself(settings: Settings, names: NameServer) -> None:
    """RFC 5321 falls back to the address."""
    names.set("paperboy.io", "MX")
    names.set("paperboy.io", "AAAA", "2606:2800:21f:cb07:6820:80da:af6b:8b2c")
    assert "no MX record" in run_check(settings, names)["mx"].message
    assert run_check(settings, names)["mx"].level is Level.OK


def test_a_domain_that_takes_no_mail_loses_bounces(settings: Settings, names: NameServer) -> None:
    """Without an MX record and an address, or with the MX that says so."""
    names.set("paperboy.io", "MX")
    nowhere = run_check(settings, names)["mx"]
    names.set("paperboy.io", "MX", "0 .")
    refused = run_check(settings, names)["mx"]
    assert (nowhere.level, refused.level) == (Level.ERROR, Level.ERROR)
    assert "accepts no mail" in refused.message
    assert "MX record" in nowhere.fix


# --- SPF


@pytest.mark.parametrize(
    ("records", "level", "expected"),
    [
        ([], Level.WARNING, "no SPF record"),
        (["v=spf1 mx -all", "v=spf1 a -all"], Level.ERROR, "2 SPF records"),
        (["v=spf1 mx"], Level.WARNING, "ends in nothing"),
        (["v=spf1 mx ?all"], Level.WARNING, "ends in ?all"),
        (["v=spf1 +all"], Level.WARNING, "ends in +all"),
        (["v=spf1 ip4:300.1.1.1 -all"], Level.ERROR, "300.1.1.1"),
        (["v=spf1 include:gone.example.net -all"], Level.ERROR, "gone.example.net has no SPF record"),
        (["v=spf1 " + "a:mail.paperboy.io " * 11 + "-all"], Level.ERROR, "over 10 lookups"),
        (["v=spf1 include:loop.example.net -all"], Level.ERROR, "over 10 lookups"),
        ([f"v=spf1 ip4:{OTHER} -all"], Level.WARNING, "does not list"),
        (["v=spf1 -mx -all"], Level.WARNING, "does not list"),
    ],
)
def test_a_wrong_spf_record_is_found(
    records: list[str], level: Level, expected: str, settings: Settings, names: NameServer
) -> None:
    """With what to publish instead."""
    names.set("loop.example.net", "TXT", "v=spf1 include:loop.example.net -all")
    names.set("paperboy.io", "TXT", *records)
    finding = run_check(settings, names)["spf"]
    assert finding.level is level
    assert expected in finding.message
    assert finding.fix


@pytest.mark.parametrize(
    "record",
    [
        f"v=spf1 ip4:{RELAY} ~all",
        "V=SPF1 IP4:93.184.215.0/24 -ALL",
        "v=spf1 a:mail.paperboy.io/28//64 -all",
        "v=spf1 mx:paperboy.io -all",
        "v=spf1 include:provider.example.net ~all",
        "v=spf1 redirect=provider.example.net",
        "v=spf1 ip6:2001:db8::/32 mx exists:%{i}.list.example.net -all",
    ],
)
def test_the_relay_is_found_in_an_spf_record(record: str, settings: Settings, names: NameServer) -> None:
    """However the record leads to its address."""
    names.set("provider.example.net", "TXT", f"v=spf1 ip4:{RELAY} -all")
    names.set("paperboy.io", "TXT", record)
    finding = run_check(settings, names)["spf"]
    assert (finding.level, "lists the relay" in finding.message) == (Level.OK, True)


def test_the_missing_spf_record_is_written_out(settings: Settings, names: NameServer) -> None:
    """Ready to be copied."""
    names.set("paperboy.io", "TXT")
    assert run_check(settings, names)["spf"].fix.endswith(f"v=spf1 ip4:{RELAY} ~all")
    names.set("paperboy.io", "TXT", "v=spf1 mx ?all")
    assert run_check(settings, names)["spf"].fix.endswith("v=spf1 mx ~all")


def test_what_cannot_be_known_of_a_relay_is_said(settings: Settings, names: NameServer) -> None:
    """One on this machine sends by an address that is not seen here; a provider's may send by others."""
    local = run_check(settings, names, smtp_host="127.0.0.1")
    assert (local["spf"].level, "cannot be determined from here" in local["spf"].message) == (Level.OK, True)
    assert "cannot be checked from here" in local["ptr"].message
    names.set("smtp.provider.net", "A", OTHER)
    names.set("4.4.8.8.in-addr.arpa", "PTR", "smtp.provider.net.")
    provider = run_check(settings, names, smtp_host="smtp.provider.net")["spf"]
    assert (provider.level, "include:" in provider.fix) == (Level.OK, True)


@pytest.mark.parametrize(
    ("relay", "level"),
    [
        ("paperboy.io", Level.WARNING),
        ("mail.paperboy.io", Level.WARNING),
        ("mail.notpaperboy.io", Level.OK),
        ("notpaperboy.io", Level.OK),
    ],
)
def test_only_a_relay_on_our_own_domain_must_be_listed(
    relay: str, level: Level, settings: Settings, names: NameServer
) -> None:
    """A domain that merely ends in the same letters belongs to somebody else."""
    names.set("paperboy.io", "TXT", "v=spf1 ip4:192.0.2.1 -all")
    names.set(relay, "A", OTHER)
    assert run_check(settings, names, smtp_host=relay)["spf"].level is level


# --- DKIM


def record_of(settings: Settings, number: int = 0) -> tuple[str, str]:
    return dkim.load(settings.dkim_keys)[number].record("paperboy.io")


def test_a_key_that_is_not_published_is_found(settings: Settings, names: NameServer) -> None:
    """The fix is the record itself."""
    name, record = record_of(settings)
    names.set(name, "TXT")
    finding = run_check(settings, names)["dkim rsa1"]
    assert finding.level is Level.ERROR
    assert finding.fix == f"publish the TXT record of {name}: {record}"


@pytest.mark.parametrize("number", [0, 1])
def test_another_key_than_ours_is_found(
    number: int, settings: Settings, names: NameServer, tmp_path: Path
) -> None:
    """Whoever changes the file has to change the record."""
    algorithm = tuple(dkim.Algorithm)[number]
    dkim.create(algorithm, tmp_path / "other")
    names.set(record_of(settings, number)[0], "TXT", dkim.load([f"x:{tmp_path}/other"])[0].record("x")[1])
    finding = run_check(settings, names)[f"dkim {algorithm}1"]
    assert (finding.level, "a different key" in finding.message) == (Level.ERROR, True)


@pytest.mark.parametrize(
    ("published", "level", "expected"),
    [
        ("v=DKIM1; k=rsa; p=", Level.ERROR, "revokes"),
        ("v=DKIM1; k=rsa; p=!!!", Level.ERROR, "a different key"),
        ("v=DKIM1; k=rsa", Level.ERROR, "has no key"),
        ("{ours}; t=y:s", Level.WARNING, "testing"),
    ],
)
def test_a_record_that_does_not_hold_our_key_is_found(
    published: str, level: Level, expected: str, settings: Settings, names: NameServer
) -> None:
    """It is worse than none: every signature fails."""
    name, ours = record_of(settings)
    names.set(name, "TXT", published.format(ours=ours))
    finding = run_check(settings, names)["dkim rsa1"]
    assert (finding.level, expected in finding.message, ours in finding.fix) == (level, True, True)


def test_two_records_of_a_key_are_one_too_many(settings: Settings, names: NameServer) -> None:
    """Which one a receiver takes is left to chance."""
    name, ours = record_of(settings)
    names.set(name, "TXT", ours, "v=DKIM1; p=")
    assert run_check(settings, names)["dkim rsa1"].level is Level.ERROR


def test_a_service_without_keys_is_told_what_is_not_known(settings: Settings, names: NameServer) -> None:
    """The relay may sign; from here nobody can tell."""
    finding = run_check(settings, names, dkim_keys=())["dkim"]
    assert (finding.level, "cannot be checked" in finding.message) == (Level.WARNING, True)


# --- DMARC and PTR


@pytest.mark.parametrize(
    ("records", "level", "expected"),
    [
        ([], Level.WARNING, "no DMARC record"),
        (["v=DMARC1; p=none", "v=DMARC1; p=reject"], Level.WARNING, "2 DMARC records"),
        (["v=DMARC1; rua=mailto:x@paperboy.io"], Level.WARNING, "no valid policy"),
        (["v=DMARC1; p=reject; adkim=s; aspf=s"], Level.OK, "is reject"),
    ],
)
def test_the_dmarc_policy_is_read(
    records: list[str], level: Level, expected: str, settings: Settings, names: NameServer
) -> None:
    """One record, with a policy."""
    names.set("_dmarc.paperboy.io", "TXT", *records)
    finding = run_check(settings, names)["dmarc"]
    assert (finding.level, expected in finding.message) == (level, True)
    assert level is Level.OK or "v=DMARC1" in finding.fix or "one of them" in finding.fix


def test_a_subdomain_is_under_the_policy_of_its_parent(settings: Settings, names: NameServer) -> None:
    """By `sp`, where that is there."""
    names.set("_dmarc.paperboy.io", "TXT", "v=DMARC1; p=reject; sp=none")
    names.set("news.paperboy.io", "MX", "10 mail.paperboy.io.")
    finding = run_check(settings, names, from_address="digest@news.paperboy.io")["dmarc"]
    assert "policy of news.paperboy.io is none (from _dmarc.paperboy.io)" in finding.message


def test_a_relay_whose_name_does_not_lead_back_is_found(settings: Settings, names: NameServer) -> None:
    """Without a PTR record, or with one that anybody could have written."""
    names.set("14.215.184.93.in-addr.arpa", "PTR", "somebody.example.net.")
    forged = run_check(settings, names)["ptr"]
    names.set("14.215.184.93.in-addr.arpa", "PTR")
    missing = run_check(settings, names)["ptr"]
    assert (forged.level, missing.level) == (Level.WARNING, Level.WARNING)
    assert "does not resolve back" in forged.message
    assert "no PTR record" in missing.message
