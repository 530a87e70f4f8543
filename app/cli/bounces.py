"""bounces: show the recipient and reason of each bounce notice, and the action that Paperboy would take."""

from pathlib import Path
from typing import Annotated, Any

import typer

from app.bounces import Notice, parse_mail
from app.bounces.mime_parser import MAX_BYTES
from app.cli import output


def bounces(
    files: Annotated[list[Path], typer.Argument(help="Bounce notices, one per file.", show_default=False)],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one line per file, each a JSON object.")
    ] = False,
) -> None:
    """Show the recipient and reason of each bounce notice, and the action that Paperboy would take.

    Nothing is changed. Exit code 1 if a file could not be read. The other files are still shown.
    """
    results: list[dict[str, Any]] = []
    for file in files:
        name = str(file).encode("utf-8", "replace").decode()
        try:
            with file.open("rb") as opened:
                first, *others = map(_notice_object, parse_mail(opened.read(MAX_BYTES)))
        except OSError as error:
            results.append({"file": name, "error": error.strerror or str(error)})
        else:
            results.append({"file": name, **first, **({"others": others} if others else {})})
    if as_json:
        for result in results:
            output.print_json(result, indent=None)
    else:
        columns = ("file", "recipient", "status", "reason", "action", "hard", "said")
        rows = [{**result, "said": result.get("error", result.get("said"))} for result in results]
        labels = {True: "yes", False: "no", None: "–"}
        cells = [[row.get(column) for column in columns] for row in rows]
        output.table(columns, [[labels.get(cell, cell) for cell in row] for row in cells])
    if any("error" in result for result in results):
        raise typer.Exit(1)


def _notice_object(notice: Notice) -> dict[str, Any]:
    return {
        "recipient": notice.recipient,
        "status": notice.status,
        "reason": notice.reason.value,
        "hard": notice.hard,
        "kind": notice.kind.value,
        "action": notice.action.value,
        "reported": notice.reported,
        "said": notice.diagnostic,
    }
