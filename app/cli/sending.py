"""sending: show the ledger, rates and complaints; pause, resume or cancel sending; resend emails."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

import typer
from sqlmodel import Session

from app import clock, subscribers
from app.bounces import rates
from app.cli import output
from app.delivery import ledger
from app.digests import reconciliation
from app.errors import InvalidInput, NotFound
from app.storage import audit_log
from app.storage.models import SendingPause
from app.subscribers import event_labels
from app.text import dates
from app.text.in_words import count_of, sentence
from app.types import MailKind

sending = output.command_group("Show the state of all emails. Pause, resume or cancel sending.")


def _parse_edition(text: str) -> str:
    """Parse the value of an option or argument that is an edition of digests: a day."""
    if len(text) == len("2026-11-20") and dates.day(text):
        return text
    raise typer.BadParameter(f"“{text}” is not an edition: enter a date, such as 2026-11-20")


_EDITION: Any = {"parser": _parse_edition, "metavar": "EDITION"}
Edition = Annotated[str, typer.Argument(**_EDITION, help="The edition, such as 2026-11-20.")]
OneEdition = Annotated[
    str | None, typer.Option("--edition", **_EDITION, help="An edition, such as 2026-11-20. Default: all.")
]
PausedEdition = Annotated[  # in a pause of 0.1.0, it may be any text
    str | None,
    typer.Option("--edition", metavar="EDITION", help="An edition, such as 2026-11-20. Default: all."),
]
OneDelivery = Annotated[int | None, typer.Argument(help="The delivery's number.")]
AllUncertain = Annotated[
    str | None, typer.Option("--edition", **_EDITION, help="All uncertain digests of this edition.")
]
Reason = Annotated[str, typer.Option("--reason", help="The reason, shown to other operators.")]

_ONE_OPTION = "give either the number of a delivery or --edition"

_KIND_NAMES = {
    MailKind.CONFIRM: "Confirmations",
    MailKind.MANAGE: "Links to preferences",
    MailKind.EXPORT: "Links to download",
    MailKind.ERASE: "Links to erase",
    MailKind.NEW_LINKS: "New links",
    MailKind.ADDRESS: "Changes of address",
}


@sending.command()
def status(edition: OneEdition = None, as_json: output.AsJson = False) -> None:
    """Show the due digests by state, other waiting emails, and all pauses with their reasons.

    If no edition is given, show the digests of yesterday, today and tomorrow, and the totals of all emails.
    """
    now = clock.utcnow()
    with output.open_application(needs_secret=False) as app, app.db.read() as session:
        result = (
            reconciliation.reconcile(session, now, edition)
            if edition
            else reconciliation.reconcile_recent(session, now)
        )
        totals = {} if edition else ledger.totals(session)
        warm_up = ledger.warm_up_status(session, ledger.warm_up_of(app.settings), now)
        pauses, waiting = ledger.pauses(session), [] if edition else ledger.waiting_mails(session)
        is_paused = ledger.is_paused(session)
    others = [mails for mails in waiting if mails.kind is not MailKind.DIGEST]
    if as_json:
        document = {
            "reconciliation": result.as_dict(),
            "others": [mails._asdict() for mails in others],
            "pauses": [pause.model_dump(exclude={"id"}) for pause in pauses],
            "warm_up": {**asdict(warm_up), "waiting": warm_up.waiting} if warm_up else None,
        }
        output.print_json(document if edition else {**document, "deliveries": totals})
        return
    rows = [(name, n) for name, n in result.as_dict().items() if name != "consistent"]
    if totals:
        by_name = {state.value: number for state, number in totals.items()}
        columns = ["state", "digests, 3 days", "all emails"]
        output.table(columns, [(name, n, by_name.get(name, "")) for name, n in rows])
    else:
        output.table(["state", "digests"], rows)
    for name, meaning in reconciliation.MEANINGS.items():
        if result.as_dict()[name]:
            output.out().print(f"{name}: {meaning}", soft_wrap=True)
    if not result.is_consistent:
        output.err().print(f"{result.describe_faults()}: see `paperboy doctor`.")
    for mails in others:
        output.out().print(f"{_KIND_NAMES[mails.kind]}: {describe_waiting([mails], now, is_paused)}")
    if warm_up:
        output.out().print(f"Warm-up of the sending domain: {output.escaped(warm_up.describe())}.")
    print_pauses(pauses)


@sending.command("rates")
def show_rates(
    days: Annotated[int, typer.Option("--days", min=1, max=31, help="The number of UTC days.")] = 7,
    as_json: output.AsJson = False,
) -> None:
    """Show sent emails, bounces and complaints by UTC day and receiver."""
    with output.open_application(needs_secret=False) as app, app.db.read() as session:
        by_day = rates.by_day(session, clock.utcnow(), days)
    rows = [{**asdict(rate), "complaint_percent": round(rate.complaint_percent, 3)} for rate in by_day]
    if as_json:
        output.print_json(rows)
        return
    columns = ("day", "receiver", "sent", "bounces", "complaints", "complaint_percent")
    output.table(columns, [[row[column] for column in columns] for row in rows])


@sending.command("notices")
def show_notices(
    days: Annotated[int, typer.Option("--days", min=1, max=31, help="The number of days.")] = 30,
    limit: Annotated[int, typer.Option(help="The maximum number of notices.", min=1, max=10_000)] = 50,
    as_json: output.AsJson = False,
) -> None:
    """Show complaints, then bounces, each newest first, with the subscribers concerned."""
    with output.open_application(needs_secret=False) as app, app.db.read() as session:
        notices = rates.newest_notices(session, clock.utcnow(), days, limit)
    if as_json:
        output.print_json([asdict(notice) for notice in notices])
        return
    cells = [
        (each.at, event_labels.name_event(each.kind), each.subscriber_id, each.email or "erased", each.detail)
        for each in notices
    ]
    output.table(["time", "event", "number", "address", "notice"], cells)


@sending.command("sample")
def show_sample(
    edition: Annotated[
        str | None, typer.Argument(**_EDITION, help="The edition, such as 2026-11-20.")
    ] = None,
    first_digests: Annotated[
        bool, typer.Option("--first-digests", help="The held first digests of imported subscribers.")
    ] = False,
    size: Annotated[int, typer.Option(help="The number of digests.", min=1, max=50)] = 5,
    as_json: output.AsJson = False,
) -> None:
    """Show some of the waiting digests. Review them before you approve all with `sending resume`."""
    if (edition is None) == (not first_digests):
        raise InvalidInput("give either an edition or --first-digests")
    with output.open_application(needs_secret=False) as app, app.db.read() as session:
        if edition is None:
            _, rows = ledger.draw_held(session, size)
        else:
            rows = ledger.draw_waiting(session, edition, size)
        digests = ledger.restored_digests(session, [row.id for row in rows], app.snapshots)
        emails = {row.id: subscribers.get(session, row.subscriber_id).email for row in rows}
        days = app.settings.retention_days
        reason = "" if rows else _reason_for_no_sample(session, edition, days, clock.utcnow())
    drawn = [(row, digest) for row in rows if (digest := digests.get(row.id or 0))]
    if as_json:
        objects = [
            {
                "delivery_id": row.id, "email": emails[row.id], "due_at": row.due_at,
                **output.digest_object(digest),
            }
            for row, digest in drawn
        ]  # fmt: skip
        output.print_json(objects)
        return
    if not rows:
        output.err().print(output.escaped(reason), soft_wrap=True)
        return
    cells = [
        (row.id, emails[row.id], row.due_at, item.title) for row, digest in drawn for item in digest.picks
    ]
    output.table(["mail", "subscriber", "due", "paper"], cells)


def _reason_for_no_sample(session: Session, edition: str | None, retention_days: int, now: datetime) -> str:
    """Return the reason why no digest of an edition is waiting or, if it is None, no first digest is held."""
    if edition is None and ledger.is_paused(session, ledger.FIRST_DIGESTS):
        preview = "To see the digests before they are due: paperboy send --dry-run --all"
        return f"First digests are held, but none is waiting yet. {preview}."
    if edition is None:
        return "No first digest is held. An import holds the first digests of the subscribers that it adds."
    totals = ledger.digest_totals_by_edition(session, [edition])[edition]
    if held := ledger.count_held(session, edition):
        return f"Only held first digests are waiting ({held}): paperboy sending sample --first-digests"
    if any(totals.values()):
        counts = ", ".join(f"{count} {state}" for state, count in totals.items() if count)
        return f"No digest of the edition {edition} is still waiting: {counts}."
    return sentence(ledger.describe_lack_of_digests(edition, retention_days, now))


@sending.command()
def pause(reason: Reason, edition: OneEdition = None) -> None:
    """Stop sending within about a second. Digests that become due are still composed, but not sent."""
    if not 3 <= len(reason.strip()) <= 500:
        raise InvalidInput("enter a reason of 3 to 500 characters", "reason")
    with output.change() as change:
        if edition:
            ledger.pause_edition(change.session, edition, reason, change.now)
        else:
            ledger.pause(change.session, reason, change.now)
        scope = edition or ledger.ALL_EDITIONS
        change.record(audit_log.SENDING_PAUSED, scope, reason=reason)
    others = "" if edition else " Confirmations and requested links also wait."
    output.out().print(f"{_named(scope)} is paused.{others}")


@sending.command()
def hold(edition: Edition) -> None:
    """Hold an upcoming edition until an operator approves it with `paperboy sending resume --edition`."""
    with output.change() as change:
        ledger.hold(change.session, edition, change.now)
        change.record("edition.hold", edition)
    output.out().print(f"{_named(edition)} will wait for approval.")


@sending.command()
def resume(
    edition: PausedEdition = None,
    first_digests: Annotated[
        bool, typer.Option("--first-digests", help="Send the held first digests of imported subscribers.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Resume even if the database was moved.")] = False,
) -> None:
    """Resume sending, or approve an edition. An edition that was paused separately remains paused."""
    if first_digests and edition is not None:
        raise InvalidInput("give either --edition or --first-digests, not both")
    with output.change() as change:
        scope = ledger.ALL_EDITIONS if edition is None else edition
        scope = ledger.FIRST_DIGESTS if first_digests else scope
        reason = ledger.lock_pause(change.session, scope)
        if not ledger.resume(change.session, change.now, scope, force=force):
            if edition is not None:
                _parse_edition(edition)
            raise NotFound(f"{_named(scope).lower()} is not paused")
        still_paused = ledger.is_paused(change.session)
        change.record(audit_log.SENDING_RESUMED, scope)
    times = (
        "A running service sends emails within a minute after they are due, and deferred ones at their next "
        "attempt"
    )
    times = "Its emails wait until all sending is resumed, too" if still_paused else times
    output.out().print(f"{_named(scope)} is resumed. {times}.", soft_wrap=True)
    output.out().print(f"The reason for the pause was: {output.escaped(reason)}.", soft_wrap=True)


@sending.command()
def cancel(edition: Edition) -> None:
    """Cancel all unsent emails of an edition. Emails that are being sent right now may still arrive."""
    with output.change() as change:
        if not any(ledger.digest_totals_by_edition(change.session, [edition])[edition].values()):
            raise NotFound(
                ledger.describe_lack_of_digests(edition, change.app.settings.retention_days, change.now)
            )
        ended = ledger.cancel(change.session, edition)
        change.record("edition.cancel", edition, ended=ended)
    output.out().print(f"{count_of(ended, 'email')} of the edition {output.escaped(edition)} cancelled.")


@sending.command()
def resend(delivery: OneDelivery = None, edition: AllUncertain = None) -> None:
    """Resend an uncertain email, or all uncertain emails of an edition.

    They have the same Message-ID and content as before.
    """
    with output.change() as change:
        if edition is not None and delivery is None:
            resent = ledger.resend_uncertain(change.session, edition, change.now)
            change.record("edition.resend_uncertain", edition, resent=resent)
            message = f"Emails that the next run will send again: {resent}."
        elif delivery is not None and edition is None:
            ledger.resend(change.session, delivery, change.now)
            change.record("delivery.resend", delivery)
            message = f"The next run will send delivery {delivery} again."
        else:
            raise InvalidInput(_ONE_OPTION)
    output.out().print(message)


@sending.command()
def arrived(delivery: OneDelivery = None, edition: AllUncertain = None) -> None:
    """Record an uncertain email, or all uncertain emails of an edition, as sent, because they have arrived.

    The recorded emails are not sent again.
    """
    with output.change() as change:
        if edition is not None and delivery is None:
            count = ledger.confirm_uncertain(change.session, edition, change.now)
            change.record("edition.confirm_uncertain", edition, confirmed=count)
        elif delivery is not None and edition is None:
            ledger.confirm_arrival(change.session, delivery, change.now)
            change.record("delivery.confirm_arrival", delivery)
            count = 1
        else:
            raise InvalidInput(_ONE_OPTION)
    output.out().print(f"{count_of(count, 'email')} recorded as sent.")


@sending.command()
def retry(edition: Edition) -> None:
    """Send the failed digests of an edition again, except to subscribers who have a later digest."""
    with output.change() as change:
        retried = ledger.retry_failed(change.session, edition, change.now)
        change.record("edition.retry_failed", edition, retried=retried)
    output.out().print(f"Emails that the next run will send again: {retried}.")
    if not retried:
        output.out().print(
            "A failed digest cannot be sent again if it may have arrived, if its content is no longer "
            "stored, or if its subscriber gets no more digests or has a later one.",
            soft_wrap=True,
        )


def describe_waiting(waiting: Sequence[ledger.WaitingMails], now: datetime, is_paused: bool = False) -> str:
    """Return a text with the number of waiting emails and the time of the next attempt.

    `is_paused` means that all sending is paused.
    """
    count = sum(mails.mails for mails in waiting)
    at = min(mails.next_attempt_at for mails in waiting)
    if is_paused:
        attempt = "none is attempted while sending is paused"
    else:
        attempt = "the next attempt is " + ("due" if at <= now else f"at {output.format_time(at)}")
    return f"{count_of(count, 'email')} {'is' if count == 1 else 'are'} waiting; {attempt}"


def print_pauses(pauses: list[SendingPause]) -> None:
    """Print each pause with its reason and the command that ends it."""
    options = {ledger.ALL_EDITIONS: "", ledger.FIRST_DIGESTS: " --first-digests"}  # of `sending resume`
    for pause in pauses:
        option = options.get(pause.edition, f" --edition {pause.edition}")
        since, reason = output.format_time(pause.since), output.escaped(pause.reason)
        output.err().print(f"{_named(pause.edition)} has been paused since {since}: {reason}", soft_wrap=True)
        fix = f"when the reason no longer applies: paperboy sending resume{output.escaped(option)}"
        if ledger.is_moved(pause):
            fix = "set PAPERBOY_DATABASE_URL to the new database"
        output.err().print(f"  → {fix}", soft_wrap=True)


def _named(edition: str) -> str:
    names = {ledger.ALL_EDITIONS: "Sending", ledger.FIRST_DIGESTS: "Sending of first digests"}
    return names.get(edition) or f"The edition {output.escaped(edition)}"
