"""Replay the days of the demo: send the mails that were due between two files of the sample."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlmodel import col, func, select

from app import pipeline
from app.application import Application
from app.storage.models import Delivery, DeliveryState, Subscriber, SubscriberState

AFTERWARDS = timedelta(hours=2)  # after the last file, for mails that are retried


def deliver_between(app: Application, start: datetime, end: datetime) -> None:
    """Run the send job at each moment at which a mail is due, without waiting."""
    moment = start
    while (next_moment := _next_moment(app, moment)) is not None and next_moment <= end:
        moment = next_moment
        pipeline.send_due(app, moment)


def _next_moment(app: Application, after: datetime) -> datetime | None:
    """Return when the next subscriber, or the next pending or deferred mail, is due."""
    due = select(func.min(Subscriber.next_due_at)).where(
        Subscriber.state == SubscriberState.ACTIVE, col(Subscriber.next_due_at) > after
    )
    retry = select(func.min(Delivery.next_attempt_at)).where(
        col(Delivery.state).in_((DeliveryState.PENDING, DeliveryState.DEFERRED)),
        col(Delivery.next_attempt_at) > after,
    )
    with app.db.read() as session:
        moments = [session.exec(query).one() for query in (due, retry)]
    return min((moment for moment in moments if moment is not None), default=None)
