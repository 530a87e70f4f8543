"""backup, restore: write the database to a file, load it from a file."""

from dataclasses import fields
from pathlib import Path
from typing import Annotated

import typer

from app import clock, logs, maintenance
from app.cli import output
from app.maintenance.after_restore import RestoreReport
from app.settings import check_database_url
from app.storage import backup_file
from app.storage.database import Database
from app.text.in_words import count_of


def database_url(value: str | None) -> str | None:
    """Return the value of an option that is the URL of a database. Raise BadParameter if it is invalid."""
    try:
        return value and check_database_url(value)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def backup(
    file: Annotated[
        Path | None, typer.Argument(help="The file. Default: a new file in var/backups/.", dir_okay=False)
    ] = None,
    as_json: output.AsJson = False,
) -> None:
    """Write a backup of the database and the senders' journals. The service may keep running.

    The backup contains addresses and key hashes, so keep it private. Back up .env and DKIM keys separately.
    """
    now = clock.utcnow()
    target = file or backup_file.default_path(now)
    url = output.load_settings(needs_secret=False).database_url
    with (
        maintenance.readable_url(url, target) as readable,
        output.open_application(needs_secret=False, database_url=readable) as app,
    ):
        manifest = maintenance.back_up(app, target, now)
    size = target.stat().st_size
    if as_json:
        output.print_json(
            {
                "file": str(target), "bytes": size, "rows": manifest.rows, "revision": manifest.revision,
                "tables_left_out": manifest.tables_left_out,
            }
        )  # fmt: skip
    else:
        output.out().print(
            f"Wrote {output.escaped(str(target))}: {count_of(manifest.rows, 'row')}, {size / 1000:,.0f} kB.",
            soft_wrap=True,
        )
        print_tables_left_out(manifest)


def print_tables_left_out(manifest: backup_file.Manifest) -> None:
    """Print the tables that a backup or a move has left out."""
    if names := manifest.tables_left_out:
        output.out().print(
            f"Tables that are not Paperboy's were left out: {output.escaped(', '.join(names))}.",
            soft_wrap=True,
        )


def restore(
    file: Annotated[Path, typer.Argument(help="A backup.", exists=True, dir_okay=False, readable=True)],
    previous: Annotated[
        str | None,
        typer.Option(
            help="The URL of the old database, if it can still be read. Emails that it has sent are not sent "
            "again. Unsubscriptions, erasures, pauses, changes of address, and revocations of links and keys "
            "since the backup are repeated.",
            callback=database_url,
        ),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Only verify the file.")] = False,
    as_json: output.AsJson = False,
) -> None:
    """Load a backup into the configured database, which must be empty. All sending stays paused.

    Emails that may have been sent since the backup become uncertain and are not sent again. Review them with
    `paperboy deliveries --state uncertain`, then run `paperboy sending resume`.
    """
    now = clock.utcnow()
    settings = output.load_settings(needs_secret=False)
    logs.configure(settings, level="WARNING")
    manifest = backup_file.read_manifest(file)
    rows = count_of(manifest.rows, "row")
    origin = f"{rows} from {output.format_time(manifest.created_at)}, written by release {manifest.release}"
    facts = {"rows": manifest.rows, "backup_at": manifest.created_at, "release": manifest.release}
    if check:
        if as_json:
            output.print_json(facts)
        else:
            output.out().print(f"The backup is complete: {output.escaped(origin)}.")
        return
    db, old = Database(settings.database_url), Database(previous, read_only=True) if previous else None
    try:
        report = maintenance.restore(db, settings, file, manifest, now, old)
    finally:
        db.dispose()
        if old:
            old.dispose()
    if as_json:
        output.print_json({**facts, **{each.name: getattr(report, each.name) for each in fields(report)}})
        return
    print_report(report, origin, with_previous=previous is not None)


def print_report(report: RestoreReport, origin: str, *, with_previous: bool) -> None:
    """Print the size and origin of the backup, the held emails, and the decisions left to the operator."""
    console = output.out()
    console.print(f"Restored {output.escaped(origin)}. All sending is paused.", soft_wrap=True)
    rows = [("waiting or in flight at the time of the backup", report.waiting)]
    if editions := sorted(report.due_since):
        of = editions[0] if len(editions) == 1 else f"{editions[0]} to {editions[-1]}"
        rows.append((f"due since then, {count_of(len(editions), 'edition')}: {of}", report.due_since.total()))
    output.table(["held emails that may have been sent", "number"], rows)
    if len(editions) > 1:
        console.print("--json lists each edition.")
    if with_previous:
        console.print(
            "Emails that may have been sent since the backup, recorded by the previous database: "
            f"{report.recovered}."
        )
    else:
        console.print(
            "Anyone who unsubscribed, paused or was erased after the backup is active again. Keys and links "
            "that were revoked after the backup work again, and changes of address are undone. If the old "
            "database is still readable, do not resume sending: move the new database and its journals away, "
            "and restore again with --previous and the URL of the old database, such as "
            "sqlite:///var/old/paperboy.db.",
            soft_wrap=True,
        )
    if report.webhooks:
        console.print(
            f"These webhooks are disabled: {', '.join(report.webhooks)}. Some may have been removed after "
            "the backup. For each, run paperboy webhooks enable NUMBER or paperboy webhooks remove NUMBER.",
            soft_wrap=True,
        )
    if report.old_addresses:
        console.print(
            "These subscribers have changed their address since the backup, but another subscriber has the "
            f"new one: {output.escaped(', '.join(report.old_addresses))}. Before you resume sending, change "
            "or erase one of the two.",
            soft_wrap=True,
        )
    if report.uncertain:
        console.print("Review the uncertain emails: paperboy deliveries --state uncertain.")
    console.print("To send again: paperboy sending resume.")
