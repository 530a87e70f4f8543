"""A service with subscribers and papers, and helpers that move it and compare its rows."""

import json
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from app import main, maintenance
from app.application import Application
from app.storage.models import Source
from tests.support import factories
from tests.support.mail_server import MailServer
from tests.support.postgres_server import PostgresServer

DAY = timedelta(days=1)
READERS = 8


@pytest.fixture
def url_without_tables(request: pytest.FixtureRequest, database_kind: str, tmp_path: Path) -> str:
    """Return the URL of a database without tables. On SQLite, its file does not exist yet."""
    if database_kind == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        return server.create_empty_database()
    return f"sqlite:///{tmp_path / 'empty.db'}"


@pytest.fixture
def empty_url(request: pytest.FixtureRequest, database_kind: str) -> str:
    """Return the URL of a database without rows. On PostgreSQL, it has tables: making them takes 0.2 s."""
    if database_kind == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        return server.create_database()
    url: str = request.getfixturevalue("url_without_tables")
    return url


@pytest.fixture
def service(app: Application, now: datetime) -> Application:
    """Return a service with eight subscribers at 10:00 UTC, and two new papers on each of five days."""
    with app.db.write() as session:
        source = factories.add_source(session, now)
        for number in range(READERS):
            due = now.replace(hour=10, minute=0)
            factories.add_subscriber(session, f"r{number}@example.org", ["language agents"], due, hour=10)
    for back in range(5):
        add_papers(app, now - back * DAY, source.id or 0)
    return app


def add_papers(app: Application, now: datetime, source_id: int) -> None:
    with app.db.write() as session:
        source = session.get_one(Source, source_id)
        for part in ("planning", "memory"):
            title = f"Language agents with {part} number {now:%j}"
            factories.add_paper(session, source, title, now.date(), now)


@pytest.fixture
def restored_services() -> Iterator[list[Application]]:
    """Return a list of services that are closed at the end."""
    services: list[Application] = []
    yield services
    for each in services:
        each.db.dispose()


def received(mail_server: MailServer) -> list[tuple[str, str]]:
    """Return the recipient and the title of each paper that was sent."""
    return [
        (mail.recipient, title)
        for mail in mail_server.messages
        for title in sorted(
            set(re.findall(r"with \w+ number \d+", mail.parsed().as_string().replace("=\n", "")))
        )
    ]


def pop_run(rows: dict[str, list[dict[str, Any]]], job: str) -> dict[str, int]:
    """Remove the first run of a job from the rows of all tables, and return its counts. It has ended well."""
    run = next(row for row in rows["job_run"] if row["job"] == job)
    rows["job_run"].remove(run)
    assert (run["error"], bool(run["ended_at"])) == ("", True)
    counts = run["counts"]
    return dict(json.loads(counts) if isinstance(counts, str) else counts)


def move(service: Application, url: str, file: Path, now: datetime) -> Application:
    """Move a service to another database, and return the service that uses it."""
    maintenance.move(service, url, file, now)
    folder = Path(service.settings.journal_dir).with_name(f"journal of {file.stem}")
    return main.build(service.settings.model_copy(update={"database_url": url, "journal_dir": str(folder)}))
