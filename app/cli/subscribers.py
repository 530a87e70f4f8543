"""subscribers list, add, show, why, send-test. More commands: subscriber_changes, subscriber_files."""

import calendar
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Annotated, Any

import typer
from sqlmodel import col

from app import clock, pipeline, subscribers
from app.cli import output, subscriber_changes, subscriber_files, subscriber_history
from app.cli.subscriber_changes import SubscriberName
from app.delivery import suppression
from app.delivery.send_result import SendOutcome
from app.storage import audit_log
from app.storage.models import Subscriber, SubscriberState, Suppression
from app.subscribers import Preferences
from app.text.in_words import count_of
from app.types import DEFAULT_MIN_PAPERS, Cadence, EmptyDigestPolicy, Interest

group = output.command_group("List, show, add, change, import, export and erase subscribers.")
group.add_typer(subscriber_changes.group)
group.command("import")(subscriber_files.import_subscribers)
group.command("export")(subscriber_files.export_subscribers)

SHOWN = {
    "id", "email", "cadence", "weekday", "hour", "zone", "min_papers", "max_papers", "when_empty",
    "max_trending", "paper_updates", "muted", "state", "created_at", "confirmed_at", "consent_at",
    "consent_version",
}  # fmt: skip


@group.command("list")
def list_subscribers(
    state: Annotated[
        SubscriberState | None,
        typer.Option(
            metavar="STATE",
            help=f"Only subscribers in this state: {', '.join(SubscriberState)}. Default: all.",
        ),
    ] = None,
    limit: Annotated[int, typer.Option(help="The maximum number of subscribers.", min=1, max=10_000)] = 50,
    after: Annotated[int, typer.Option(help="The number of the last subscriber on the previous page.")] = 0,
    as_json: output.AsJson = False,
) -> None:
    """List the subscribers by number."""
    query = subscribers.query_by_address().where(col(Subscriber.id) > after).order_by(col(Subscriber.id))
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
    cells = [(row.id, row.email, row.state, row.cadence, row.next_due_at or "–") for row in page]
    output.table(["number", "address", "state", "digests", "next digest"], cells)
    if next_after:
        output.out().print(f"There are more: repeat the command with --after {next_after}.")


@group.command()
def add(
    email: Annotated[str, typer.Argument(help="The subscriber's address.")],
    interest: Annotated[list[str], typer.Option(help="An interest. Repeat the option for more.")],
    cadence: Annotated[Cadence | None, output.CADENCE] = None,
    weekday: Annotated[int | None, output.WEEKDAY] = None,
    hour: Annotated[int | None, output.HOUR] = None,
    zone: Annotated[
        str | None, typer.Option(help="The subscriber's time zone, such as Europe/Berlin.")
    ] = None,
    min_papers: output.MinPapers = DEFAULT_MIN_PAPERS,
    max_papers: output.MaxPapers = None,
    when_empty: Annotated[
        EmptyDigestPolicy,
        typer.Option(
            case_sensitive=False, help="Skip the digest or send trending papers if no papers match."
        ),
    ] = EmptyDigestPolicy.SKIP,
    max_trending: output.MaxTrending = None,
    mute: output.Mute = None,
    as_json: output.AsJson = False,
) -> None:
    """Add a subscriber who consented elsewhere. They are active at once, without a confirmation email."""
    now = clock.utcnow()
    with output.open_application() as app:
        options: dict[str, Any] = {
            "cadence": cadence, "weekday": weekday, "hour": hour, "zone": zone,
            "min_papers": min_papers, "max_papers": max_papers, "when_empty": when_empty,
            "max_trending": max_trending, "muted": tuple(mute or ()),
            "interests": tuple(map(Interest, interest)),
        }  # fmt: skip
        chosen = {name: value for name, value in options.items() if value is not None}
        preferences = replace(subscribers.default_preferences(app.settings), **chosen)
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


