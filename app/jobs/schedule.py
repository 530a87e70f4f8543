"""List the jobs (functions of the service) and their times, for both `scheduler` and `worker`."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from app import maintenance, pipeline, webhooks
from app.application import Application
from app.doctor import alerts, daily_report
from app.storage import job_runs, locks


class Lane(StrEnum):
    """A group of jobs. `worker` runs the jobs of a lane in sequence, except those of UPKEEP.

    `scheduler` ignores the lanes and runs different jobs in parallel.
    """

    SEND = "send"
    PLAN = "plan"
    SIGN = "sign"
    UPKEEP = "upkeep"


@dataclass(frozen=True, slots=True)
class Job:
    """A function of the service and its times: hour and minute in UTC, in cron notation.

    Several processes may run the job at once if `is_shared` is set. `has_more` returns whether there is
    enough work for another process.
    """

    work: Callable[[Application, datetime], object]
    minute: str
    hour: str = "*"
    once_a_day: bool = False  # across all processes on all machines; repeated only after a failure
    lane: Lane = Lane.UPKEEP
    is_shared: bool = False
    has_more: Callable[[Application, datetime], bool] | None = None

    @property
    def name(self) -> str:
        return self.work.__name__


JOBS = (
    # Three lanes, so that emails are sent while others are still being planned or signed.
    Job(pipeline.send, "*", lane=Lane.SEND, is_shared=True, has_more=pipeline.has_more_to_send),
    Job(pipeline.plan, "*", lane=Lane.PLAN, is_shared=True, has_more=pipeline.has_more_to_plan),
    Job(pipeline.sign_ahead, "*", lane=Lane.SIGN, is_shared=True, has_more=pipeline.has_more_to_sign),
    Job(pipeline.answer_requests, "*"),  # forms that an exited process left behind
    Job(maintenance.close_killed_runs, "*"),
    # Each source stores the time of its own next poll, and only one process polls it at a time.
    Job(pipeline.refresh, "*/5", is_shared=True),
    Job(pipeline.read_bounces, "*/5"),
    Job(webhooks.send_events, "*"),
    Job(webhooks.report_editions, "*/10"),
    Job(pipeline.summarise, "*/15"),
    Job(pipeline.fetch_pictures, "7-59/15"),  # after the sources have been polled
    Job(alerts.send_alerts, "*/5"),
    Job(daily_report.send_daily_report, "10"),
    # Repeated every hour until it succeeds: the machine may be off at night. After a failure, `run` waits.
    Job(pipeline.train, "43", "2-23", once_a_day=True),
    Job(pipeline.recheck, "37", "3-23", once_a_day=True),  # arXiv is often busy until 01:00
    Job(maintenance.prune, "17", "3-23", once_a_day=True),
)
NIGHTLY_LEASE = timedelta(hours=2)  # after which another machine may start the same nightly job
# The waits after failures of a nightly job: at most three attempts a day.
FIRST_WAIT, LONGEST_WAIT = timedelta(hours=3.5), timedelta(hours=11.5)


def run(app: Application, job: Job, now: datetime) -> None:
    """Run a job, unless it is a daily job that has already run today, or failed a short time ago."""
    if not job.once_a_day:
        job.work(app, now)
        return
    with app.db.read() as session:
        if job_runs.is_backing_off(session, job.name, now, FIRST_WAIT, LONGEST_WAIT):
            return
    day = app.timeline(now).start.date().isoformat()
    with locks.hold(app.db, f"{job.name} once a day", now, NIGHTLY_LEASE, edition=day) as acquired:
        if acquired:
            job.work(app, now)
