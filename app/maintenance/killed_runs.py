"""End the runs of jobs whose process was killed, so that they count as failed."""

from datetime import datetime

from app.application import Application
from app.storage import job_runs


def close_killed_runs(app: Application, now: datetime) -> None:
    """End the runs whose process is gone. Several processes may call this at once."""
    job_runs.close_killed(app.db, app.timeline(now).start)
