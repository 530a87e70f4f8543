"""The doctor looks at everything, and says how to mend what is wrong; its parts have tests of their own."""

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
from tests import shelves
from tests.nameserver import NameServer


@pytest.fixture
def names() -> Iterator[NameServer]:
    """What the world knows of paperboy.io."""
    with NameServer() as server:
        server.set("paperboy.io", "MX", "10 mail.paperboy.io.")
        server.set("paperboy.io", "TXT", "v=spf1 a:mail.paperboy.io -all")
        server.set("_dmarc.paperboy.io", "TXT", "v=DMARC1; p=none")
        yield server


@pytest.fixture
def settings(settings: Settings, names: NameServer, tmp_path: Path) -> Iterator[Settings]:
    """A service that could be somebody's, with a relay that answers and a key that is published."""
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


def examine(app: Application, now: datetime, names: NameServer, **changed: object) -> dict[str, Finding]:
    """The findings by check, with some settings changed."""
    settings = app.settings.model_copy(update=changed)
    found = doctor.run_checks(settings, now, service=temporary_service(), resolver=names.resolver)
    assert all(finding.fix for finding in found if finding.level is not Level.OK)
    return {finding.check: finding for finding in found}


def remembered(app: Application, now: datetime) -> dict[str, Finding]:
    """The findings in the database alone."""
    return {finding.check: finding for finding in service_state.check(app.db, model_store.ModelStore(), now)}


