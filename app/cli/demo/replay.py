"""Replay the days of the demo: send the emails that become due between two files in the sample."""

from datetime import datetime, timedelta

from sqlmodel import col, func, select

from app import pipeline
from app.application import Application
from app.storage.models import Delivery, DeliveryState, Subscriber, SubscriberState

AFTERWARDS = timedelta(hours=2)  # after the last file, so that deferred emails are retried


def deliver_between(app: Application, start: datetime, end: datetime) -> None:
    """Plan and send at each time at which a digest or a retry is due between `start` and `end`.

    The times are simulated, so this does not wait.
    """
    due = select(func.min(Subscriber.next_due_at)).where(Subscriber.state == SubscriberState.ACTIVE)
    sendable = col(Delivery.state).in_((DeliveryState.PENDING, DeliveryState.DEFERRED))
    retry = select(func.min(Delivery.next_attempt_at)).where(sendable)
    moment = start
    while True:
        with app.db.read() as session:
            next_due = session.exec(due.where(col(Subscriber.next_due_at) > moment)).one()
            next_retry = session.exec(retry.where(col(Delivery.next_attempt_at) > moment)).one()
        moments = [at for at in (next_due, next_retry) if at is not None and at <= end]
        if not moments:
            return
        moment = min(moments)
        pipeline.plan_and_send(app, moment)
