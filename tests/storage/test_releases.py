"""Test that the databases of released versions can be upgraded, used, and downgraded again.

`paperboy backup` wrote tests/data/releases, once for each version.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from alembic import command
from sqlalchemy import MetaData, create_engine, select, text
from sqlmodel import col

from app import main, pipeline
from app.delivery import ledger
from app.doctor import service_state
from app.doctor.findings import Level
from app.errors import SchemaError
from app.settings import Settings
from app.storage import backup_file, schema
from app.storage.database import ROOT
from app.storage.models import Delivery, DeliveryState, DigestContent
from tests.conftest import NOW
from tests.storage.test_migrations import config_of
from tests.support.mail_server import MailServer

RELEASES = ROOT / "tests" / "data" / "releases"
# The newest revision of each release, and the hash of its file: a released migration is never edited.
RELEASED = {"0.1.0": "0001"}
RESTORED_AT = datetime(2026, 4, 1, 7, tzinfo=UTC)
HASHES = {"0001": "3f1aece9990bfc16c945ea199cf510c8a0d0a6795d8308cccb043ad25e6ee35b"}
UNDO = "undo the change to the tables, or restore a backup"
Rows = dict[str, list[dict[str, Any]]]


def tables_of(url: str) -> MetaData:
    engine, tables = create_engine(url), MetaData()
    tables.reflect(engine)
    engine.dispose()
    return tables


def read_rows(url: str) -> Rows:
    """Return all rows as JSON, by table."""
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
    url, file = new_database_url(), RELEASES / f"{request.param}.zip"
    command.downgrade(config_of(url), "base")
    backup_file.load(url, file, backup_file.read_manifest(file), "it was restored", RESTORED_AT)
    return request.param, url


def test_released_migrations_are_frozen() -> None:
    """A change of a released migration would leave the databases that have run it behind."""
    files = {path.name.split("_")[0]: path for path in (ROOT / "migrations" / "versions").glob("*.py")}
    assert {
        revision: hashlib.sha256(files[revision].read_bytes()).hexdigest() for revision in HASHES
    } == HASHES
    assert set(RELEASED.values()) <= set(HASHES)


def test_every_release_has_a_backup_with_rows_in_each_table() -> None:
    """Only a trained model, which is large, is left out."""
    assert {path.stem for path in RELEASES.iterdir()} == set(RELEASED)
    for path in RELEASES.iterdir():
        manifest = backup_file.read_manifest(path)
        assert manifest.revision == RELEASED[path.stem]
        assert [name for name, table in manifest.tables.items() if not table.rows] == ["trained_model"]


def test_upgrade_keeps_every_row(released: tuple[str, str]) -> None:
    _, url = released
    before = read_rows(url)
    schema.migrate(url)
    command.check(config_of(url))
    after = {name: len(rows) for name, rows in read_rows(url).items()}
    assert {name: after.get(name, 0) for name in before} == {name: len(rows) for name, rows in before.items()}


def test_downgrade_restores_every_row(released: tuple[str, str]) -> None:
    """On SQLite, this replaces tables that others refer to."""
    version, url = released
    before = read_rows(url)
    schema.migrate(url)
    schema.migrate(url, RELEASED[version])
    assert read_rows(url) == before


@pytest.fixture
def upgraded(released: tuple[str, str], settings: Settings) -> Iterator[main.Application]:
    _, url = released
    schema.migrate(url)
    app = main.build(settings.model_copy(update={"database_url": url}))
    with app.db.write() as session:
        ledger.resume(session, NOW)
    yield app
    app.db.dispose()


def test_upgraded_service_sends_no_paper_again(upgraded: main.Application, mail_server: MailServer) -> None:
    """The days after the upgrade bring digests, without papers that were sent before. A pause still holds."""
    day = datetime(2026, 4, 1, 20, tzinfo=UTC)
    counts: Counter[str] = Counter()
    for hours in range(0, 48, 2):
        counts += pipeline.plan_and_send(upgraded, day + timedelta(hours=hours))
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
    ("statement", "fault", "fix"),
    [
        (
            "UPDATE alembic_version SET version_num = '9999'",
            "revision 9999 of a newer release",
            "start the newer release",
        ),
        ("DELETE FROM alembic_version", "revision none; this release needs", "run `paperboy migrate`"),
        ("DROP TABLE private_paper", "table private_paper is missing", UNDO),
        ("ALTER TABLE source DROP COLUMN last_error", "column source.last_error is missing", UNDO),
        ("ALTER TABLE source ADD COLUMN colour TEXT", "column source.colour is unknown", UNDO),
        ("DROP INDEX ix_delivery_due", "index ix_delivery_due is missing", UNDO),
    ],
)
def test_foreign_schema_sends_nothing(
    statement: str, fault: str, fix: str, new_database_url: Callable[[], str], settings: Settings
) -> None:
    """Neither a process that starts nor one that already runs sends, and each says why and what to do."""
    app = main.build(settings.model_copy(update={"database_url": new_database_url()}))
    now = datetime(2026, 4, 1, 20, tzinfo=UTC)
    try:
        pipeline.send(app, now)
        with app.db.write() as session:
            session.execute(text(statement))
        running = app if "alembic_version" in statement else main.build(app.settings)
        for stage in (pipeline.send, pipeline.plan, pipeline.plan_and_send, pipeline.send_now):
            with pytest.raises(SchemaError, match=f"{fault}.*: .*{fix}"):
                stage(running, now)
        running.db.dispose()
        findings = list(service_state.check(app.db, app.models, now))
        assert [(finding.level, fault in finding.message) for finding in findings] == [(Level.ERROR, True)]
        assert fix in findings[0].fix
    finally:
        app.db.dispose()


def test_own_tables_of_an_operator_do_not_matter(app: main.Application) -> None:
    with app.db.write() as session:
        session.execute(text("CREATE TABLE notes (id INTEGER)"))
    assert schema.table_fault(app.db) is None
