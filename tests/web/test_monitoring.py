"""Test the health endpoints and the metrics."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text

from app import clock, main, pipeline, subscribers
from app.application import Application
from app.settings import Settings
from app.storage import api_keys, database, job_runs
from app.storage.api_keys import Scope
from app.storage.database import ROOT
from app.storage.models import Delivery, DeliveryState, Subscriber, TrainedModel
from tests.conftest import MIN_PAPERS
from tests.support import factories


@pytest.fixture
def client(app: Application) -> Iterator[TestClient]:
    """Return a client without a key."""
    with TestClient(main.create_app(app), raise_server_exceptions=False) as test_client:
        yield test_client


def test_liveness_does_not_use_the_database(client: TestClient) -> None:
    """A restart would not repair the database."""
    assert client.get("/healthz").json() == {"status": "ok"}


def test_readiness_requires_a_migrated_database(app: Application, client: TestClient) -> None:
    assert client.get("/readyz").status_code == 200
    with app.db.write() as session:
        session.execute(text("DELETE FROM alembic_version"))
    refused = client.get("/readyz")
    assert refused.status_code == 503
    assert "revision none" in refused.json()["database"]


def test_readiness_compares_the_tables(app: Application, client: TestClient) -> None:
    """A database can be at the right revision without the right tables."""
    with app.db.write() as session:
        session.execute(text("ALTER TABLE source RENAME COLUMN etag TO tag"))
    refused = client.get("/readyz")
    with app.db.write() as session:  # tests share this database
        session.execute(text("ALTER TABLE source RENAME COLUMN tag TO etag"))
    assert refused.status_code == 503
    assert "column source.etag is missing" in refused.json()["database"]


@pytest.mark.once
def test_readiness_requires_a_writable_file(
    app: Application, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction that has SQLite's lock is no fault, and the check does not wait for it."""
    with app.db.write() as session:
        session.connection()
        assert client.get("/readyz").status_code == 200
    with monkeypatch.context() as full:
        full.setattr(database, "MIN_FREE_BYTES", 2**62)
        refused = client.get("/readyz")
        assert (refused.status_code, refused.json()["database"]) == (503, "full")
    assert client.get("/readyz").status_code == 200
    app.db.engine.dispose()  # so that the file contains all transactions
    with Path(app.db.url.database or "").open("r+b") as file:
        file.seek(18)
        file.write(b"\3")  # the version needed to write: SQLite only reads files of later versions
    refused = client.get("/readyz")
    assert (refused.status_code, refused.json()["database"]) == (503, "read-only")


def test_readiness_names_jobs_whose_last_run_failed(
    app: Application, client: TestClient, now: datetime
) -> None:
    """An earlier failure no longer counts."""
    for job, fails in (("send", True), ("send", False), ("prune", False), ("prune", True)):
        with job_runs.record(app.db, job, now) as run:
            if fails:
                run.fail("the disk", "full")
    assert client.get("/readyz").json() == {"status": "ok", "database": "ok", "failed_jobs": ["prune"]}


