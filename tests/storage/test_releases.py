"""Test that the databases of released versions can be upgraded, used, and downgraded again.

`python -m scripts.dump_database` wrote tests/data/releases, once for each version.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from alembic import command
from sqlalchemy import MetaData, Table, create_engine, insert, select, text
from sqlalchemy import types as column_types
from sqlmodel import col

from app import main, pipeline
from app.delivery import ledger
from app.doctor import service_state
from app.doctor.findings import Level
from app.errors import SchemaError
from app.settings import Settings
from app.storage import schema
from app.storage.database import ROOT
from app.storage.models import Delivery, DeliveryState, DigestContent
from tests.storage.test_migrations import config_of
from tests.support.mail_server import MailServer

RELEASES = ROOT / "tests" / "data" / "releases"
# The newest revision of each release, and the hash of its file: a released migration is never edited.
RELEASED = {"0.1.0": "0001"}
HASHES = {"0001": "3f1aece9990bfc16c945ea199cf510c8a0d0a6795d8308cccb043ad25e6ee35b"}
Rows = dict[str, list[dict[str, Any]]]


def read_dump(version: str) -> Rows:
    tables: Rows = {}
    for line in gzip.decompress((RELEASES / f"{version}.jsonl.gz").read_bytes()).splitlines():
        name, row = json.loads(line)
        tables.setdefault(name, []).append(row)
    return tables


def decode(table: Table, row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with Python's dates and times instead of texts."""
    decoded = dict(row)
    for column in table.columns:
        value = decoded[column.name]
        if value is None:
            continue
        if isinstance(column.type, column_types.DateTime):
            decoded[column.name] = datetime.fromisoformat(value).replace(tzinfo=UTC)
        elif isinstance(column.type, column_types.Date):
            decoded[column.name] = date.fromisoformat(value)
    return decoded


def tables_of(url: str) -> MetaData:
    engine, tables = create_engine(url), MetaData()
    tables.reflect(engine)
    engine.dispose()
    return tables


def fill(url: str, dump: Rows) -> None:
    """Insert the rows of a release into its tables."""
    tables, engine = tables_of(url), create_engine(url)
    with engine.begin() as connection:
        for name, rows in dump.items():
            table = tables.tables[name]
            connection.execute(insert(table), [decode(table, row) for row in rows])
            if connection.dialect.name == "postgresql" and "id" in table.columns:
                connection.execute(
                    text(f"SELECT setval(pg_get_serial_sequence('{name}', 'id'), max(id)) FROM {name}")  # noqa: S608
                )
    engine.dispose()


def read_rows(url: str) -> Rows:
    """Return all rows as a dump has them."""
    tables, engine = tables_of(url), create_engine(url)
    rows: Rows = {}
    with engine.connect() as connection:
        for table in tables.sorted_tables:
            found = connection.execute(select(table).order_by(*table.primary_key)).mappings()
            rows[table.name] = [
                json.loads(json.dumps(dict(row), default=lambda value: str(value).removesuffix("+00:00")))
                for row in found
            ]
    engine.dispose()
    return {name: found for name, found in rows.items() if found and name != "alembic_version"}


@pytest.fixture(params=sorted(RELEASED))
def released(request: pytest.FixtureRequest, new_database_url: Callable[[], str]) -> tuple[str, str]:
    """Return the version, and the URL of a filled database of that version."""
    url = new_database_url()
    command.downgrade(config_of(url), "base")
    schema.migrate(url, RELEASED[request.param])
    fill(url, read_dump(request.param))
    return request.param, url


def test_released_migrations_are_frozen() -> None:
    """A change of a released migration would leave the databases that have run it behind."""
    files = {path.name.split("_")[0]: path for path in (ROOT / "migrations" / "versions").glob("*.py")}
    assert {
        revision: hashlib.sha256(files[revision].read_bytes()).hexdigest() for revision in HASHES
    } == HASHES
    assert set(RELEASED.values()) <= set(HASHES)


