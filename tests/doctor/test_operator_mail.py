"""Test the daily report and the alerts to the operators, sent through a real SMTP server."""

import errno
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date, datetime, timedelta
from email.message import EmailMessage
from pathlib import Path

import pytest
import structlog
from sqlalchemy import event
from sqlalchemy.engine import Connection
from sqlalchemy.exc import OperationalError
from sqlmodel import col, select

from app import main, pipeline, subscribers
from app.application import Application
from app.bounces import rates
from app.delivery import ledger
from app.doctor import (
    alerts,
    daily_report,
    disk_space,
    file_permissions,
    operator_mail,
    own_templates,
    service_state,
)
from app.doctor.findings import Level
from app.errors import DeliveryError, InvalidInput
from app.papers import poll_history, silent_sources, source_registry
from app.settings import Settings
from app.storage import job_runs
from app.storage.models import Delivery, DeliveryState, JobRun
from app.types import Cadence, IngestSummary, MailKind, SourceKind
from tests.support import factories, sample_digest
from tests.support.mail_server import MailServer

OPERATORS = ("ada@example.org", "grace@example.org")
DAY, HOUR, MINUTE = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1)


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
    """It comes once a day, also while sending is paused, and says what was sent and why not.

    It is about yesterday in Tokyo, although this day has not ended in UTC.
    """
    with service.db.write() as session:
        source = factories.add_source(session, now, name="The lab")
        factories.add_paper(session, source, "Language Agents that Plan", now.date(), now)
        for name, interest in (("alice", "language agents"), ("bob", "honey bees")):
            factories.add_subscriber(session, f"{name}@example.org", [interest], now, hour=9)
    pipeline.plan_and_send(service, now)
    with service.db.write() as session:
        ledger.pause(session, "a trial", now)
    mail_server.messages.clear()
    night = now.replace(hour=21, minute=59)  # 6:59 on the next day in Tokyo
    daily_report.send_daily_report(service, night)
    assert mail_server.messages == []
    for minutes in (1, 2, 60):
        daily_report.send_daily_report(service, night + minutes * MINUTE)
    assert sorted(mail.recipient for mail in mail_server.messages) == sorted(OPERATORS)
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


def test_daily_report_counts_digests_in_all_states(service: Application, now: datetime) -> None:
    """The sum includes those that are being sent, and a digest that was not due."""
    with service.db.write() as session:
        for number, state in enumerate((*DeliveryState, DeliveryState.SENT)):
            reader = factories.add_subscriber(session, f"{number}@example.org", ["agents"], now - DAY)
            entry = ledger.Entry(reader, "2026-11-20", now, sample_digest.digest(), MailKind.DIGEST)
            (delivery_id,) = ledger.add_entries(session, [entry], now)
            session.get_one(Delivery, delivery_id).state = state
            subscribers.get(session, reader).next_due_at = now + DAY
        subscribers.get(session, reader).cadence = Cadence.WEEKLY  # on Mondays
    report = daily_report.build(service, now + DAY)
    (line,) = (each.lines[0] for each in report.sections if each.heading == "Digests of 2026-11-20")
    assert line == (
        "9 due + 1 surplus = 2 sent + 1 pending + 1 claimed + 1 committing + 1 deferred + 1 failed + "
        "1 suppressed + 1 uncertain + 1 skipped"
    )


@pytest.mark.parametrize(
    ("zone", "sent"), [("Asia/Tokyo", 1), ("Australia/Sydney", 0), ("America/Los_Angeles", 1)]
)
def test_report_counts_the_emails_of_a_local_day(
    service: Application, now: datetime, zone: str, sent: int
) -> None:
    """An email at 14:00 UTC is sent on the next day in Sydney."""
    with service.db.write() as session:
        source = factories.add_source(session, now)
        factories.add_paper(session, source, "Language Agents that Plan", now.date(), now)
        due = now.replace(hour=14, minute=0)
        factories.add_subscriber(session, "alice@example.org", ["language agents"], due, hour=14)
    pipeline.plan_and_send(service, due)
    app = replace(service, settings=service.settings.model_copy(update={"default_zone": zone}))
    sections = {each.heading: each.lines for each in daily_report.build(app, now + DAY, now.date()).sections}
    assert len(re.findall("1 sent, 0 bounces", str(sections["Mail"]))) == sent
    with pytest.raises(InvalidInput, match=r"to 2026-11-2[01], which is today"):
        daily_report.build(app, now, now.date() + 2 * DAY)


