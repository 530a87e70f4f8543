"""workers: list the processes that run jobs. jobs: open procrastinate's shell."""

from dataclasses import asdict
from typing import Annotated

import typer

from app.cli import output
from app.storage import worker_registry as registry


def workers(as_json: output.AsJson = False) -> None:
    """List the processes that run jobs, and the waiting, running and failed jobs."""
    with output.open_application(needs_secret=False) as app, app.db.read() as session:
        statuses, counts = registry.statuses(session), registry.job_counts(session)
    if as_json:
        output.print_json({"workers": [*map(asdict, statuses)], "jobs": [*map(asdict, counts)]})
        return
    rows = [(each.name, each.started_at, each.seen_at, "lost" if each.lost else "alive") for each in statuses]
    output.table(["worker", "started", "last heartbeat", "state"], rows)
    if not rows:
        output.err().print(f"No process is running jobs: {registry.start_advice(app.db)}.", soft_wrap=True)
    if counts:
        cells = [(each.job, each.state, each.count, each.since) for each in counts]
        output.table(["job", "state", "number", "since"], cells, title="\nJobs")


def jobs(
    command: Annotated[
        list[str] | None,
        typer.Argument(help="A command, such as `list_jobs status=failed`, `retry 12` or `help`."),
    ] = None,
) -> None:
    """Inspect, retry or cancel the jobs on PostgreSQL, in procrastinate's shell or with one command."""
    with output.open_application(needs_secret=False) as app:
        if not app.db.locks_rows:
            output.fail("with SQLite, there is no list of jobs: see `paperboy runs`")
        from app.jobs.worker import open_shell  # needs an optional dependency

        open_shell(app, " ".join(command or []))
