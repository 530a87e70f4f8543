"""The only APScheduler file: which function of the pipeline runs when.

There is no job store: who and what is due stands in our own tables, so every job only asks "what is due
now?". Running one late, twice, or on several machines at once does no harm.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.cron import CronTrigger

from app import clock, pipeline
from app.pipeline import App

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Job:
    """A function of the pipeline, and the UTC minutes in which it runs, as cron writes them."""

    work: Callable[[App, datetime], object]
    minute: str
    hour: str = "*"

    @property
    def name(self) -> str:
        return self.work.__name__


JOBS = (
    Job(pipeline.send_due, minute="*"),  # digests that are due, and mails that the relay put off
    Job(pipeline.refresh, minute="*/5"),  # each source says itself when it wants to be asked next
    Job(pipeline.read_bounces, minute="*/5"),
    Job(pipeline.summarise, minute="*/15"),
    Job(pipeline.learn, minute="43", hour="2"),
    Job(pipeline.prune, minute="17", hour="3"),
)


def start(app: App) -> BackgroundScheduler:
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
    log.info("scheduler started", jobs=[job.name for job in JOBS])
    return scheduler


def stop(app: App, scheduler: BackgroundScheduler) -> None:
    """Begin nothing more, and wait for what is under way: a mail in flight gets its answer."""
    app.stopping.set()
    scheduler.shutdown(wait=True)
    log.info("scheduler stopped")


def run(app: App, job: Job) -> None:
    """Run a job now. Its failure is logged, and the next minute tries again."""
    try:
        job.work(app, clock.utcnow())
    except Exception:
        log.exception("job failed", job=job.name)
