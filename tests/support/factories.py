"""Insert rows for tests that start with papers and subscribers."""

from datetime import date, datetime, timedelta
from typing import Any

from sqlmodel import Session, col, select, update

from app import subscribers
from app.application import Application
from app.delivery import ledger
from app.papers.picture_encoding import encode_small
from app.papers.title_normalization import title_end, title_key
from app.settings import Settings
from app.storage.inserts import insert_or_ignore
from app.storage.models import (
    Delivery,
    DeliveryState,
    InterestQuery,
    InterestRow,
    Listing,
    Paper,
    PaperPicture,
    Source,
    Subscriber,
    SubscriberState,
    VoteCount,
)
from app.subscribers import SignUp, stored_interests
from app.types import Cadence, Digest, SourceKind
from tests.support import pictures

CONFIRMABLE = timedelta(days=Settings.model_fields["confirm_link_days"].default)


def add_source(session: Session, now: datetime, name: str = "Hugging Face Daily Papers") -> Source:
    """Insert a source that was never polled."""
    row = Source(name=name, kind=SourceKind.HUGGINGFACE, created_at=now)
    session.add(row)
    session.flush()
    return row


def add_paper(
    session: Session, of: Source, title: str, listed_on: date, now: datetime, upvotes: int = 10, **fields: Any
) -> int:
    """Insert a paper with a listing and a vote count, and return its id."""
    row = Paper(
        title=title,
        title_key=title_key(title),
        title_end=title_end(title_key(title)),
        content_hash="",
        first_listed_on=listed_on,
        last_listed_on=listed_on,
        created_at=now,
        updated_at=now,
        **fields,
    )
    session.add(row)
    session.flush()
    at = {"paper_id": row.id, "original_paper_id": row.id, "source_id": of.id}
    session.add(Listing(**at, listed_on=listed_on))
    session.add(VoteCount(**at, at=now, upvotes=upvotes))
    session.flush()
    return row.id or 0


def add_picture(
    session: Session, paper_id: int, now: datetime, url: str = "https://cdn.test/uploads/a.png"
) -> bytes:
    """Insert a fetched picture of a paper, and return its bytes."""
    encoded = encode_small(pictures.encode(pictures.draw_figure()))
    session.get_one(Paper, paper_id).thumbnail_url = url
    session.add(
        PaperPicture(
            paper_id=paper_id, url=url, media_type="image/webp", version="1f", width=encoded.width,
            height=encoded.height, fetched_at=now, data=encoded.data,
        )
    )  # fmt: skip
    session.flush()
    return encoded.data


def add_unlisted_papers(session: Session, count: int, now: datetime, first: int = 0) -> None:
    """Insert papers without listings, for training a model. Each has "zebrafish" in its title."""
    for number in range(first, first + count):
        title = f"Zebrafish number {number}"
        session.add(Paper(title=title, title_key=title, content_hash="", created_at=now, updated_at=now))
    session.flush()


def load_digest(app: Application, delivery: Delivery) -> Digest:
    """Return the stored digest of a delivery."""
    with app.db.read() as session:
        stored = ledger.stored_digests(session, [delivery.id])
        return app.snapshots.restore(session, list(stored.values()))[0].digest


def record_sent(app: Application) -> None:
    """Record all waiting emails as sent, without a relay."""
    with app.db.write() as session:
        waiting = update(Delivery).where(col(Delivery.state) == DeliveryState.PENDING)
        session.execute(waiting.values(state=DeliveryState.SENT, next_attempt_at=None))


def add_subscriber(
    session: Session, email: str, interests: list[str], next_due_at: datetime, **fields: Any
) -> int:
    """Insert an active daily subscriber (08:00 UTC) and return the id."""
    values = {"state": SubscriberState.ACTIVE, "cadence": Cadence.DAILY, "hour": 8, "zone": "UTC"} | fields
    row = Subscriber(
        email=email, next_due_at=next_due_at, created_at=next_due_at, confirmed_at=next_due_at, **values
    )
    session.add(row)
    session.flush()
    for position, text in enumerate(interests):
        insert_or_ignore(session, InterestQuery, ["text"], text=text)
        query = session.exec(select(InterestQuery).where(InterestQuery.text == text)).one()
        session.add(InterestRow(subscriber_id=row.id, query_id=query.id, position=position))
    session.flush()
    stored_interests.note_newest(session, [row.id or 0])
    return row.id or 0


def sign_up(session: Session, form: SignUp, visitor: str, now: datetime) -> int | None:
    """Store and process a sign-up. Return the id of the email, or None if none is sent."""
    request_id = subscribers.request_sign_up(session, form, visitor, now)
    return subscribers.process(session, request_id, now, CONFIRMABLE)
