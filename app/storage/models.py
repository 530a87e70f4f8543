"""The tables, in the order in which data flows through them.

Source → Paper (+ Listing, VoteCount, GeneratedSummary, Merge) → TrainedModel → Subscriber, FormSubmission,
InterestRow → PaperSnapshot, Delivery → Event, Suppression.
"""

from __future__ import annotations

import re
from datetime import date, datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import JSON, Index, LargeBinary, Text, UniqueConstraint, text
from sqlalchemy.orm import declared_attr
from sqlmodel import Field, SQLModel

from app.storage.database import BigId, UtcDateTime, enum_type
from app.types import Cadence, EmptyDigestPolicy, MailKind, SourceKind

SQLModel.metadata.naming_convention = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


def _partial_index(name: str, condition: str, *columns: str) -> Index:
    """Return an index of the few rows that meet a condition."""
    return Index(name, *columns, sqlite_where=text(condition), postgresql_where=text(condition))


class Row(SQLModel):
    """A row of a table that is named like its class: `digest_content` for `DigestContent`."""

    @declared_attr.directive
    def __tablename__(cls) -> str:  # noqa: N805
        return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower().removesuffix("_row")


class SubscriberState(StrEnum):
    PENDING = "pending"
    ACTIVE = "active"
    PAUSED = "paused"
    UNSUBSCRIBED = "unsubscribed"
    BOUNCING = "bouncing"
    ERASED = "erased"


class RequestKind(StrEnum):
    SIGN_UP = "sign_up"
    LINK = "link"  # to one's preferences


class DeliveryState(StrEnum):
    PENDING = "pending"
    CLAIMED = "claimed"
    COMMITTING = "committing"
    SENT = "sent"
    DEFERRED = "deferred"
    FAILED = "failed"
    SUPPRESSED = "suppressed"
    UNCERTAIN = "uncertain"
    SKIPPED = "skipped"


class Scope(StrEnum):
    READ = "read"
    WRITE = "write"
    SEND = "send"
    BOUNCES = "bounces"  # a relay's webhook: it may tell of bounces, and nothing else


class Source(Row, table=True):
    """An upstream that is polled, or a name under which files were read."""

    id: int | None = Field(default=None, primary_key=True)
    name: str = Field(unique=True, max_length=100)
    kind: SourceKind = Field(sa_type=enum_type(SourceKind))
    config: dict[str, Any] = Field(default_factory=dict, sa_type=JSON)
    paused: bool = False
    etag: str | None = None
    last_modified: str | None = None
    watermark: date | None = None  # the last day that was read to its end
    next_poll_at: datetime | None = Field(default=None, sa_type=UtcDateTime, index=True)
    polled_at: datetime | None = Field(default=None, sa_type=UtcDateTime)  # the last poll that worked
    failures: int = 0  # in a row
    last_error: str | None = Field(default=None, sa_type=Text)
    created_at: datetime = Field(sa_type=UtcDateTime)


class Paper(Row, table=True):
    """A paper as one source names it. Where two rows proved to be one paper, `merged_into_id` says so."""

    id: int | None = Field(default=None, primary_key=True)
    arxiv_id: str | None = Field(default=None, unique=True, max_length=40)  # without version
    doi: str | None = Field(default=None, unique=True, max_length=300)  # lower case
    title: str = Field(sa_type=Text)
    title_key: str = Field(index=True, max_length=1000)
    abstract: str = Field(default="", sa_type=Text)
    authors: list[str] = Field(default_factory=list, sa_type=JSON)
    author_count: int = 0  # the true count; `authors` may be shorter
    categories: list[str] = Field(default_factory=list, sa_type=JSON)
    keywords: list[str] = Field(default_factory=list, sa_type=JSON)
    tldr: str = Field(default="", sa_type=Text)
    published_on: date | None = None
    url: str = Field(default="", sa_type=Text)  # the abstract's page
    pdf_url: str = Field(default="", sa_type=Text)
    code_url: str = Field(default="", sa_type=Text)
    project_url: str = Field(default="", sa_type=Text)
    thumbnail_url: str = Field(default="", sa_type=Text)
    withdrawn_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    content_hash: str = Field(max_length=64)
    # As of when, and from which kind of source, each field is: an older record never overwrites a newer
    # one, in whatever order they come (see dedupe.fold).
    versions: dict[str, str] = Field(default_factory=dict, sa_type=JSON)
    merged_into_id: int | None = Field(default=None, foreign_key="paper.id", index=True)
    first_listed_on: date | None = Field(default=None, index=True)
    last_listed_on: date | None = Field(default=None, index=True)
    created_at: datetime = Field(sa_type=UtcDateTime)
    updated_at: datetime = Field(sa_type=UtcDateTime)


