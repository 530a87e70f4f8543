"""Cache the totals of past editions. Counting an edition reads all of its entries in an index."""

from collections import Counter
from collections.abc import Collection
from datetime import datetime, timedelta

from sqlmodel import Session, col, select

from app.delivery.ledger.claims import LEASED_STATES, WAITING_STATES
from app.delivery.ledger.queries import digest_totals_by_edition, editions, totals_of_other_mails
from app.storage.models import Delivery
from app.storage.models import DeliveryState as State

LIFETIME = timedelta(hours=1)
PAST_AFTER = timedelta(days=3)  # when digests of an edition rarely change anymore
_OPEN = (*WAITING_STATES, *LEASED_STATES)  # digests in these states may still change by themselves


class EditionTotals:
    """The numbers of digests by edition and state. Those of past editions may be up to an hour old."""

    def __init__(self) -> None:
        self._past: dict[str, tuple[datetime, dict[State, int]]] = {}

    def count(self, session: Session, names: Collection[str], now: datetime) -> dict[str, dict[State, int]]:
        """Count the digests in each of these editions by state. Return the editions in the order of `names`.

        Count an edition again if it is recent, if it was last counted more than an hour ago, or if it has
        emails that are waiting, being sent or uncertain.
        """
        # For distinct editions without their states, SQLite would read all emails in order of the edition.
        open_states = (
            select(Delivery.state, Delivery.edition).where(col(Delivery.state).in_(_OPEN)).distinct()
        )
        changing = {edition for _, edition in session.exec(open_states)}
        cached = {}
        for name in names:
            at, totals = self._past.get(name, (None, {}))
            if name in changing:
                self._past.pop(name, None)
            elif at and now - LIFETIME < at <= now:
                cached[name] = totals
        counted = digest_totals_by_edition(session, [name for name in names if name not in cached])
        past = (now - PAST_AFTER).date().isoformat()
        for name, totals in counted.items():
            if name < past and name not in changing:
                self._past[name] = now, totals
        totals_by_name = counted | cached
        return {name: totals_by_name[name] for name in names}

    def count_all(self, session: Session, now: datetime) -> dict[State, int]:
        """Count all emails in the ledger by state, with the same digests of each edition as `count`."""
        counts = Counter(totals_of_other_mails(session))
        for totals in self.count(session, editions(session), now).values():
            counts.update(totals)
        return {state: counts[state] for state in State}
