"""bounces: parse bounce mails, and print the recipients, the reasons, and whether they are permanent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from app.bounces import Notice, parse_mail
from app.bounces.mime_parser import MAX_BYTES
from app.cli import output


def bounces(
    files: Annotated[list[Path], typer.Argument(help="Mails, one per file.", show_default=False)],
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object per line, one line per file.")
    ] = False,
) -> None:
    """Parse bounce mails: print recipients, reasons, and whether they are permanent. Nothing is changed.

    Exit code 1 if a file could not be read; the other files are still printed.
    """
    results = [_parse_file(file) for file in files]
    if as_json:
        for result in results:
            typer.echo(json.dumps(result, ensure_ascii=False))
    else:
        columns = ("file", "recipient", "status", "reason", "hard", "said")
        output.table(columns, [[_cell(result, column) for column in columns] for result in results])
    if any("error" in result for result in results):
        raise typer.Exit(1)


def _parse_file(file: Path) -> dict[str, Any]:
    """Return the notice about the first recipient as a JSON object. Further ones are under `others`."""
    name = str(file).encode("utf-8", "replace").decode()
    try:
        with file.open("rb") as opened:
            notices = parse_mail(opened.read(MAX_BYTES))
    except OSError as error:
        return {"file": name, "error": error.strerror or str(error)}
    others = [_notice_object(notice) for notice in notices[1:]]
    return {"file": name, **_notice_object(notices[0]), **({"others": others} if others else {})}


def _notice_object(notice: Notice) -> dict[str, Any]:
    return {
        "recipient": notice.recipient,
        "status": notice.status,
        "reason": notice.reason.value,
        "hard": notice.hard,
        "kind": notice.kind.value,
        "action": notice.action,
        "said": notice.diagnostic,
    }


def _cell(result: dict[str, Any], column: str) -> object:
    """Return a cell of the table. An error is in the last column."""
    if column == "said" and "error" in result:
        return result["error"]
    value = result.get(column)
    return {True: "yes", False: "no", None: "–"}[value] if value is None or isinstance(value, bool) else value