class Listing(Row, table=True):
    """A source showed a paper on a day."""

    __table_args__ = (UniqueConstraint("original_paper_id", "source_id", "listed_on"),)

    id: int | None = Field(default=None, primary_key=True, sa_type=BigId)
    paper_id: int = Field(foreign_key="paper.id", index=True)
    original_paper_id: int = Field(
        foreign_key="paper.id"
    )  # the row before merging: what an undone merge takes back
    source_id: int = Field(foreign_key="source.id")
    listed_on: date = Field(index=True)
    rank: int | None = None
    submitted_by: str = ""


class VoteCount(Row, table=True):
    """What readers of a source thought of a paper, from `at` on: a row is added when figures change."""

    __table_args__ = (UniqueConstraint("original_paper_id", "source_id", "at"),)

    id: int | None = Field(default=None, primary_key=True, sa_type=BigId)
    paper_id: int = Field(foreign_key="paper.id", index=True)
    original_paper_id: int = Field(foreign_key="paper.id")
    source_id: int = Field(foreign_key="source.id")
    at: datetime = Field(sa_type=UtcDateTime)
    upvotes: int = 0
    comments: int = 0
    stars: int = 0


class GeneratedSummary(Row, table=True):
    """What a language model wrote of a paper that no source sums up, or how often it failed to.

    It is kept beside the paper, so that what sources say never mixes with it, and theirs always wins.
    """

    paper_id: int = Field(primary_key=True, foreign_key="paper.id")
    text: str = Field(default="", sa_type=Text)
    model: str = ""
    failures: int = 0
    next_attempt_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    at: datetime = Field(sa_type=UtcDateTime)


class Merge(Row, table=True):
    """Two rows were found to be one paper; `before` lets an operator take it back."""

    id: int | None = Field(default=None, primary_key=True)
    kept_id: int = Field(foreign_key="paper.id", index=True)
    absorbed_id: int = Field(foreign_key="paper.id", index=True)
    reason: str
    before: dict[str, Any] = Field(default_factory=dict, sa_type=JSON)  # the kept row's fields, as they were
    at: datetime = Field(sa_type=UtcDateTime)
    undone_at: datetime | None = Field(default=None, sa_type=UtcDateTime)  # and never merged again


class TrainedModel(Row, table=True):
    """What was learned from the archive. `papers`, `newest_id` and `changed_at` say how it was then."""

    id: int | None = Field(default=None, primary_key=True)
    fitted_at: datetime = Field(sa_type=UtcDateTime)
    papers: int  # in the whole archive, merged ones left out
    newest_id: int  # of a paper
    changed_at: datetime = Field(sa_type=UtcDateTime)  # the last change of any paper
    sha256: str = Field(max_length=64)
    size: int  # bytes
    data: bytes = Field(sa_type=LargeBinary)  # last: a row is read up to here without its pages


