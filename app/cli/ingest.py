"""ingest: poll the sources that are due, or read files."""

from collections.abc import Sequence
from contextlib import nullcontext
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import Progress

from app import clock, pipeline
from app.application import Application
from app.cli import output
from app.papers import poll_schedule, source_registry
from app.papers.record_days import latest_listing_day
from app.papers.sources.source_types import SOURCE_TYPES
from app.storage import audit_log
from app.types import IngestSummary, SourceKind

_FORMATS = [kind for kind, source_type in SOURCE_TYPES.items() if source_type.is_file_format]
FileKind = StrEnum("FileKind", {kind.name: kind.value for kind in _FORMATS})  # type: ignore[misc]


def ingest(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Files to read. Default: poll the sources.")
    ] = None,
    as_: Annotated[
        FileKind | None,
        typer.Option(
            "--as",
            metavar="FORMAT",
            help=f"The format of the files: {', '.join(FileKind)}. page: Hugging Face's search results, "
            "copied as text. jsonl: your own papers. huggingface: responses of its API, or rows from an "
            "archive of its lists. Default: detected.",
        ),
    ] = None,
    day: Annotated[
        date | None,
        output.day_option(
            "--day",
            "The listing day of papers for which a file gives none, such as 2026-11-20, today or yesterday. "
            "Files from Hugging Face give it. Default: the day in the file's name.",
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(help="Poll only the source with this name or number, even if it is paused or not due."),
    ] = None,
    as_json: output.AsJson = False,
) -> None:
    """Poll the sources that are due, or read files. Exit code 1 if a source or file failed.

    A truncated file is read as far as possible, and its name is printed.
    """
    if not files and (as_ or day):
        raise typer.BadParameter("--as and --day apply only to files: name at least one file")
    if day and day > latest_listing_day(clock.utcnow()):
        raise typer.BadParameter("--day is in the future")
    if files and source:
        raise typer.BadParameter("--source polls a source, so it cannot be combined with files")
    report = _read_files(files, as_, day, quiet=as_json) if files else _poll(source, quiet=as_json)
    if as_json:
        output.print_json(report)
    else:
        _print_report(report)
    if report["failed"]:
        raise typer.Exit(1)


def _read_files(
    files: Sequence[Path], as_: FileKind | None, day: date | None, *, quiet: bool
) -> dict[str, Any]:
    kind = SourceKind(as_) if as_ else None
    with (
        output.open_application(needs_secret=False) as app,
        Progress(console=output.err(), disable=quiet or not output.err().is_terminal) as progress,
    ):
        paths = progress.track(files, description="Reading")
        result = pipeline.read_files(app, paths, clock.utcnow(), kind=kind, day=day)
    if result.incomplete:
        names = output.escaped(", ".join(result.incomplete))
        output.err().print(
            f"Not read completely: {names}. The papers that could be read were stored.", soft_wrap=True
        )
    return _report({"files": result.files}, result.summary, list(result.unreadable))


def _poll(name: str | None, *, quiet: bool) -> dict[str, Any]:
    with output.open_application(needs_secret=False) as app, output.graceful_shutdown(app):
        console = output.err()
        visible = console.is_terminal and not quiet
        with console.status("Polling the sources that are due …") if visible else nullcontext():
            result = pipeline.refresh(app, clock.utcnow(), source_id=_request_poll(app, name))
    if result.busy:
        console.print("Another process is already polling the sources.")
    return _report({"sources": list(result.polled)}, result.summary, dict(result.failed))


def _request_poll(app: Application, name: str | None) -> int | None:
    """Record an operator's request to poll a source. Return its id, or None if no name is given."""
    if name is None:
        return None
    now = clock.utcnow()
    with app.db.write() as session:
        source = source_registry.find(session, name)
        poll_schedule.sources_to_poll(session, now, source.id)  # raises Conflict if files are its only input
        audit_log.record(session, output.ACTOR, "source.refresh", source.name, now)
        return source.id


def _report(origin: dict[str, Any], summary: IngestSummary, failed: object) -> dict[str, Any]:
    rejections = [
        {"file": row.origin, "row": row.row, "reason": row.reason, "detail": row.detail}
        for row in summary.rejections
    ]
    return {**origin, **summary.counts(), "failed": failed, "rejections": rejections}


def _print_report(report: dict[str, Any]) -> None:
    counts: list[tuple[str, int | str]] = [
        (name.replace("_", " "), count) for name, count in report.items() if isinstance(count, int)
    ]
    if "sources" in report:
        counts.insert(0, ("sources", ", ".join(report["sources"]) or "none was due"))
    output.table(["", "count"], counts)
    if report["rejections"]:
        rows = [list(rejection.values()) for rejection in report["rejections"][:20]]
        output.table(["file", "row", "reason", "detail"], rows, title="\nRejected")
    if (more := len(report["rejections"]) - 20) > 0:
        output.out().print(f"… and {more} more. --json lists all.")
    if report["papers_new"] and not report["listings"]:
        output.out().print(
            "Digests will not include these papers, because their listing day is unknown. Set it with --day."
        )
    if report["failed"] and "sources" in report:
        output.table(["source", "error"], report["failed"].items(), title="\nFailed")
