"""The schedule: when each function of the pipeline runs. The only file that uses APScheduler.

There is no job store. Every job asks our own tables what is due now, so it may run late, twice, or on several
machines at once. Jobs that must run once a night on only one machine are marked `once_a_day`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

import structlog
from apscheduler.jobstores.base import JobLookupError
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.cron import CronTrigger

from app import clock, maintenance, pipeline
from app.application import Application
from app.doctor import operator_mail
from app.storage import locks

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Job:
    """A function of the service, and when it runs: hour and minute in UTC, in cron notation."""

    work: Callable[[Application, datetime], object]
    minute: str
    hour: str = "*"
    once_a_day: bool = False  # among all processes on all machines

    @property
    def name(self) -> str:
        return self.work.__name__


JOBS = (
    # Three jobs, so that mails are sent while others are still being planned or signed.
    Job(pipeline.send, minute="*"),
    Job(pipeline.plan, minute="*"),
    Job(pipeline.sign_ahead, minute="*"),
    Job(pipeline.answer_requests, minute="*"),  # forms that an exited process left behind
    Job(pipeline.refresh, minute="*/5"),  # each source stores the time of its own next poll
    Job(pipeline.read_bounces, minute="*/5"),
    Job(pipeline.summarise, minute="*/15"),
    Job(operator_mail.send_alerts, minute="*/5"),
    Job(operator_mail.send_daily_report, minute="10"),
    Job(pipeline.train, minute="43", hour="2", once_a_day=True),
    # Every hour until each source could be asked. Before 01:00, arXiv is often busy.
    Job(pipeline.recheck, minute="37", hour="3-9", once_a_day=True),
    Job(maintenance.prune, minute="17", hour="3", once_a_day=True),
)
NIGHTLY_LEASE = timedelta(hours=2)  # after it, another machine may start the same nightly job


def start(app: Application) -> BackgroundScheduler:
    """Start the scheduler. It runs every job at its times, in threads of this process."""
    scheduler = BackgroundScheduler(timezone=UTC)
    for job in JOBS:
        scheduler.add_job(
            run,
            CronTrigger(hour=job.hour, minute=job.minute, second="0", timezone=UTC),
            args=(app, job),
            id=job.name,
            coalesce=True,
            max_instances=1,
            misfire_grace_time=None,  # run late rather than not at all, e.g. after a laptop was asleep
        )
    scheduler.start()
    app.on_shard_planned.append(partial(_send_soon, app, scheduler))
    log.info("scheduler started", jobs=[job.name for job in JOBS])
    return scheduler


def _send_soon(app: Application, scheduler: BackgroundScheduler) -> None:
    """Run `send` now, or make a running `send` check for new mails once more."""
    app.more_to_send.set()
    if not app.sending.locked():
        with suppress(JobLookupError):
            scheduler.modify_job(pipeline.send.__name__, next_run_time=clock.system_time())


def stop(app: Application, scheduler: BackgroundScheduler) -> None:
    """Stop the scheduler. Running jobs finish first, so that a mail in flight gets its reply."""
    app.stopping.set()
    app.on_shard_planned.clear()
    scheduler.shutdown(wait=True)
    log.info("scheduler stopped")


def run(app: Application, job: Job) -> None:
    """Run a job now. A failure is logged, and the job runs again at its next time."""
    try:
        now = clock.utcnow()
        if not job.once_a_day:
            job.work(app, now)
            return
        day = app.timeline(now).start.date().isoformat()
        with locks.hold(app.db, f"{job.name} once a day", now, NIGHTLY_LEASE, edition=day) as acquired:
            if acquired:
                job.work(app, now)
    except Exception:
        log.exception("job failed", job=job.name)
