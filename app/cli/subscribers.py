"""subscribers: add, import, export and show subscribers; replace their links; delete their feedback."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import track
from sqlmodel import col, select

from app import clock, pipeline, subscribers
from app.application import Application
from app.cli import output
from app.errors import InvalidInput, PaperboyError
from app.storage import audit_log
from app.storage.models import Subscriber, SubscriberState
from app.subscribers import Preferences
from app.types import Cadence, EmptyDigestPolicy, Interest

group = typer.Typer(
    no_args_is_help=True, help="Add, import, export and show subscribers; delete their feedback."
)

SEPARATOR = ";"  # between interests, and between muted queries
SubscriberName = Annotated[str, typer.Argument(help="The subscriber's address or number.")]
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # spreadsheets run such cells as formulas


def _split(cell: str) -> tuple[str, ...]:
    return tuple(text for part in cell.split(SEPARATOR) if (text := part.strip()))


# The optional columns, with the function that parses each cell.
_PARSERS: dict[str, Callable[[str], Any]] = {
    "cadence": Cadence, "weekday": int, "hour": int, "zone": str, "min_papers": int, "max_papers": int,
    "when_empty": EmptyDigestPolicy, "max_trending": int, "muted": _split,
}  # fmt: skip
COLUMNS = ("email", "interests", *_PARSERS)
EXPORTED = ("id", *COLUMNS, "state", "created_at", "confirmed_at", "consent_at", "consent_version")


class ExportFormat(StrEnum):
    CSV = "csv"
    JSON = "json"


@group.command()
def add(
    email: Annotated[str, typer.Argument(help="The subscriber's address.")],
    interest: Annotated[list[str], typer.Option(help="An interest; repeat the option for more.")],
    cadence: Annotated[Cadence, typer.Option(help="How often.")] = Cadence.DAILY,
    weekday: Annotated[int, typer.Option(help="The day of a weekly digest; Monday is 0.", min=0, max=6)] = 0,
    hour: Annotated[int | None, typer.Option(help="The hour, in their time zone.", min=0, max=23)] = None,
    zone: Annotated[str | None, typer.Option(help="Their time zone, such as Europe/Berlin.")] = None,
    min_papers: Annotated[int, typer.Option(help="The smallest number of papers to send.")] = 1,
    max_papers: Annotated[int, typer.Option(help="The largest number of papers to send.")] = 10,
    when_empty: Annotated[
        EmptyDigestPolicy, typer.Option(help="What to do if nothing matches.")
    ] = EmptyDigestPolicy.SKIP,
    max_trending: Annotated[
        int | None, typer.Option(help="The largest number of trending papers outside the interests.")
    ] = None,
    mute: Annotated[list[str] | None, typer.Option(help="A muted query; repeat the option for more.")] = None,
    as_json: output.AsJson = False,
) -> None:
    """Add a subscriber who consented elsewhere. They are active at once; no confirmation is sent."""
    now = clock.utcnow()
    with output.open_application() as app:
        options = {
            "cadence": cadence, "weekday": weekday, "hour": hour, "zone": zone,
            "min_papers": min_papers, "max_papers": max_papers, "when_empty": when_empty,
            "max_trending": max_trending, "muted": tuple(mute or ()),
        }  # fmt: skip
        preferences = _preferences(app, interest, options)
        with app.db.write() as session:
            subscriber = subscribers.get(session, subscribers.add(session, email, preferences, now))
            audit_log.record(session, output.ACTOR, "subscriber.add", subscriber.id, now)
    if as_json:
        output.print_json(
            {"id": subscriber.id, "email": subscriber.email, "next_due_at": subscriber.next_due_at}
        )
    else:
        due = output.format_time(subscriber.next_due_at)
        output.out().print(f"Added {output.escaped(subscriber.email)}. The first digest is due at {due}.")


@group.command("import")
def import_subscribers(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, readable=True, help="A CSV file.")],
    as_json: output.AsJson = False,
) -> None:
    """Add the subscribers in a CSV file, who consented elsewhere. Invalid rows are skipped and shown.

    The first line names the columns: email and interests (separated by “;”) are required; cadence, weekday,
    hour, zone, min_papers, max_papers, when_empty, max_trending and muted (separated by “;”) are optional.
    Exit code 1 if a row was skipped.
    """
    with output.open_application() as app:
        added, skipped = _import(app, _read_csv(file), quiet=as_json)
    if as_json:
        rejections = [{"file": str(file), "row": row, "reason": reason} for row, reason in skipped]
        output.print_json({"added": added, "rejected": len(skipped), "rejections": rejections})
    else:
        output.out().print(f"Subscribers added: {added}. Rows skipped: {len(skipped)}.")
        if skipped:
            output.table(["row", "reason"], skipped)
    if skipped:
        raise typer.Exit(1)


@group.command()
def export(
    as_: Annotated[ExportFormat, typer.Option("--as", help="The format.")] = ExportFormat.CSV,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --as json.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="The same as --as csv.")] = False,
) -> None:
    """Write all subscribers, except erased ones, to standard output."""
    if as_json and as_csv:
        raise typer.BadParameter("choose one of --json and --csv")
    with output.open_application() as app:
        rows = _exported(app)
        if as_json or (as_ is ExportFormat.JSON and not as_csv):
            output.print_json(list(rows))
        else:
            writer = csv.writer(sys.stdout, lineterminator="\n")
            writer.writerow(EXPORTED)
            for row in rows:
                row |= {name: f"{SEPARATOR} ".join(row[name]) for name in ("interests", "muted")}
                cells = ("" if row[name] is None else str(row[name]) for name in EXPORTED)
                writer.writerow(["'" + cell if cell.startswith(_FORMULA) else cell for cell in cells])


@group.command()
def show(subscriber: SubscriberName, as_json: output.AsJson = False) -> None:
    """Show a subscriber's settings, interests and feedback."""
    with output.open_application() as app, app.db.read() as session:
        row = subscribers.find(session, subscriber)
        subscriber_id = row.id or 0
        interests = subscribers.interests_of(session, [subscriber_id]).get(subscriber_id, ())
        feedback = subscribers.feedback_for_ranking(session, [subscriber_id]).get(subscriber_id, ())
    document = row.model_dump(mode="json", include=set(EXPORTED))
    document |= {"interests": [interest.text for interest in interests], "next_due_at": row.next_due_at}
    if as_json:
        entries = [{"title": entry.title, "liked": entry.liked, "at": entry.at} for entry in feedback]
        output.print_json(document | {"ignored_authors": row.ignored_authors, "feedback": entries})
        return
    document |= {name: f"{SEPARATOR} ".join(document[name]) for name in ("interests", "muted")}
    output.table(["subscriber", ""], list(document.items()))
    labels = {True: "more like this", False: "less like this"}
    rows = [(output.format_time(entry.at), labels[entry.liked], entry.title) for entry in feedback]
    output.table(["at", "feedback", "paper"], rows)


