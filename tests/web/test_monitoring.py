"""Machines that watch over the service get short, true answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text

from app import clock, main, pipeline
from app.application import Application
from app.relevance.model_store import MIN_PAPERS
from app.settings import Settings
from app.storage import api_keys, job_runs
from app.storage.models import Delivery, DeliveryState, Scope, Subscriber, TrainedModel
from tests.support import factories


@pytest.fixture
def client(app: Application) -> Iterator[TestClient]:
    """Somebody without a key."""
    with TestClient(main.create_app(app), raise_server_exceptions=False) as made:
        yield made


def test_a_living_process_says_so(client: TestClient) -> None:
    """Without asking the database: a restart would not mend that."""
    assert client.get("/healthz").json() == {"status": "ok"}


def test_it_is_ready_on_a_migrated_database(app: Application, client: TestClient) -> None:
    """And not before: a request would fail."""
    assert client.get("/readyz").status_code == 200
    with app.db.write() as session:
        session.execute(text("UPDATE alembic_version SET version_num = 'older'"))
    refused = client.get("/readyz")
    assert (refused.status_code, refused.json()["database"]) == (503, "not migrated")


def test_without_a_database_it_is_not_ready(settings: Settings) -> None:
    """The answer is 503, not an error page."""
    away = settings.model_copy(update={"database_url": "postgresql+psycopg://nobody@127.0.0.1:1/none"})
    built = main.build(away)
    with TestClient(main.create_app(built)) as client:
        assert client.get("/readyz").status_code == 503
        assert client.get("/healthz").status_code == 200
    built.db.dispose()


def test_the_figures_are_those_of_the_database(app: Application, client: TestClient, now: datetime) -> None:
    """By state, by source and by job, and how late the oldest due digest is; nobody's address."""
    late = clock.utcnow() - timedelta(hours=1)
    with app.db.write() as session:
        source = factories.source(session, now, name='hub "A"')
        source.failures, source.polled_at = 2, now
        factories.paper(session, source, "Language Agents that Plan", now.date(), now)
        number = factories.reader(session, "alice@example.org", [], late)
        session.add(
            Delivery(
                subscriber_id=number,
                edition="2026-11-20",
                state=DeliveryState.SENT,
                due_at=now,
                created_at=now,
            )
        )
    with job_runs.record(app.db, "refresh", now):
        pass
    with app.db.write() as session:
        key = api_keys.create(session, "prometheus", [Scope.READ], now)[1]
    told = client.get("/metrics", headers={"Authorization": f"Bearer {key}"})
    assert told.headers["content-type"].startswith("text/plain")
    lines = dict(line.rsplit(" ", 1) for line in told.text.splitlines() if not line.startswith("#"))
    assert float(lines['paperboy_subscribers{state="active"}']) == 1
    assert float(lines['paperboy_subscribers{state="pending"}']) == 0
    assert float(lines['paperboy_deliveries{state="sent"}']) == 1
    assert float(lines["paperboy_papers"]) == 1
    assert float(lines['paperboy_source_failures{source="hub \\"A\\""}']) == 2
    assert float(lines['paperboy_source_polled_timestamp_seconds{source="hub \\"A\\""}']) == now.timestamp()
    assert float(lines['paperboy_job_ended_timestamp_seconds{job="refresh"}']) >= now.timestamp()
    assert float(lines["paperboy_models_invalid"]) == 0
    assert "paperboy_model_papers" not in lines
    assert 3600 <= float(lines["paperboy_digest_lateness_seconds"]) < 3700
    assert "process_cpu_seconds_total" in lines
    assert "alice" not in told.text


def test_the_model_in_use_has_its_figures(app: Application, now: datetime) -> None:
    """One that grows old, or cannot be read, is worth an alert."""
    with app.db.write() as session:
        factories.archive(session, MIN_PAPERS, now)
    pipeline.train(app, now)
    with app.db.write() as session:
        session.add(
            TrainedModel(trained_at=now, papers=1, newest_id=1, changed_at=now, sha256="", size=0, data=b"")
        )
    local = replace(app, settings=app.settings.model_copy(update={"base_url": "http://127.0.0.1:8000"}))
    with TestClient(main.create_app(local)) as client:
        told = client.get("/metrics").text
    lines = dict(line.rsplit(" ", 1) for line in told.splitlines() if not line.startswith("#"))
    assert float(lines["paperboy_models_invalid"]) == 1
    assert float(lines["paperboy_model_papers"]) == MIN_PAPERS
    assert float(lines["paperboy_model_trained_timestamp_seconds"]) == now.timestamp()


def test_a_stranger_is_told_no_figures(app: Application, client: TestClient, now: datetime) -> None:
    """One more pending reader after a sign-up would tell that the address was not known before."""
    with app.db.write() as session:
        key = api_keys.create(session, "sender", [Scope.SEND], now)[1]
    assert client.get("/metrics").status_code == 401
    assert client.get("/metrics", headers={"Authorization": f"Bearer {key}"}).status_code == 403


def test_on_ones_own_machine_the_figures_are_open(app: Application) -> None:
    """Where every link leads to this machine there are no strangers."""
    local = replace(app, settings=app.settings.model_copy(update={"base_url": "http://127.0.0.1:8000"}))
    with TestClient(main.create_app(local)) as client:
        assert client.get("/metrics").status_code == 200


def test_a_missing_digest_is_counted(
    app: Application, monkeypatch: pytest.MonkeyPatch, now: datetime
) -> None:
    """The whole ledger is compared once in ten minutes, however often the figures are asked for."""
    local = app.settings.model_copy(update={"base_url": "http://localhost:8000"})
    client = TestClient(main.create_app(replace(app, settings=local)))
    monkeypatch.setattr(clock, "utcnow", lambda: now)
    assert "paperboy_digests_missing 0.0" in client.get("/metrics").text
    with app.db.write() as session:
        reader = factories.reader(session, "alice@example.org", [], now.replace(hour=8, minute=0))
        session.get_one(Subscriber, reader).next_due_at = now + timedelta(days=1)
    assert "paperboy_digests_missing 0.0" in client.get("/metrics").text
    monkeypatch.setattr(clock, "utcnow", lambda: now + timedelta(minutes=11))
    figures = client.get("/metrics").text
    assert "paperboy_digests_due 1.0" in figures
    assert "paperboy_digests_missing 1.0" in figures
    assert "paperboy_digests_surplus 0.0" in figures
