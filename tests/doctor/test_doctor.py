"""Test the doctor as a whole. Each check has its own tests."""

import os
import re
import shlex
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from time import monotonic

import dns.resolver
import pytest
from sqlalchemy import StaticPool, create_engine, text
from sqlmodel import select

from app import doctor, pipeline
from app.application import Application
from app.cli.doctor import temporary_service
from app.delivery import ledger
from app.doctor import Finding, Level, relay, service_state, test_mail
from app.doctor.smtp_sink import Sink
from app.mail import dkim
from app.papers import picture_fetching
from app.papers.sources.http_client import HttpTransport
from app.relevance import model, model_store
from app.settings import Settings
from app.storage import database, job_runs
from app.storage.models import Subscriber, TrainedModel
from app.types import SourceKind
from tests.support import factories
from tests.support.dns_server import NameServer


@pytest.fixture
def name_server() -> Iterator[NameServer]:
    """Serve the DNS records of paperboy.io."""
    with NameServer() as server:
        server.set("paperboy.io", "MX", "10 mail.paperboy.io.")
        server.set("paperboy.io", "TXT", "v=spf1 a:mail.paperboy.io -all")
        server.set("_dmarc.paperboy.io", "TXT", "v=DMARC1; p=none")
        yield server


@pytest.fixture
def settings(settings: Settings, name_server: NameServer, tmp_path: Path) -> Iterator[Settings]:
    """Return realistic settings with a working relay and a published key."""
    dkim.create(dkim.Algorithm.ED25519, tmp_path / "key.pem")
    named = (f"s1:{tmp_path / 'key.pem'}",)
    name, record = dkim.load(named)[0].record("paperboy.io")
    name_server.set(name, "TXT", record)
    with Sink() as sink:
        (tmp_path / "bounces").mkdir()
        changed = {
            "from_address": "digest@paperboy.io",
            "smtp_port": sink.port,
            "dkim_keys": named,
            "bounce_folder": str(tmp_path / "bounces"),
        }
        yield settings.model_copy(update=changed)


def run_doctor(
    app: Application, now: datetime, name_server: NameServer, **changed: object
) -> dict[str, Finding]:
    """Return the findings by check, with some settings changed."""
    settings = app.settings.model_copy(update=changed)
    findings = doctor.run_checks(settings, now, service=temporary_service(), resolver=name_server.resolver)
    assert all(finding.fix for finding in findings if finding.level is not Level.OK)
    return {finding.check: finding for finding in findings}


def check_database(app: Application, now: datetime) -> dict[str, Finding]:
    """Return the findings about the database by check."""
    return {finding.check: finding for finding in service_state.check(app.db, model_store.ModelStore(), now)}