def test_report_about_sources_read_from_files(service: Application, now: datetime) -> None:
    """They are listed on days with papers, as on the Sources page. Nobody paused them."""
    with service.db.write() as session:
        saved = source_registry.source_for_files(session, SourceKind.ARXIV, now)
        source_registry.source_for_files(session, SourceKind.JSONL, now)
        factories.add_paper(session, saved, "Language Agents that Plan", now.date(), now)
        polled = factories.add_source(session, now, "The lab")
        polled.polled_at = now
        source_registry.pause(session, polled)
    of_sources = daily_report.build(service, now, now.date()).sections[-1]
    assert of_sources.lines == (
        "Saved arXiv responses: 1 paper, read from files",
        "The lab: 0 papers, paused",
    )
    of_sources = daily_report.build(service, now + DAY, now.date() + DAY).sections[-1]
    assert of_sources.lines == ("The lab: 0 papers, paused",)


def test_report_lists_settings_apart(
    service: Application, mail_server: MailServer, now: datetime, tmp_path: Path
) -> None:
    """They come after what needs attention now, and the subject does not count them."""
    report = daily_report.build(service, now)
    headings = [section.heading for section in report.sections]
    assert headings[:2] == ["Needs attention now", "Settings to check"]
    attention, of_settings = (section.lines for section in report.sections[:2])
    assert "bounces: none are processed, so mail to deleted mailboxes continues" in str(of_settings)
    assert "from_address: emails are sent from" in str(of_settings)
    assert "from_address" not in str(attention)
    assert report.subject.endswith(f", {len(attention) // 2} needs attention")
    valid = {
        "base_url": "https://news.example.org", "from_address": "digest@news.paperboy.io",
        "postal_address": "1 Main Street", "contact_address": "ada@example.org",
        "bounce_folder": str(tmp_path), "compose_ahead_minutes": 10,
    }  # fmt: skip
    proper = main.build(service.settings.model_copy(update=valid))
    assert "Settings to check" not in [each.heading for each in daily_report.build(proper, now).sections]
    proper.db.dispose()


def test_alert_about_errors_in_settings(
    service: Application, mail_server: MailServer, now: datetime, tmp_path: Path
) -> None:
    """A folder that disappears is an error. Warnings, which may be accepted for good, cause no alert."""
    app = main.build(service.settings.model_copy(update={"bounce_folder": str(tmp_path / "unmounted")}))
    alerts.send_alerts(app, now)
    subjects = {mail.parsed()["Subject"] for mail in mail_server.messages}
    assert subjects == {"Paperboy needs attention: bounce_folder"}
    alerts.send_alerts(app, now + MINUTE)
    assert len(mail_server.messages) == len(OPERATORS)
    app.db.dispose()


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


def test_log_of_an_unreachable_relay(service: Application, now: datetime) -> None:
    """The log does not say that the relay refused an email or replied."""
    app = main.build(service.settings.model_copy(update={"smtp_port": 1}))
    with structlog.testing.capture_logs() as logged, pytest.raises(DeliveryError, match="no connection"):
        operator_mail.send(app, operator_mail.emails(app, daily_report.build(app, now)), now)
    app.db.dispose()
    warning = logged[-1]
    assert (warning["event"], warning["count"]) == ("emails to operators were not sent", len(OPERATORS))
    assert "no connection" in warning["error"]


