"""The posting of mails: what the ledger gives out is written, handed to the relay, and its end recorded."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import monotonic

from sqlmodel import Session

from app import deliver, leases, smtp
from app.errors import DeliveryError
from app.models import Delivery, Subscriber
from app.parts import App
from app.records import Answer, Digest, Letter, MailKind, Outgoing, Verdict


async def post(app: App, now: datetime, ids: Collection[int] | None) -> Counter[str]:
    """Take shards from the ledger until nothing may leave; how many mails ended in which state."""
    started = monotonic()
    ledger = deliver.Ledger(
        app.db,
        owner=leases.new_holder(),
        policy=app.settings.uncertain,
        clock=lambda: now + timedelta(seconds=monotonic() - started),
    )
    counts: Counter[str] = Counter()
    async with smtp.Relay(app.settings) as relay:
        while not relay.stopped and (shard := await ledger.claim(ids)):
            counts.update(shard.ended)
            letters = await asyncio.to_thread(_write_letters, app, shard)
            counts.update(cards_left_out=sum(letter.cards_left_out for letter in letters))
            sending = [_hand_over(relay, ledger, letter) for letter in letters]
            # All are waited for, whatever one of them raises: a mail in flight wants its answer.
            states = await asyncio.gather(*sending, return_exceptions=True)
            for state in states:
                if isinstance(state, BaseException):
                    raise state
                counts[state] += 1
    return +counts


@dataclass(frozen=True)
class _Letter:
    """A claimed delivery, written out, or the answer why it could not be."""

    delivery_id: int
    content: Outgoing | Answer
    cards_left_out: int = 0


def _write_letters(app: App, shard: deliver.Shard) -> list[_Letter]:
    with app.db.read() as session:
        letters = [letter(app, session, delivery, reader) for delivery, reader in shard.letters]
    return [_write_letter(app, each) for each in letters]


def letter(app: App, session: Session, delivery: Delivery, reader: Subscriber) -> Letter:
    """What a delivery says, as it was composed."""
    (restored,) = app.cards.restore(session, [delivery.digest])
    return Letter(
        delivery_id=delivery.id or 0,
        kind=delivery.kind,
        edition=delivery.edition,
        subscriber_id=delivery.subscriber_id,
        email=reader.email,
        link_epoch=reader.link_epoch,
        issued_at=delivery.created_at,
        digest=restored.digest if delivery.kind is MailKind.DIGEST else None,
        message_id=delivery.message_id,
        unreadable=restored.unreadable,
        signature=delivery.signature,
        signed_as=delivery.signed_as,
    )


def _write_letter(app: App, letter: Letter) -> _Letter:
    """One broken mail must not stop the others: it waits for the fault to be mended, while there is time."""
    try:
        draft = app.composer.draft(letter)
        return _Letter(letter.delivery_id, app.composer.seal(draft), draft.left_out)
    except Exception as error:
        lasting = isinstance(error, DeliveryError) and error.permanent
        verdict = Verdict.UNSENDABLE if lasting else Verdict.DEFERRED
        return _Letter(letter.delivery_id, Answer(verdict, None, f"this mail cannot be made: {error!s:.300}"))


async def _hand_over(relay: smtp.Relay, ledger: deliver.Ledger, letter: _Letter) -> str:
    answer = letter.content
    if isinstance(answer, Outgoing):
        answer = await relay.send(answer, ledger.commit)
    return await ledger.record(letter.delivery_id, answer) or "taken over"


def specimen(digest: Digest, to: str, domain: str, now: datetime) -> Letter:
    """A mail outside of the ledger. Its links grant nothing, for nobody is reader 0."""
    return Letter(
        delivery_id=0,
        kind=MailKind.DIGEST,
        edition=digest.edition,
        subscriber_id=0,
        email=to,
        link_epoch=0,
        issued_at=now,
        digest=digest,
        message_id=f"<test-{uuid.uuid4().hex}@{domain}>",
    )


async def post_test(app: App, digest: Digest, to: str, now: datetime) -> Answer:
    """Send a digest outside of the ledger; what the relay answered."""
    content = _write_letter(app, specimen(digest, to, app.settings.mail_domain, now)).content
    return content if isinstance(content, Answer) else await _send_unbooked(app, content)


async def _send_unbooked(app: App, mail: Outgoing) -> Answer:
    async def commit(_mail: Outgoing) -> bool:
        return True  # there is no row in the ledger to mark

    async with smtp.Relay(app.settings) as relay:
        return await relay.send(mail, commit)