def test_every_release_has_a_dump_of_all_that_it_stores() -> None:
    """Only a trained model, which is large, is left out."""
    assert {path.name.removesuffix(".jsonl.gz") for path in RELEASES.iterdir()} == set(RELEASED)
    assert len(read_dump("0.1.0")) == 26


def test_upgrade_keeps_every_row(released: tuple[str, str]) -> None:
    version, url = released
    schema.migrate(url)
    command.check(config_of(url))
    dump = read_dump(version)
    upgraded = {name: len(rows) for name, rows in read_rows(url).items()}
    assert {name: upgraded.get(name, 0) for name in dump} == {name: len(rows) for name, rows in dump.items()}


def test_downgrade_restores_every_row(released: tuple[str, str]) -> None:
    version, url = released
    schema.migrate(url)
    schema.migrate(url, RELEASED[version])  # on SQLite, this replaces tables that others refer to
    assert read_rows(url) == read_dump(version)


@pytest.fixture
def upgraded(released: tuple[str, str], settings: Settings) -> Iterator[main.Application]:
    _, url = released
    schema.migrate(url)
    app = main.build(settings.model_copy(update={"database_url": url}))
    yield app
    app.db.dispose()


def test_upgraded_service_sends_no_paper_again(upgraded: main.Application, mail_server: MailServer) -> None:
    """The days after the upgrade bring digests, without papers that were sent before. A pause still holds."""
    day = datetime(2026, 4, 1, 20, tzinfo=UTC)
    counts: Counter[str] = Counter()
    for hours in range(0, 48, 2):
        counts += pipeline.send_due(upgraded, day + timedelta(hours=hours))
    assert counts["sent"] == len(mail_server.messages) > 0
    with upgraded.db.read() as session:
        sent = session.exec(
            select(Delivery.subscriber_id, DigestContent.digest)
            .join(DigestContent, col(DigestContent.delivery_id) == Delivery.id)
            .where(Delivery.state == DeliveryState.SENT)
        ).all()
    papers = [(subscriber, paper) for subscriber, digest in sent for paper in ledger.paper_ids(digest)]
    assert len(papers) == len(set(papers)) > 100


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        ("UPDATE alembic_version SET version_num = '9999'", "revision 9999 of a newer release"),
        ("DELETE FROM alembic_version", "revision none; this release needs"),
        ("DROP TABLE private_paper", "table private_paper is missing"),
        ("ALTER TABLE source DROP COLUMN last_error", "column source.last_error is missing"),
        ("ALTER TABLE source ADD COLUMN colour TEXT", "column source.colour is unknown"),
        ("DROP INDEX ix_delivery_due", "index ix_delivery_due is missing"),
    ],
)
def test_foreign_schema_sends_nothing(
    statement: str, fault: str, new_database_url: Callable[[], str], settings: Settings
) -> None:
    """Neither a process that starts nor one that already runs sends, and each says why."""
    app = main.build(settings.model_copy(update={"database_url": new_database_url()}))
    now = datetime(2026, 4, 1, 20, tzinfo=UTC)
    try:
        pipeline.send(app, now)
        with app.db.write() as session:
            session.execute(text(statement))
        running = app if "alembic_version" in statement else main.build(app.settings)
        for stage in (pipeline.send, pipeline.plan, pipeline.send_due, pipeline.send_pending):
            with pytest.raises(SchemaError, match=fault):
                stage(running, now)
        running.db.dispose()
        findings = list(service_state.check(app.db, app.models, now))
        assert [(finding.level, fault in finding.message) for finding in findings] == [(Level.ERROR, True)]
    finally:
        app.db.dispose()


def test_own_tables_of_an_operator_do_not_matter(app: main.Application) -> None:
    with app.db.write() as session:
        session.execute(text("CREATE TABLE notes (id INTEGER)"))
    assert schema.table_fault(app.db) == ""
