"""The days of the demo, one moment after the other: what was read when, and who was due in between."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from pathlib import Path

from sqlmodel import col, func, select

from app import pipeline
from app.models import Delivery, DeliveryState, Subscriber, SubscriberState
from app.pipeline import App
from app.sources.clean import day_in

SAMPLE = Path(__file__).parent / "sample"
# When a service that polls would have had each kind of file: hours after its day began in UTC.
ARXIV_ANNOUNCES, MORNING, PAGE_SAVED, NEXT_MORNING = 0.5, 10, 12, 29
A_WHILE = timedelta(hours=2)


@dataclass(frozen=True, slots=True, order=True)
class Reading:
    """A file of the sample, and the moment at which it is read."""

    at: datetime
    path: Path

    @property
    def folder(self) -> str:
        return self.path.parent.name


def readings() -> list[Reading]:
    """The whole sample, in the order of time."""
    return sorted(
        Reading(_moment(path), path) for path in SAMPLE.rglob("*") if path.suffix in (".json", ".xml", ".txt")
    )


def _moment(path: Path) -> datetime:
    day = day_in(path.name)
    if day is None:
        raise ValueError(f"{path.name} does not say of which day it is")
    hours = {"arxiv_feed": ARXIV_ANNOUNCES, "pages": PAGE_SAVED}.get(path.parent.name, MORNING)
    if path.stem.endswith("-next-morning"):
        hours = NEXT_MORNING
    return datetime.combine(day, time(), UTC) + timedelta(hours=hours)


def deliver_between(app: App, start: datetime, end: datetime) -> None:
    """Do at each moment what the minute schedule would have done then, without waiting for it."""
    moment = start
    while (following := _next_moment(app, moment)) is not None and following <= end:
        moment = following
        pipeline.send_due(app, moment)


def _next_moment(app: App, after: datetime) -> datetime | None:
    """When the next reader is due, or the next mail that was composed ahead or put off."""
    due = select(func.min(Subscriber.next_due_at)).where(
        Subscriber.state == SubscriberState.ACTIVE, col(Subscriber.next_due_at) > after
    )
    again = select(func.min(Delivery.next_attempt_at)).where(
        col(Delivery.state).in_((DeliveryState.PENDING, DeliveryState.DEFERRED)),
        col(Delivery.next_attempt_at) > after,
    )
    with app.db.read() as session:
        moments = [session.exec(question).one() for question in (due, again)]
    return min((moment for moment in moments if moment is not None), default=None)
