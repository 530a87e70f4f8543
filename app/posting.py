"""The posting of mails: what the ledger gives out is written, handed to the relay, and its end recorded."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Collection
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from time import monotonic

from app import deliver, leases, message, smtp
from app.errors import DeliveryError
from app.models import Delivery, Subscriber
from app.parts import App
from app.records import Answer, Digest, Outgoing, Verdict


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
    return [_write_letter(app, delivery, reader) for delivery, reader in shard.letters]


def _write_letter(app: App, delivery: Delivery, reader: Subscriber) -> _Letter:
    """One broken mail must not stop the others: it waits for the fault to be mended, while there is time."""
    assert delivery.id is not None  # noqa: S101 - it comes from the ledger
    domain = app.settings.mail_domain
    envelope = message.Envelope(
        delivery_id=delivery.id,
        message_id=delivery.message_id or app.signer.message_id(delivery.id, domain),
        return_path=app.signer.return_path(delivery.id, domain),
        from_name=app.settings.site_name,
        from_address=app.settings.from_address,
        to_address=reader.email,
        date=delivery.created_at,
    )
    try:
        mail = app.renderer.render(delivery, reader)
        return _Letter(delivery.id, message.compose(mail, envelope), mail.left_out)
    except Exception as error:
        lasting = isinstance(error, DeliveryError) and error.permanent
        verdict = Verdict.UNSENDABLE if lasting else Verdict.DEFERRED
        return _Letter(delivery.id, Answer(verdict, None, f"this mail cannot be made: {error!s:.300}"))


async def _hand_over(relay: smtp.Relay, ledger: deliver.Ledger, letter: _Letter) -> str:
    answer = letter.content
    if isinstance(answer, Outgoing):
        answer = await relay.send(answer, ledger.commit)
    return await ledger.record(letter.delivery_id, answer) or "taken over"


def specimen(digest: Digest, to: str, domain: str, now: datetime) -> tuple[Delivery, Subscriber]:
    """A mail outside of the ledger. Its links grant nothing, for nobody is reader 0."""
    delivery = Delivery(
        id=0,
        subscriber_id=0,
        edition=digest.edition,
        digest=asdict(digest),
        message_id=f"<test-{uuid.uuid4().hex}@{domain}>",
        due_at=now,
        created_at=now,
    )
    return delivery, Subscriber(id=0, email=to, created_at=now)


async def post_test(app: App, digest: Digest, to: str, now: datetime) -> Answer:
    """Send a digest outside of the ledger; what the relay answered."""
    content = _write_letter(app, *specimen(digest, to, app.settings.mail_domain, now)).content
    return content if isinstance(content, Answer) else await _send_unbooked(app, content)


async def _send_unbooked(app: App, mail: Outgoing) -> Answer:
    async def commit(_mail: Outgoing) -> bool:
        return True  # there is no row in the ledger to mark

    async with smtp.Relay(app.settings) as relay:
        return await relay.send(mail, commit)
