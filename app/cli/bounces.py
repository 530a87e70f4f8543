"""bounces and suppressions: what came back, and the addresses that get no mail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from app import clock
from app import subscribers as readers
from app.bounces import Notice, read_mail
from app.bounces.mime_parser import MAX_BYTES
from app.cli import output
from app.delivery import suppression as list_of
from app.errors import NotFound
from app.storage import audit_log

suppressions = typer.Typer(no_args_is_help=True, help="List, add and lift addresses that get no mail.")

Address = Annotated[str, typer.Argument(help="The address.")]
Why = Annotated[str, typer.Option(help="Why; it is kept.")]


def bounces(
    files: Annotated[list[Path], typer.Argument(help="Mails, one a file.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line, one line a file.")] = False,
) -> None:
    """Read mails that came back: whom, why, and whether it is for good. Nothing is changed.

    Exit code 1 when a file could not be read; the others are.
    """
    told = [_told(file) for file in files]
    if as_json:
        for each in told:
            typer.echo(json.dumps(each, ensure_ascii=False))
    else:
        columns = ("file", "recipient", "status", "reason", "hard", "said")
        rows = [[each.get("error", "") if name == "said" and "error" in each else _cell(each.get(name))
                 for name in columns] for each in told]  # fmt: skip
        output.table(columns, rows)
    if any("error" in each for each in told):
        raise typer.Exit(1)


def _told(file: Path) -> dict[str, Any]:
    """What is printed of a file. The first recipient decides; the others follow below `others`."""
    name = str(file).encode("utf-8", "replace").decode()
    try:
        with file.open("rb") as opened:
            notices = read_mail(opened.read(MAX_BYTES))
    except OSError as error:
        return {"file": name, "error": error.strerror or str(error)}
    others = [_notice(notice) for notice in notices[1:]]
    return {"file": name, **_notice(notices[0]), **({"others": others} if others else {})}


def _notice(notice: Notice) -> dict[str, Any]:
    return {
        "recipient": notice.recipient,
        "status": notice.status,
        "reason": notice.reason.value,
        "hard": notice.hard,
        "kind": notice.kind.value,
        "action": notice.action,
        "said": notice.said,
    }


def _cell(value: object) -> object:
    return {True: "yes", False: "no", None: "–"}[value] if value is None or isinstance(value, bool) else value


@suppressions.command("list")
def list_suppressions(as_json: output.AsJson = False) -> None:
    """Every address that gets no mail: by its hash, and by name where its reader is still known."""
    with output.open_application(needs_secret=False) as app, app.db.read() as session:
        rows = list_of.all_with_addresses(session)
    if as_json:
        output.print_json([row.model_dump(exclude={"id"}) | {"email": email} for row, email in rows])
        return
    output.table(
        ["address", "since", "why"],
        [(email or f"{row.address_hash[:12]}…", output.moment(row.since), row.reason) for row, email in rows],
    )


@suppressions.command()
def add(email: Address, reason: Why) -> None:
    """Let an address get no mail from now on. One that is listed keeps its first reason."""
    email, now = readers.normalise_address(email), clock.utcnow()
    with output.open_application(needs_secret=False) as app, app.db.write() as session:
        list_of.suppress(session, email, reason, now)
        audit_log.record(
            session, output.ACTOR, "suppression.add", list_of.address_hash(email), now, reason=reason
        )
    output.out().print(f"No mail goes to {output.escaped(email)} from now on.")


@suppressions.command()
def lift(email: Address, reason: Why) -> None:
    """Let an address get mail again, and its reader where their mail came back."""
    email, now = readers.normalise_address(email), clock.utcnow()
    with output.open_application(needs_secret=False) as app, app.db.write() as session:
        if not readers.lift_suppression(session, email, now):
            raise NotFound("this address is not suppressed")
        audit_log.record(
            session, output.ACTOR, "suppression.lift", list_of.address_hash(email), now, reason=reason
        )
    output.out().print(f"Mail goes to {output.escaped(email)} again.")
