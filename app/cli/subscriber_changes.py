"""subscribers set, pause, resume, unsubscribe, erase, delete-feedback, new-links: change one subscriber."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time
from typing import Annotated, Any

import typer
from sqlmodel import Session

from app import clock, pipeline, subscribers
from app.cli import output, sending
from app.delivery import ledger
from app.doctor import relay
from app.errors import InvalidInput
from app.relevance.query_language import comparison_key
from app.storage import audit_log
from app.storage.models import Delivery, DeliveryState, Subscriber
from app.types import Cadence, EmptyDigestPolicy, Interest

group = typer.Typer()

WhenEmpty = Annotated[
    EmptyDigestPolicy | None,
    typer.Option(case_sensitive=False, help="Skip the digest or send trending papers if no papers match."),
]
PaperUpdates = Annotated[
    bool | None, typer.Option(help="Report in digests when earlier papers are withdrawn or get code.")
]
NewAddress = Annotated[
    str | None, typer.Option(help="A new address. Links to confirm it are sent to both addresses.")
]
Interests = Annotated[
    list[str] | None,
    typer.Option(
        help="An interest (repeatable). Replaces all current interests. Those that stay keep their weight "
        "and their maximum number of papers."
    ),
]
MutedQueries = Annotated[
    list[str] | None,
    typer.Option(help='A muted query (repeatable). Replaces all muted queries. To remove them all, give "".'),
]
IsConfirmed = Annotated[
    bool, typer.Option("--email-confirmed", help="The owner confirmed the address elsewhere: use it at once.")
]
_ADDRESS_AFTER_ERASURE = "The address gets no more mail, and nobody can sign up with it."
SubscriberName = Annotated[str, typer.Argument(help="The subscriber's address or number.")]


@group.command("set")
def set_preferences(
    subscriber: SubscriberName,
    interest: Interests = None,
    cadence: Annotated[Cadence | None, output.CADENCE] = None,
    weekday: Annotated[int | None, output.WEEKDAY] = None,
    hour: Annotated[int | None, output.HOUR] = None,
    zone: Annotated[str | None, typer.Option(help="The time zone, such as Europe/Berlin.")] = None,
    min_papers: Annotated[int | None, typer.Option(help="The minimum number of papers.")] = None,
    max_papers: Annotated[int | None, typer.Option(help="The maximum number of papers.")] = None,
    when_empty: WhenEmpty = None,
    max_trending: output.MaxTrending = None,
    paper_updates: PaperUpdates = None,
    mute: MutedQueries = None,
    email: NewAddress = None,
    email_confirmed: IsConfirmed = False,
) -> None:
    """Change a subscriber's preferences or address. Omitted options change nothing."""
    options: dict[str, Any] = {
        "cadence": cadence, "weekday": weekday, "hour": hour, "zone": zone, "min_papers": min_papers,
        "max_papers": max_papers, "when_empty": when_empty, "max_trending": max_trending,
        "paper_updates": paper_updates, "muted": tuple(filter(None, mute)) if mute else None,
        "interests": interest or None,
    }  # fmt: skip
    chosen = {name: value for name, value in options.items() if value is not None}
    if not chosen and email is None:
        raise InvalidInput("nothing to change: give at least one option")
    now = clock.utcnow()
    with output.open_application() as app:
        with app.db.write() as session:
            row = subscribers.find(session, subscriber)
            if chosen:
                row = _change_preferences(session, row, chosen, now)
            mail = _change_address(session, row, email, now, email_confirmed) if email is not None else None
        if mail is not None:
            pipeline.send_now(app, now, [mail])
    if chosen or email_confirmed:
        at = row.next_due_at
        due = f"The next digest is due at {output.format_time(at)}." if at else f"Their state is {row.state}."
        output.out().print(f"Changed {output.escaped(row.email)}. {due}")
    if email is not None and not email_confirmed:
        output.out().print("The change takes effect once it has been confirmed from both mailboxes.")


def _change_preferences(
    session: Session, row: Subscriber, chosen: dict[str, Any], now: datetime
) -> Subscriber:
    """Change the preferences. An interest that stays keeps its weight and quota."""
    before = subscribers.preferences_of(session, row)
    if texts := chosen.get("interests"):
        chosen = chosen | {"interests": _with_current_settings(texts, before.interests)}
    subscriber = subscribers.change(session, row.id or 0, replace(before, **chosen), now)
    if changed := subscribers.changed_fields(before, subscribers.preferences_of(session, subscriber)):
        audit_log.record(session, output.ACTOR, "subscriber.change", row.id, now, changed=changed)
    return subscriber


def _with_current_settings(texts: Sequence[str], current: Sequence[Interest]) -> tuple[Interest, ...]:
    """Return interests with these texts, with the weights and quotas of the current interests.

    A current interest whose letter case changes gives its settings to the new text if no other has that text.
    """
    by_key = {comparison_key(each.text): each for each in current}
    removed = by_key.keys() - {*map(comparison_key, texts)}
    interests = list[Interest]()
    for text in texts:
        key = comparison_key(text)
        same = [by_key[key]] if key in by_key else [by_key[other] for other in removed if other[0] == key[0]]
        interests.append(replace(same[0] if len(same) == 1 else Interest(text), text=text))
    return tuple(interests)


