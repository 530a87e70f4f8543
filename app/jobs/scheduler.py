"""Run the jobs in this process, in threads. No other file uses APScheduler.

There is no job store: `app.jobs` explains why none is needed.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC
from functools import partial
from threading import Thread

import structlog
from apscheduler.jobstores.base import JobLookupError
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.cron import CronTrigger

from app import clock, pipeline
from app.application import Application
from app.jobs import schedule
from app.jobs.schedule import Job

CLOCK_CHECK_SECONDS = 30.0

log = structlog.get_logger(__name__)


@contextmanager
def running(app: Application) -> Iterator[BackgroundScheduler]:
    """Run every job at its scheduled times during the block, and poll the sources that are due at once.

    At the end of the block, wait for the running jobs, so that emails in flight get their replies.
    """
    scheduler = BackgroundScheduler(timezone=UTC)
    for job in schedule.JOBS:
        scheduler.add_job(
            run,
            CronTrigger(hour=job.hour, minute=job.minute, second="0", timezone=UTC),
            args=(app, job),
            id=job.name,
            coalesce=True,
            max_instances=1,
            misfire_grace_time=None,  # run late rather than not at all, e.g. after a laptop was asleep
        )
    if pipeline.is_source_due(app, clock.utcnow()):  # at the first start, or after the machine was off
        _run_soon(scheduler, pipeline.refresh.__name__)
    scheduler.start()
    watcher = Thread(target=_watch_clock, args=(app, scheduler), name="clock", daemon=True)
    watcher.start()
    app.on_batch_planned.append(partial(_send_soon, app, scheduler))
    try:
        yield scheduler
    finally:
        app.stopping.set()
        app.on_batch_planned.clear()
        watcher.join()
        scheduler.shutdown(wait=True)


def _watch_clock(app: Application, scheduler: BackgroundScheduler) -> None:
    while not app.stopping.wait(CLOCK_CHECK_SECONDS):
        try:
            reschedule_if_set_back(scheduler)
        except Exception:
            log.exception("checking whether the clock was set back failed")


def reschedule_if_set_back(scheduler: BackgroundScheduler) -> None:
    """Move the next run of each job forward if the clock has been set back.

    Otherwise, a job would not run until the clock has caught up with the job's next run.
    """
    next_runs = [(job, job.next_run_time) for job in scheduler.get_jobs()]
    now = clock.system_time()  # read last, in case a job runs in the meantime
    for job, at in next_runs:
        following = job.trigger.get_next_fire_time(None, now)
        if at > following:
            log.warning("the clock was set back; rescheduling a job", job=job.id, next_run=following)
            with suppress(JobLookupError):
                job.modify(next_run_time=following)


def _send_soon(app: Application, scheduler: BackgroundScheduler) -> None:
    """Run `send` now, or make a running `send` check for new emails once more."""
    app.more_to_send.set()
    if not app.sending.locked():
        _run_soon(scheduler, pipeline.send.__name__)


def _run_soon(scheduler: BackgroundScheduler, name: str) -> None:
    with suppress(JobLookupError):
        scheduler.modify_job(name, next_run_time=clock.system_time())


def run(app: Application, job: Job) -> None:
    """Run a job now. A failure is logged, and the job runs again at its next time."""
    try:
        schedule.run(app, job, clock.utcnow())
    except Exception:
        log.exception("job failed", job=job.name)
