"""Addresses that get no mail."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from app.application import Application
from app.delivery import suppression


@pytest.mark.parametrize("spelling", ["alice@example.org", "Alice@Example.ORG", " alice@example.org\n"])
def test_an_address_is_known_however_it_is_spelled(app: Application, now: datetime, spelling: str) -> None:
    """Case and outer space do not let a suppressed address through."""
    with app.db.write() as session:
        suppression.suppress(session, "alice@example.org", "bounced", now)
        assert suppression.is_suppressed(session, spelling)
        assert not suppression.is_suppressed(session, "alice@example.com")
        assert suppression.among(session, [spelling, "bob@example.org"]) == {spelling: "bounced"}


def test_only_a_hash_is_kept(app: Application, now: datetime) -> None:
    """The list can outlive an erasure, because it does not say who is on it."""
    with app.db.write() as session:
        suppression.suppress(session, "alice@example.org", "erased at her own wish", now)
        (row,) = suppression.listed(session)
    assert "alice" not in row.model_dump_json()


def test_the_first_reason_stands(app: Application, now: datetime) -> None:
    """Suppressing twice is no error and changes nothing."""
    with app.db.write() as session:
        suppression.suppress(session, "alice@example.org", "bounced", now)
        suppression.suppress(session, "alice@example.org", "complained", now + timedelta(days=1))
        entry = suppression.found(session, "alice@example.org")
    assert entry
    assert (entry.reason, entry.since) == ("bounced", now)


def test_an_address_can_be_taken_off(app: Application, now: datetime) -> None:
    """Once; the second time there is nothing to take off."""
    with app.db.write() as session:
        suppression.suppress(session, "alice@example.org", "bounced", now)
        assert suppression.lift(session, "ALICE@example.org")
        assert not suppression.lift(session, "alice@example.org")
        assert not suppression.is_suppressed(session, "alice@example.org")


def test_the_list_comes_in_pages(app: Application, now: datetime) -> None:
    """Each page begins after the last one of the page before."""
    with app.db.write() as session:
        for n in range(5):
            suppression.suppress(session, f"reader{n}@example.org", f"reason {n}", now)
        first = suppression.listed(session, limit=3)
        assert first[-1].id
        rest = suppression.listed(session, limit=3, after=first[-1].id)
    assert [row.reason for row in first + rest] == [f"reason {n}" for n in range(5)]
