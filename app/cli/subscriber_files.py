"""subscribers import, export: add the subscribers in a CSV file; write all subscribers."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, BinaryIO

import typer
from rich.progress import Progress

from app import clock, maintenance, subscribers
from app.cli import output
from app.delivery import ledger
from app.text.in_words import count_of


def import_subscribers(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, readable=True, help="A CSV file.")],
    hold: Annotated[
        bool | None,
        typer.Option(
            "--hold/--no-hold",
            help="Pause all sending, to check what would be sent. This is the default if no digest has ever "
            "been sent; otherwise, only the first digests of new subscribers are held.",
        ),
    ] = None,
    as_json: output.AsJson = False,
) -> None:
    """Add the subscribers in a CSV file. They must have consented elsewhere. Invalid rows are skipped.

    The first line names the columns. Required: email, and interests (separated by “;”; write “\\;” for a
    semicolon within an interest). Optional: weights and quotas of the interests (separated by “;”), cadence,
    weekday, hour, zone, min_papers, max_papers, when_empty, max_trending, paper_updates (yes or no), muted
    (separated by “;”), state, paused_until, consent_at and consent_version. People who left, here or at
    another service, are not added. Exit code 1 if a row was skipped or the import stopped; you can repeat it.
    """
    console = output.err()
    with (
        output.open_application() as app,
        output.graceful_shutdown(app),
        seekable(file) as content,
        Progress(console=console, disable=as_json or not console.is_terminal, transient=True) as progress,
    ):
        bar = progress.add_task("Importing", total=None)
        result = maintenance.import_subscribers(
            app, content, output.ACTOR, clock.utcnow(), hold=hold, name=str(file),
            after_batch=lambda report: progress.update(bar, total=report.total, completed=report.rows),
        )  # fmt: skip
    report = result.report
    if as_json:
        rejections = [{"file": str(file), **item._asdict()} for item in report.rejections]
        document = {
            "complete": report.is_complete,
            "added": report.added,
            "rejected": report.rejected,
            "rejections": rejections,
            "ignored_columns": list(report.ignored_columns),
            "held": result.paused_scope is not None,
        }
        output.print_json(document)
    else:
        _print_report(report, result.paused_scope)
    if report.rejected or not report.is_complete:
        raise typer.Exit(1)


@contextmanager
def seekable(path: Path) -> Iterator[BinaryIO]:
    """Open a file, or a temporary copy if it is a pipe."""
    with path.open("rb") as file:
        if file.seekable():
            yield file
            return
        with tempfile.TemporaryFile() as copy:
            shutil.copyfileobj(file, copy)
            yield copy


def _print_report(report: subscribers.ImportReport, paused_scope: str | None) -> None:
    output.out().print(f"Subscribers added: {report.added}. Rows skipped: {report.rejected}.")
    if report.rejected:
        rows = [(item.row, item.email, item.reason) for item in report.rejections]
        output.table(["row", "address", "reason"], rows)
    if report.rejected > len(report.rejections):
        output.out().print(f"{report.rejected - len(report.rejections)} more skipped rows are not listed.")
    if not report.is_complete:
        output.err().print(
            f"Stopped after {report.rows} of {count_of(report.total, 'row')}. Repeat the import to continue.",
            soft_wrap=True,
        )
    if report.ignored_columns:
        names = output.escaped(", ".join(report.ignored_columns))
        output.err().print(
            f"Unknown columns were ignored: {names}. If one of them says who left the other service, "
            "unsubscribe these people now.",
            soft_wrap=True,
        )
    if paused_scope == ledger.FIRST_DIGESTS:
        what, command = "The first digests of these subscribers are held", "sending resume --first-digests"
    else:
        what, command = "All sending is paused", "sending resume"
    if paused_scope:
        output.out().print(
            f"{what}. To see what would be sent: paperboy send --dry-run --all. Then: paperboy {command}.",
            soft_wrap=True,
        )


def export_subscribers(
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON document instead of CSV.")] = False,
) -> None:
    """Write all subscribers, except erased ones, to standard output as CSV, in UTF-8."""
    with output.open_application(needs_secret=False) as app:
        rows = subscribers.exported(app.db)
        if as_json:
            output.print_json(list(rows))
        else:
            if isinstance(sys.stdout, TextIOWrapper):
                sys.stdout.reconfigure(encoding="utf-8")  # the import reads no other encoding
            subscribers.write_csv(rows, sys.stdout)