@group.command()
def show(subscriber: SubscriberName, as_json: output.AsJson = False) -> None:
    """Show a subscriber's state, preferences, interests and feedback."""
    with output.open_application(needs_secret=False) as app, app.db.read() as session:
        row = subscribers.find(session, subscriber)
        subscriber_id, suppressed = row.id or 0, suppression.get(session, row.email)
        chosen = subscribers.requested_preferences(session, [row]).get(subscriber_id)
        chosen = chosen or subscribers.preferences_of(session, row)
        feedback = subscribers.feedback_for_ranking(session, [subscriber_id]).get(subscriber_id, ())
    if as_json:
        document = row.model_dump(mode="json", include=SHOWN)
        texts = [interest.text for interest in chosen.interests]
        document |= {**asdict(chosen), "interests": texts, "next_due_at": row.next_due_at}
        document["suppressed"] = suppressed.reason if suppressed else None
        entries = [{"title": entry.title, "liked": entry.liked, "at": entry.at} for entry in feedback]
        output.print_json(document | {"ignored_authors": row.ignored_authors, "feedback": entries})
        return
    output.table([f"subscriber {row.id}", row.email], _facts(row, chosen, suppressed))
    if feedback:
        labels = {True: "more like this", False: "less like this"}
        rows = [(entry.at, labels[entry.liked], entry.title) for entry in feedback]
        output.table(["at", "feedback", "paper"], rows, title="\nFeedback, newest first")


@group.command("send-test")
def send_test(
    subscriber: SubscriberName,
    to: Annotated[
        str, typer.Option(help="Your own address. Default: the first one in PAPERBOY_ADMIN_ADDRESSES.")
    ] = "",
) -> None:
    """Send yourself the digest that a subscriber would get now, or else their last one.

    The subscriber gets nothing. The links in the email do not work.
    """
    now = clock.utcnow()
    with output.open_application() as app:
        if not (to or app.settings.admin_addresses):
            raise typer.BadParameter("give your address with --to, or set PAPERBOY_ADMIN_ADDRESSES")
        to = subscribers.normalize_address(to or app.settings.admin_addresses[0])
        with app.db.read() as session:
            row = subscribers.find(session, subscriber)
        latest = pipeline.latest_digest(app, now, row.id or 0)
        result = pipeline.send_test(app, latest.digest, to, now)
    if result.outcome is not SendOutcome.ACCEPTED:
        output.fail(f"the relay did not accept the email: {result.code or ''} {result.text}")
    output.out().print(f"Sent the digest of {output.escaped(row.email)} to {output.escaped(to)}.")
    if latest.reason:
        reason = output.escaped(latest.reason)
        output.out().print(f"It is the last one, {latest.digest.edition}. There would be none now: {reason}.")


@group.command()
def why(subscriber: SubscriberName, as_json: output.AsJson = False) -> None:
    """Show a subscriber's latest emails, why digests were not sent, and the papers they would get now.

    For a single paper, use `paperboy explain`.
    """
    subscriber_history.print_history(subscriber, as_json=as_json)


def _facts(row: Subscriber, chosen: Preferences, suppressed: Suppression | None) -> Iterator[tuple[str, str]]:
    """Yield a subscriber's state, preferences and consent, as labels and texts."""
    yield "state", f"paused until {output.format_time(row.paused_until)}" if row.paused_until else row.state
    if suppressed:
        yield "suppressed", f"since {output.format_time(suppressed.since)}: {suppressed.reason}"
    for number, interest in enumerate(chosen.interests):
        weight = f"weight {interest.weight:g}" if interest.weight != 1 else ""
        quota = f"at most {count_of(interest.quota, 'paper')}" if interest.quota else ""
        limits = ", ".join(filter(None, (weight, quota)))
        yield "" if number else "interests", f"{interest.text} ({limits})" if limits else interest.text
    if chosen.muted:
        yield "muted", "; ".join(chosen.muted)
    day = f" on {calendar.day_name[chosen.weekday]}" if chosen.cadence is Cadence.WEEKLY else ""
    yield "digests", f"{chosen.cadence}{day} at {chosen.hour}:00, {chosen.zone}"
    most, trending = chosen.max_papers, chosen.max_trending
    yield "papers", f"{chosen.min_papers} to {most}, including at most {trending} trending"
    on_empty = {EmptyDigestPolicy.SKIP: "no digest", EmptyDigestPolicy.TRENDING: "trending papers"}
    yield "if none match", on_empty[chosen.when_empty]
    yield "updates on earlier papers", "yes" if chosen.paper_updates else "no"
    yield "next digest", output.format_time(row.next_due_at)
    yield "added", output.format_time(row.created_at)
    yield "confirmed", output.format_time(row.confirmed_at)
    yield "consent", f"{output.format_time(row.consent_at)}, {row.consent_version or 'none recorded'}"
    if row.ignored_authors:
        yield "ignored authors", "; ".join(row.ignored_authors)
