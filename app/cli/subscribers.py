"""subscribers: list, show, add, import and export subscribers; replace their links; delete their feedback."""

from __future__ import annotations

import calendar
import csv
import sys
from collections.abc import Callable, Iterator, Sequence
from enum import EnumType
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import track
from sqlmodel import col, select

from app import clock, pipeline, subscribers
from app.application import Application
from app.cli import output, sending
from app.delivery import ledger
from app.errors import InvalidInput, PaperboyError
from app.storage import audit_log
from app.storage.models import Delivery, DeliveryState, Subscriber, SubscriberState
from app.subscribers import Preferences
from app.types import Cadence, EmptyDigestPolicy, Interest

group = typer.Typer(
    no_args_is_help=True, help="List, show, add, import and export subscribers; replace their links."
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


@group.command("list")
def list_subscribers(
    state: Annotated[
        SubscriberState | None, typer.Option(help="Only subscribers in this state. Default: all.")
    ] = None,
    limit: Annotated[int, typer.Option(help="The maximum number of subscribers.", min=1, max=10_000)] = 50,
    after: Annotated[int, typer.Option(help="The number of the last subscriber on the previous page.")] = 0,
    as_json: output.AsJson = False,
) -> None:
    """List the subscribers by number."""
    query = select(Subscriber).where(col(Subscriber.id) > after).order_by(col(Subscriber.id))
    if state:
        query = query.where(Subscriber.state == state)
    with output.open_application(needs_secret=False) as app, app.db.read() as session:
        rows = session.exec(query.limit(limit + 1)).all()
    page = rows[:limit]
    next_after = page[-1].id if len(rows) > limit else None
    if as_json:
        columns = ("id", "email", "state", "cadence", "next_due_at")
        items = [{name: getattr(row, name) for name in columns} for row in page]
        output.print_json({"subscribers": items, "next_after": next_after})
        return
    cells = [(row.id, row.email, row.state, row.cadence, output.format_time(row.next_due_at)) for row in page]
    output.table(["number", "address", "state", "digests", "next digest"], cells)
    if next_after:
        output.out().print(f"There are more: repeat the command with --after {next_after}.")


@group.command()
def add(
    email: Annotated[str, typer.Argument(help="The subscriber's address.")],
    interest: Annotated[list[str], typer.Option(help="An interest. Repeat the option for more.")],
    cadence: Annotated[Cadence, typer.Option(help="How often digests are sent.")] = Cadence.DAILY,
    weekday: Annotated[int, typer.Option(help="The day of a weekly digest. 0 is Monday.", min=0, max=6)] = 0,
    hour: Annotated[
        int | None, typer.Option(help="The hour of the digest, in the subscriber's time zone.", min=0, max=23)
    ] = None,
    zone: Annotated[
        str | None, typer.Option(help="The subscriber's time zone, such as Europe/Berlin.")
    ] = None,
    min_papers: output.MinPapers = 1,
    max_papers: output.MaxPapers = 10,
    when_empty: Annotated[
        EmptyDigestPolicy, typer.Option(help="What to do if no paper matches.")
    ] = EmptyDigestPolicy.SKIP,
    max_trending: output.MaxTrending = None,
    mute: output.Mute = None,
    as_json: output.AsJson = False,
) -> None:
    """Add a subscriber who consented elsewhere. They are active at once, without a confirmation mail."""
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
    """Add the subscribers in a CSV file. They must have consented elsewhere. Invalid rows are skipped.

    The first line names the columns. Required: email, and interests (separated by “;”). Optional: cadence,
    weekday, hour, zone, min_papers, max_papers, when_empty, max_trending, and muted (separated by “;”).
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
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON document instead of CSV.")] = False,
) -> None:
    """Write all subscribers, except erased ones, to standard output as CSV."""
    with output.open_application() as app:
        rows = _exported(app)
        if as_json:
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
    """Show a subscriber's state, preferences, interests and feedback."""
    with output.open_application(needs_secret=False) as app, app.db.read() as session:
        row = subscribers.find(session, subscriber)
        subscriber_id = row.id or 0
        interests = subscribers.interests_of(session, [subscriber_id]).get(subscriber_id, ())
        feedback = subscribers.feedback_for_ranking(session, [subscriber_id]).get(subscriber_id, ())
    if as_json:
        document = row.model_dump(mode="json", include=set(EXPORTED))
        document |= {"interests": [interest.text for interest in interests], "next_due_at": row.next_due_at}
        entries = [{"title": entry.title, "liked": entry.liked, "at": entry.at} for entry in feedback]
        output.print_json(document | {"ignored_authors": row.ignored_authors, "feedback": entries})
        return
    output.table([f"subscriber {row.id}", row.email], _facts(row, interests))
    if feedback:
        labels = {True: "more like this", False: "less like this"}
        rows = [(output.format_time(entry.at), labels[entry.liked], entry.title) for entry in feedback]
        output.table(["at", "feedback", "paper"], rows, title="\nFeedback, newest first")


def _facts(row: Subscriber, interests: Sequence[Interest]) -> Iterator[tuple[str, str]]:
    """Yield what an operator wants to know about a subscriber, in words."""
    yield "state", f"paused until {output.format_time(row.paused_until)}" if row.paused_until else row.state
    for number, interest in enumerate(interests):
        weight = f"weight {interest.weight:g}" if interest.weight != 1 else ""
        quota = f"at most {interest.quota} papers" if interest.quota else ""
        limits = ", ".join(filter(None, (weight, quota)))
        yield "" if number else "interests", f"{interest.text} ({limits})" if limits else interest.text
    if row.muted:
        yield "muted", f"{SEPARATOR} ".join(row.muted)
    day = f" on {calendar.day_name[row.weekday]}" if row.cadence is Cadence.WEEKLY else ""
    yield "digests", f"{row.cadence}{day} at {row.hour}:00, {row.zone}"
    yield "papers", f"{row.min_papers} to {row.max_papers}, including at most {row.max_trending} trending"
    on_empty = {EmptyDigestPolicy.SKIP: "no digest", EmptyDigestPolicy.TRENDING: "trending papers"}
    yield "if none match", on_empty[row.when_empty]
    yield "next digest", output.format_time(row.next_due_at)
    yield "added", output.format_time(row.created_at)
    yield "confirmed", output.format_time(row.confirmed_at)
    yield "consent", f"{output.format_time(row.consent_at)}, {row.consent_version or 'none recorded'}"
    if row.ignored_authors:
        yield "ignored authors", f"{SEPARATOR} ".join(row.ignored_authors)


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

    The unsubscribe links in earlier e-mails still work. You can do this once an hour per subscriber.
    """
    now = clock.utcnow()
    with output.open_application() as app:
        with app.db.write() as session:
            row = subscribers.find(session, subscriber)
            delivery_id = subscribers.new_links(session, row.id or 0, now)
            audit_log.record(session, output.ACTOR, "subscriber.new-links", row.id, now)
        pipeline.send_pending(app, now, [delivery_id])
        with app.db.read() as session:
            mail = session.get_one(Delivery, delivery_id)
            pauses = ledger.pauses(session)
    name = output.escaped(row.email)
    if mail.state is DeliveryState.SENT:
        output.out().print(f"The old links of {name} no longer work. The new ones were sent.", soft_wrap=True)
        return
    reason = output.escaped(mail.smtp_text or mail.reason)
    retry = (
        f"The next attempt is at {output.format_time(mail.next_attempt_at)}." if mail.next_attempt_at else ""
    )
    output.out().print(
        f"The old links of {name} no longer work. The mail with the new ones was not sent"
        f"{reason and f' ({reason})'}. {retry}".rstrip(),
        soft_wrap=True,
    )
    sending.print_pauses(pauses)
    raise typer.Exit(1)


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
        raise InvalidInput(
            f"{file} needs a first line with the column names (email and interests at least), and one line "
            "per subscriber"
        )
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
            allowed = " or ".join(parse) if isinstance(parse, EnumType) else "a whole number"
            raise InvalidInput(f"{name} must be {allowed}, not “{cell[:40]}”", field=name) from None
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
