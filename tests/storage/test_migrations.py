"""Test that migrations create the tables of the models and can be reverted."""

import json
import re
import signal
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Column, Enum, create_engine, inspect, text
from sqlmodel import SQLModel, col, delete, select

from app.delivery import ledger
from app.storage import schema
from app.storage.database import ROOT, Database
from app.storage.models import DigestContent, Paper, PaperSnapshot, Subscriber
from app.types import Digest, Marks, Section
from tests.support import factories, sample_digest
from tests.support.fork_server import ForkServer


def config_of(url: str) -> Config:
    config = Config()
    config.set_main_option("script_location", str(ROOT / "migrations"))
    config.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
    return config


def tables_of(url: str) -> set[str]:
    engine = create_engine(url)
    names = set(inspect(engine).get_table_names())
    engine.dispose()
    return names - {"alembic_version"}


@pytest.fixture
def database_url(new_database_url: Callable[[], str]) -> str:
    """Return the URL of a database that no other test uses, because these tests change its tables."""
    return new_database_url()


def test_revisions_are_those_of_alembic() -> None:
    """They are taken from the names of the files, because importing Alembic would delay every command."""
    scripts = ScriptDirectory(str(schema.MIGRATIONS)).walk_revisions()
    assert schema.known_revisions() == tuple(script.revision for script in scripts)


def test_models_and_migrations_agree(database_url: str) -> None:
    """`alembic check` finds no difference."""
    command.check(config_of(database_url))


@pytest.mark.parametrize(
    "column",
    [
        column
        for table in SQLModel.metadata.sorted_tables
        for column in table.columns
        if isinstance(column.type, Enum)
    ],
    ids=str,
)
def test_constraints_accept_all_members_of_enums(database_url: str, column: Column[str]) -> None:
    """`alembic check` does not compare CHECK constraints."""
    engine = create_engine(database_url)
    constraints = inspect(engine).get_check_constraints(column.table.name)
    engine.dispose()
    [(name, condition)] = [
        (constraint["name"], constraint["sqltext"])
        for constraint in constraints
        if re.match(rf"\W*{column.name}\b", constraint["sqltext"])
    ]
    assert isinstance(column.type, Enum)
    assert set(re.findall("'([^']*)'", condition)) == set(column.type.enums), (
        f"{name} and the enum of {column} differ: write a migration that replaces the constraint, "
        "like `_replace_kinds` in migrations/versions/0004_whole_archive.py"
    )


def test_downgrade_and_upgrade(database_url: str) -> None:
    """Downgrading removes every table, and upgrading creates the same ones again."""
    before = tables_of(database_url)
    command.downgrade(config_of(database_url), "base")
    assert tables_of(database_url) == set()
    command.upgrade(config_of(database_url), "head")
    assert tables_of(database_url) == before


def test_downgrade_copies_shared_reasons_into_digests(database_url: str) -> None:
    """The former release reads reasons only there."""
    now = datetime(2026, 11, 20, 8, tzinfo=UTC)
    shared = sample_digest.pick(1, "Bees", marks=Marks(((0, 4),), (), "by Zoë"))
    digests = [Digest("2026-11-20", (Section("bees", (shared,)),))] * 2
    db = Database(database_url)
    with db.write() as session:
        numbers = [factories.add_subscriber(session, f"{name}@example.org", [], now) for name in ("a", "b")]
        entries = [
            ledger.Entry(number, "2026-11-20", now, digest)
            for number, digest in zip(numbers, digests, strict=True)
        ]
        ledger.add_entries(session, entries, now)
    db.dispose()
    command.downgrade(config_of(database_url), "0001")
    engine = create_engine(database_url)
    with engine.connect() as connection:
        stored = connection.execute(text("SELECT digest FROM digest_content ORDER BY delivery_id")).all()
        snapshots = connection.execute(text("SELECT count(*) FROM paper_snapshot")).scalar()
    engine.dispose()
    for (digest,) in stored:
        (section,) = (json.loads(digest) if isinstance(digest, str) else digest)["sections"]
        assert section["reasons"] == [shared.reason]
        assert json.loads(section["marks"][0]) == [[[0, 4]], [], "by Zoë"]
    assert (len(stored), snapshots) == (2, 1)


