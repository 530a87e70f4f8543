"""Test the parts of queries that several packages share."""

from pathlib import Path

import pytest
from sqlalchemy import Integer, String, cast, func, literal, select
from sqlalchemy.engine import make_url

from app.application import Application
from app.storage.database import Database, contains, sqlite_file
from tests.support.postgres_server import PostgresServer


@pytest.mark.parametrize(
    ("text", "part", "expected"),
    [
        ("Robots in Zürich", "ROBOTS", True),
        ("Robots in Zürich", "ZÜRICH", True),
        ("ROBOTS IN ZÜRICH", "zürich", True),
        ("Robots in Zürich", "ZURICH", False),
        ("ΟΔΟΣΑ", "οδοσ", True),
        ("100 % sûr", "% SÛR", True),
        ("100 percent sûr", "% sûr", False),
        ("a_ü/", "_Ü/", True),
        ("abü/", "_ü/", False),
        ("(Ü) [b]*\\d", "(ü) [B]*\\D", True),
        ("a-b ü", ". Ü", False),
        ("GRÖSSE", "größe", True),
        ("", "ü", False),
    ],
)
def test_texts_contain_texts_in_any_case(app: Application, text: str, part: str, expected: bool) -> None:
    with app.db.read() as session:
        assert session.execute(select(contains(cast(text, String), part))).scalar_one() is expected


@pytest.mark.postgres
def test_other_letters_with_the_locale_c(postgres: PostgresServer) -> None:
    """With this locale, PostgreSQL's functions change the case of ASCII letters only."""
    db = Database(postgres.create_empty_database("LOCALE 'C' ENCODING 'UTF8'"))
    with db.read() as session:
        assert session.execute(select(func.lower("É"))).scalar_one() == "É"
        for part in ("école", "ÉCOLE"):
            assert session.execute(select(contains(literal("L’École"), part))).scalar_one()
    db.dispose()


@pytest.mark.once
def test_final_sigma(app: Application) -> None:
    """SQLite compares as Unicode says: Σ is a σ, also at the end of a word."""
    with app.db.read() as session:
        assert session.execute(select(contains(literal("ΟΔΟΣΑ"), "ΟΔΟΣ"))).scalar_one()
        assert session.execute(select(contains(literal("οδός"), "ΟΔΌΣ"))).scalar_one()


@pytest.mark.once
def test_values_that_are_not_text(app: Application) -> None:
    with app.db.read() as session:
        assert session.execute(select(contains(literal(12, Integer), "ü"))).scalar_one() is False
        assert session.execute(select(contains(literal(None, String), "ü"))).scalar_one() is None


@pytest.mark.once
@pytest.mark.parametrize("part", ["robots", "zürich"])
def test_python_compares_only_letters_outside_ascii(app: Application, part: str) -> None:
    """SQLite would wait for other threads before and after each call."""
    statement = str(select(contains(literal("Zürich"), part)).compile(app.db.engine))
    assert ("casefold" in statement) is not part.isascii()


@pytest.mark.once
def test_database_may_be_named_by_a_uri(tmp_path: Path) -> None:
    file = tmp_path / "a b.db"
    db = Database(f"sqlite:///{file.as_uri()}?uri=true")
    with db.write() as session:
        session.connection().exec_driver_sql("CREATE TABLE subscriber (id INTEGER)")
    db.require_writes()
    db.fsync()
    db.dispose()
    assert sqlite_file(db.url) == file
    assert sqlite_file(make_url("sqlite:///file::memory:?cache=shared&uri=true")) is None