def test_dashboard_uses_existing_metrics(app: Application, client: TestClient) -> None:
    with app.db.write() as session:
        key = api_keys.create(session, "dashboard", [Scope.READ], clock.utcnow())[1]
    metrics = client.get("/metrics", headers={"Authorization": f"Bearer {key}"}).text
    exported = set(re.findall(r"^# TYPE (\w+)", metrics, re.MULTILINE))
    dashboard = json.loads((ROOT / "deploy" / "grafana.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    used = {name for query in queries for name in re.findall(r"(?:paperboy|process)_\w+", query)}
    assert len(used) > 10
    assert used <= exported
    legends = [target["legendFormat"] for panel in dashboard["panels"] for target in panel["targets"]]
    labels = {label for legend in legends for label in re.findall(r"{{(\w+)}}", legend)}
    assert labels == {"name", "receiver", "source", "state"}


def test_readiness_without_a_database_is_503(settings: Settings) -> None:
    away = settings.model_copy(update={"database_url": "postgresql+psycopg://nobody@127.0.0.1:1/none"})
    built = main.build(away)
    with TestClient(main.create_app(built)) as client:
        assert client.get("/readyz").status_code == 503
        assert client.get("/healthz").status_code == 200
    built.db.dispose()


def test_metrics_match_the_database(app: Application, client: TestClient, now: datetime) -> None:
    """Counts by state, source and job, and the delay of the oldest due digest, without any address."""
    late = clock.utcnow() - timedelta(hours=1)
    with app.db.write() as session:
        source = factories.add_source(session, now, name='hub "A"')
        source.failures, source.polled_at = 2, now
        factories.add_paper(session, source, "Language Agents that Plan", now.date(), now)
        number = factories.add_subscriber(session, "alice@example.org", [], late)
        session.add(
            Delivery(
                subscriber_id=number,
                edition="2026-11-20",
                state=DeliveryState.SENT,
                due_at=now,
                created_at=late,
                sent_at=clock.utcnow(),
            )
        )
    with job_runs.record(app.db, "refresh", now):
        pass
    with app.db.write() as session:
        key = api_keys.create(session, "prometheus", [Scope.READ], now)[1]
    response = client.get("/metrics", headers={"Authorization": f"Bearer {key}"})
    assert response.headers["content-type"].startswith("text/plain")
    lines = dict(line.rsplit(" ", 1) for line in response.text.splitlines() if not line.startswith("#"))
    assert float(lines['paperboy_subscribers{state="active"}']) == 1
    assert float(lines['paperboy_subscribers{state="pending"}']) == 0
    assert float(lines['paperboy_deliveries{state="sent"}']) == 1
    assert float(lines["paperboy_papers"]) == 1
    assert float(lines['paperboy_sent_today{receiver="others"}']) == 1
    assert float(lines['paperboy_complaints_today{receiver="others"}']) == 0
    assert float(lines['paperboy_source_failures{source="hub \\"A\\""}']) == 2
    assert float(lines['paperboy_source_polled_timestamp_seconds{source="hub \\"A\\""}']) == now.timestamp()
    assert float(lines['paperboy_job_ended_timestamp_seconds{name="refresh"}']) >= now.timestamp()
    assert float(lines["paperboy_models_invalid"]) == 0
    assert "paperboy_model_papers" not in lines
    assert 3600 <= float(lines["paperboy_digest_lateness_seconds"]) < 3700
    assert "process_cpu_seconds_total" in lines
    assert "alice" not in response.text
    labels = {label for line in lines for label in re.findall(r'(\w+)="', line)}
    assert labels == {"name", "receiver", "source", "state"}  # not those that Prometheus sets: job, instance


def test_subscriber_metrics_leave_out_unconfirmed_erasures(app: Application, client: TestClient) -> None:
    """The gauge agrees with the overview and the statistics. A confirmed erasure counts."""
    now = clock.utcnow()
    with app.db.write() as session:
        confirmed, pending = (
            factories.add_subscriber(session, f"{name}@example.org", [], now) for name in ("alice", "bob")
        )
        subscribers.get(session, pending).confirmed_at = None
        for number in (confirmed, pending):
            subscribers.erase(session, number, now)
        counts = subscribers.count_by_state(session)
        key = api_keys.create(session, "prometheus", [Scope.READ], now)[1]
    metrics = client.get("/metrics", headers={"Authorization": f"Bearer {key}"}).text
    gauge = dict(re.findall(r'paperboy_subscribers\{state="(\w+)"\} (\S+)', metrics))
    assert {state: float(number) for state, number in gauge.items()} == counts
    assert float(gauge["erased"]) == 1


@pytest.mark.usefixtures("trained_early")
def test_metrics_of_the_active_model(app: Application, now: datetime) -> None:
    """An outdated or unreadable model can trigger an alert."""
    with app.db.write() as session:
        factories.add_unlisted_papers(session, MIN_PAPERS, now)
    pipeline.train(app, now)
    with app.db.write() as session:
        session.add(
            TrainedModel(trained_at=now, papers=1, newest_id=1, changed_at=now, sha256="", size=0, data=b"")
        )
    local = replace(app, settings=app.settings.model_copy(update={"base_url": "http://127.0.0.1:8000"}))
    with TestClient(main.create_app(local)) as client:
        metrics = client.get("/metrics").text
    lines = dict(line.rsplit(" ", 1) for line in metrics.splitlines() if not line.startswith("#"))
    assert float(lines["paperboy_models_invalid"]) == 1
    assert float(lines["paperboy_model_papers"]) == MIN_PAPERS
    assert float(lines["paperboy_model_trained_timestamp_seconds"]) == now.timestamp()


def test_metrics_require_a_key(app: Application, client: TestClient, now: datetime) -> None:
    """A change of the pending count after a sign-up would reveal that an address was not subscribed."""
    with app.db.write() as session:
        key = api_keys.create(session, "sender", [Scope.SEND], now)[1]
    assert client.get("/metrics").status_code == 401
    assert client.get("/metrics", headers={"Authorization": f"Bearer {key}"}).status_code == 403


def test_metrics_are_public_on_localhost(app: Application) -> None:
    local = replace(app, settings=app.settings.model_copy(update={"base_url": "http://127.0.0.1:8000"}))
    with TestClient(main.create_app(local)) as client:
        assert client.get("/metrics").status_code == 200


def test_rates_are_read_once_a_minute(
    app: Application, monkeypatch: pytest.MonkeyPatch, now: datetime
) -> None:
    """Frequent scrapes do not read the emails of eight days each time."""
    local = app.settings.model_copy(update={"base_url": "http://localhost:8000"})
    client = TestClient(main.create_app(replace(app, settings=local)))
    monkeypatch.setattr(clock, "utcnow", lambda: now)
    assert 'paperboy_sent_today{receiver="others"}' not in client.get("/metrics").text
    sent = {"state": DeliveryState.SENT, "due_at": now, "created_at": now, "sent_at": now}
    with app.db.write() as session:
        reader = factories.add_subscriber(session, "alice@example.org", [], now)
        session.add(Delivery(subscriber_id=reader, edition="2026-11-20", **sent))
    assert 'paperboy_sent_today{receiver="others"}' not in client.get("/metrics").text
    monkeypatch.setattr(clock, "utcnow", lambda: now + timedelta(minutes=2))
    assert 'paperboy_sent_today{receiver="others"} 1.0' in client.get("/metrics").text


def test_missing_digests_are_counted(
    app: Application, monkeypatch: pytest.MonkeyPatch, now: datetime
) -> None:
    """The recent editions are reconciled at most once a minute."""
    local = app.settings.model_copy(update={"base_url": "http://localhost:8000"})
    client = TestClient(main.create_app(replace(app, settings=local)))
    monkeypatch.setattr(clock, "utcnow", lambda: now)
    assert "paperboy_digests_missing 0.0" in client.get("/metrics").text
    with app.db.write() as session:
        reader = factories.add_subscriber(session, "alice@example.org", [], now.replace(hour=8, minute=0))
        session.get_one(Subscriber, reader).next_due_at = now + timedelta(days=1)
    assert "paperboy_digests_missing 0.0" in client.get("/metrics").text
    monkeypatch.setattr(clock, "utcnow", lambda: now + timedelta(minutes=1))
    figures = client.get("/metrics").text
    assert "paperboy_digests_due 1.0" in figures
    assert "paperboy_digests_missing 1.0" in figures
    assert "paperboy_digests_surplus 0.0" in figures
    assert "paperboy_digests_failed 0.0" in figures


@pytest.mark.once
@pytest.mark.parametrize("url", ["sqlite:///{}", "postgresql+psycopg://nobody@127.0.0.1:1/paperboy"])
def test_unreachable_database(url: str, settings: Settings, tmp_path: Path) -> None:
    """Pages say that the service cannot use its database, and a scraper gets text."""
    options = {"database_url": url.format(tmp_path), "base_url": "http://127.0.0.1"}
    app = main.build(settings.model_copy(update=options))
    with TestClient(main.create_app(app)) as client:
        page, scraped = client.get("/"), client.get("/metrics")
    app.db.dispose()
    assert (page.status_code, scraped.status_code) == (503, 503)
    assert "<h1>The service can’t use its database</h1>" in page.text
    assert scraped.headers["content-type"].startswith("text/plain")
    assert scraped.text == "The service can’t use its database.\n"
