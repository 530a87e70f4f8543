"""Compare the ledger with an independent count: who was due, by each subscriber's cadence.

Planning decides what goes into the ledger, so the ledger alone cannot show what planning lost. Subscribers
can: their state, cadence, hour and zone, and since when these hold (`Subscriber.due_since`), tell for each
local day whether a digest was due. Planning writes none of these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Any, cast

from sqlalchemy import Row, Table, case, exists, func, inspect, select
from sqlmodel import Session

from app.storage.models import Delivery, Subscriber, SubscriberState
from app.storage.models import DeliveryState as State
from app.subscribers import schedule
from app.types import Cadence, MailKind

DAY = timedelta(days=1)
YEARS = range(1970, 2200)
_READERS = cast("Table", inspect(Subscriber).local_table)
_ROWS = cast("Table", inspect(Delivery).local_table)


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The digests of some editions: who was due, and what the ledger holds.

    `due` counts subscribers and editions, by cadence. `unplanned` of them have no row because planning has
    not reached them yet; `missing` have none although planning has passed them. `surplus` rows belong to
    nobody who was due.
    """

    due: int
    states: Mapping[State, int]
    unplanned: int = 0
    missing: int = 0
    surplus: int = 0

    @property
    def holds(self) -> bool:
        """Whether everybody who was due has exactly one row, and nobody else has one."""
        return not (self.missing or self.surplus)

    def describe_faults(self) -> str:
        """Return what does not hold, for operators; empty when all does."""
        faults = {
            "due and missing in the ledger": self.missing,
            "in the ledger for nobody who was due": self.surplus,
        }
        said = (f"{count} digest{'s' * (count != 1)} {what}" for what, count in faults.items() if count)
        return ", ".join(said)

    def as_dict(self) -> dict[str, int | bool]:
        """Return all of it under the names that operators see."""
        states = {state.value: self.states.get(state, 0) for state in State}
        found = {"unplanned": self.unplanned, "missing": self.missing, "surplus": self.surplus}
        return {"due": self.due, **states, **found, "holds": self.holds}


def reconcile(session: Session, now: datetime, first: str, last: str | None = None) -> Reconciliation:
    """Compare an edition, or all from `first` to `last`, with who was due for it up to `now`.

    The database counts who is alike, and a reader's cadence is looked at once for all who share it: about a
    second for 100,000 readers and an edition.
    """
    counted, states = Counter[str](), Counter[State]()
    for edition in _days(first, last or first) or [first]:
        for row in _rows(session, edition):
            states[row.state] += row.number
            counted.update(dict.fromkeys(_judge(row, edition, now), row.number))
        for row in _without(session, edition):
            counted.update(dict.fromkeys(_judge_absence(row, edition, now), row.number))
        strange = _strange(session, edition)
        states += strange
        counted["surplus"] += strange.total()
    return Reconciliation(
        counted["due"], states, counted["unplanned"], counted["missing"], counted["surplus"]
    )


def reconcile_recent(session: Session, now: datetime) -> Reconciliation:
    """Compare the editions of which digests leave at this time, anywhere on earth, and of the day before."""
    today = now.astimezone(UTC).date()
    return reconcile(session, now, (today - DAY).isoformat(), (today + DAY).isoformat())


_SINCE = func.coalesce(_READERS.c.due_since, _READERS.c.created_at)
_IS_ACTIVE = _READERS.c.state == SubscriberState.ACTIVE
_CHOSEN = tuple(_READERS.c[name] for name in ("cadence", "weekday", "hour", "zone"))
# What was planned before a reader's last change is taken at its word: how they wanted it then is not kept.
_BEFORE_A_CHANGE = case(
    (_IS_ACTIVE, _ROWS.c.due_at < _SINCE),
    (_READERS.c.state == SubscriberState.PAUSED, _ROWS.c.created_at <= _SINCE),
    else_=_ROWS.c.created_at <= func.coalesce(_READERS.c.ended_at, _ROWS.c.created_at),
)