def _change_address(
    session: Session, row: Subscriber, email: str, now: datetime, confirmed: bool
) -> int | None:
    """Change the address if it is confirmed. Otherwise, return the id of the email to the old address."""
    if confirmed:
        subscribers.replace_address(session, row.id or 0, email, now)
        audit_log.record(session, output.ACTOR, "subscriber.replace_address", row.id, now)
        return None
    mail = subscribers.request_change_by_operator(session, row.id or 0, email, now)
    audit_log.record(session, output.ACTOR, "subscriber.request_address", row.id, now)
    return mail


@group.command()
def pause(
    subscriber: SubscriberName,
    until: Annotated[
        date | None, output.day_option("--until", "The day, in UTC, on which digests resume.")
    ] = None,
) -> None:
    """Pause a subscriber's digests, until a day or until the subscriber resumes them."""
    end = datetime.combine(until, time(), UTC) if until else None
    with output.change() as change:
        subscriber_id = subscribers.find(change.session, subscriber).id or 0
        row = subscribers.pause(change.session, subscriber_id, end, change.now)
        change.record("subscriber.pause", row.id)
    lasts = f"until {end:%Y-%m-%d}" if end else "until they resume"
    output.out().print(f"The digests of {output.escaped(row.email)} are paused {lasts}.")


@group.command()
def resume(subscriber: SubscriberName) -> None:
    """End a subscriber's pause."""
    with output.change() as change:
        subscriber_id = subscribers.find(change.session, subscriber).id or 0
        row = subscribers.resume(change.session, subscriber_id, change.now)
        change.record("subscriber.resume", row.id)
    due = output.format_time(row.next_due_at)
    output.out().print(f"{output.escaped(row.email)} is {row.state}. The next digest is due at {due}.")


@group.command()
def unsubscribe(subscriber: SubscriberName) -> None:
    """Unsubscribe a subscriber. They can sign up again themselves."""
    with output.change() as change:
        subscriber_id = subscribers.find(change.session, subscriber).id or 0
        row = subscribers.unsubscribe(change.session, subscriber_id, change.now)
        change.record("subscriber.unsubscribe", row.id)
    output.out().print(f"{output.escaped(row.email)} is unsubscribed.")


@group.command()
def erase(
    subscriber: SubscriberName,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Erase everything about a subscriber except a hash of the address.

    Because of the hash, the address gets no more mail, and nobody can sign up with it until you run
    `paperboy suppressions lift`.
    """
    now = clock.utcnow()
    with output.open_application(needs_secret=False) as app:
        with app.db.read() as session:
            row = subscribers.find(session, subscriber)
        email = output.escaped(row.email)
        if not yes:
            typer.confirm(f"Erase {email}? {_ADDRESS_AFTER_ERASURE} This cannot be undone.", abort=True)
        with app.db.write() as session:
            subscribers.erase(session, row.id or 0, now)
            audit_log.record(session, output.ACTOR, "subscriber.erase", row.id, now)
    output.out().print(f"Erased subscriber {row.id}, {email}. {_ADDRESS_AFTER_ERASURE}", soft_wrap=True)


@group.command()
def delete_feedback(subscriber: SubscriberName) -> None:
    """Delete a subscriber's feedback and the papers that they pasted."""
    with output.change() as change:
        row = subscribers.find(change.session, subscriber)
        subscribers.forget_feedback(change.session, row.id or 0)
        change.record("subscriber.delete_feedback", row.id)
    output.out().print(f"Deleted the feedback of {output.escaped(row.email)}.")


@group.command("new-links")
def new_links(subscriber: SubscriberName) -> None:
    """Invalidate all links that were sent to a subscriber, and send new ones.

    The unsubscribe links in earlier emails still work. You can do this once an hour per subscriber. If
    no mail can be sent now, the old links stay valid.
    """
    now = clock.utcnow()
    with output.open_application() as app:
        with app.db.read() as session:
            row = subscribers.find(session, subscriber)
            subscribers.require_new_links(session, row, now)
        relay.require_sending(app.db, app.settings, now)
        with app.db.write() as session:
            delivery_id = subscribers.new_links(session, row.id or 0, now)
            audit_log.record(session, output.ACTOR, "subscriber.new-links", row.id, now)
        pipeline.send_now(app, now, [delivery_id])
        with app.db.read() as session:
            mail = session.get_one(Delivery, delivery_id)
            pauses = ledger.pauses(session)
    name = output.escaped(row.email)
    if mail.state is DeliveryState.SENT:
        output.out().print(f"The old links of {name} no longer work. The new ones were sent.", soft_wrap=True)
        return
    reason, retry = output.escaped(mail.reason or mail.smtp_text), ""
    if ledger.hold_reason(pauses, mail):
        retry = "It is held until sending resumes."
    elif mail.next_attempt_at:
        retry = f"The next attempt is at {output.format_time(mail.next_attempt_at)}."
    output.out().print(
        f"The old links of {name} no longer work. The email with the new ones was not sent"
        f"{reason and f' ({reason})'}. {retry}".rstrip(),
        soft_wrap=True,
    )
    sending.print_pauses(pauses)
    raise typer.Exit(1)
