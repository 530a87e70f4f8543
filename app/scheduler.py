"""The only APScheduler file: which function of the pipeline runs when.

There is no job store: who and what is due stands in our own tables, so every job only asks "what is due
now?". Running one late, twice, or on several machines at once does no harm. What is to run once a night,
on whichever machine, says so.
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

from app import clock, pipeline
from app.application import Application
from app.storage import locks

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Job:
    """A function of the pipeline, and the UTC minutes in which it runs, as cron writes them."""

    work: Callable[[Application, datetime], object]
    minute: str
    hour: str = "*"
    once_a_day: bool = False  # of all processes, on all machines

    @property
    def name(self) -> str:
        return self.work.__name__


JOBS = (
    # Three jobs, so that mails leave while others are planned or signed yet.
    Job(pipeline.send, minute="*"),
    Job(pipeline.plan, minute="*"),
    Job(pipeline.sign_ahead, minute="*"),
    Job(pipeline.answer_requests, minute="*"),  # forms that a process left behind when it ended
    Job(pipeline.refresh, minute="*/5"),  # each source says itself when it wants to be asked next
    Job(pipeline.read_bounces, minute="*/5"),
    Job(pipeline.summarise, minute="*/15"),
    Job(pipeline.learn, minute="43", hour="2", once_a_day=True),
    Job(pipeline.prune, minute="17", hour="3", once_a_day=True),
)
LONGEST = timedelta(hours=2)  # that a nightly job may take, before another machine begins it, too


def start(app: Application) -> BackgroundScheduler:
    """Run every job in its minutes, from now on, in threads of this process."""
    scheduler = BackgroundScheduler(timezone=UTC)
    for job in JOBS:
        scheduler.add_job(
            run,
            CronTrigger(hour=job.hour, minute=job.minute, second="0", timezone=UTC),
            args=(app, job),
            id=job.name,
            coalesce=True,
            max_instances=1,
            misfire_grace_time=None,  # late is better than not at all, after a laptop slept for instance
        )
    scheduler.start()
    app.when_planned.append(partial(_send_soon, app, scheduler))
    log.info("scheduler started", jobs=[job.name for job in JOBS])
    return scheduler


def _send_soon(app: Application, scheduler: BackgroundScheduler) -> None:
    """Begin `send` now, or have it look once more where it is under way."""
    app.more_to_send.set()
    if not app.sending.locked():
        with suppress(JobLookupError):
            scheduler.modify_job(pipeline.send.__name__, next_run_time=clock.system_time())


def stop(app: Application, scheduler: BackgroundScheduler) -> None:
    """Begin nothing more, and wait for what is under way: a mail in flight gets its answer."""
    app.stopping.set()
    app.when_planned.clear()
    scheduler.shutdown(wait=True)
    log.info("scheduler stopped")


def run(app: Application, job: Job) -> None:
    """Run a job now. Its failure is logged, and the next minute tries again."""
    try:
        if job.once_a_day:
            _run_once_a_day(app, job, clock.utcnow())
        else:
            job.work(app, clock.utcnow())
    except Exception:
        log.exception("job failed", job=job.name)


def _run_once_a_day(app: Application, job: Job, now: datetime) -> None:
    day = app.timeline(now).start.date().isoformat()
    with locks.turn(app.db, f"{job.name} once a day", now, LONGEST, edition=day) as mine:
        if mine:
            job.work(app, now)
