"""Test that the time zone of the database server does not matter."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from sqlalchemy import text
from sqlmodel import select

from app.storage.database import Database
from app.storage.models import Subscriber


@pytest.mark.postgres
def test_year_1_on_a_server_west_of_utc(new_database_url: Callable[[], str]) -> None:
    """An import had stored such a time. Lists, exports and backups failed: it was in 1 BC in that zone."""
    first = datetime(1, 1, 1, tzinfo=UTC)
    db = Database(new_database_url())
    with db.engine.connect() as connection:
        name = connection.scalar(text("SELECT current_database()"))
        connection.execute(text(f"ALTER DATABASE {name} SET timezone TO 'America/New_York'"))
        connection.commit()
    db.engine.dispose()  # the setting applies to new connections
    with db.write() as session:
        session.add(Subscriber(email="a@example.org", created_at=first, consent_at=first))
    with db.read() as session:
        assert session.exec(select(Subscriber.consent_at)).all() == [first]
    db.dispose()
