"""Test that the defaults of a PostgreSQL server, database or role do not matter."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url
from sqlmodel import select

from app.errors import SchemaError
from app.storage import schema
from app.storage.database import Database
from app.storage.models import Subscriber
from tests.conftest import SharedStatements
from tests.support.postgres_server import PostgresServer
from tests.support.postgres_settings import set_for_database

pytestmark = pytest.mark.postgres


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("timezone", "'America/New_York'"),  # the year would be 1 BC
        ("datestyle", "'German, DMY'"),
        ("client_encoding", "'SQL_ASCII'"),  # the driver would return bytes
    ],
)
def test_values_are_read_as_they_were_stored(
    setting: str, value: str, new_database_url: Callable[[], str]
) -> None:
    """Lists, exports and backups failed."""
    first, url = datetime(1, 1, 1, tzinfo=UTC), new_database_url()
    set_for_database(url, setting, value)
    db = Database(url)
    with db.write() as session:
        session.add(Subscriber(email="jürgen@example.org", created_at=first, consent_at=first))
    with db.read() as session:
        stored = session.exec(select(Subscriber.email, Subscriber.consent_at)).all()
    db.dispose()
    assert stored == [("jürgen@example.org", first)]


def test_isolation_level(new_database_url: Callable[[], str], compiled_statements: SharedStatements) -> None:
    """Transactions would fail with conflicts that the code does not expect."""
    url = new_database_url()
    set_for_database(url, "default_transaction_isolation", "'serializable'")
    engine = compiled_statements._make_engine(make_url(url))
    with engine.connect() as connection:
        levels = [connection.scalar(text("SHOW transaction_isolation"))]
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
        levels.append(connection.scalar(text("SHOW transaction_isolation")))
    with engine.connect() as connection:
        levels.append(connection.scalar(text("SHOW transaction_isolation")))
    engine.dispose()
    assert levels == ["read committed", "repeatable read", "read committed"]


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_new_database_that_is_not_in_utf8(encoding: str, postgres: PostgresServer) -> None:
    """`LC_ALL=C initdb` makes SQL_ASCII the default. Migrations failed with a traceback."""
    with pytest.raises(SchemaError, match=f"{encoding}, not UTF8: create another one"):
        schema.migrate(postgres.create_empty_database(f"LOCALE 'C' ENCODING '{encoding}'"))
