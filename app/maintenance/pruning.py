"""Delete rows whose retention period has passed. This runs nightly."""

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta

from sqlalchemy import or_
from sqlmodel import Session

from app import subscribers
from app.application import Application
from app.delivery import ledger
from app.links import Purpose
from app.papers import pictures, poll_history
from app.storage import (
    admin_sessions,
    audit_log,
    hit_counters,
    idempotency_keys,
    job_runs,
    uploads,
    webhook_outbox,
)

SENDER_DATA_SINCE = timedelta(days=3)  # the data of older emails was deleted on previous nights


def prune(app: Application, now: datetime) -> Counter[str]:
    """Delete rows whose retention period has passed. Return the number of deleted rows by kind.

    The event of a pause is kept until the pause ends, so that the pause is not forgotten if mail bounces. The
    event of an added subscriber is kept until their first digest, which welcomes them. Events are deleted
    before deliveries, so that nobody is welcomed twice. No paper is sent twice either, because papers as old
    as a deleted delivery are never sent. Rows of unconfirmed sign-ups are deleted after their emails and
    events.

    The address and the consent of former subscribers are kept, and all data of those whose mail bounces.

    Sign-ups, preferences, deliveries, events and the audit log are deleted in batches, so that other
    transactions do not wait long. If the service stops, return between two transactions; the next nightly run
    continues.
    """
    now = app.timeline(now).start
    days = app.settings.retention_days, app.settings.unconfirmed_days, app.settings.run_retention_days
    old, unconfirmed, old_run = (now - timedelta(days=each) for each in days)
    with job_runs.record(app.db, "prune", now) as run:
        run.counts.update(unconfirmed=0, events=0, deliveries=0)
        with app.db.write() as session:
            subscribers.expire_changes(session, now)
        expire = subscribers.expire_pending
        _repeat(app, run, lambda session: Counter(unconfirmed=expire(session, unconfirmed, now)))
        forget, default = subscribers.forget_former_subscribers, subscribers.default_preferences(app.settings)
        _repeat(app, run, lambda session: Counter(former_subscribers=forget(session, old, default)))
        _repeat(app, run, lambda session: Counter(audit_entries=audit_log.prune(session, old)))
        with app.db.write() as session:
            run.counts["runs"] += job_runs.prune(session, old_run)
            run.counts["polls"] += poll_history.prune(session, old_run)
            listed_before = old.date() if app.settings.pictures else None
            run.counts["pictures"] += pictures.prune(session, listed_before)
            run.counts["webhook_messages"] += webhook_outbox.prune(session, old_run)
            run.counts["cards"] += ledger.prune_snapshots(session, old)
            run.counts["requests"] += subscribers.prune_form_submissions(
                session, now, app.signer.lifetimes[Purpose.CONFIRM]
            )
            run.counts["pauses"] += ledger.prune_pauses(session, now)
            run.counts["queries"] += subscribers.forget_unused_queries(session)
            hit_counters.prune(session, now)
            admin_sessions.prune(session, now - timedelta(hours=app.settings.admin_session_hours))
            idempotency_keys.prune(session, now)
        uploads.delete_expired(uploads.folder(app.settings.journal_dir), now)
        is_kept = or_(subscribers.is_current_pause(), ledger.is_awaiting_first_digest())
        _repeat(app, run, lambda session: ledger.prune_events(session, old, is_kept))
        _repeat(app, run, lambda session: ledger.prune_deliveries(session, old, now))
        delete = subscribers.delete_unconfirmed_sign_ups
        _repeat(app, run, lambda session: Counter(sign_ups=delete(session)))
        run.counts["signatures"] = _drop_sender_data(app, now)
    return run.counts


def _repeat(
    app: Application, run: job_runs.JobRunRecorder, prune_batch: Callable[[Session], Counter[str]]
) -> None:
    """Delete one batch per transaction, until nothing is left or the service stops, and count the rows."""

    def prune_and_count(session: Session) -> int:
        batch = prune_batch(session)
        run.counts.update(batch)
        return batch.total()

    app.db.write_in_batches(prune_and_count, app.stopping)


def _drop_sender_data(app: Application, now: datetime) -> int:
    """Delete data of sent emails that only unsent emails need. Return the number of deleted signatures."""
    count = 0
    with app.db.read() as session:
        first_id = ledger.first_id_since(session, now - SENDER_DATA_SINCE)
    while first_id and not app.stopping.is_set():
        with app.db.write() as session:
            dropped, first_id = ledger.drop_sender_data(session, first_id, now - 2 * ledger.LEASE)
        count += dropped
    return count