def test_downgrade_withdraws_hidden_papers(database_url: str) -> None:
    """The former release knows no hidden papers, and would send them."""
    now = datetime(2026, 11, 20, 8, tzinfo=UTC)
    db = Database(database_url)
    with db.write() as session:
        source = factories.add_source(session, now)
        numbers = [factories.add_paper(session, source, title, now.date(), now) for title in ("Bees", "Ants")]
        session.get_one(Paper, numbers[0]).hidden_at = now
    db.dispose()
    command.downgrade(config_of(database_url), "0001")
    engine = create_engine(database_url)
    with engine.connect() as connection:
        sent = connection.execute(text("SELECT id FROM paper WHERE withdrawn_at IS NULL")).scalars().all()
    engine.dispose()
    assert sent == numbers[1:]


@pytest.mark.parametrize("damage", [None, {"reasons": None}, {"why": None}, {"marks": []}])
def test_downgrade_skips_damaged_digests(database_url: str, damage: dict[str, object] | None) -> None:
    """The others are still copied."""
    now = datetime(2026, 11, 20, 8, tzinfo=UTC)
    shared = sample_digest.pick(1, "Bees")
    digest = Digest("2026-11-20", (Section("bees", (shared,)),))
    db = Database(database_url)
    with db.write() as session:
        numbers = [factories.add_subscriber(session, f"{name}@example.org", [], now) for name in ("a", "b")]
        entries = [ledger.Entry(number, "2026-11-20", now, digest) for number in numbers]
        ledger.add_entries(session, entries, now)
        contents = session.exec(select(DigestContent).order_by(col(DigestContent.delivery_id))).all()
        sections = [{**contents[0].digest["sections"][0], **damage}, None] if damage else None
        contents[0].digest = contents[0].digest | {"sections": sections}
    db.dispose()
    command.downgrade(config_of(database_url), "0001")
    engine = create_engine(database_url)
    with engine.connect() as connection:
        stored = (
            connection.execute(text("SELECT digest FROM digest_content ORDER BY delivery_id")).scalars().all()
        )
    engine.dispose()
    (section,) = (json.loads(stored[1]) if isinstance(stored[1], str) else stored[1])["sections"]
    assert section["reasons"] == [shared.reason]