def test_alert_once_per_cause(service: Application, mail_server: MailServer, now: datetime) -> None:
    """New causes of one moment are one email. A cause that stays, or flaps within a day, is not repeated."""

    def subjects(at: datetime) -> list[str]:
        mail_server.messages.clear()
        alerts.send_alerts(service, at)
        return [mail.parsed()["Subject"] for mail in mail_server.messages if mail.recipient == OPERATORS[0]]

    assert subjects(now) == []
    with service.db.write() as session:
        ledger.pause(session, "the relay refused 20 of the last 20 emails", now)
        source = factories.add_source(session, now, name="The lab")
        source.failures, source.next_poll_at = 3, now
    assert subjects(now + MINUTE) == ["Paperboy needs attention: sending, source The lab"]
    text = text_of(mail_server.messages[0].parsed())
    assert "the relay refused 20 of the last 20 emails" in text
    assert "→ run `paperboy sending resume`" in text
    assert "source The lab: it failed 3 times in a row" in text
    assert subjects(now + 6 * MINUTE) == []
    with service.db.write() as session:
        ledger.resume(session, now)
    assert subjects(now + 11 * MINUTE) == []
    with service.db.write() as session:
        ledger.pause(session, "again", now)
    assert subjects(now + 16 * MINUTE) == []
    with job_runs.record(service.db, "prune", now) as run:
        run.fail("the disk", "full")
    (subject,) = subjects(now + 21 * MINUTE)
    assert subject.endswith(": job prune")
    with service.db.write() as session:
        ledger.resume(session, now)
    assert subjects(now + 2 * DAY) == []
    assert subjects(now + 3 * DAY + MINUTE) == []
    with service.db.write() as session:
        ledger.pause(session, "once more", now)
    assert len(subjects(now + 4 * DAY)) == 1