@pytest.mark.postgres
def test_transaction_pooling_is_an_error(
    app: Application, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like such a pooler, this engine uses the same connection of the server for all its connections."""
    assert "pooler" not in check_database(app, now)
    shared = create_engine(app.db.url, poolclass=StaticPool)
    monkeypatch.setattr(app.db, "engine", shared)
    finding = check_database(app, now)["pooler"]
    shared.dispose()
    assert finding.level is Level.ERROR
    assert "pool_mode = session" in finding.fix


def test_healthy_service_has_only_good_findings(
    app: Application, now: datetime, name_server: NameServer
) -> None:
    """All checks run."""
    with app.db.write() as session:
        factories.add_source(session, now).polled_at = now
    with job_runs.record(app.db, "refresh", now):
        pass
    findings = run_doctor(app, now, name_server)
    assert {
        finding.check: finding.message for finding in findings.values() if finding.level is not Level.OK
    } == {}
    assert [name for name in findings if name != "disk"] == [
        "settings",
        "base_url",
        "from_address",
        "journal_dir",
        "search_dir",
        "dkim key s1",
        "compose_ahead_minutes",
        "bounce_folder",
        "database",
        "source Hugging Face Daily Papers",
        "job refresh",
        "schedule",
        "clock",
        "ledger",
        "backup",
        "model",
        "relay",
        "relay TLS",
        "relay size",
        "mx",
        "spf",
        "dkim s1",
        "dmarc",
        "ptr",
        "mta-sts",
        "tls-rpt",
        "templates",
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
        "unsubscribe mail",
    ]


def test_messages_read_well_after_the_check() -> None:
    """A finding is shown as "check: message", so a message begins with its own subject."""
    sources = [path.read_text("utf-8") for path in Path(doctor.__file__).parent.glob("*.py")]
    starts = r"is|are|has|have|was|can|cannot|does|did|failed|last|accepts|announces|refuses|signs|not"
    calls = rf'(?:(?:ok|warning|error|_problem)\([^,()]+, *|message = \(?)\s*f?"((?:{starts}) .*)'
    assert [start for text in sources for start in re.findall(calls, text)] == []


def test_doctor_changes_nothing(app: Application, now: datetime, name_server: NameServer) -> None:
    """No reader is unsubscribed, no email is sent, and the database is unchanged."""
    with app.db.write() as session:
        factories.add_subscriber(session, "alice@example.org", [], now + timedelta(days=1))
    before = _all_rows(app)
    run_doctor(app, now, name_server)
    assert _all_rows(app) == before


def _all_rows(app: Application) -> dict[str, list[tuple[object, ...]]]:
    tables = Subscriber.metadata.sorted_tables
    with app.db.read() as session:
        return {str(each): [tuple(row) for row in session.execute(each.select())] for each in tables}


@pytest.mark.once
def test_silent_servers_do_not_block_the_doctor(
    app: Application, now: datetime, name_server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks run concurrently, each with a timeout."""
    monkeypatch.setattr(relay, "TIMEOUT", 1.0)
    monkeypatch.setattr(database, "CONNECT_SECONDS", "2")
    name_server.silent = True
    started = monotonic()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        url = f"postgresql+psycopg://paperboy@127.0.0.1:{port}/paperboy"
        findings = run_doctor(app, now, name_server, smtp_port=port, database_url=url)
    assert monotonic() - started < 60
    assert [findings[each].level for each in ("relay", "database")] == [Level.ERROR] * 2
    assert findings["dns"].level is Level.WARNING
    assert findings["one-click"].level is Level.OK


@pytest.mark.once
def test_ctrl_c_does_not_wait_for_checks(
    app: Application, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relay may take 10 seconds to time out."""
    may_reply, main_thread = threading.Event(), threading.get_ident()

    def check(*_: object) -> list[Finding]:
        signal.pthread_kill(main_thread, signal.SIGINT)
        may_reply.wait(60)
        return []

    monkeypatch.setattr(relay, "check", check)
    others = set(threading.enumerate())
    started = monotonic()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background process ignores it
    try:
        with pytest.raises(KeyboardInterrupt):
            doctor.run_checks(app.settings, now, resolver=dns.resolver.Resolver(configure=False))
        assert monotonic() - started < 30
    finally:
        signal.signal(signal.SIGINT, before)
        may_reply.set()
        for thread in {*threading.enumerate()} - others:  # they may use the database
            thread.join(30)


def test_failed_check_is_a_finding(app: Application, now: datetime, name_server: NameServer) -> None:
    """The other checks run nevertheless."""
    findings = run_doctor(app, now, name_server, dkim_keys=("s1:/nowhere/key.pem",))
    assert findings["dkim key s1"].level is Level.ERROR
    assert (findings["mail"].level, "/nowhere/key.pem" in findings["mail"].message) == (Level.ERROR, True)
    assert findings["relay"].level is Level.OK


@pytest.mark.once
def test_web_app_is_requested_only_on_demand(
    app: Application, now: datetime, name_server: NameServer
) -> None:
    """The machine may be one that must not open connections."""
    assert "online" not in run_doctor(app, now, name_server)
    settings = app.settings.model_copy(update={"base_url": "http://paperboy.test"})
    findings = doctor.run_checks(
        settings, now, service=temporary_service(), resolver=name_server.resolver, online=HttpTransport()
    )
    assert findings[-1].check == "online"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg://paperboy:hunter2hunter2@127.0.0.1:1/none",
        "postgresql+psycopg://paperboy@127.0.0.1:1/none?password=hunter2hunter2",
    ],
)
def test_findings_contain_no_passwords(
    app: Application, now: datetime, name_server: NameServer, url: str
) -> None:
    """Findings are pasted into issues."""
    findings = run_doctor(
        app, now, name_server, database_url=url, smtp_username="me", smtp_password="hunter2hunter2"
    )
    assert "hunter2" not in str(findings)
    assert findings["database"].level is Level.ERROR
    assert "schedule" not in findings


# --- what the database remembers


@pytest.mark.parametrize(
    ("ages", "level", "text"),
    [
        ([], Level.OK, "`paperboy backup` is not in use"),
        ([40], Level.OK, "the last one was made at 2026-10-11"),  # once, perhaps before an upgrade
        ([22, 15, 8], Level.OK, "the last one was made at 2026-11-12"),
        ([23, 16, 9], Level.WARNING, "no backup has been made since 2026-11-11"),
        ([70, 40, 9], Level.OK, "the last one was made at 2026-11-11"),  # by hand, before upgrades
    ],
)
def test_backups_that_have_stopped(
    app: Application, now: datetime, ages: list[int], level: Level, text: str
) -> None:
    """Operators who make regular backups get an alert if they are no longer made."""
    for days in ages:
        with job_runs.record(app.db, "backup", now - timedelta(days=days)):
            pass
    with suppress(ValueError), job_runs.record(app.db, "backup", now - timedelta(days=1)):
        raise ValueError  # a failed backup is none
    finding = check_database(app, now)["backup"]
    assert (finding.level, finding.urgent) == (level, level is Level.WARNING)
    assert finding.message.startswith(text)


def test_unmigrated_database(app: Application, now: datetime) -> None:
    """No further query is made."""
    with app.db.write() as session:
        session.execute(text("DELETE FROM alembic_version"))
    findings = check_database(app, now)
    assert findings["database"].level is Level.ERROR
    assert "paperboy migrate" in findings["database"].fix
    assert "schedule" not in findings


def test_failed_job(app: Application, now: datetime) -> None:
    """Only the newest run of a job counts."""
    with job_runs.record(app.db, "refresh", now) as run:
        run.fail("arxiv", "it answered 503")
    assert check_database(app, now)["job refresh"].level is Level.WARNING
    assert check_database(app, now)["job refresh"].urgent
    with job_runs.record(app.db, "refresh", now):
        pass
    assert check_database(app, now)["job refresh"].level is Level.OK


def test_failed_source_is_one_finding(app: Application, now: datetime) -> None:
    """The run that polled it is not reported as well, unless something else in it failed."""
    with app.db.write() as session:
        source = factories.add_source(session, now, "The lab")
        source.kind, source.config, source.next_poll_at = SourceKind.FEED, {"url": "http://127.0.0.1:9/"}, now
    result = pipeline.refresh(app, now)
    assert list(result.failed) == ["The lab"]
    findings = service_state.check(app.db, model_store.ModelStore(), now)
    (finding,) = [each for each in findings if each.level is not Level.OK]
    assert finding.check == "source The lab"
    assert finding.message.endswith("add the host to PAPERBOY_ALLOW_PRIVATE_SOURCES and restart the service.")
    assert finding.fix.startswith("restart the service after you change the setting")
    with job_runs.record(app.db, "refresh", now) as run:
        run.fail("The lab", "it answered 503")
        run.fail("the database", "it is full")
    message = check_database(app, now)["job refresh"].message
    assert "The lab: it answered 503; the database: it is full" in message


def test_failed_pictures_are_not_urgent(app: Application, now: datetime) -> None:
    """No mail waits for a picture, and their hosts are tried again."""
    with job_runs.record(app.db, picture_fetching.JOB, now) as run:
        run.fail("cdn.test", "HTTP 503")
    finding = check_database(app, now)[f"job {picture_fetching.JOB}"]
    assert (finding.level, finding.urgent) == (Level.WARNING, False)


def test_suggested_commands_are_valid(app: Application, now: datetime) -> None:
    """Names with blanks are quoted, and an edition is resumed as an edition."""
    with app.db.write() as session:
        row = factories.add_source(session, now, name="A lab's blog")
        row.paused, row.next_poll_at = True, now
        ledger.pause(session, "a wrong key", now, "2026-11-20")
    findings = check_database(app, now)
    command = findings["source A lab's blog"].fix.split("`")[1]
    assert shlex.split(command) == ["paperboy", "sources", "resume", "A lab's blog"]
    assert "`paperboy sending resume --edition 2026-11-20`" in findings["sending 2026-11-20"].fix


@pytest.mark.usefixtures("trained_early")
def test_missing_or_corrupt_model(app: Application, now: datetime) -> None:
    """Picks are worse without it."""
    assert "too small" in check_database(app, now)["model"].message
    with app.db.write() as session:
        factories.add_unlisted_papers(session, model_store.MIN_PAPERS, now)
    assert check_database(app, now)["model"].level is Level.WARNING
    pipeline.train(app, now)
    in_use = check_database(app, now)["model"]
    assert in_use.message.startswith(f"number 1 is in use, trained on {model_store.MIN_PAPERS} papers")
    with app.db.write() as session:
        session.exec(select(TrainedModel)).one().data = b"gone"
    torn, instead = (
        each for each in service_state.check(app.db, model_store.ModelStore(), now) if each.check == "model"
    )
    assert (torn.level, torn.fix) == (Level.WARNING, "run `paperboy model train` to train a new model")
    assert "number 1 from 2026-11-20 09:30 UTC is not used: The stored bytes" in torn.message
    assert (instead.level, "bundled" in instead.message) == (Level.WARNING, True)


@pytest.mark.once
@pytest.mark.parametrize("content", [None, b"torn"])
def test_missing_or_damaged_bundled_model(
    app: Application, now: datetime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    """Nothing is sent. The doctor reported no fault of the model, but a bug in Paperboy."""
    file = tmp_path / "model.npz"
    if content:
        file.write_bytes(content)
    monkeypatch.setattr(model, "BUNDLED_MODEL", file)
    model.RelevanceModel.bundled.cache_clear()
    findings = [check_database(app, now)["model"], *test_mail.check(app.settings, temporary_service())]
    assert [(each.check, each.level) for each in findings] == [("model", Level.ERROR), ("mail", Level.ERROR)]
    assert {each.fix for each in findings} == {f"{file} is missing or damaged: reinstall Paperboy"}


@pytest.mark.once
def test_damaged_database(app: Application, now: datetime) -> None:
    """A backup has to be restored. The address of the database is right."""
    file = Path(app.settings.database_url.removeprefix("sqlite:///"))
    app.db.dispose()
    file.write_bytes(b"not a database" * 1000)
    finding = check_database(app, now)["database"]
    assert "file is not a database" in finding.message
    assert finding.fix.startswith("stop the service, and restore a backup")
    file.unlink()
    file.mkdir()
    assert "check the disk" in check_database(app, now)["database"].fix


@pytest.mark.once
def test_database_is_opened_for_writing(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise, SQLite would not report a disk that has become read-only."""
    app.db.dispose()
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write to all folders
    db = database.Database(app.settings.database_url, create=False)
    with db.write() as session:
        session.execute(text("DELETE FROM subscriber"))
    db.dispose()