@group.command()
def delete_feedback(subscriber: SubscriberName) -> None:
    """Delete a subscriber's feedback and the papers that they pasted."""
    with output.open_application() as app, app.db.write() as session:
        row = subscribers.find(session, subscriber)
        subscribers.forget_feedback(session, row.id or 0)
        audit_log.record(session, output.ACTOR, "subscriber.delete_feedback", row.id, clock.utcnow())
    output.out().print(f"Deleted the feedback of {output.escaped(row.email)}.")


@group.command("new-links")
def new_links(subscriber: SubscriberName) -> None:
    """Invalidate all links that were sent to a subscriber, and send new ones.

    The unsubscribe links in earlier e-mails still work. This is possible once an hour.
    """
    now = clock.utcnow()
    with output.open_application() as app:
        with app.db.write() as session:
            row = subscribers.find(session, subscriber)
            delivery_id = subscribers.new_links(session, row.id or 0, now)
            audit_log.record(session, output.ACTOR, "subscriber.new-links", row.id, now)
        sent = pipeline.send_pending(app, now, [delivery_id])
    outcome = "were mailed" if sent["sent"] else "are waiting to be mailed: see `paperboy sending status`"
    output.out().print(f"The new links of {output.escaped(row.email)} {outcome}.", soft_wrap=True)


def _preferences(app: Application, interests: Sequence[str], options: dict[str, Any]) -> Preferences:
    """Return preferences with the given options, and the defaults from the settings."""
    settings = app.settings
    defaults: dict[str, Any] = {
        "hour": settings.default_hour,
        "zone": settings.default_zone,
        "max_trending": settings.default_max_trending,
    }
    values = defaults | {name: value for name, value in options.items() if value is not None}
    return Preferences(interests=tuple(Interest(text) for text in interests), **values)


def _read_csv(file: Path) -> list[dict[str, str]]:
    try:
        # Spreadsheet programs write a byte order mark, and choose the separator by locale.
        text = file.read_text("utf-8-sig")
        separator = max(",;\t", key=text.partition("\n")[0].count)
        rows = list(csv.DictReader(text.splitlines(keepends=True), delimiter=separator, strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(f"{file} cannot be read as CSV in UTF-8: {error}") from None
    if not rows or not {"email", "interests"} <= set(rows[0]):
        raise InvalidInput(f"{file} needs a first line that names its columns, including email and interests")
    return rows


def _import(
    app: Application, rows: Sequence[dict[str, str]], *, quiet: bool
) -> tuple[int, list[tuple[int, str]]]:
    """Add each row in its own transaction. Return how many were added, and the skipped rows with reasons."""
    added, skipped, now = 0, list[tuple[int, str]](), clock.utcnow()
    console = output.err()
    hidden = quiet or not console.is_terminal
    for number, row in enumerate(track(rows, "Importing", console=console, disable=hidden), start=2):
        try:
            preferences = _preferences(app, _split(row["interests"] or ""), _options(row))
            with app.db.write() as session:
                subscribers.add(session, row["email"] or "", preferences, now)
            added += 1
        except PaperboyError as error:
            skipped.append((number, str(error)))
    with app.db.write() as session:
        audit_log.record(
            session, output.ACTOR, "subscriber.import", f"{added} subscribers", now, skipped=len(skipped)
        )
    return added, skipped


def _options(row: dict[str, str]) -> dict[str, Any]:
    """Parse the optional columns. Empty cells are ignored."""
    options = {}
    for name, parse in _PARSERS.items():
        cell = (row.get(name) or "").strip()
        try:
            if cell:
                options[name] = parse(cell)
        except ValueError:
            raise InvalidInput(f"{name} cannot be “{cell[:40]}”", field=name) from None
    return options


def _exported(app: Application) -> Iterator[dict[str, Any]]:
    """Yield all subscribers except erased ones. Read 500 at a time."""
    last_id = 0
    while True:
        with app.db.read() as session:
            query = select(Subscriber).where(Subscriber.state != SubscriberState.ERASED)
            page = query.where(col(Subscriber.id) > last_id).order_by(col(Subscriber.id)).limit(500)
            rows = session.exec(page).all()
            interests = subscribers.interests_of(session, [row.id or 0 for row in rows])
        for row in rows:
            texts = [interest.text for interest in interests.get(row.id or 0, ())]
            yield {"id": row.id, "email": row.email, "interests": texts} | row.model_dump(
                mode="json", include=set(EXPORTED) - {"id", "email", "interests"}
            )
        if not rows:
            return
        last_id = rows[-1].id or 0