def _rows(session: Session, edition: str) -> Sequence[Any]:
    """Count the edition's rows by state and hour, and by what their readers chose."""
    by = (_ROWS.c.state, _ROWS.c.due_at, *_CHOSEN, _IS_ACTIVE.label("active"), _BEFORE_A_CHANGE.label("kept"))
    since = func.max(_SINCE, type_=_READERS.c.due_since.type)
    counted = select(*by, since.label("since"), func.count().label("number"))
    theirs = counted.join(_READERS, _READERS.c.id == _ROWS.c.subscriber_id)
    theirs = theirs.where(_ROWS.c.edition == edition, _ROWS.c.kind == MailKind.DIGEST)
    return session.connection().execute(theirs.group_by(*by)).all()


def _without(session: Session, edition: str) -> Sequence[Any]:
    """Count the active readers without a row, by what they chose, since when, and when they are due next."""
    has_one = exists().where(_ROWS.c.subscriber_id == _READERS.c.id, _ROWS.c.edition == edition)
    by = (*_CHOSEN, _READERS.c.due_since, _READERS.c.created_at, _READERS.c.next_due_at)
    counted = select(*by, func.count().label("number")).where(_IS_ACTIVE, ~has_one).group_by(*by)
    return session.connection().execute(counted).all()


def _strange(session: Session, edition: str) -> Counter[State]:
    """Count digests that are named like this edition, with something behind it: nobody is due for those."""
    named = (_ROWS.c.edition > edition, _ROWS.c.edition < _after(edition), _ROWS.c.kind == MailKind.DIGEST)
    counted = select(_ROWS.c.state, func.count().label("number")).where(*named).group_by(_ROWS.c.state)
    return Counter({row.state: row.number for row in session.connection().execute(counted)})


def _judge(row: Row[Any], edition: str, now: datetime) -> Iterator[str]:
    """Yield what a row counts as: due, or surplus. A surplus one does not stand for the day's own."""
    wanted = _due_on(row, edition)
    if row.kept or (row.active and wanted and schedule.edition(row.zone, row.due_at) == edition):
        yield "due"
        return
    yield "surplus"
    if row.active and wanted and row.since <= wanted <= now:
        yield from ("due", "missing")


def _judge_absence(row: Row[Any], edition: str, now: datetime) -> Iterator[str]:
    """Yield what it counts as that a reader has no row: nothing, where they were not due."""
    wanted = _due_on(row, edition)
    if wanted and (row.due_since or row.created_at) <= wanted <= now:
        yield "due"
        # Planning moves `next_due_at` on, in the same transaction in which it writes the row.
        yield "unplanned" if row.next_due_at and row.next_due_at <= wanted else "missing"


def _due_on(reader: Row[Any], edition: str) -> datetime | None:
    return _moment(reader.cadence, reader.weekday, reader.hour, reader.zone, edition)


@lru_cache(maxsize=50_000)
def _moment(rhythm: Cadence, weekday: int, hour: int, zone: str, edition: str) -> datetime | None:
    """Return when this cadence is due for an edition. Few cadences differ, and time zones take long."""
    day = _day(edition)
    return schedule.due_on(rhythm, weekday, hour, zone, day) if day else None


def _days(first: str, last: str) -> list[str]:
    """Return the editions from one to another; none where these are no days."""
    start, end = _day(first), _day(last)
    if not (start and end):
        return []
    return [(start + DAY * number).isoformat() for number in range((end - start).days + 1)]


def _after(edition: str) -> str:
    """Return the first name after an edition's, and after whatever begins like it."""
    day = _day(edition)
    return (day + DAY).isoformat() if day else edition + "z"


def _day(edition: str) -> date | None:
    try:
        day = date.fromisoformat(edition)
    except ValueError:
        return None
    return day if day.isoformat() == edition and day.year in YEARS else None
