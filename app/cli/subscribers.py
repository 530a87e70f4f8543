"""subscribers: add, import, export and show readers, make new links, forget what was learned from one."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from rich.progress import track
from sqlmodel import col, select

from app import clock, pipeline
from app import subscribers as readers
from app.application import Application
from app.cli import output
from app.errors import InvalidInput, PaperboyError
from app.storage import audit_log
from app.storage.models import Subscriber, SubscriberState
from app.subscribers import Preferences
from app.types import Cadence, EmptyDigestPolicy, Interest

subscribers = typer.Typer(
    no_args_is_help=True, help="Add, import, export and show readers, and forget what they said."
)

COLUMNS = (
    "email", "interests", "cadence", "weekday", "hour", "zone", "min_papers", "max_papers", "when_empty",
    "beyond", "muted",
)  # fmt: skip
EXPORTED = ("id", *COLUMNS, "state", "created_at", "confirmed_at", "consent_at", "consent_version")
BETWEEN = ";"  # interests, and muted words
Reader = Annotated[str, typer.Argument(help="The reader's address, or their number.")]
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet would run such a cell


class As(StrEnum):
    CSV = "csv"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row of a file that could not be imported."""

    row: int
    reason: str


@subscribers.command()
def add(
    email: Annotated[str, typer.Argument(help="The reader's address.")],
    interest: Annotated[list[str], typer.Option(help="What they want to read about; once for each.")],
    cadence: Annotated[Cadence, typer.Option(help="How often.")] = Cadence.DAILY,
    weekday: Annotated[int, typer.Option(help="Of a weekly digest: Monday is 0.", min=0, max=6)] = 0,
    hour: Annotated[int | None, typer.Option(help="Their local hour.", min=0, max=23)] = None,
    zone: Annotated[str | None, typer.Option(help="Their time zone, such as Europe/Berlin.")] = None,
    min_papers: Annotated[int, typer.Option(help="Wait for as many.")] = 1,
    max_papers: Annotated[int, typer.Option(help="At most as many.")] = 10,
    when_empty: Annotated[
        EmptyDigestPolicy, typer.Option(help="When nothing matches.")
    ] = EmptyDigestPolicy.SKIP,
    beyond: Annotated[int | None, typer.Option(help="At most as many that trend beyond them.")] = None,
    mute: Annotated[list[str] | None, typer.Option(help="What keeps a paper out; once for each.")] = None,
    as_json: output.AsJson = False,
) -> None:
    """Add a reader who agreed elsewhere. They are active at once: no confirmation is sent."""
    now = clock.utcnow()
    with output.open_application() as app:
        given = {
            "cadence": cadence, "weekday": weekday, "hour": hour, "zone": zone,
            "min_papers": min_papers, "max_papers": max_papers, "when_empty": when_empty,
            "beyond": beyond, "muted": tuple(mute or ()),
        }  # fmt: skip
        wants = _preferences(app, interest, given)
        with app.db.write() as session:
            reader = readers.get(session, readers.add(session, email, wants, now))
            audit_log.record(session, output.ACTOR, "subscriber.add", reader.id, now)
    if as_json:
        output.print_json({"id": reader.id, "email": reader.email, "next_due_at": reader.next_due_at})
    else:
        due = output.moment(reader.next_due_at)
        output.out().print(f"Added {output.escaped(reader.email)}; the first digest is due at {due}.")


@subscribers.command("import")
def import_readers(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, readable=True, help="A CSV file.")],
    as_json: output.AsJson = False,
) -> None:
    """Add the readers of a CSV file who agreed elsewhere. A bad row is skipped and shown.

    The first line names the columns: email and interests (separated by “;”) are needed; cadence, weekday,
    hour, zone, min_papers, max_papers, when_empty, beyond and muted (separated by “;”, too) may be there.
    Exit code 1 when a row was skipped.
    """
    with output.open_application() as app:
        added, bad = _import(app, _rows(file), quiet=as_json)
    if as_json:
        rejections = [{"file": str(file), "row": each.row, "reason": each.reason} for each in bad]
        output.print_json({"added": added, "rejected": len(bad), "rejections": rejections})
    else:
        output.out().print(f"Readers added: {added}. Rows skipped: {len(bad)}.")
        if bad:
            output.table(["row", "why it was skipped"], [(each.row, each.reason) for each in bad])
    if bad:
        raise typer.Exit(1)


@subscribers.command()
def export(
    as_: Annotated[As, typer.Option("--as", help="The form.")] = As.CSV,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --as json.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="The same as --as csv.")] = False,
) -> None:
    """Write every reader who was not erased to standard output."""
    if as_json and as_csv:
        raise typer.BadParameter("choose one of --json and --csv")
    with output.open_application() as app:
        found = _exported(app)
        if as_json or (as_ is As.JSON and not as_csv):
            output.print_json(list(found))
        else:
            _write_csv(found, sys.stdout)


@subscribers.command()
def show(reader: Reader, as_json: output.AsJson = False) -> None:
    """A reader's settings, interests, and what they said of papers."""
    with output.open_application() as app, app.db.read() as session:
        row = readers.find(session, reader)
        identity = row.id or 0
        wishes = readers.interests_of(session, [identity]).get(identity, ())
        said = readers.feedback_for_ranking(session, [identity]).get(identity, ())
    known = row.model_dump(mode="json", include=set(EXPORTED))
    known |= {"interests": [wish.text for wish in wishes], "next_due_at": row.next_due_at}
    opinions = [{"title": each.title, "liked": each.liked, "at": each.at} for each in said]
    if as_json:
        output.print_json(known | {"ignored_authors": row.ignored_authors, "opinions": opinions})
        return
    known |= {name: f"{BETWEEN} ".join(known[name]) for name in ("interests", "muted")}
    output.table(["reader", ""], list(known.items()))
    words = {True: "more like this", False: "less like this"}
    rows = [(output.moment(each.at), words[each.liked], each.title) for each in said]
    output.table(["said on", "", "of the paper"], rows)


