"""move: copy the database to another database."""

from typing import Annotated

import typer

from app import clock, maintenance
from app.cli import output
from app.cli.backup import database_url, print_tables_left_out
from app.storage import backup_file
from app.text.in_words import count_of


def move(
    to: Annotated[str, typer.Option("--to", help="The URL of an empty database.", callback=database_url)],
    as_json: output.AsJson = False,
) -> None:
    """Copy all data into an empty database and compare the two, for example to change to PostgreSQL.

    Stop all processes first. All sending from the old database stays paused. You can repeat an interrupted
    move.
    """
    now = clock.utcnow()
    with output.open_application(needs_secret=False) as app:
        file = backup_file.default_path(now)
        moved = maintenance.move(app, to, file, now)
    manifest = moved.manifest
    if as_json:
        output.print_json(
            {
                "file": str(file), "rows": manifest.rows, "tables": len(manifest.tables),
                "pause_reason": moved.pause_reason, "tables_left_out": manifest.tables_left_out,
            }
        )  # fmt: skip
        return
    output.out().print(
        f"Copied and compared {count_of(manifest.rows, 'row')} in {len(manifest.tables)} tables. "
        f"The backup remains in {output.escaped(str(file))}.\n"
        "Set PAPERBOY_DATABASE_URL to the new URL, then start the service.",
        soft_wrap=True,
    )
    print_tables_left_out(manifest)
    if moved.pause_reason:
        output.out().print(
            f"All sending is still paused in the new database: {output.escaped(moved.pause_reason)}.",
            soft_wrap=True,
        )