class Subscriber(Row, table=True):
    """A reader, their consent and how they want their digest."""

    __table_args__ = (
        Index("ix_subscriber_due", "state", "next_due_at", "id"),  # the order in which shards are planned
        _partial_index("ix_subscriber_paused_until", "paused_until IS NOT NULL", "paused_until"),
    )

    id: int | None = Field(default=None, primary_key=True)
    email: str = Field(unique=True, max_length=320)  # normalised
    state: SubscriberState = Field(default=SubscriberState.PENDING, sa_type=enum_type(SubscriberState))
    cadence: Cadence = Field(default=Cadence.DAILY, sa_type=enum_type(Cadence))
    weekday: int = 0  # of the weekly digest: Monday is 0
    hour: int = 8  # local
    zone: str = Field(default="UTC", max_length=64)
    min_papers: int = 1
    max_papers: int = 10
    when_empty: EmptyDigestPolicy = Field(
        default=EmptyDigestPolicy.SKIP, sa_type=enum_type(EmptyDigestPolicy)
    )
    beyond: int = 0  # at most so many papers a digest that trend beyond the interests
    muted: list[str] = Field(default_factory=list, sa_type=JSON)  # what keeps a paper out of every section
    # Who wrote what they like, and is not liked for it.
    ignored_authors: list[str] = Field(default_factory=list, sa_type=JSON)
    next_due_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    # From when on state and cadence are as they are now: the first due moment, or the beginning of the pause.
    # Planning never changes it, so the ledger can be checked against it.
    due_since: datetime | None = Field(default=None, sa_type=UtcDateTime)
    paused_until: datetime | None = Field(default=None, sa_type=UtcDateTime)
    link_epoch: int = 0  # raised to revoke every link sent so far
    consent_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    consent_version: str = ""
    consent_ip: str = ""
    created_at: datetime = Field(sa_type=UtcDateTime)
    confirmed_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    ended_at: datetime | None = Field(default=None, sa_type=UtcDateTime)  # unsubscribed, bouncing or erased


class FormSubmission(Row, table=True):
    """A form that asks for mail to an address: a sign-up, or a request for the link to one's preferences.

    The form stores a row, whatever is known of the address. The row is processed after the response. The
    choices stay apart from the reader's own until the owner of the address confirms them. The mailbox's hash
    and the times outlive them: the limits and the memory of a decline go by these.
    """

    id: int | None = Field(default=None, primary_key=True, sa_type=BigId)
    kind: RequestKind = Field(sa_type=enum_type(RequestKind))
    mailbox: str = Field(index=True, max_length=64)  # hash of the folded address
    email: str = Field(default="", max_length=320)  # until it is processed
    visitor: str = Field(default="", max_length=64)  # until it is processed
    subscriber_id: int | None = Field(default=None, foreign_key="subscriber.id", index=True)  # while open
    delivery_id: int | None = Field(default=None, sa_type=BigId, index=True)  # the mail that answered it
    preferences: dict[str, Any] = Field(default_factory=dict, sa_type=JSON)  # while open
    liked: dict[str, Any] = Field(default_factory=dict, sa_type=JSON)  # pasted papers, while open
    created_at: datetime = Field(sa_type=UtcDateTime, index=True)
    processed_at: datetime | None = Field(default=None, sa_type=UtcDateTime, index=True)
    declined_at: datetime | None = Field(default=None, sa_type=UtcDateTime)


class InterestQuery(Row, table=True):
    """The text of an interest, stored once however many readers share it."""

    id: int | None = Field(default=None, primary_key=True)
    text: str = Field(unique=True, max_length=300)


class InterestRow(Row, table=True):
    """One reader's interest. Each is matched by itself: they are never blended."""

    __table_args__ = (UniqueConstraint("subscriber_id", "query_id"),)

    id: int | None = Field(default=None, primary_key=True)
    subscriber_id: int = Field(foreign_key="subscriber.id", ondelete="CASCADE")
    query_id: int = Field(foreign_key="interest_query.id", index=True)
    position: int = 0
    weight: float = 1.0  # 0 < weight <= 3
    quota: int | None = None  # at most so many papers a digest


