"""Cache the totals of past editions. Counting an edition reads all of its emails."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from sqlmodel import Session

from app.delivery.ledger.queries import digest_totals_by_edition
from app.storage.models import DeliveryState as State

LIFETIME = timedelta(hours=1)
PAST_AFTER = timedelta(days=3)  # when digests of an edition rarely change any more
# In these states, a digest changes without an operator.
_OPEN = (State.PENDING, State.CLAIMED, State.COMMITTING, State.DEFERRED, State.UNCERTAIN)


class EditionTotals:
    """The numbers of digests by edition and state. Those of past editions may be an hour old."""

    def __init__(self) -> None:
        self._past: dict[str, tuple[datetime, dict[State, int]]] = {}

    def count(self, session: Session, names: Collection[str], now: datetime) -> dict[str, dict[State, int]]:
        """Count the digests in each of these editions by state.

        Count an edition again if it is recent, if it was last counted an hour ago, or if it has digests that
        are waiting, being sent or uncertain.
        """
        cached = {
            name: totals for name, (at, totals) in self._past.copy().items() if now - LIFETIME < at <= now
        }
        counted = digest_totals_by_edition(session, [name for name in names if name not in cached])
        past = (now - PAST_AFTER).date().isoformat()
        for name, totals in counted.items():
            if name < past and not any(totals[state] for state in _OPEN):
                self._past[name] = now, totals
        return {name: cached.get(name) or counted[name] for name in names}
