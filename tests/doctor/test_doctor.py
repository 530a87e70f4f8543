"""The doctor runs all checks, and says how to fix what is wrong. Each check has its own tests."""

from __future__ import annotations

import shlex
import socket
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from time import monotonic

import pytest
from sqlalchemy import text
from sqlmodel import select

from app import doctor, pipeline
from app.application import Application
from app.cli.doctor import temporary_service
from app.delivery import ledger
from app.doctor import Finding, Level, relay, service_state
from app.doctor.smtp_sink import Sink
from app.mail import dkim
from app.papers.sources.http_client import HttpTransport
from app.relevance import model_store
from app.settings import Settings
from app.storage import database, job_runs
from app.storage.models import Subscriber, TrainedModel
from app.types import SourceKind
from tests.support import factories
from tests.support.dns_server import NameServer


@pytest.fixture
def names() -> Iterator[NameServer]:
    """The DNS records of paperboy.io."""
    with NameServer() as server:
        server.set("paperboy.io", "MX", "10 mail.paperboy.io.")
        server.set("paperboy.io", "TXT", "v=spf1 a:mail.paperboy.io -all")
        server.set("_dmarc.paperboy.io", "TXT", "v=DMARC1; p=none")
        yield server


@pytest.fixture
def settings(settings: Settings, names: NameServer, tmp_path: Path) -> Iterator[Settings]:
    """A realistic service, with a relay that answers and a published key."""
    dkim.create(dkim.Algorithm.ED25519, tmp_path / "key.pem")
    named = (f"s1:{tmp_path / 'key.pem'}",)
    name, record = dkim.load(named)[0].record("paperboy.io")
    names.set(name, "TXT", record)
    with Sink() as sink:
        (tmp_path / "bounces").mkdir()
        changed = {
            "from_address": "digest@paperboy.io",
            "smtp_port": sink.port,
            "dkim_keys": named,
            "bounce_folder": str(tmp_path / "bounces"),
        }
        yield settings.model_copy(update=changed)


def run_doctor(app: Application, now: datetime, names: NameServer, **changed: object) -> dict[str, Finding]:
    """Return the findings by check, with some settings changed."""
    settings = app.settings.model_copy(update=changed)
    findings = doctor.run_checks(settings, now, service=temporary_service(), resolver=names.resolver)
    assert all(finding.fix for finding in findings if finding.level is not Level.OK)
    return {finding.check: finding for finding in findings}


def check_database(app: Application, now: datetime) -> dict[str, Finding]:
    """Return the findings about the database by check."""
    return {finding.check: finding for finding in service_state.check(app.db, model_store.ModelStore(), now)}


def test_a_healthy_service_has_no_finding_but_good_ones(
    app: Application, now: datetime, names: NameServer
) -> None:
    """Everything was looked at, and all is well."""
    with app.db.write() as session:
        factories.source(session, now).polled_at = now
    with job_runs.record(app.db, "refresh", now):
        pass
    findings = run_doctor(app, now, names)
    assert {
        finding.check: finding.message for finding in findings.values() if finding.level is not Level.OK
    } == {}
    assert [*findings] == [
        "settings",
        "base_url",
        "from_address",
        "journal_dir",
        "dkim key s1",
        "compose_ahead_minutes",
        "database",
        "source Hugging Face Daily Papers",
        "job refresh",
        "schedule",
        "clock",
        "ledger",
        "model",
        "bounce_folder",
        "relay",
        "relay TLS",
        "relay size",
        "mx",
        "spf",
        "dkim s1",
        "dmarc",
        "ptr",
        "mail",
        "mail headers",
        "mail unsubscribe",
        "mail signatures",
        "mail return path",
        "mail parts",
        "mail lines",
        "mail size",
        "mail content",
        "one-click",
    ]


def test_nothing_is_changed_by_looking(app: Application, now: datetime, names: NameServer) -> None:
    """No reader is unsubscribed, nothing is sent to the relay, and the database is as it was."""
    with app.db.write() as session:
        factories.reader(session, "alice@example.org", [], now + timedelta(days=1))
    before = _all_rows(app)
    run_doctor(app, now, names)
    assert _all_rows(app) == before


def _all_rows(app: Application) -> dict[str, list[tuple[object, ...]]]:
    tables = Subscriber.metadata.sorted_tables
    with app.db.read() as session:
        return {str(each): [tuple(row) for row in session.execute(each.select())] for each in tables}


