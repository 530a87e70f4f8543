"""Test the suppression list."""

from datetime import datetime, timedelta

import pytest

from app.application import Application
from app.delivery import suppression


@pytest.mark.parametrize("spelling", ["alice@example.org", "Alice@Example.ORG", " alice@example.org\n"])
def test_lookup_ignores_case_and_spaces(app: Application, now: datetime, spelling: str) -> None:
    with app.db.write() as session:
        suppression.suppress(session, "alice@example.org", "bounced", now)
        assert suppression.is_suppressed(session, spelling)
        assert not suppression.is_suppressed(session, "alice@example.com")
        assert suppression.reasons_for(session, [spelling, "bob@example.org"]) == {spelling: "bounced"}


def test_every_spelling_is_reported(app: Application, now: datetime) -> None:
    """ß and ss have the same hash."""
    spellings = ["straße@example.org", "strasse@example.org"]
    with app.db.write() as session:
        suppression.suppress(session, "strasse@example.org", "bounced", now)
        assert suppression.reasons_for(session, spellings) == dict.fromkeys(spellings, "bounced")


def test_only_a_hash_is_stored(app: Application, now: datetime) -> None:
    """The list outlives an erasure, so it must not contain addresses."""
    with app.db.write() as session:
        suppression.suppress(session, "alice@example.org", "erased at her own wish", now)
        (row,) = suppression.list_page(session)
    assert "alice" not in row.model_dump_json()


def test_first_reason_is_kept(app: Application, now: datetime) -> None:
    """A second entry for the same address changes nothing."""
    with app.db.write() as session:
        suppression.suppress(session, "alice@example.org", "bounced", now)
        suppression.suppress(session, "alice@example.org", "complained", now + timedelta(days=1))
        entry = suppression.get(session, "alice@example.org")
    assert entry
    assert (entry.reason, entry.since) == ("bounced", now)


def test_remove(app: Application, now: datetime) -> None:
    """The second removal returns False."""
    with app.db.write() as session:
        suppression.suppress(session, "alice@example.org", "bounced", now)
        assert suppression.lift(session, "ALICE@example.org")
        assert not suppression.lift(session, "alice@example.org")
        assert not suppression.is_suppressed(session, "alice@example.org")


def test_list_is_paginated(app: Application, now: datetime) -> None:
    """Each page begins after the last entry of the previous page."""
    with app.db.write() as session:
        for n in range(5):
            suppression.suppress(session, f"reader{n}@example.org", f"reason {n}", now)
        first = suppression.list_page(session, limit=3)
        assert first[-1].id
        rest = suppression.list_page(session, limit=3, after=first[-1].id)
    assert [row.reason for row in first + rest] == [f"reason {n}" for n in range(5)]