class PaperSnapshot(Row, table=True):
    """What digests of a day (UTC) show of a paper, stored once however many readers get it."""

    __table_args__ = ({"sqlite_autoincrement": True},)  # digests name ids: none is given twice

    id: int | None = Field(default=None, primary_key=True, sa_type=BigId)
    key: str = Field(unique=True, max_length=64)  # the day, and a hash of what is shown
    paper_id: int
    shown: dict[str, Any] = Field(default_factory=dict, sa_type=JSON)  # a pick without its reason and score
    created_at: datetime = Field(sa_type=UtcDateTime, index=True)


class Delivery(Row, table=True):
    """The ledger: one row for each mail to a reader, in exactly one state.

    A digest's edition is the reader's local day (2026-11-21); every other kind of mail is an
    edition of its own (confirm-20261121T080000Z).
    """

    __table_args__ = (
        UniqueConstraint("subscriber_id", "edition"),
        Index("ix_delivery_due", "state", "next_attempt_at"),
        Index("ix_delivery_edition", "edition"),  # not with the state, which every attempt changes twice
        Index("ix_delivery_created_at", "created_at"),
        _partial_index("ix_delivery_give_up_at", "next_attempt_at IS NOT NULL", "give_up_at"),
        {"sqlite_autoincrement": True},  # journals, links and signatures name ids: none is given twice
    )

    id: int | None = Field(default=None, primary_key=True, sa_type=BigId)
    subscriber_id: int = Field(foreign_key="subscriber.id")
    kind: MailKind = Field(default=MailKind.DIGEST, sa_type=enum_type(MailKind))
    edition: str = Field(max_length=40)
    state: DeliveryState = Field(default=DeliveryState.PENDING, sa_type=enum_type(DeliveryState))
    reason: str = Field(default="", sa_type=Text)  # why skipped, failed, suppressed or held
    subject: str = Field(default="", sa_type=Text)
    message_id: str = Field(default="", max_length=200)
    attempts: int = 0
    next_attempt_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    give_up_at: datetime | None = Field(default=None, sa_type=UtcDateTime)  # the reader's next digest is due
    possibly_delivered: bool = False  # an attempt ended without an answer: the reader may have it
    lease_owner: str = Field(default="", max_length=100)
    lease_until: datetime | None = Field(default=None, sa_type=UtcDateTime)
    smtp_code: int | None = None
    smtp_text: str = Field(default="", sa_type=Text)
    due_at: datetime = Field(sa_type=UtcDateTime)
    created_at: datetime = Field(sa_type=UtcDateTime)
    sent_at: datetime | None = Field(default=None, sa_type=UtcDateTime)


class DigestContent(Row, table=True):
    """What a digest of the ledger says. It stays as it was composed, while its row there changes often."""

    __table_args__ = (
        _partial_index(
            "ix_digest_content_unsigned", "signature_fingerprint = ''", "signature_fingerprint", "delivery_id"
        ),
    )

    delivery_id: int = Field(primary_key=True, foreign_key="delivery.id", ondelete="CASCADE", sa_type=BigId)
    digest: dict[str, Any] = Field(default_factory=dict, sa_type=JSON)  # with its cards: see deliver.cards
    signature: str = Field(default="", sa_type=Text)  # the DKIM-Signature header lines, made ahead
    # The fingerprint of what they sign. Empty: to be signed ahead.
    signature_fingerprint: str = Field(default="", max_length=64)


class FeedbackRow(Row, table=True):
    """A reader's word on a paper of the archive."""

    __table_args__ = (UniqueConstraint("subscriber_id", "paper_id"),)

    id: int | None = Field(default=None, primary_key=True, sa_type=BigId)
    subscriber_id: int = Field(foreign_key="subscriber.id", ondelete="CASCADE")
    paper_id: int = Field(foreign_key="paper.id")
    liked: bool
    at: datetime = Field(sa_type=UtcDateTime)


class PrivatePaper(Row, table=True):
    """A paper that a reader likes and the archive does not know, as they pasted it: it is theirs alone."""

    __table_args__ = (UniqueConstraint("subscriber_id", "title_key"),)

    id: int | None = Field(default=None, primary_key=True, sa_type=BigId)
    subscriber_id: int = Field(foreign_key="subscriber.id", ondelete="CASCADE")
    title_key: str = Field(max_length=200)  # its beginning: whatever is pasted, an index must hold it
    title: str = Field(sa_type=Text)
    abstract: str = Field(default="", sa_type=Text)
    authors: list[str] = Field(default_factory=list, sa_type=JSON)
    at: datetime = Field(sa_type=UtcDateTime)