@subscribers.command()
def forget(reader: Reader) -> None:
    """Forget all that a reader said of papers, and the papers that they pasted."""
    with output.open_application() as app, app.db.write() as session:
        row = readers.find(session, reader)
        readers.forget_feedback(session, row.id or 0)
        audit_log.record(session, output.ACTOR, "subscriber.forget", row.id, clock.utcnow())
    output.out().print(f"Forgotten what {output.escaped(row.email)} said of papers.")


@subscribers.command("new-links")
def new_links(reader: Reader) -> None:
    """Make every link that was mailed to a reader void, and mail new ones.

    The unsubscribe links of earlier mails still work. At most once an hour.
    """
    now = clock.utcnow()
    with output.open_application() as app:
        with app.db.write() as session:
            row = readers.find(session, reader)
            delivery_id = readers.new_links(session, row.id or 0, now)
            audit_log.record(session, output.ACTOR, "subscriber.new-links", row.id, now)
        sent = pipeline.send_pending(app, now, [delivery_id])
    outcome = "were mailed" if sent["sent"] else "wait in the ledger: see `paperboy sending status`"
    output.out().print(f"The new links of {output.escaped(row.email)} {outcome}.", soft_wrap=True)


def _preferences(app: Application, interests: Sequence[str], given: dict[str, Any]) -> Preferences:
    """What was given, and the settings' own where nothing was."""
    settings = app.settings
    defaults: dict[str, Any] = {
        "hour": settings.default_hour, "zone": settings.default_zone, "beyond": settings.default_beyond
    }  # fmt: skip
    chosen = defaults | {name: value for name, value in given.items() if value is not None}
    return Preferences(interests=tuple(Interest(text) for text in interests), **chosen)


def _rows(file: Path) -> list[dict[str, str]]:
    try:
        # A spreadsheet program puts a mark at the beginning, and its own choice of separator.
        return _named(file, file.read_text("utf-8-sig"))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(f"{file} cannot be read as CSV in UTF-8: {error}") from None


def _named(file: Path, text: str) -> list[dict[str, str]]:
    first = text.partition("\n")[0]
    separator = max(",;\t", key=first.count)
    rows = list(csv.DictReader(text.splitlines(keepends=True), delimiter=separator, strict=True))
    if not rows or not {"email", "interests"} <= set(rows[0]):
        raise InvalidInput(
            f"{file} needs a first line that names the columns, email and interests among them"
        )
    return rows


def _import(app: Application, rows: Sequence[dict[str, str]], *, quiet: bool) -> tuple[int, list[BadRow]]:
    """Add each row by itself, so that a bad one takes nothing with it."""
    added, bad, now = 0, [], clock.utcnow()
    console = output.err()
    hidden = quiet or not console.is_terminal
    for number, row in enumerate(track(rows, "Importing", console=console, disable=hidden), start=2):
        try:
            wants = _preferences(app, _listed(row["interests"] or ""), _given(row))
            with app.db.write() as session:
                readers.add(session, row["email"] or "", wants, now)
            added += 1
        except PaperboyError as error:
            bad.append(BadRow(number, str(error)))
    with app.db.write() as session:
        audit_log.record(
            session, output.ACTOR, "subscriber.import", f"{added} readers", now, skipped=len(bad)
        )
    return added, bad


def _listed(cell: str) -> tuple[str, ...]:
    return tuple(text for part in cell.split(BETWEEN) if (text := part.strip()))


def _given(row: dict[str, str]) -> dict[str, Any]:
    """The other columns, each as what it is; an empty cell says nothing."""
    kinds: dict[str, Callable[[str], Any]] = {
        "cadence": Cadence,
        "weekday": int,
        "hour": int,
        "zone": str,
        "min_papers": int,
        "max_papers": int,
        "when_empty": EmptyDigestPolicy,
        "beyond": int,
        "muted": _listed,
    }
    given = {}
    for name, kind in kinds.items():
        cell = (row.get(name) or "").strip()
        try:
            if cell:
                given[name] = kind(cell)
        except ValueError:
            raise InvalidInput(f"{name} cannot be “{cell[:40]}”", field=name) from None
    return given


def _exported(app: Application) -> Iterator[dict[str, Any]]:
    """Every reader who was not erased, a few hundred at a time."""
    last = 0
    while True:
        with app.db.read() as session:
            living = select(Subscriber).where(Subscriber.state != SubscriberState.ERASED)
            page = living.where(col(Subscriber.id) > last).order_by(col(Subscriber.id)).limit(500)
            rows = session.exec(page).all()
            wishes = readers.interests_of(session, [row.id or 0 for row in rows])
        for row in rows:
            texts = [wish.text for wish in wishes.get(row.id or 0, ())]
            yield {"id": row.id, "email": row.email, "interests": texts} | row.model_dump(
                mode="json", include=set(EXPORTED) - {"id", "email", "interests"}
            )
        if not rows:
            return
        last = rows[-1].id or 0


def _write_csv(found: Iterator[dict[str, Any]], to: TextIO) -> None:
    writer = csv.writer(to, lineterminator="\n")
    writer.writerow(EXPORTED)
    for reader in found:
        for name in ("interests", "muted"):
            reader[name] = f"{BETWEEN} ".join(reader[name])
        writer.writerow([_cell(reader[name]) for name in EXPORTED])


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    return "'" + text if text.startswith(_FORMULA) else text
