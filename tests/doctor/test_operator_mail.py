"""Test the daily report and the alerts to the operators, sent through a real SMTP server."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from email.message import EmailMessage
from pathlib import Path

import pytest
from sqlmodel import select

from app import main, pipeline
from app.application import Application
from app.delivery import ledger
from app.doctor import alerts, daily_report, service_state
from app.errors import DeliveryError
from app.settings import Settings
from app.storage import job_runs
from app.storage.models import JobRun
from app.types import SourceKind
from tests.support import factories
from tests.support.mail_server import MailServer

OPERATORS = ("ada@example.org", "grace@example.org")
DAY, MINUTE = timedelta(days=1), timedelta(minutes=1)


@pytest.fixture
def service(settings: Settings, mail_server: MailServer) -> Iterator[Application]:
    """Return a service with two operators, whose report is due at 7:00 in Tokyo."""
    options = {"admin_addresses": OPERATORS, "default_zone": "Asia/Tokyo", "report_hour": 7}
    app = main.build(settings.model_copy(update=options))
    yield app
    app.db.dispose()


def text_of(mail: EmailMessage) -> str:
    part = mail.get_body(("plain",))
    assert part
    return " ".join(str(part.get_content()).split())  # without line breaks


def test_daily_report(service: Application, mail_server: MailServer, now: datetime) -> None:
    """It comes once a day, also while sending is paused, and says what was sent and why not."""
    with service.db.write() as session:
        source = factories.add_source(session, now, name="The lab")
        factories.add_paper(session, source, "Language Agents that Plan", now.date(), now)
        for name, interest in (("alice", "language agents"), ("bob", "honey bees")):
            factories.add_subscriber(session, f"{name}@example.org", [interest], now, hour=9)
    pipeline.send_due(service, now)
    with service.db.write() as session:
        ledger.pause(session, "a trial", now)
    mail_server.messages.clear()
    night = now.replace(hour=21, minute=59)  # 6:59 on the next day in Tokyo
    daily_report.send_daily_report(service, night)
    assert mail_server.messages == []
    for minutes in (1, 2, 60):
        daily_report.send_daily_report(service, night + minutes * MINUTE)
    assert sorted(mail.recipient for mail in mail_server.messages) == sorted(OPERATORS)
    mail_server.messages.clear()
    daily_report.send_daily_report(service, night + DAY + MINUTE)
    mail = mail_server.messages[0].parsed()
    text = text_of(mail)
    assert mail["Subject"].startswith("Paperboy, 2026-11-20: 1 digest sent, ")
    assert "2 due = 1 sent + 1 skipped" in text
    assert "1 skipped: " in text
    assert "others: 1 sent, 0 bounces, 0 complaints" in text
    assert "2 active" in text
    assert "The lab: 1 paper" in text
    assert "sending: all sending has been paused" in text
    assert "https://paperboy.test/admin" in text
    html = mail.get_body(("html",))
    assert html
    assert "2 due = 1 sent" in html.get_content()
    with service.db.read() as session:
        runs = session.exec(select(JobRun.counts).where(JobRun.job == "report")).all()
    assert runs == [{"mails": 2}, {"mails": 2}]


def test_report_that_the_relay_refuses_is_sent_later(
    service: Application, mail_server: MailServer, now: datetime
) -> None:
    mail_server.reply("rcpt", "451 4.3.0 later")
    evening = now.replace(hour=23)
    with pytest.raises(DeliveryError, match="451"):
        daily_report.send_daily_report(service, evening)
    mail_server.clear_rules()
    daily_report.send_daily_report(service, evening + 10 * MINUTE)
    assert len(mail_server.messages) == 2


def test_alert_once_per_cause(service: Application, mail_server: MailServer, now: datetime) -> None:
    """New causes of one moment are one mail. A cause that stays, or flaps within a day, is not repeated."""

    def subjects(at: datetime) -> list[str]:
        mail_server.messages.clear()
        alerts.send_alerts(service, at)
        return [mail.parsed()["Subject"] for mail in mail_server.messages if mail.recipient == OPERATORS[0]]

    assert subjects(now) == []
    with service.db.write() as session:
        ledger.pause(session, "the relay refused 20 of the last 20 mails", now)
        source = factories.add_source(session, now, name="The lab")
        source.failures, source.next_poll_at = 3, now
    assert subjects(now + MINUTE) == ["Paperboy needs attention: sending, source The lab"]
    text = text_of(mail_server.messages[0].parsed())
    assert "the relay refused 20 of the last 20 mails" in text
    assert "→ run `paperboy sending resume`" in text
    assert "source The lab: failed 3 times in a row" in text
    assert subjects(now + 6 * MINUTE) == []
    with service.db.write() as session:
        ledger.resume(session)
    assert subjects(now + 11 * MINUTE) == []
    with service.db.write() as session:
        ledger.pause(session, "again", now)
    assert subjects(now + 16 * MINUTE) == []
    with job_runs.record(service.db, "prune", now) as run:
        run.fail("the disk", "full")
    (subject,) = subjects(now + 21 * MINUTE)
    assert subject.endswith(": job prune")
    with service.db.write() as session:
        ledger.resume(session)
    assert subjects(now + 2 * DAY) == []
    assert subjects(now + 3 * DAY + MINUTE) == []
    with service.db.write() as session:
        ledger.pause(session, "once more", now)
    assert len(subjects(now + 4 * DAY)) == 1


def test_alert_that_the_relay_refuses_is_sent_later(
    service: Application, mail_server: MailServer, now: datetime
) -> None:
    with service.db.write() as session:
        ledger.pause(session, "a trial", now)
    mail_server.reply("end", "451 4.3.0 later")
    with pytest.raises(DeliveryError):
        alerts.send_alerts(service, now)
    mail_server.clear_rules()
    alerts.send_alerts(service, now + 5 * MINUTE)
    assert len(mail_server.messages) == 2


def test_nothing_is_sent_without_operators(app: Application, mail_server: MailServer, now: datetime) -> None:
    with app.db.write() as session:
        ledger.pause(session, "a trial", now)
    alerts.send_alerts(app, now)
    daily_report.send_daily_report(app, now.replace(hour=23))
    assert mail_server.messages == []


def weekdays(until: int) -> Iterator[int]:
    """Yield the days from Monday to Friday of five weeks, as days after the last of October 2026."""
    return (day for day in range(until, until - 35, -1) if day % 7 not in (0, 1))


@pytest.mark.parametrize(
    ("days_with_papers", "is_silent"),
    [
        ([20, 19, 18, 17, 14, 13, 12], False),  # listed today
        ([16, 15, 14, 13, 10, 9, 8], False),  # a weekend, and no longer than that and two days
        ([14, 13, 12, 11, 8, 7, 6], True),
        ([14, 13], False),  # too few to know
        ([1, -6, -13, -20, -27, -34], True),  # a weekly source that misses two weeks
        ([13, 6, -1, -8, -15, -22], False),
        ([*weekdays(until=17)], True),  # Wednesday and Thursday are missing
        ([*weekdays(until=18)], False),  # Thursday may be a holiday
        ([*(day for day in weekdays(until=17) if day not in (4, 5))], False),  # it missed two days before
    ],
)
def test_silent_source(app: Application, now: datetime, days_with_papers: list[int], is_silent: bool) -> None:
    """A source is silent if it misses two of its usual days, or is late by two days if it has none."""
    with app.db.write() as session:
        source = factories.add_source(session, now, name="The lab")
        source.kind, source.polled_at, source.next_poll_at = SourceKind.FEED, now, now
        for number in days_with_papers:
            day = now.date().replace(day=1) + timedelta(days=number - 1)
            factories.add_paper(session, source, f"Paper {number}", day, now)
    findings = {each.check: each for each in service_state.check(app.db, app.models, now)}
    assert findings["source The lab"].urgent == is_silent
    assert ("has listed no paper since" in findings["source The lab"].message) == is_silent


def test_disk(app: Application, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is an error before the disk is full."""
    assert len(list(service_state.check_disk(app.db, tmp_path))) == 1
    for free, level in ((10**12, "ok"), (10**9, "warning"), (10**8, "error")):
        monkeypatch.setattr("shutil.disk_usage", lambda _folder, free=free: type("Usage", (), {"free": free}))
        assert {each.level for each in service_state.check_disk(app.db, tmp_path)} == {level}