def test_failed_check_does_not_silence_the_others(
    service: Application, mail_server: MailServer, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a finding itself, also if it reads the records in the database. The daily report is sent, too."""
    with service.db.write() as session:
        ledger.pause(session, "a trial", now)
    for module, name in ((rates, "of_last_week"), (own_templates, "check")):
        monkeypatch.setattr(module, name, None)  # calling it raises an error
    alerts.send_alerts(service, now)
    text = text_of(mail_server.messages[0].parsed())
    assert "sending: all sending has been paused" in text
    assert "receivers: the check could not run: TypeError: " in text
    assert "settings: the check could not run: TypeError: " in text
    mail_server.messages.clear()
    daily_report.send_daily_report(service, now.replace(hour=22))
    assert "receivers: the check could not run" in text_of(mail_server.messages[0].parsed())


def test_unreadable_folder_is_a_finding(service: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that we may not enter, or a disk that reports errors, is named with the reason."""
    folder, original = Path(service.settings.journal_dir), shutil.disk_usage

    def refuse(self: Path, **_options: object) -> bool:
        if self == folder:
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        return os.path.exists(self)  # noqa: PTH110 - `Path.exists` is replaced

    def read_usage(path: Path) -> object:
        refuse(path)
        return original(path)

    monkeypatch.setattr(Path, "exists", refuse)
    monkeypatch.setattr(shutil, "disk_usage", read_usage)
    findings = [*file_permissions.check(service.settings), *disk_space.check(service.db, folder)]
    messages = {(each.check, each.level, each.message) for each in findings if each.urgent}
    assert messages == {
        ("journal_dir", Level.ERROR, f"{folder} cannot be written to: Permission denied"),
        ("disk", Level.ERROR, f"the free space in {folder} cannot be read: Permission denied"),
    }


def test_alert_about_each_pause(service: Application, mail_server: MailServer, now: datetime) -> None:
    """An operator has resumed sending, and waits for an alert if it does not work. Clocks may differ."""
    for hours, reason in ((0, "3 complaints about 200 emails"), (2, "554 5.7.1 blocked")):
        begun_at = now + hours * HOUR
        with service.db.write() as session:
            ledger.pause(session, reason, begun_at + 2 * MINUTE)
        for minutes in (0, 5, 10):
            mail_server.messages.clear()
            alerts.send_alerts(service, begun_at + minutes * MINUTE)
            assert [mail.recipient for mail in mail_server.messages] == ([] if minutes else [*OPERATORS])
        with service.db.write() as session:
            ledger.resume(session, now)


def test_alert_about_an_automatic_reason_for_an_earlier_pause(
    service: Application, mail_server: MailServer, now: datetime
) -> None:
    """Operators knew only of the maintenance, and could have resumed after it."""
    for minutes, pause, reason in (
        (0, ledger.pause, "maintenance"),
        (60, ledger.pause_automatically, "blocked"),
    ):
        with service.db.write() as session:
            pause(session, reason, now + minutes * MINUTE)
        mail_server.messages.clear()
        alerts.send_alerts(service, now + (minutes + 1) * MINUTE)
        assert [mail.recipient for mail in mail_server.messages] == [*OPERATORS]


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


def test_causes_that_ended_while_the_relay_was_down(
    service: Application, mail_server: MailServer, now: datetime
) -> None:
    """The next alert names them, once, and apart from those that need attention."""
    with service.db.write() as session:
        ledger.pause(session, "a trial", now)
    mail_server.reply("end", "451 4.3.0 later")
    with pytest.raises(DeliveryError):
        alerts.send_alerts(service, now)
    mail_server.clear_rules()
    with service.db.write() as session:
        ledger.resume(session, now)
    alerts.send_alerts(service, now + 5 * MINUTE)
    assert [mail.recipient for mail in mail_server.messages] == [*OPERATORS]
    mail = mail_server.messages[0].parsed()
    assert mail["Subject"] == "Paperboy needs attention: job alert"
    needs_attention, _, ended = text_of(mail).partition("Found earlier, but no longer")
    assert "all sending has been paused" not in needs_attention
    assert "sending: all sending has been paused" in ended
    assert "→ found from 2026-11-20 09:30 to 2026-11-20 09:30 UTC" in ended
    with job_runs.record(service.db, "prune", now) as run:
        run.fail("the disk", "full")
    alerts.send_alerts(service, now + 10 * MINUTE)
    assert "a trial" not in text_of(mail_server.messages[-1].parsed())


@pytest.mark.once
def test_alert_about_a_database_that_refuses_writes(
    service: Application, mail_server: MailServer, now: datetime
) -> None:
    """It is sent after the second attempt, and once a day. Afterwards, alerts are stored as usual."""

    def forbid_writes(connection: Connection) -> None:
        connection.exec_driver_sql("PRAGMA query_only = ON")

    def send(at: datetime) -> list[str]:
        mail_server.messages.clear()
        with suppress(OperationalError), structlog.testing.capture_logs() as logs:
            alerts.send_alerts(service, at)
        assert "alerts cannot be stored in the database" in {entry["event"] for entry in logs}
        return [mail.parsed()["Subject"] for mail in mail_server.messages]

    with service.db.write() as session:
        ledger.pause(session, "a trial", now)
    event.listen(service.db.engine, "begin", forbid_writes)
    assert send(now) == []
    assert send(now + 5 * MINUTE) == ["Paperboy needs attention: database, sending"] * 2
    assert "readonly database" in text_of(mail_server.messages[0].parsed())
    assert send(now + 10 * MINUTE) == []
    assert len(send(now + 5 * MINUTE + DAY)) == 2
    event.remove(service.db.engine, "begin", forbid_writes)
    with service.db.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA query_only = OFF")
    mail_server.messages.clear()
    alerts.send_alerts(service, now + 2 * DAY)
    subjects = [mail.parsed()["Subject"] for mail in mail_server.messages]
    assert subjects == ["Paperboy needs attention: sending"] * 2


@pytest.mark.parametrize("stage", ["rcpt", "end"])
def test_operator_whose_server_defers_mail_gets_it_later(
    service: Application, mail_server: MailServer, now: datetime, stage: str
) -> None:
    """The others get each alert and report once."""
    late = OPERATORS[1]
    with service.db.write() as session:
        ledger.pause(session, "a trial", now)
    for number, send in enumerate((alerts.send_alerts, daily_report.send_daily_report), start=1):
        mail_server.reply(stage, "451 4.7.1 greylisted", to=late, times=2)
        for hours in range(4):
            send(service, now + hours * HOUR)
        received = [mail.recipient for mail in mail_server.messages]
        assert received[-2:] == [*OPERATORS]
        assert len(received) == 2 * number
    with service.db.read() as session:
        of_alerts = select(JobRun).where(col(JobRun.job).in_(("alert", "report")))
        runs = session.exec(of_alerts.order_by(col(JobRun.id))).all()
    assert [(run.counts, run.error) for run in runs] == [({"mails": n}, "") for n in (1, 0, 1)] * 2


def test_cause_that_recurs_is_sent_again_after_a_deferral(
    service: Application, mail_server: MailServer, now: datetime
) -> None:
    """It is another alert, although its text is the same."""
    for day in (0, 3):
        with service.db.write() as session:
            ledger.pause(session, "a trial", now)
        mail_server.reply("rcpt", "451 4.7.1 greylisted", to=OPERATORS[1], times=1)
        for minutes in (0, 5, 10):
            alerts.send_alerts(service, now + day * DAY + minutes * MINUTE)
        with service.db.write() as session:
            ledger.resume(session, now)
        alerts.send_alerts(service, now + (day + 2) * DAY)
    assert [mail.recipient for mail in mail_server.messages] == [*OPERATORS] * 2


def test_causes_that_change_during_a_deferral(
    service: Application, mail_server: MailServer, now: datetime
) -> None:
    """Each operator gets each cause once. The server that defers mail is tried less and less often."""
    ada, late = OPERATORS
    mail_server.reply("rcpt", "451 4.7.1 greylisted", to=late)
    with service.db.write() as session:
        ledger.pause(session, "a trial", now)
    for number in range(4 * 12):
        with job_runs.record(service.db, "prune", now) as run:
            if number % 2:  # every other run fails
                run.fail("the disk", "full")
        alerts.send_alerts(service, now + number * 5 * MINUTE)
    received = [(mail.recipient, mail.parsed()["Subject"]) for mail in mail_server.messages]
    assert received == [(ada, f"Paperboy needs attention: {cause}") for cause in ("sending", "job prune")]
    with service.db.read() as session:
        assert len(session.exec(select(JobRun).where(JobRun.job == "alert")).all()) < 15
    with job_runs.record(service.db, "prune", now) as run:
        run.fail("the disk", "full")
    mail_server.clear_rules()
    mail_server.messages.clear()
    for hours in (5, 6):
        alerts.send_alerts(service, now + hours * HOUR)
    received = [(mail.recipient, mail.parsed()["Subject"]) for mail in mail_server.messages]
    assert received == [(late, "Paperboy needs attention: sending, job prune")]


@pytest.mark.parametrize(("deferring", "last_attempt"), [(OPERATORS[1:], 17), (OPERATORS, 30)])
def test_server_that_defers_alerts_for_a_day(
    service: Application, mail_server: MailServer, now: datetime, deferring: Sequence[str], last_attempt: int
) -> None:
    """It is no longer tried, unless nobody has got the alert."""
    with service.db.write() as session:
        ledger.pause(session, "a trial", now)
    for address in deferring:
        mail_server.reply("rcpt", "451 4.7.1 greylisted", to=address)
    for hours in range(31):
        with suppress(DeliveryError):
            alerts.send_alerts(service, now + hours * HOUR)
    with service.db.read() as session:
        attempts = session.exec(select(JobRun.started_at).where(JobRun.job == "alert")).all()
    assert max(attempts) == now + last_attempt * HOUR


def test_report_that_nobody_gets(service: Application, mail_server: MailServer, now: datetime) -> None:
    """A mailbox that refuses it for good is not tried again. The run fails until an operator gets it."""
    mail_server.reply("rcpt", "550 5.1.1 no such user", to=OPERATORS[0])
    mail_server.reply("rcpt", "451 4.7.1 later", to=OPERATORS[1], times=2)
    for hours in range(4):
        with suppress(DeliveryError):
            daily_report.send_daily_report(service, now + hours * HOUR)
    with service.db.read() as session:
        runs = session.exec(select(JobRun).where(JobRun.job == "report").order_by(col(JobRun.id))).all()
    assert [bool(run.error) for run in runs] == [True, True, False]
    assert [mail.recipient for mail in mail_server.messages] == [OPERATORS[1]]


def test_operator_without_a_mailbox(service: Application, mail_server: MailServer, now: datetime) -> None:
    """A refusal for good is not tried again."""
    mail_server.reply("rcpt", "550 5.1.1 no such user", to=OPERATORS[1])
    for hours in range(3):
        daily_report.send_daily_report(service, now + hours * HOUR)
    with service.db.read() as session:
        assert session.exec(select(JobRun.counts).where(JobRun.job == "report")).all() == [{"mails": 1}]


def test_report_that_is_refused_before_midnight(
    service: Application, mail_server: MailServer, now: datetime
) -> None:
    """It is sent after midnight, and the next one at its hour."""
    app = replace(service, settings=service.settings.model_copy(update={"report_hour": 23}))
    evening = now.replace(hour=14, minute=10)  # 23:10 in Tokyo
    mail_server.reply("rcpt", "421 4.3.2 later")
    with pytest.raises(DeliveryError):
        daily_report.send_daily_report(app, evening)
    mail_server.clear_rules()
    for hours in range(1, 25):
        daily_report.send_daily_report(app, evening + hours * HOUR)
    days = [mail.parsed()["Subject"][10:20] for mail in mail_server.messages]
    assert days == ["2026-11-19"] * 2 + ["2026-11-20"] * 2


def test_nothing_is_sent_without_operators(app: Application, mail_server: MailServer, now: datetime) -> None:
    with app.db.write() as session:
        ledger.pause(session, "a trial", now)
    alerts.send_alerts(app, now)
    daily_report.send_daily_report(app, now.replace(hour=23))
    assert mail_server.messages == []


# Whether a source is silent on Friday, 20 November 2026, by its last days with papers, as days before that.
WORKDAYS = [number for number in range(70) if (4 - number) % 7 < 5]


@pytest.mark.parametrize(
    ("days_with_papers", "is_silent"),
    [
        ([1, 2, 3, 4], False),  # too few to know
        (WORKDAYS[1:], False),  # today's papers are still to come
        (WORKDAYS[2:], False),  # yesterday was a holiday, perhaps
        (WORKDAYS[4:], True),  # nothing since Monday
        (WORKDAYS[2::5], False),  # weekly, on Wednesdays
        (WORKDAYS[2::5][1:], False),  # one week was left out
        (WORKDAYS[2::5][3:], True),
        (list(range(18, 90, 6)), False),  # irregular
        (list(range(45, 90, 6)), True),
    ],
)
def test_silent_source(app: Application, now: datetime, days_with_papers: list[int], is_silent: bool) -> None:
    """A source is silent if it lists nothing on several of the weekdays on which it usually does."""
    with app.db.write() as session:
        source = factories.add_source(session, now, name="The lab")
        source.kind, source.polled_at, source.next_poll_at = SourceKind.FEED, now, now
        for number in days_with_papers:
            factories.add_paper(session, source, f"Paper {number}", now.date() - number * DAY, now)
    findings = {each.check: each for each in service_state.check(app.db, app.models, now)}
    assert findings["source The lab"].urgent == is_silent
    assert ("has listed no paper since" in findings["source The lab"].message) == is_silent


@pytest.mark.parametrize(
    ("polled_days_ago", "is_silent"), [((), False), ((0,), False), ((5, 3, 2, 1, 0), True)]
)
def test_days_without_polls_are_not_silent(
    app: Application, now: datetime, polled_days_ago: Sequence[int], is_silent: bool
) -> None:
    """A source that listed papers every day was paused for two weeks, and resumed now or some days ago."""
    with app.db.write() as session:
        source = factories.add_source(session, now, name="The lab")
        source.kind, source.next_poll_at = SourceKind.FEED, now
        for number in range(20, 60):
            factories.add_paper(session, source, f"Paper {number}", now.date() - number * DAY, now)
        for number in (*range(60, 19, -1), *polled_days_ago):
            source.polled_at = now - number * DAY
            poll_history.record(session, source, source.polled_at, source.polled_at, IngestSummary(), "")
    (finding,) = (
        each for each in service_state.check(app.db, app.models, now) if each.check == "source The lab"
    )
    assert finding.urgent == is_silent
    assert ("4 of the 5 days on which it was polled have papers" in finding.message) == is_silent


@pytest.mark.parametrize(("days", "is_silent"), [(0, False), (1, False), (4, True)])
def test_weekends_are_not_silent(days: int, is_silent: bool) -> None:
    """On a Monday morning, the last papers are of Friday. If they were the last, it shows on Friday."""
    monday = date(2026, 11, 16)
    listed = [monday - number * DAY for number in range(3, 80) if (monday - number * DAY).weekday() < 5]
    assert silent_sources.is_silent(sorted(listed), monday + days * DAY) == is_silent


def test_disk(app: Application, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is an error before the disk is full."""
    assert len(list(disk_space.check(app.db, tmp_path))) == 1
    for free, level in ((10**12, "ok"), (10**9, "warning"), (10**8, "error")):
        monkeypatch.setattr("shutil.disk_usage", lambda _folder, free=free: type("Usage", (), {"free": free}))
        assert {each.level for each in disk_space.check(app.db, tmp_path)} == {level}