class Event(Row, table=True):
    """Something that happened to a reader: signed_up, confirmed, bounce, complaint, unsubscribed, …"""

    __table_args__ = (
        Index("ix_event_kind_at", "kind", "at"),
        _partial_index("ix_event_delivery_id", "delivery_id IS NOT NULL", "delivery_id"),
    )

    id: int | None = Field(default=None, primary_key=True, sa_type=BigId)
    at: datetime = Field(sa_type=UtcDateTime, index=True)
    kind: str = Field(max_length=30)
    subscriber_id: int | None = Field(default=None, foreign_key="subscriber.id", index=True)
    delivery_id: int | None = Field(default=None, foreign_key="delivery.id", sa_type=BigId)
    detail: str = Field(default="", sa_type=Text)
    key: str | None = Field(default=None, unique=True, max_length=60)  # of what must not count twice


class Suppression(Row, table=True):
    """An address that gets no mail, known by its hash only, so that it outlives the reader's erasure."""

    id: int | None = Field(default=None, primary_key=True)
    address_hash: str = Field(unique=True, max_length=64)
    reason: str = Field(sa_type=Text)
    since: datetime = Field(sa_type=UtcDateTime)


class ApiKey(Row, table=True):
    """A key of the admin API: only its hash is stored."""

    id: int | None = Field(default=None, primary_key=True)
    name: str = Field(max_length=100)
    key_hash: str = Field(unique=True, max_length=64)
    scopes: list[str] = Field(default_factory=list, sa_type=JSON)
    created_at: datetime = Field(sa_type=UtcDateTime)
    expires_at: datetime | None = Field(default=None, sa_type=UtcDateTime)  # None: never
    last_used_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    revoked_at: datetime | None = Field(default=None, sa_type=UtcDateTime)


class JobRun(Row, table=True):
    """One run of a job, with what it counted and every row it rejected."""

    id: int | None = Field(default=None, primary_key=True)
    job: str = Field(max_length=30, index=True)
    started_at: datetime = Field(sa_type=UtcDateTime)
    ended_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    counts: dict[str, int] = Field(default_factory=dict, sa_type=JSON)
    rejections: list[dict[str, Any]] = Field(default_factory=list, sa_type=JSON)
    error: str = Field(default="", sa_type=Text)


class Lock(Row, table=True):
    """A job that only one process of all machines may run at a time holds its name here."""

    name: str = Field(primary_key=True, max_length=40)
    holder: str = Field(max_length=100)  # empty: nobody, but the edition is remembered
    until: datetime = Field(sa_type=UtcDateTime)
    edition: str = Field(default="", max_length=40)  # the last one done, of a job that runs once per edition


class RateLimit(Row, table=True):
    """How often something was asked for in the current window. All processes count here."""

    name: str = Field(primary_key=True, max_length=100)
    hits: int
    expires_at: datetime = Field(sa_type=UtcDateTime, index=True)


class AuditEntry(Row, table=True):
    """What an operator changed, and with which key."""

    id: int | None = Field(default=None, primary_key=True)
    at: datetime = Field(sa_type=UtcDateTime, index=True)
    actor: str = Field(max_length=100)
    action: str = Field(max_length=60)
    subject: str = Field(default="", sa_type=Text, index=True)
    detail: dict[str, Any] = Field(default_factory=dict, sa_type=JSON)


class SendingPause(Row, table=True):
    """A row here means: no mail leaves until an operator resumes, and why."""

    id: int | None = Field(default=None, primary_key=True)
    edition: str = Field(unique=True, max_length=40)  # one edition, or "*" for everything
    reason: str = Field(sa_type=Text)
    since: datetime = Field(sa_type=UtcDateTime)
