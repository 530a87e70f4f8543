"""subscribers import, export: add the subscribers in a CSV file; write all subscribers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import track

from app import clock, subscribers
from app.cli import output
from app.delivery import ledger
from app.storage import audit_log


def import_subscribers(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, readable=True, help="A CSV file.")],
    hold: Annotated[
        bool | None,
        typer.Option(
            "--hold/--no-hold",
            help="Pause all sending, to see what would be sent. Default: if no digest was ever sent.",
        ),
    ] = None,
    as_json: output.AsJson = False,
) -> None:
    """Add the subscribers in a CSV file. They must have consented elsewhere. Invalid rows are skipped.

    The first line names the columns. Required: email, and interests (separated by “;”). Optional: weights and
    quotas of the interests (separated by “;”), cadence, weekday, hour, zone, min_papers, max_papers,
    when_empty, max_trending, paper_updates (yes or no), muted (separated by “;”), state, consent_at and
    consent_version. Subscribers whose state is neither active nor paused are skipped. Exit code 1 if a row
    was skipped.
    """
    now = clock.utcnow()
    with output.open_application() as app:
        rows = subscribers.read_csv(file.read_bytes(), str(file))
        with app.db.write() as session:  # first, so that nobody gets a digest during a long import
            hold = not ledger.any_sent(session) if hold is None else hold
            paused_here = hold and not any(
                pause.edition == ledger.ALL_EDITIONS for pause in ledger.pauses(session)
            )
            if hold:
                ledger.pause(session, "subscribers were imported: see what would be sent, then resume", now)
        console = output.err()
        watched = track(rows, "Importing", console=console, disable=as_json or not console.is_terminal)
        report = subscribers.import_rows(app.db, watched, subscribers.default_preferences(app.settings), now)
        with app.db.write() as session:
            added, skipped = f"{report.added} subscribers", len(report.rejected)
            audit_log.record(session, output.ACTOR, "subscriber.import", added, now, skipped=skipped)
            held = hold and bool(report.added)
            if paused_here and not held:
                ledger.resume(session)
    if as_json:
        rejections = [{"file": str(file), "row": row, "reason": reason} for row, reason in report.rejected]
        document = {"added": report.added, "rejected": len(rejections), "rejections": rejections}
        output.print_json(document | {"ignored_columns": report.ignored_columns, "held": held})
    else:
        _print_report(report, held=held)
    if report.rejected:
        raise typer.Exit(1)


def _print_report(report: subscribers.ImportReport, *, held: bool) -> None:
    output.out().print(f"Subscribers added: {report.added}. Rows skipped: {len(report.rejected)}.")
    if report.rejected:
        output.table(["row", "reason"], report.rejected)
    if report.ignored_columns:
        names = output.escaped(", ".join(report.ignored_columns))
        output.err().print(f"Unknown columns were ignored: {names}.", soft_wrap=True)
    if held:
        output.out().print(
            "All sending is paused. See what would be sent: paperboy send --dry-run --all. "
            "Then: paperboy sending resume.",
            soft_wrap=True,
        )


def export_subscribers(
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON document instead of CSV.")] = False,
) -> None:
    """Write all subscribers, except erased ones, to standard output as CSV."""
    with output.open_application(needs_secret=False) as app:
        rows = subscribers.exported(app.db)
        if as_json:
            output.print_json(list(rows))
        else:
            subscribers.write_csv(rows, sys.stdout)
