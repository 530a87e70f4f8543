"""Test the doctor's checks of DNS records against a real name server."""

from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from app.doctor import dns_records
from app.doctor.findings import Finding, Level
from app.mail import dkim
from app.settings import Settings
from tests.support.dns_server import NameServer

RELAY = "93.184.215.14"  # any public address
OTHER = "8.8.4.4"


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Return settings with two keys and a relay that sends emails itself."""
    named, folder = [], tmp_path_factory.mktemp("keys")
    for algorithm in dkim.Algorithm:
        dkim.create(algorithm, folder / algorithm)
        named.append(f"{algorithm}1:{folder / algorithm}")
    return Settings(
        _env_file=None,
        from_address="digest@paperboy.io",
        smtp_host="mail.paperboy.io",
        dkim_keys=tuple(named),
    )


@pytest.fixture
def name_server(settings: Settings) -> Iterator[NameServer]:
    """Serve a zone without problems."""
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


def run_check(settings: Settings, name_server: NameServer, **changed: object) -> dict[str, Finding]:
    """Return the findings by check, with some settings changed."""
    findings = dns_records.check(settings.model_copy(update=changed), name_server.resolver)
    return {finding.check: finding for finding in findings}


def test_complete_zone_has_only_good_findings(settings: Settings, name_server: NameServer) -> None:
    """All checks run."""
    findings = run_check(settings, name_server)
    assert {name: each.level for name, each in findings.items()} == dict.fromkeys(
        ("mx", "spf", "dkim rsa1", "dkim ed255191", "dmarc", "ptr", "mta-sts", "tls-rpt"), Level.OK
    )
    assert f"lists the relay's address ({RELAY})" in findings["spf"].message
    assert "quarantine" in findings["dmarc"].message
    assert "mail.paperboy.io, which resolves back" in findings["ptr"].message


def test_useful_records_are_suggested(settings: Settings, name_server: NameServer) -> None:
    """Without them, everything works. With them, nothing is suggested."""
    advised = ("dmarc", "mta-sts", "tls-rpt")
    findings = run_check(settings, name_server)
    assert "rua=mailto:postmaster@paperboy.io" in findings["dmarc"].fix
    assert "https://mta-sts.paperboy.io/" in findings["mta-sts"].fix
    assert "_smtp._tls.paperboy.io: v=TLSRPTv1" in findings["tls-rpt"].fix
    assert "has no record; such a record makes servers send bounces" in findings["mta-sts"].message
    name_server.set("_dmarc.paperboy.io", "TXT", "v=DMARC1; p=none; rua=mailto:x@paperboy.io")
    name_server.set("_mta-sts.paperboy.io", "TXT", "v=STSv1; id=20261123")
    name_server.set("_smtp._tls.paperboy.io", "TXT", "v=TLSRPTv1; rua=mailto:x@paperboy.io")
    findings = run_check(settings, name_server)
    assert [findings[name].fix for name in advised] == ["", "", ""]
    assert "has a record, which makes servers send bounces" in findings["mta-sts"].message


def test_local_domains_are_not_queried(settings: Settings, name_server: NameServer) -> None:
    """localhost.localdomain is known only on this machine."""
    findings = run_check(settings, name_server, from_address="paperboy@localhost.localdomain")
    assert (findings["dns"].level, not name_server.query_counts) == (Level.OK, True)


def test_silent_resolver_is_one_finding(settings: Settings, name_server: NameServer) -> None:
    """The doctor does not wait for each record."""
    name_server.silent = True
    started = monotonic()
    findings = run_check(settings, name_server)
    assert monotonic() - started < 10
    assert [*findings] == ["dns"]
    assert (findings["dns"].level, "no resolver answered" in findings["dns"].message) == (Level.WARNING, True)


def test_resolver_without_any_domain_is_not_trusted(settings: Settings, name_server: NameServer) -> None:
    """In a closed network no domain resolves."""
    name_server.zone.clear()
    findings = run_check(settings, name_server)
    assert {name: each.level for name, each in findings.items()} == {"dns": Level.WARNING}
    assert "no resolver answered" in findings["dns"].message


def test_failed_lookup_of_one_record(settings: Settings, name_server: NameServer) -> None:
    """It is reported as unknown, and not as a fault of the domain."""
    name_server.fail("_dmarc.paperboy.io", "TXT")
    findings = run_check(settings, name_server)
    assert (findings["dmarc"].level, "SERVFAIL" in findings["dmarc"].message) == (Level.WARNING, True)
    assert findings["ptr"].level is Level.OK


# --- where bounces go


def test_domain_without_mx(settings: Settings, name_server: NameServer) -> None:
    """RFC 5321 falls back to the address record."""
    name_server.set("paperboy.io", "MX")
    name_server.set("paperboy.io", "AAAA", "2606:2800:21f:cb07:6820:80da:af6b:8b2c")
    assert "no MX record" in run_check(settings, name_server)["mx"].message
    assert run_check(settings, name_server)["mx"].level is Level.OK


def test_domain_that_accepts_no_mail(settings: Settings, name_server: NameServer) -> None:
    """It has neither an MX nor an address record, or a null MX."""
    name_server.set("paperboy.io", "MX")
    nowhere = run_check(settings, name_server)["mx"]
    name_server.set("paperboy.io", "MX", "0 .")
    refused = run_check(settings, name_server)["mx"]
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
        (["v=spf1 -include:provider.example.net -all"], Level.WARNING, "does not list"),
        (
            ["v=spf1 -all include:provider.example.net"],
            Level.WARNING,
            "lists include:provider.example.net after",
        ),
        (["v=spf1 mx includes:provider.example.net -all"], Level.ERROR, "“includes:provider.example.net”"),
        (
            ["v=spf1 mx include=provider.example.net redirect:a.example -all"],
            Level.ERROR,
            "“redirect:a.example”",
        ),
        (["v=spf1 mx -al ~all"], Level.ERROR, "“-al” is not a valid term"),
        ([f"v=spf1 mx {OTHER} -all"], Level.ERROR, f"“{OTHER}” is not a valid term"),
        (["v=spf1 mx -all ip4:8.8.4.4,"], Level.ERROR, "“ip4:8.8.4.4,” is not a valid term"),
        (["v=spf1 mx -ip4:2001:db8::1 -all"], Level.ERROR, "“-ip4:2001:db8::1” is not a valid term"),
        (["v=spf1 mx/33 -all"], Level.ERROR, "“mx/33” is not a valid term"),
        (["v=spf1 mx -all:"], Level.ERROR, "“-all:” is not a valid term"),
        (["v=spf1 mx -redirect=provider.example.net"], Level.ERROR, "“-redirect=provider.example.net”"),
    ],
)
def test_invalid_spf_record(
    records: list[str], level: Level, expected: str, settings: Settings, name_server: NameServer
) -> None:
    """The fix has the record to publish."""
    name_server.set("loop.example.net", "TXT", "v=spf1 include:loop.example.net -all")
    name_server.set("provider.example.net", "TXT", f"v=spf1 ip4:{RELAY} -all")
    name_server.set("paperboy.io", "TXT", *records)
    finding = run_check(settings, name_server)["spf"]
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
        "v=spf1 mx a:%{d/}.example.net/24 ptr unknown=mx?all -all exp=why.example.net",
        "v=spf1 include=provider.example.net mx -all redirect=gone.example.net",
    ],
)
def test_spf_record_that_includes_the_relay(record: str, settings: Settings, name_server: NameServer) -> None:
    """Test all mechanisms that lead to its address."""
    name_server.set("provider.example.net", "TXT", f"v=spf1 ip4:{RELAY} -all")
    name_server.set("paperboy.io", "TXT", record)
    finding = run_check(settings, name_server)["spf"]
    assert (finding.level, "lists the relay" in finding.message) == (Level.OK, True)


def test_missing_spf_record(settings: Settings, name_server: NameServer) -> None:
    """The fix is ready to copy."""
    name_server.set("paperboy.io", "TXT")
    assert run_check(settings, name_server)["spf"].fix.endswith(f"v=spf1 ip4:{RELAY} ~all")
    name_server.set("paperboy.io", "TXT", "v=spf1 mx ?all")
    assert run_check(settings, name_server)["spf"].fix.endswith("v=spf1 mx ~all")
    name_server.set("paperboy.io", "TXT", "v=spf1 ~all mx")
    assert run_check(settings, name_server)["spf"].fix.endswith("publish: v=spf1 mx ~all")


def test_redirect_to_an_spf_record_without_a_default(settings: Settings, name_server: NameServer) -> None:
    """Beside `all`, a redirect has no effect, so the fix includes the record instead."""
    name_server.set("provider.example.net", "TXT", f"v=spf1 ip4:{RELAY} ?all")
    name_server.set("paperboy.io", "TXT", "v=spf1 redirect=provider.example.net")
    fix = run_check(settings, name_server)["spf"].fix
    assert fix == "publish: v=spf1 include:provider.example.net ~all"
    name_server.set("paperboy.io", "TXT", fix.removeprefix("publish: "))
    assert "lists the relay" in run_check(settings, name_server)["spf"].message


def test_unknown_sending_address(settings: Settings, name_server: NameServer) -> None:
    """A local relay has another public address, and a provider may use several."""
    local = run_check(settings, name_server, smtp_host="127.0.0.1")
    assert (local["spf"].level, "cannot be determined from this machine" in local["spf"].message) == (
        Level.OK,
        True,
    )
    assert "cannot be checked from here" in local["ptr"].message
    name_server.set("smtp.provider.net", "A", OTHER)
    name_server.set("4.4.8.8.in-addr.arpa", "PTR", "smtp.provider.net.")
    provider = run_check(settings, name_server, smtp_host="smtp.provider.net")["spf"]
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
    relay: str, level: Level, settings: Settings, name_server: NameServer
) -> None:
    """A domain that merely ends in the same letters belongs to somebody else."""
    name_server.set("paperboy.io", "TXT", "v=spf1 ip4:192.0.2.1 -all")
    name_server.set(relay, "A", OTHER)
    assert run_check(settings, name_server, smtp_host=relay)["spf"].level is level


# --- DKIM


def dkim_record(settings: Settings, number: int = 0) -> tuple[str, str]:
    return dkim.load(settings.dkim_keys)[number].record("paperboy.io")


def test_unpublished_key(settings: Settings, name_server: NameServer) -> None:
    """The fix is the record."""
    name, record = dkim_record(settings)
    name_server.set(name, "TXT")
    finding = run_check(settings, name_server)["dkim rsa1"]
    assert finding.level is Level.ERROR
    assert finding.fix == f"publish the TXT record of {name}: {record}"


@pytest.mark.parametrize("number", [0, 1])
def test_record_with_another_key(
    number: int, settings: Settings, name_server: NameServer, tmp_path: Path
) -> None:
    algorithm = tuple(dkim.Algorithm)[number]
    dkim.create(algorithm, tmp_path / "other")
    name_server.set(
        dkim_record(settings, number)[0], "TXT", dkim.load([f"x:{tmp_path}/other"])[0].record("x")[1]
    )
    finding = run_check(settings, name_server)[f"dkim {algorithm}1"]
    assert (finding.level, "does not have our public key" in finding.message) == (Level.ERROR, True)


@pytest.mark.parametrize(
    ("published", "level", "expected"),
    [
        ("v=DKIM1; k=rsa; p=", Level.ERROR, "revokes"),
        ("v=DKIM1; k=rsa; p=!!!", Level.ERROR, "does not have our public key"),
        ("v=DKIM1; k=rsa", Level.ERROR, "has no key"),
        ("{ours}; t=y:s", Level.WARNING, "testing"),
    ],
)
def test_invalid_dkim_record(
    published: str, level: Level, expected: str, settings: Settings, name_server: NameServer
) -> None:
    """It is worse than none, because every signature fails."""
    name, record = dkim_record(settings)
    name_server.set(name, "TXT", published.format(ours=record))
    finding = run_check(settings, name_server)["dkim rsa1"]
    assert (finding.level, expected in finding.message, record in finding.fix) == (level, True, True)


def test_duplicate_dkim_records(settings: Settings, name_server: NameServer) -> None:
    """Receivers pick one at random."""
    name, record = dkim_record(settings)
    name_server.set(name, "TXT", record, "v=DKIM1; p=")
    assert run_check(settings, name_server)["dkim rsa1"].level is Level.ERROR


def test_no_keys(settings: Settings, name_server: NameServer) -> None:
    """The relay may sign, which the doctor cannot detect."""
    finding = run_check(settings, name_server, dkim_keys=())["dkim"]
    assert (finding.level, "this machine cannot check" in finding.message) == (Level.WARNING, True)


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
def test_dmarc_policy(
    records: list[str], level: Level, expected: str, settings: Settings, name_server: NameServer
) -> None:
    """There must be one record with a policy."""
    name_server.set("_dmarc.paperboy.io", "TXT", *records)
    finding = run_check(settings, name_server)["dmarc"]
    assert (finding.level, expected in finding.message) == (level, True)
    assert level is Level.OK or "v=DMARC1" in finding.fix or "one of them" in finding.fix


def test_dmarc_policy_of_a_parent_domain(settings: Settings, name_server: NameServer) -> None:
    """The tag `sp` applies if present."""
    name_server.set("_dmarc.paperboy.io", "TXT", "v=DMARC1; p=reject; sp=none")
    name_server.set("news.paperboy.io", "MX", "10 mail.paperboy.io.")
    finding = run_check(settings, name_server, from_address="digest@news.paperboy.io")["dmarc"]
    assert "policy of news.paperboy.io is none (from _dmarc.paperboy.io)" in finding.message


def test_reverse_dns_of_the_relay(settings: Settings, name_server: NameServer) -> None:
    """The PTR record is missing, or its name does not resolve back."""
    name_server.set("14.215.184.93.in-addr.arpa", "PTR", "somebody.example.net.")
    forged = run_check(settings, name_server)["ptr"]
    name_server.set("14.215.184.93.in-addr.arpa", "PTR")
    missing = run_check(settings, name_server)["ptr"]
    assert (forged.level, missing.level) == (Level.WARNING, Level.WARNING)
    assert "does not resolve back" in forged.message
    assert "no PTR record" in missing.message
