"""The doctor finds what is wrong, and says how to mend it."""

from __future__ import annotations

import shlex
from datetime import datetime, timedelta

import pytest
from sqlalchemy import text
from sqlmodel import select

from app import deliver, doctor, lexicon, main, pipeline, runs
from app.doctor import Finding, Level
from app.models import Model, SourceKind
from app.pipeline import App
from app.settings import Settings, SmtpSecurity
from tests import shelves
from tests.mailserver import MailServer


@pytest.fixture
def settings(settings: Settings, mail_server: MailServer) -> Settings:
    """A service that could be somebody's, with a relay that answers."""
    return settings.model_copy(update={"from_address": "digest@paperboy.io", "smtp_port": mail_server.port})


def examine(app: App, now: datetime, **changed: object) -> dict[str, Finding]:
    """The findings by check, with some settings changed."""
    built = main.build(app.settings.model_copy(update=changed))
    try:
        return {finding.check: finding for finding in doctor.examine(built, now)}
    finally:
        built.db.dispose()


def test_a_healthy_service_has_no_finding_but_good_ones(app: App, now: datetime) -> None:
    """Everything was looked at, and all is well."""
    with app.db.write() as session:
        shelves.source(session, now).polled_at = now
    with runs.recorded(app.db, "refresh", now):
        pass
    found = examine(app, now)
    assert {finding.level for finding in found.values()} == {Level.OK}
    assert set(found) == {
        "settings",
        "base_url",
        "from_address",
        "database",
        "relay",
        "source Hugging Face Daily Papers",
        "job refresh",
        "schedule",
        "model",
    }


def test_the_relay_is_asked_what_it_can_do(app: App, now: datetime) -> None:
    """What it announces decides how mails are sent."""
    said = examine(app, now)["relay"].said
    assert "without TLS" in said
    assert "8BITMIME" in said


@pytest.mark.parametrize(
    ("changed", "check", "level"),
    [
        ({"base_url": "http://paperboy.test"}, "base_url", Level.WARNING),
        ({"from_address": "paperboy@localhost.localdomain"}, "from_address", Level.WARNING),
        ({"postal_address": ""}, "postal_address", Level.WARNING),
        ({"contact_address": ""}, "contact_address", Level.WARNING),
        ({"smtp_port": 1}, "relay", Level.ERROR),
        ({"smtp_security": SmtpSecurity.STARTTLS}, "relay", Level.ERROR),
        ({"smtp_security": SmtpSecurity.TLS}, "relay", Level.ERROR),
        ({"smtp_username": "me", "smtp_password": "wrong"}, "relay", Level.ERROR),
        ({"database_url": "postgresql+psycopg://nobody@127.0.0.1:1/none"}, "database", Level.ERROR),
    ],
)
def test_what_is_set_wrongly_is_found(
    changed: dict[str, object], check: str, level: Level, app: App, now: datetime
) -> None:
    """With what to do about it."""
    finding = examine(app, now, **changed)[check]
    assert finding.level is level
    assert finding.fix


def test_a_database_that_was_not_migrated_is_found(app: App, now: datetime) -> None:
    """Nothing in it is asked then."""
    with app.db.write() as session:
        session.execute(text("UPDATE alembic_version SET version_num = 'older'"))
    found = examine(app, now)
    assert found["database"].level is Level.ERROR
    assert "paperboy migrate" in found["database"].fix
    assert "schedule" not in found


def test_nobody_reads_a_password_in_a_finding(app: App, now: datetime) -> None:
    """Findings are pasted into issues."""
    url = "postgresql+psycopg://paperboy:hunter2hunter2@127.0.0.1:1/none"
    found = examine(app, now, database_url=url, smtp_username="me", smtp_password="hunter2hunter2")
    assert "hunter2" not in str(found)


def test_sources_that_fail_sleep_or_are_old_are_found(app: App, now: datetime) -> None:
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
    found = examine(app, now)
    levels = {name: found[f"source {name}"].level for name in ("failing", "hiccup", "sleeping", "old")}
    assert levels == {
        "failing": Level.ERROR,
        "hiccup": Level.WARNING,
        "sleeping": Level.WARNING,
        "old": Level.WARNING,
    }
    assert "503" in found["source failing"].said
    assert "source files" not in found


def test_a_service_without_sources_is_found(app: App, now: datetime) -> None:
    """It would never have anything to send."""
    assert examine(app, now)["sources"].level is Level.WARNING


def test_a_failed_job_is_found_until_it_works_again(app: App, now: datetime) -> None:
    """Only the newest run of a job says how it is."""
    with runs.recorded(app.db, "refresh", now) as run:
        run.fail("arxiv", "it answered 503")
    assert examine(app, now)["job refresh"].level is Level.WARNING
    with runs.recorded(app.db, "refresh", now):
        pass
    assert examine(app, now)["job refresh"].level is Level.OK


def test_a_digest_that_is_late_is_found(app: App, now: datetime) -> None:
    """Nobody runs the schedule."""
    with app.db.write() as session:
        shelves.reader(session, "alice@example.org", [], now - timedelta(minutes=20))
    finding = examine(app, now)["schedule"]
    assert finding.level is Level.ERROR
    assert "20 minutes" in finding.said


def test_a_pause_is_found_with_its_reason(app: App, now: datetime) -> None:
    """Whoever wonders why nothing leaves reads it here."""
    with app.db.write() as session:
        deliver.pause(session, "the relay refuses us", now)
    finding = examine(app, now)["sending"]
    assert finding.level is Level.WARNING
    assert "the relay refuses us" in finding.said


def test_what_the_doctor_names_can_be_typed(app: App, now: datetime) -> None:
    """A name with blanks is one argument, and an edition is resumed as an edition."""
    with app.db.write() as session:
        row = shelves.source(session, now, name="A lab's blog")
        row.paused, row.next_poll_at = True, now
        deliver.pause(session, "a wrong key", now, "2026-11-20")
    found = examine(app, now)
    command = found["source A lab's blog"].fix.split("`")[1]
    assert shlex.split(command) == ["paperboy", "sources", "resume", "A lab's blog"]
    assert "/api/v1/editions/2026-11-20/resume" in found["sending"].fix


def test_a_model_that_is_missing_or_corrupt_is_found(app: App, now: datetime) -> None:
    """The picks are worse without it, and nobody would notice."""
    assert "young" in examine(app, now)["model"].said
    with app.db.write() as session:
        shelves.archive(session, lexicon.YOUNG, now)
    assert examine(app, now)["model"].level is Level.WARNING
    pipeline.learn(app, now)
    assert examine(app, now)["model"].said.startswith("model 1 is in use, learned from 300 papers")
    with app.db.write() as session:
        session.exec(select(Model)).one().data = b"gone"
    examined = main.build(app.settings)
    torn, instead = (each for each in doctor.examine(examined, now) if each.check == "model")
    examined.db.dispose()
    assert (torn.level, torn.fix) == (Level.WARNING, "run `paperboy model learn` to make a new one")
    assert "model 1 of 2026-11-20 09:30 UTC is not used: Its bytes" in torn.said
    assert (instead.level, "shipped" in instead.said) == (Level.WARNING, True)
