"""sending: what leaves and what does not, and the operator's hand on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from app import clock
from app.cli import output
from app.delivery import ledger
from app.digests import reconciliation
from app.errors import NotFound
from app.storage import audit_log
from app.storage.models import DeliveryState, SendingPause
from app.types import MailKind

sending = typer.Typer(no_args_is_help=True, help="What leaves and what does not; pause, resume, cancel.")

Which = Annotated[str, typer.Option("--edition", help="One edition, as 2026-11-20; otherwise all.")]
Why = Annotated[str, typer.Option("--reason", help="For whoever finds it paused.")]

_NAMES = {
    MailKind.CONFIRM: "Confirmations",
    MailKind.MANAGE: "Links to preferences",
    MailKind.EXPORT: "Links to download",
    MailKind.ERASE: "Links to erase",
    MailKind.NEW_LINKS: "New links",
}


@sending.command()
def status(edition: Which = "", as_json: output.AsJson = False) -> None:
    """How many digests were due and what became of them, what else waits, and what is paused, and why.

    Without an edition: the digests of yesterday, today and tomorrow, and beside them all mails.
    """
    now = clock.utcnow()
    with output.open_application(needs_secret=False) as app, app.db.read() as session:
        balance = (
            reconciliation.reconcile(session, now, edition)
            if edition
            else reconciliation.reconcile_recent(session, now)
        )
        mails = {} if edition else ledger.totals(session)
        pauses, waiting = ledger.pauses(session), [] if edition else ledger.waiting_mails(session)
    others = [each for each in waiting if each.kind is not MailKind.DIGEST]
    if as_json:
        shown = [pause.model_dump(exclude={"id"}) for pause in pauses]
        rest = [each._asdict() for each in others]
        said = {"balance": balance.as_dict(), "others": rest, "pauses": shown}
        output.print_json(said if edition else {**said, "deliveries": mails})
        return
    _say_balance(balance, mails)
    for each in others:
        output.out().print(f"{_NAMES[each.kind]}: {say_waiting([each])}")
    say_paused(pauses)


@sending.command()
def pause(reason: Why, edition: Which = ledger.ALL_EDITIONS) -> None:
    """Let no mail leave from about this second on. What is due is composed and waits."""
    now = clock.utcnow()
    with output.open_application(needs_secret=False) as app, app.db.write() as session:
        ledger.pause(session, reason, now, edition)
        audit_log.record(session, output.ACTOR, "sending.pause", edition, now, reason=reason)
    output.out().print(f"{_named(edition)} is paused.")


@sending.command()
def resume(edition: Which = ledger.ALL_EDITIONS) -> None:
    """Let mails leave again. An edition that was paused by itself stays so."""
    now = clock.utcnow()
    with output.open_application(needs_secret=False) as app, app.db.write() as session:
        if not ledger.resume(session, edition):
            raise NotFound(f"{_named(edition).lower()} is not paused")
        audit_log.record(session, output.ACTOR, "sending.resume", edition, now)
    output.out().print(f"{_named(edition)} goes on.")


@sending.command()
def cancel(edition: Annotated[str, typer.Argument(help="The edition, as 2026-11-20.")]) -> None:
    """End every mail of an edition that has not left. What is in flight gets its answer."""
    now = clock.utcnow()
    with output.open_application(needs_secret=False) as app, app.db.write() as session:
        if not any(ledger.digest_totals_by_edition(session, [edition])[edition].values()):
            raise NotFound(f"no digest of the edition {edition} was ever due")
        ended = ledger.cancel(session, edition)
        audit_log.record(session, output.ACTOR, "edition.cancel", edition, now, ended=ended)
    mails = "mail" if ended == 1 else "mails"
    output.out().print(f"{ended} {mails} of the edition {output.escaped(edition)} cancelled.")


@sending.command()
def release(delivery: Annotated[int, typer.Argument(help="The delivery's number.")]) -> None:
    """Send a mail of unknown fate that is held once more, with the same name and the same bytes."""
    now = clock.utcnow()
    with output.open_application(needs_secret=False) as app, app.db.write() as session:
        ledger.resend(session, delivery, now)
        audit_log.record(session, output.ACTOR, "delivery.release", delivery, now)
    output.out().print(f"Delivery {delivery} leaves with the next run.")


def _say_balance(balance: reconciliation.Reconciliation, mails: Mapping[DeliveryState, int]) -> None:
    """Print a line for each state, beside it all mails in that state where they are given."""
    rows = [(name, n) for name, n in balance.as_dict().items() if name != "holds"]
    if mails:
        in_all = {state.value: number for state, number in mails.items()}
        output.table(["state", "these days", "in all"], [(name, n, in_all.get(name, "")) for name, n in rows])
    else:
        output.table(["state", "how many"], rows)
    if not balance.holds:
        output.err().print(f"{balance.describe_faults()}: see `paperboy doctor`.")


def say_waiting(waiting: Sequence[ledger.WaitingMails]) -> str:
    """How many mails wait, and when they are tried."""
    mails, first = sum(each.mails for each in waiting), min(each.next_attempt_at for each in waiting)
    at = output.moment(first)
    return (
        f"1 mail waits, to be tried at {at}"
        if mails == 1
        else f"{mails} mails wait, to be tried from {at} on"
    )


def say_paused(pauses: list[SendingPause]) -> None:
    """Each pause and its reason, and how it ends."""
    for each in pauses:
        only = "" if each.edition == ledger.ALL_EDITIONS else f" --edition {output.escaped(each.edition)}"
        since, why = output.moment(each.since), output.escaped(each.reason)
        output.err().print(f"{_named(each.edition)} is paused since {since}: {why}", soft_wrap=True)
        output.err().print(f"  → when the reason is gone: paperboy sending resume{only}", soft_wrap=True)


def _named(edition: str) -> str:
    everything = edition == ledger.ALL_EDITIONS
    return "Sending" if everything else f"The edition {output.escaped(edition)}"