def test_a_healthy_service_has_no_finding_but_good_ones(
    app: Application, now: datetime, names: NameServer
) -> None:
    """Everything was looked at, and all is well."""
    with app.db.write() as session:
        shelves.source(session, now).polled_at = now
    with job_runs.record(app.db, "refresh", now):
        pass
    found = examine(app, now, names)
    assert {finding.check: finding.said for finding in found.values() if finding.level is not Level.OK} == {}
    assert [*found] == [
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
        shelves.reader(session, "alice@example.org", [], now + timedelta(days=1))
    before = _everything(app)
    examine(app, now, names)
    assert _everything(app) == before


def _everything(app: Application) -> dict[str, list[tuple[object, ...]]]:
    tables = Subscriber.metadata.sorted_tables
    with app.db.read() as session:
        return {str(each): [tuple(row) for row in session.execute(each.select())] for each in tables}


def test_others_that_are_silent_do_not_hold_up_the_doctor(
    app: Application, now: datetime, names: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All is looked at together, and each part has an end."""
    monkeypatch.setattr(relay, "PATIENCE", 1.0)
    monkeypatch.setattr(database, "CONNECT_SECONDS", "2")
    names.silent = True
    started = monotonic()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        url = f"postgresql+psycopg://paperboy@127.0.0.1:{port}/paperboy"
        found = examine(app, now, names, smtp_port=port, database_url=url)
    assert monotonic() - started < 60
    assert [found[each].level for each in ("relay", "database")] == [Level.ERROR] * 2
    assert found["dns"].level is Level.WARNING
    assert found["one-click"].level is Level.OK


def test_what_cannot_be_looked_at_is_a_finding(app: Application, now: datetime, names: NameServer) -> None:
    """The other parts are looked at all the same."""
    found = examine(app, now, names, dkim_keys=("s1:/nowhere/key.pem",))
    assert found["dkim key s1"].level is Level.ERROR
    assert (found["mail"].level, "/nowhere/key.pem" in found["mail"].said) == (Level.ERROR, True)
    assert found["relay"].level is Level.OK


def test_the_web_app_is_asked_by_network_only_when_told_to(
    app: Application, now: datetime, names: NameServer
) -> None:
    """Not by accident, from a machine that must not reach out."""
    assert "online" not in examine(app, now, names)
    settings = app.settings.model_copy(update={"base_url": "http://paperboy.test"})
    found = doctor.run_checks(
        settings, now, service=temporary_service(), resolver=names.resolver, online=HttpTransport()
    )
    assert found[-1].check == "online"


def test_nobody_reads_a_password_in_a_finding(app: Application, now: datetime, names: NameServer) -> None:
    """Findings are pasted into issues."""
    url = "postgresql+psycopg://paperboy:hunter2hunter2@127.0.0.1:1/none"
    found = examine(app, now, names, database_url=url, smtp_username="me", smtp_password="hunter2hunter2")
    assert "hunter2" not in str(found)
    assert found["database"].level is Level.ERROR
    assert "schedule" not in found


# --- what the database remembers


def test_a_database_that_was_not_migrated_is_found(app: Application, now: datetime) -> None:
    """Nothing in it is asked then."""
    with app.db.write() as session:
        session.execute(text("UPDATE alembic_version SET version_num = 'older'"))
    found = remembered(app, now)
    assert found["database"].level is Level.ERROR
    assert "paperboy migrate" in found["database"].fix
    assert "schedule" not in found


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
            row = shelves.source(session, now, name=name)
            for field, value in fields.items():
                setattr(row, field, value)
    found = remembered(app, now)
    levels = {name: found[f"source {name}"].level for name in ("failing", "hiccup", "sleeping", "old")}
    assert levels == {
        "failing": Level.ERROR,
        "hiccup": Level.WARNING,
        "sleeping": Level.WARNING,
        "old": Level.WARNING,
    }
    assert "503" in found["source failing"].said
    assert "source files" not in found


def test_a_service_without_sources_is_found(app: Application, now: datetime) -> None:
    """It would never have anything to send."""
    assert remembered(app, now)["sources"].level is Level.WARNING


def test_a_failed_job_is_found_until_it_works_again(app: Application, now: datetime) -> None:
    """Only the newest run of a job says how it is."""
    with job_runs.record(app.db, "refresh", now) as run:
        run.fail("arxiv", "it answered 503")
    assert remembered(app, now)["job refresh"].level is Level.WARNING
    with job_runs.record(app.db, "refresh", now):
        pass
    assert remembered(app, now)["job refresh"].level is Level.OK


@pytest.mark.parametrize(
    ("late", "said"),
    [
        (timedelta(minutes=20), "20 minutes"),
        (timedelta(minutes=119), "119 minutes"),
        (timedelta(hours=3, minutes=10), "3 hours"),
        (timedelta(minutes=333315), "231 days"),
    ],
)
def test_a_digest_that_is_late_is_found(app: Application, now: datetime, late: timedelta, said: str) -> None:
    """Nobody runs the schedule; for how long is said as people say it."""
    with app.db.write() as session:
        shelves.reader(session, "alice@example.org", [], now - late)
    finding = remembered(app, now)["schedule"]
    assert finding.level is Level.ERROR
    assert f"due for {said}:" in finding.said


def test_a_pause_is_found_with_its_reason(app: Application, now: datetime) -> None:
    """Whoever wonders why nothing leaves reads it here."""
    with app.db.write() as session:
        ledger.pause(session, "the relay refuses us", now)
    finding = remembered(app, now)["sending"]
    assert finding.level is Level.WARNING
    assert "the relay refuses us" in finding.said


def test_what_the_doctor_names_can_be_typed(app: Application, now: datetime) -> None:
    """A name with blanks is one argument, and an edition is resumed as an edition."""
    with app.db.write() as session:
        row = shelves.source(session, now, name="A lab's blog")
        row.paused, row.next_poll_at = True, now
        ledger.pause(session, "a wrong key", now, "2026-11-20")
    found = remembered(app, now)
    command = found["source A lab's blog"].fix.split("`")[1]
    assert shlex.split(command) == ["paperboy", "sources", "resume", "A lab's blog"]
    assert "`paperboy sending resume --edition 2026-11-20`" in found["sending"].fix


def test_a_model_that_is_missing_or_corrupt_is_found(app: Application, now: datetime) -> None:
    """The picks are worse without it, and nobody would notice."""
    assert "young" in remembered(app, now)["model"].said
    with app.db.write() as session:
        shelves.archive(session, model_store.MIN_PAPERS, now)
    assert remembered(app, now)["model"].level is Level.WARNING
    pipeline.learn(app, now)
    assert remembered(app, now)["model"].said.startswith("model 1 is in use, learned from 300 papers")
    with app.db.write() as session:
        session.exec(select(TrainedModel)).one().data = b"gone"
    torn, instead = (
        each for each in service_state.check(app.db, model_store.ModelStore(), now) if each.check == "model"
    )
    assert (torn.level, torn.fix) == (Level.WARNING, "run `paperboy model learn` to make a new one")
    assert "model 1 of 2026-11-20 09:30 UTC is not used: The stored bytes" in torn.said
    assert (instead.level, "shipped" in instead.said) == (Level.WARNING, True)