def test_current_database_is_not_migrated_again(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start need not load Alembic's revisions."""
    calls = list[str]()
    monkeypatch.setattr(command, "upgrade", lambda *_: calls.append("upgrade"))
    monkeypatch.setattr(command, "downgrade", lambda *_: calls.append("downgrade"))
    schema.migrate(database_url)
    schema.migrate(database_url, schema.known_revisions()[0])
    assert calls == []
    schema.migrate(database_url, "0001")
    assert calls == ["downgrade"]


def test_concurrent_migrations(database_url: str, processes: ForkServer) -> None:
    """If a service and its workers start together, one migrates and the others wait."""
    before = tables_of(database_url)
    command.downgrade(config_of(database_url), "base")
    code = "from app.storage import schema; schema.migrate(url)"
    started = [processes.start(code, url=database_url) for _ in range(3)]
    for process in started:
        process.join()
    assert [process.exitcode for process in started] == [0, 0, 0]
    assert tables_of(database_url) == before


KILLED = """
    import os, signal
    from sqlalchemy import Engine, event
    from app.storage import schema

    @event.listens_for(Engine, "after_cursor_execute")
    def kill(connection, cursor, statement, *_):
        if statement.lstrip().upper().startswith("CREATE") and table in statement:
            os.kill(os.getpid(), signal.SIGKILL)

    schema.migrate(url)
"""


@pytest.mark.parametrize("table", ["source_poll", "idempotency_key", "webhook_message"])
def test_killed_migration_changes_nothing(database_url: str, processes: ForkServer, table: str) -> None:
    """All revisions are one transaction. The next start repeats it, and no row is lost."""
    command.downgrade(config_of(database_url), "0001")
    before, engine = tables_of(database_url), create_engine(database_url)
    insert = text("INSERT INTO lock (name, holder, until, edition) VALUES ('a row', '', :at, '')")
    with engine.begin() as connection:
        connection.execute(insert, {"at": "2026-11-20 09:30:00"})
    assert processes.run(KILLED, url=database_url, table=table) == -signal.SIGKILL
    db = Database(database_url)
    assert (schema.revisions(db)[0], tables_of(database_url)) == ("0001", before)
    schema.migrate(database_url)
    assert (schema.revision_fault(db), schema.table_fault(db)) == (None, None)
    db.dispose()
    with engine.connect() as connection:
        assert connection.scalars(text("SELECT name FROM lock")).all() == ["a row"]
    engine.dispose()


def test_upgrade_finds_the_newest_interests(database_url: str) -> None:
    """They determine the order of planning."""
    now = datetime(2026, 11, 20, 8, tzinfo=UTC)
    newest = select(Subscriber.newest_interest).order_by(col(Subscriber.id))
    db = Database(database_url)
    with db.write() as session:
        for number, interests in enumerate([["bees", "wasps"], [], ["bees"]]):
            factories.add_subscriber(session, f"{number}@example.org", interests, now)
        assert session.exec(newest).all() == [2, 0, 1]
    db.dispose()
    command.downgrade(config_of(database_url), "0008")
    command.upgrade(config_of(database_url), "head")
    db = Database(database_url)
    with db.read() as session:
        assert session.exec(newest).all() == [2, 0, 1]
    db.dispose()


def test_upgrade_keeps_uncompressed_digests(database_url: str) -> None:
    """The former release stored JSON. Each release reads what the other has stored."""
    now = datetime(2026, 11, 20, 8, tzinfo=UTC)
    digest = Digest("2026-11-20", (Section("bees", (sample_digest.pick(1, "Bees", reason="“bees”"),)),))
    db = Database(database_url)
    with db.write() as session:
        number = factories.add_subscriber(session, "alice@example.org", [], now)
        ledger.add_entries(session, [ledger.Entry(number, "2026-11-20", now, digest)], now)
        stored = session.exec(select(DigestContent.digest)).one()
    db.dispose()
    command.downgrade(config_of(database_url), "0005")
    command.upgrade(config_of(database_url), "head")
    db = Database(database_url)
    with db.read() as session:
        assert session.exec(select(DigestContent.digest)).one() == stored
        assert ledger.paper_ids_promised(session, [number], now) == {number: {1: now}}
    db.dispose()


def test_upgrade_keeps_uncompressed_snapshots(database_url: str) -> None:
    """Each release reads what the other has stored, and the id of a deleted snapshot is not used again."""
    now, fields = datetime(2026, 11, 20, 8, tzinfo=UTC), {"title": "Bees and “wasps”", "votes": 3}
    db = Database(database_url)
    with db.write() as session:
        for key in ("first", "second"):
            session.add(PaperSnapshot(key=key, paper_id=1, fields=fields, created_at=now))
    with db.write() as session:
        session.execute(delete(PaperSnapshot).where(col(PaperSnapshot.key) == "second"))
    db.dispose()
    command.downgrade(config_of(database_url), "0009")
    db = Database(database_url)
    with db.read() as session:
        assert json.loads(session.scalar(text("SELECT CAST(fields AS text) FROM paper_snapshot"))) == fields
    db.dispose()
    command.upgrade(config_of(database_url), "head")
    db = Database(database_url)
    with db.write() as session:
        session.add(PaperSnapshot(key="third", paper_id=1, fields=fields, created_at=now))
    with db.read() as session:
        snapshots = session.exec(
            select(PaperSnapshot.id, PaperSnapshot.fields).order_by(col(PaperSnapshot.id))
        )
        assert snapshots.all() == [(1, fields), (3, fields)]
    db.dispose()


def test_upgrade_shortens_dois_from_addresses(database_url: str) -> None:
    """Of a DOI that is not in the link, only the version of a preprint is removed. DOIs remain unique."""
    addresses = {
        "10.1234/pigeons.1/full": "https://birds.test/doi/10.1234/pigeons.1/full?rss=1",
        "10.1234/owls.pdf": "https://birds.test/owls",
        "10.1234/bees(1": "https://doi.org/10.1234/bees(1)",
        "10.1101/2026.11.01.512345v1": "https://www.biorxiv.org/content/10.1101/2026.11.01.512345v1",
        "10.1101/2026.11.01.512345v2": "",
    }
    now = datetime(2026, 11, 20, 8, tzinfo=UTC)
    command.downgrade(config_of(database_url), "0014")
    db = Database(database_url)
    with db.write() as session:
        for doi, url in addresses.items():
            paper = Paper(
                title=doi, title_key=doi, doi=doi, url=url, content_hash="", created_at=now, updated_at=now
            )
            session.add(paper)
            session.flush()
    db.dispose()
    command.upgrade(config_of(database_url), "head")
    db = Database(database_url)
    with db.read() as session:
        assert session.exec(select(Paper.doi).order_by(col(Paper.id))).all() == [
            "10.1234/pigeons.1",
            "10.1234/owls.pdf",
            "10.1234/bees(1)",
            "10.1101/2026.11.01.512345",
            "10.1101/2026.11.01.512345v2",
        ]
    db.dispose()
