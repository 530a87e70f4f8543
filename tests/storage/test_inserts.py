"""Test inserts that may violate a constraint."""

from datetime import datetime

import pytest
from sqlalchemy.exc import IntegrityError

from app.application import Application
from app.errors import Conflict
from app.storage.inserts import storing_unique
from app.storage.models import Subscriber
from tests.support import factories


@pytest.mark.parametrize(("email", "expected"), [("alice@example.org", Conflict), (None, IntegrityError)])
def test_only_duplicates_are_conflicts(
    email: str | None, expected: type[Exception], app: Application, now: datetime
) -> None:
    """A missing value is an error of the program."""
    with app.db.write() as session:
        factories.add_subscriber(session, "alice@example.org", ["robots"], now)
    with pytest.raises(expected), app.db.write() as session, storing_unique(session, Conflict("taken")):
        session.add(Subscriber(email=email, created_at=now))