def test_others_that_are_silent_do_not_hold_up_the_doctor(
    app: Application, now: datetime, names: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All is looked at together, and each part has an end."""
    monkeypatch.setattr(relay, "TIMEOUT", 1.0)
    monkeypatch.setattr(database, "CONNECT_SECONDS", "2")
    names.silent = True
    started = monotonic()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        url = f"postgresql+psycopg://paperboy@127.0.0.1:{port}/paperboy"
        findings = run_doctor(app, now, names, smtp_port=port, database_url=url)
    assert monotonic() - started < 60
    assert [findings[each].level for each in ("relay", "database")] == [Level.ERROR] * 2
    assert findings["dns"].level is Level.WARNING
    assert findings["one-click"].level is Level.OK


def test_what_cannot_be_looked_at_is_a_finding(app: Application, now: datetime, names: NameServer) -> None:
    """The other parts are looked at all the same."""
    findings = run_doctor(app, now, names, dkim_keys=("s1:/nowhere/key.pem",))
    assert findings["dkim key s1"].level is Level.ERROR
    assert (findings["mail"].level, "/nowhere/key.pem" in findings["mail"].message) == (Level.ERROR, True)
    assert findings["relay"].level is Level.OK


def test_the_web_app_is_asked_by_network_only_when_told_to(
    app: Application, now: datetime, names: NameServer
) -> None:
    """Not by accident, from a machine that must not reach out."""
    assert "online" not in run_doctor(app, now, names)
    settings = app.settings.model_copy(update={"base_url": "http://paperboy.test"})
    findings = doctor.run_checks(
        settings, now, service=temporary_service(), resolver=names.resolver, online=HttpTransport()
    )
    assert findings[-1].check == "online"


def test_nobody_reads_a_password_in_a_finding(app: Application, now: datetime, names: NameServer) -> None:
    """Findings are pasted into issues."""
    url = "postgresql+psycopg://paperboy:hunter2hunter2@127.0.0.1:1/none"
    findings = run_doctor(
        app, now, names, database_url=url, smtp_username="me", smtp_password="hunter2hunter2"
    )
    assert "hunter2" not in str(findings)
    assert findings["database"].level is Level.ERROR
    assert "schedule" not in findings


# --- what the database remembers


def test_a_database_that_was_not_migrated_is_found(app: Application, now: datetime) -> None:
    """Nothing in it is asked then."""
    with app.db.write() as session:
        session.execute(text("UPDATE alembic_version SET version_num = 'older'"))
    findings = check_database(app, now)
    assert findings["database"].level is Level.ERROR
    assert "paperboy migrate" in findings["database"].fix
    assert "schedule" not in findings


def test_sources_that_fail_sleep_or_are_old_are_found(app: Application, now: datetime) -> None:
    """Each by its name; a name under which files were read is no source that could fail."""
    with app.db.write() as session:
        for name, fields in {
            "failing": {"failures": 3, "last_error": "it answered 503", "next_poll_at": now},
            "hiccup": {"failures": 1, "next_poll_at": now},
            "sleeping": {"paused": True, "next_poll_at": now},
            "old": {"polled_at": now - timedelta(days=4), "next_poll_at": now},
            "files": {"paused": True, "kind": SourceKind.PAGE},
        }.items():
            row = factories.source(session, now, name=name)
            for field, value in fields.items():
                setattr(row, field, value)
    findings = check_database(app, now)
    levels = {name: findings[f"source {name}"].level for name in ("failing", "hiccup", "sleeping", "old")}
    assert levels == {
        "failing": Level.ERROR,
        "hiccup": Level.WARNING,
        "sleeping": Level.WARNING,
        "old": Level.WARNING,
    }
    assert "503" in findings["source failing"].message
    assert "source files" not in findings


def test_a_service_without_sources_is_found(app: Application, now: datetime) -> None:
    """It would never have anything to send."""
    assert check_database(app, now)["sources"].level is Level.WARNING


def test_a_failed_job_is_found_until_it_works_again(app: Application, now: datetime) -> None:
    """Only the newest run of a job says how it is."""
    with job_runs.record(app.db, "refresh", now) as run:
        run.fail("arxiv", "it answered 503")
    assert check_database(app, now)["job refresh"].level is Level.WARNING
    with job_runs.record(app.db, "refresh", now):
        pass
    assert check_database(app, now)["job refresh"].level is Level.OK


@pytest.mark.parametrize(
    ("late", "span"),
    [
        (timedelta(minutes=20), "20 minutes"),
        (timedelta(minutes=119), "119 minutes"),
        (timedelta(hours=3, minutes=10), "3 hours"),
        (timedelta(minutes=333315), "231 days"),
    ],
)
def test_a_digest_that_is_late_is_found(app: Application, now: datetime, late: timedelta, span: str) -> None:
    """Nobody runs the schedule; for how long is said as people say it."""
    with app.db.write() as session:
        factories.reader(session, "alice@example.org", [], now - late)
    finding = check_database(app, now)["schedule"]
    assert finding.level is Level.ERROR
    assert f"due for {span}:" in finding.message


def test_a_pause_is_found_with_its_reason(app: Application, now: datetime) -> None:
    """Whoever wonders why nothing leaves reads it here."""
    with app.db.write() as session:
        ledger.pause(session, "the relay refuses us", now)
    finding = check_database(app, now)["sending"]
    assert finding.level is Level.WARNING
    assert "the relay refuses us" in finding.message


def test_what_the_doctor_names_can_be_typed(app: Application, now: datetime) -> None:
    """A name with blanks is one argument, and an edition is resumed as an edition."""
    with app.db.write() as session:
        row = factories.source(session, now, name="A lab's blog")
        row.paused, row.next_poll_at = True, now
        ledger.pause(session, "a wrong key", now, "2026-11-20")
    findings = check_database(app, now)
    command = findings["source A lab's blog"].fix.split("`")[1]
    assert shlex.split(command) == ["paperboy", "sources", "resume", "A lab's blog"]
    assert "`paperboy sending resume --edition 2026-11-20`" in findings["sending"].fix


def test_a_model_that_is_missing_or_corrupt_is_found(app: Application, now: datetime) -> None:
    """The picks are worse without it, and nobody would notice."""
    assert "too small" in check_database(app, now)["model"].message
    with app.db.write() as session:
        factories.archive(session, model_store.MIN_PAPERS, now)
    assert check_database(app, now)["model"].level is Level.WARNING
    pipeline.train(app, now)
    assert check_database(app, now)["model"].message.startswith("model 1 is in use, trained on 300 papers")
    with app.db.write() as session:
        session.exec(select(TrainedModel)).one().data = b"gone"
    torn, instead = (
        each for each in service_state.check(app.db, model_store.ModelStore(), now) if each.check == "model"
    )
    assert (torn.level, torn.fix) == (Level.WARNING, "run `paperboy model learn` to train a new one")
    assert "model 1 of 2026-11-20 09:30 UTC is not used: The stored bytes" in torn.message
    assert (instead.level, "bundled" in instead.message) == (Level.WARNING, True)
