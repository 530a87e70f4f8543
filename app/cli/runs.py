"""runs: list the job runs, or show one run."""

from typing import Annotated

import typer
from sqlmodel import col, select

from app.cli import output
from app.errors import NotFound
from app.storage.models import JobRun
from app.text.in_words import format_counts


def runs(
    run: Annotated[int | None, typer.Argument(help="The number of a run, to show its rejected rows.")] = None,
    job: Annotated[str | None, typer.Option(help="Only this job, such as send.")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only runs that failed.")] = False,
    limit: Annotated[int, typer.Option(help="The maximum number of runs.", min=1, max=10_000)] = 20,
    as_json: output.AsJson = False,
) -> None:
    """List the job runs, newest first, with their counts and errors."""
    query = select(JobRun).order_by(col(JobRun.id).desc()).limit(limit)
    if run is not None:
        query = query.where(JobRun.id == run)
    if job:
        query = query.where(JobRun.job == job)
    if failed:
        query = query.where(JobRun.error != "")
    with output.open_application(needs_secret=False) as app, app.db.read() as session:
        rows = session.exec(query).all()
    if run is not None and not rows:
        raise NotFound(f"there is no run {run}")
    if as_json:
        left_out = None if run is not None else {"rejections"}
        output.print_json([row.model_dump(mode="json", exclude=left_out) for row in rows])
        return
    cells = [(row.id, row.job, row.started_at, _outcome(row)) for row in rows]
    output.table(["number", "job", "began", "outcome"], cells)
    if run is not None and rows[0].rejections:
        rejections = [(each["origin"], each["row"], each["reason"]) for each in rows[0].rejections]
        output.table(["from", "row", "reason"], rejections, title="\nRejected")


def _outcome(row: JobRun) -> str:
    if row.error:
        return f"failed: {row.error}"
    if not row.ended_at:
        return "running, or its process was killed"
    return format_counts(row.counts)
