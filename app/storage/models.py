"""The SQLModel tables, in the order in which data flows through them.

Source → Paper (+ Listing, VoteCount, GeneratedSummary, PaperPicture, Merge) → TrainedModel → Subscriber,
FormSubmission, InterestRow → PaperSnapshot, Delivery → Event, Suppression.
"""

import re
from datetime import date, datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    JSON,
    Connection,
    Index,
    LargeBinary,
    Text,
    UniqueConstraint,
    delete,
    event,
    false,
    inspect,
    text,
    true,
)
from sqlalchemy.orm import declared_attr
from sqlmodel import Field, SQLModel, col

from app.storage.column_types import BigId, CompressedJson, UtcDateTime, bytewise_text, enum_type
from app.types import DEFAULT_MAX_PAPERS, DEFAULT_MIN_PAPERS, Cadence, EmptyDigestPolicy, MailKind, SourceKind

SQLModel.metadata.naming_convention = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


def _empty_list() -> list[Any]:
    """Return a new list. pydantic inspects a factory before each call, which takes 0.13 ms for `list`."""
    return []


def _partial_index(name: str, condition: str, *columns: str) -> Index:
    """Return an index of only the rows that meet a condition."""
    return Index(name, *columns, sqlite_where=text(condition), postgresql_where=text(condition))


class Row(SQLModel):
    """The base class of tables. A table is named after its class: `digest_content` for `DigestContent`."""

    @declared_attr.directive
    def __tablename__(cls) -> str:  # noqa: N805
        return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower().removesuffix("_row")

    def model_dump(self, **options: Any) -> dict[str, Any]:
        """Return the values by column, in the order of the columns.

        After a load, SQLModel's own order depends on how SQLAlchemy filled the row.
        """
        values = super().model_dump(**options)
        return {name: values[name] for name in type(self).model_fields if name in values}


class SubscriberState(StrEnum):
    PENDING = "pending"
    ACTIVE = "active"
    PAUSED = "paused"
    UNSUBSCRIBED = "unsubscribed"
    BOUNCING = "bouncing"
    ERASED = "erased"


class RequestKind(StrEnum):
    SIGN_UP = "sign_up"
    LINK = "link"  # to the preferences
    ADDRESS = "address"  # confirm the new address of a subscriber


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


class WebhookEvent(StrEnum):
    """The events that can be sent to operators' URLs."""

    CONFIRMED = "subscriber.confirmed"
    UNSUBSCRIBED = "subscriber.unsubscribed"
    ERASED = "subscriber.erased"
    BOUNCED = "delivery.bounced"
    COMPLAINED = "delivery.complained"
    EDITION_SENT = "edition.sent"
    SOURCE_FAILED = "source.failed"
    PAUSED = "sending.paused"


class WebhookState(StrEnum):
    PENDING = "pending"
    ACCEPTED = "accepted"
    FAILED = "failed"  # we gave up on the event


class Source(Row, table=True):
    """An upstream that is polled, or a name for imported files."""

    id: int | None = Field(default=None, primary_key=True)
    name: str = Field(unique=True, max_length=100)
    kind: SourceKind = Field(sa_type=enum_type(SourceKind))
    config: dict[str, Any] = Field(default_factory=dict, sa_type=JSON)
    paused: bool = False
    removed_at: datetime | None = Field(default=None, sa_type=UtcDateTime)  # the row remains for its listings
    etag: str | None = None
    last_modified: str | None = None
    watermark: date | None = None  # the last day that was read completely
    # arXiv's token for the next part of its back catalog (see papers.sources.oai).
    resumption_token: str | None = Field(default=None, sa_type=Text)
    next_poll_at: datetime | None = Field(default=None, sa_type=UtcDateTime, index=True)
    polled_at: datetime | None = Field(default=None, sa_type=UtcDateTime)  # the last successful poll
    failures: int = 0  # in a row
    last_error: str | None = Field(default=None, sa_type=Text)
    created_at: datetime = Field(sa_type=UtcDateTime)


class SourcePoll(Row, table=True):
    """One poll of a source: its counts, the first rows it rejected, and its error."""

    __table_args__ = (Index("ix_source_poll_source_id", "source_id", "id"),)

    id: int | None = Field(default=None, primary_key=True)
    source_id: int = Field(foreign_key="source.id")
    started_at: datetime = Field(sa_type=UtcDateTime, index=True)
    ended_at: datetime = Field(sa_type=UtcDateTime)
    counts: dict[str, int] = Field(default_factory=dict, sa_type=JSON)
    rejections: list[dict[str, Any]] = Field(default_factory=_empty_list, sa_type=JSON)
    error: str = Field(default="", sa_type=Text)


class Paper(Row, table=True):
    """A paper. If two rows turn out to be the same paper, the `merged_into_id` of one points to the other."""

    __table_args__ = (
        _partial_index("ix_paper_withdrawn_at", "withdrawn_at IS NOT NULL", "withdrawn_at"),
        _partial_index("ix_paper_code_found_at", "code_found_at IS NOT NULL", "code_found_at"),
        # Partial, so that SQLite cannot use them for IS NULL, which is true of almost all papers.
        _partial_index("ix_paper_hidden_at", "hidden_at IS NOT NULL", "hidden_at"),
        _partial_index("ix_paper_merged_into_id", "merged_into_id IS NOT NULL", "merged_into_id"),
        # Small indexes: a paper with an arXiv id is merged only with one of the few rows without an id.
        _partial_index("ix_paper_title_key_without_id", "arxiv_id IS NULL", "title_key"),
        _partial_index("ix_paper_title_end_without_id", "arxiv_id IS NULL", "title_end"),
    )

    id: int | None = Field(default=None, primary_key=True)
    arxiv_id: str | None = Field(default=None, unique=True, max_length=40)  # without version
    doi: str | None = Field(default=None, unique=True, max_length=300)  # lower case
    title: str = Field(sa_type=Text)
    title_key: str = Field(index=True, sa_type=bytewise_text(1000))
    # The last letters of `title_key`, in reverse (see papers.title_normalization).
    title_end: str = Field(default="", index=True, sa_type=bytewise_text(40))
    abstract: str = Field(default="", sa_type=Text)
    authors: list[str] = Field(default_factory=_empty_list, sa_type=JSON)
    author_count: int = 0  # the true count: `authors` may be shorter
    # The displayed name of the paper's organization, then its short name at the source.
    organization_names: list[str] = Field(default_factory=_empty_list, sa_type=JSON)
    categories: list[str] = Field(default_factory=_empty_list, sa_type=JSON)
    keywords: list[str] = Field(default_factory=_empty_list, sa_type=JSON)
    tldr: str = Field(default="", sa_type=Text)
    published_on: date | None = None
    url: str = Field(default="", sa_type=Text)  # the page with the abstract
    pdf_url: str = Field(default="", sa_type=Text)
    code_url: str = Field(default="", sa_type=Text)
    project_url: str = Field(default="", sa_type=Text)
    thumbnail_url: str = Field(default="", sa_type=Text)
    withdrawn_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    # The time of the first link to code. None if the first record already had a link, or no source has one.
    code_found_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    content_hash: str = Field(max_length=64)
    # For each field, the day and the kind of its source, and the source's id if it was polled. An older
    # record never overwrites a newer one, regardless of the order in which they arrive (see
    # papers.field_precedence).
    versions: dict[str, str] = Field(default_factory=dict, sa_type=JSON)
    # The sources' values of the fields that an operator has edited (see papers.editing).
    sourced: dict[str, Any] | None = Field(default=None, sa_type=JSON(none_as_null=True), nullable=True)
    edited_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    # The time at which an operator hid the paper. A hidden paper is neither sent nor shown.
    hidden_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    pinned_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    pinned_until: datetime | None = Field(default=None, sa_type=UtcDateTime, index=True)
    merged_into_id: int | None = Field(default=None, foreign_key="paper.id")
    first_listed_on: date | None = Field(default=None, index=True)
    last_listed_on: date | None = Field(default=None, index=True)
    created_at: datetime = Field(sa_type=UtcDateTime)
    updated_at: datetime = Field(sa_type=UtcDateTime, index=True)


class Listing(Row, table=True):
    """A listing of a paper by a source on a day."""

    __table_args__ = (
        UniqueConstraint("original_paper_id", "source_id", "listed_on"),
        Index("ix_listing_source_id", "source_id", "listed_on"),
    )

    id: int | None = Field(default=None, primary_key=True, sa_type=BigId)
    paper_id: int = Field(foreign_key="paper.id", index=True)
    original_paper_id: int = Field(foreign_key="paper.id")  # the paper before any merge, to undo merges
    source_id: int = Field(foreign_key="source.id")
    listed_on: date = Field(index=True)
    rank: int | None = None
    submitted_by: str = ""


class VoteCount(Row, table=True):
    """The votes, comments and stars that a paper has at a source from `at` on. Each change adds a row."""

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
    """A language model's summary of a paper that has none, or the number of failed attempts.

    It is stored separately from the paper, so that a summary from a source always takes precedence and the
    two are never mixed. It is deleted when the paper's abstract changes.
    """

    paper_id: int = Field(primary_key=True, foreign_key="paper.id")
    text: str = Field(default="", sa_type=Text)
    model: str = ""
    failures: int = 0
    next_attempt_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    at: datetime = Field(sa_type=UtcDateTime)


@event.listens_for(Paper, "after_update")
def _delete_outdated_summary(_mapper: object, connection: Connection, paper: Paper) -> None:
    """Delete the summary of an abstract that a source, a merge or an operator has replaced."""
    if inspect(paper).attrs.abstract.history.has_changes():
        of_paper = col(GeneratedSummary.paper_id) == paper.id
        connection.execute(delete(GeneratedSummary).where(of_paper))


class PaperPicture(Row, table=True):
    """A small copy of a paper's picture, or the number of failed attempts to fetch it.

    It belongs to the paper only while `url` is the paper's `thumbnail_url`.
    """

    paper_id: int = Field(primary_key=True, foreign_key="paper.id")
    url: str = Field(sa_type=Text)
    media_type: str = Field(default="", max_length=40)
    version: str = Field(default="", max_length=16)  # changes with `data`; empty if there is none
    width: int = 0  # of the copy, in pixels
    height: int = 0
    failures: int = 0  # in a row
    next_attempt_at: datetime | None = Field(default=None, sa_type=UtcDateTime)  # None after the last attempt
    fetched_at: datetime = Field(sa_type=UtcDateTime)  # the last attempt
    data: bytes = Field(default=b"", sa_type=LargeBinary)  # last, so that SQLite can skip it


class Merge(Row, table=True):
    """The merge of two rows of the same paper. `before` lets an operator undo the merge."""

    id: int | None = Field(default=None, primary_key=True)
    survivor_id: int = Field(foreign_key="paper.id", index=True)
    absorbed_id: int = Field(foreign_key="paper.id", index=True)
    reason: str
    before: dict[str, Any] = Field(default_factory=dict, sa_type=JSON)  # the survivor's earlier fields
    at: datetime = Field(sa_type=UtcDateTime)
    undone_at: datetime | None = Field(default=None, sa_type=UtcDateTime)  # if set, never merge them again


class TrainedModel(Row, table=True):
    """A model and the state of the archive on which it was trained: `papers`, `newest_id`, `changed_at`."""

    id: int | None = Field(default=None, primary_key=True)
    trained_at: datetime = Field(sa_type=UtcDateTime)
    papers: int  # number of papers in the whole archive, excluding merged ones
    newest_id: int  # the id of the newest paper
    changed_at: datetime = Field(sa_type=UtcDateTime)  # the last change of any paper
    sha256: str = Field(max_length=64)
    size: int  # bytes
    data: bytes = Field(sa_type=LargeBinary)  # last, so that SQLite reads the other columns without it


class Subscriber(Row, table=True):
    """A subscriber: address, state, preferences, schedule and consent."""

    __table_args__ = (
        Index("ix_subscriber_due", "state", "next_due_at", "newest_interest", "id"),  # the order of planning
        _partial_index("ix_subscriber_paused_until", "paused_until IS NOT NULL", "paused_until"),
        _partial_index("ix_subscriber_plan_after", "plan_after IS NOT NULL", "plan_after"),
    )

    id: int | None = Field(default=None, primary_key=True)
    email: str = Field(unique=True, max_length=320)  # normalized
    state: SubscriberState = Field(default=SubscriberState.PENDING, sa_type=enum_type(SubscriberState))
    cadence: Cadence = Field(default=Cadence.DAILY, sa_type=enum_type(Cadence))
    weekday: int = 0  # the day of a weekly digest; Monday is 0
    hour: int = 8  # local time
    zone: str = Field(default="UTC", max_length=64)
    min_papers: int = DEFAULT_MIN_PAPERS
    max_papers: int = DEFAULT_MAX_PAPERS
    when_empty: EmptyDigestPolicy = Field(
        default=EmptyDigestPolicy.SKIP, sa_type=enum_type(EmptyDigestPolicy)
    )
    max_trending: int = 0  # maximum number of trending papers per digest that do not match an interest
    paper_updates: bool = Field(default=True, sa_column_kwargs={"server_default": true()})
    # A paper that matches one of these texts is never sent.
    muted: list[str] = Field(default_factory=_empty_list, sa_type=JSON)
    # Authors of liked papers who are not treated as liked.
    ignored_authors: list[str] = Field(default_factory=_empty_list, sa_type=JSON)
    next_due_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    # After planning failed: the time before which it is not tried again.
    plan_after: datetime | None = Field(default=None, sa_type=UtcDateTime)
    # The time from which the current state and cadence apply: the first due time, or the beginning of the
    # pause. Planning never changes it, so that the ledger can be checked against it.
    due_since: datetime | None = Field(default=None, sa_type=UtcDateTime)
    # The highest `InterestRow.query_id`, or 0. Subscribers who share it are planned, signed and sent one
    # after the other, while the matches and the cards of this interest are still cached.
    newest_interest: int = Field(default=0, sa_column_kwargs={"server_default": "0"})
    paused_until: datetime | None = Field(default=None, sa_type=UtcDateTime)
    link_epoch: int = 0  # incremented to revoke all links sent so far
    consent_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    consent_version: str = ""
    consent_ip: str = ""
    created_at: datetime = Field(sa_type=UtcDateTime)
    confirmed_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    ended_at: datetime | None = Field(default=None, sa_type=UtcDateTime)  # unsubscribed, bouncing or erased


class FormSubmission(Row, table=True):
    """A form that requests an email: a sign-up, or a request for the link to the preferences.

    A row is stored whether or not the address is known, and processed after the response. Its preferences are
    kept separate from the subscriber's own until the owner of the address confirms them. After that, only the
    mailbox's hash and the times are kept, for rate limits and to respect a decline.
    """

    id: int | None = Field(default=None, primary_key=True, sa_type=BigId)
    kind: RequestKind = Field(sa_type=enum_type(RequestKind))
    mailbox: str = Field(index=True, max_length=64)  # the hash of the folded address
    email: str = Field(default="", max_length=320)  # until the form is processed
    visitor: str = Field(default="", max_length=64)  # until the form is processed
    subscriber_id: int | None = Field(default=None, foreign_key="subscriber.id", index=True)  # while open
    delivery_id: int | None = Field(default=None, sa_type=BigId, index=True)  # the email sent in response
    preferences: dict[str, Any] = Field(default_factory=dict, sa_type=JSON)  # while open
    liked: dict[str, Any] = Field(default_factory=dict, sa_type=JSON)  # pasted papers, while open
    created_at: datetime = Field(sa_type=UtcDateTime, index=True)
    processed_at: datetime | None = Field(default=None, sa_type=UtcDateTime, index=True)
    declined_at: datetime | None = Field(default=None, sa_type=UtcDateTime)


class AddressChange(Row, table=True):
    """A pending change of a subscriber's address. The row is deleted on completion or when it expires."""

    subscriber_id: int = Field(primary_key=True, foreign_key="subscriber.id", ondelete="CASCADE")
    email: str = Field(index=True, max_length=320)  # the new address, normalized
    requested_at: datetime = Field(sa_type=UtcDateTime)  # when the latest link to confirm it was requested
    approved_at: datetime | None = Field(default=None, sa_type=UtcDateTime)  # from the old address
    delivery_id: int | None = Field(default=None, sa_type=BigId)  # the email to the new address


class InterestQuery(Row, table=True):
    """The text of an interest, stored once for all subscribers who have it."""

    id: int | None = Field(default=None, primary_key=True)
    text: str = Field(unique=True, max_length=300)


class InterestRow(Row, table=True):
    """A subscriber's interest. Each interest is matched separately."""

    __table_args__ = (UniqueConstraint("subscriber_id", "query_id"),)

    id: int | None = Field(default=None, primary_key=True)
    subscriber_id: int = Field(foreign_key="subscriber.id", ondelete="CASCADE")
    query_id: int = Field(foreign_key="interest_query.id", index=True)
    position: int = 0
    weight: float = 1.0  # 0 < weight <= 3
    quota: int | None = None  # maximum number of papers per digest


class PaperSnapshot(Row, table=True):
    """A copy of a paper's card or of a reason, shared by all digests of a UTC day that contain it."""

    __table_args__ = ({"sqlite_autoincrement": True},)  # digests refer to ids, so ids are never reused

    id: int | None = Field(default=None, primary_key=True, sa_type=BigId)
    key: str = Field(unique=True, max_length=64)  # a hash of the day and of `fields`
    paper_id: int = Field(index=True)
    # A DigestItem without its id, reason, marks and defaults; or a reason and its marks.
    fields: dict[str, Any] = Field(default_factory=dict, sa_type=CompressedJson)
    created_at: datetime = Field(sa_type=UtcDateTime, index=True)


class Delivery(Row, table=True):
    """The ledger: one row for each email to a subscriber, in exactly one state.

    The edition of a digest is the subscriber's local day (2026-11-21). Every other email has a unique edition
    (confirm-20261121T080000Z).
    """

    __table_args__ = (
        UniqueConstraint("subscriber_id", "edition"),
        # With the edition, so that the emails of an edition are counted by state without reading their rows.
        Index("ix_delivery_due", "state", "next_attempt_at", "edition"),
        Index("ix_delivery_edition", "edition"),  # without the state, which every attempt changes twice
        Index("ix_delivery_created_at", "created_at"),
        _partial_index("ix_delivery_receiver", "receiver IS NOT NULL", "receiver", "sent_at"),
        _partial_index("ix_delivery_give_up_at", "next_attempt_at IS NOT NULL", "give_up_at"),
        {"sqlite_autoincrement": True},  # journals, links and signatures refer to ids, so never reuse them
    )

    id: int | None = Field(default=None, primary_key=True, sa_type=BigId)
    subscriber_id: int = Field(foreign_key="subscriber.id")
    kind: MailKind = Field(default=MailKind.DIGEST, sa_type=enum_type(MailKind))
    edition: str = Field(max_length=40)
    state: DeliveryState = Field(default=DeliveryState.PENDING, sa_type=enum_type(DeliveryState))
    reason: str = Field(default="", sa_type=Text)  # why it was skipped, deferred, failed, suppressed or held
    subject: str = Field(default="", sa_type=Text)
    message_id: str = Field(default="", max_length=200)
    attempts: int = 0
    next_attempt_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    # After this time, the email is given up. A digest is given up when the next one, due then, is composed.
    give_up_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    possibly_delivered: bool = False  # an attempt ended without a reply, so the subscriber may have the email
    lease_owner: str = Field(default="", max_length=100)
    lease_until: datetime | None = Field(default=None, sa_type=UtcDateTime)
    smtp_code: int | None = None
    smtp_text: str = Field(default="", sa_type=Text)
    receiver: str | None = Field(default=None, max_length=255)  # only during a warm-up: see `daily_limits`
    due_at: datetime = Field(sa_type=UtcDateTime)
    # Only during a warm-up: when the subscriber's first undelivered digest before this one was due, if any.
    waiting_since: datetime | None = Field(default=None, sa_type=UtcDateTime)
    created_at: datetime = Field(sa_type=UtcDateTime)
    sent_at: datetime | None = Field(default=None, sa_type=UtcDateTime)


class DigestContent(Row, table=True):
    """The content of a digest. It changes only if its papers are hidden or merged (see `ledger.removal`)."""

    __table_args__ = (
        _partial_index(
            "ix_digest_content_unsigned", "signature_fingerprint = ''", "signature_fingerprint", "delivery_id"
        ),
    )

    delivery_id: int = Field(primary_key=True, foreign_key="delivery.id", ondelete="CASCADE", sa_type=BigId)
    # See `delivery.ledger.snapshots`.
    digest: dict[str, Any] = Field(default_factory=dict, sa_type=CompressedJson)
    # True if `digest` has updates on earlier papers, so that such digests are found without reading them all.
    has_updates: bool = Field(default=False, sa_column_kwargs={"server_default": false()})
    signature: str = Field(default="", sa_type=Text)  # DKIM-Signature header lines, if signed ahead
    # The fingerprint of the signed content. Empty before signing ahead; "-" if it is not signed ahead, or if
    # the signature was dropped after the digest was sent.
    signature_fingerprint: str = Field(default="", max_length=64)


class FeedbackRow(Row, table=True):
    """A subscriber's like or dislike of a paper in the archive."""

    __table_args__ = (UniqueConstraint("subscriber_id", "paper_id"),)

    id: int | None = Field(default=None, primary_key=True, sa_type=BigId)
    subscriber_id: int = Field(foreign_key="subscriber.id", ondelete="CASCADE")
    paper_id: int = Field(foreign_key="paper.id")
    liked: bool
    at: datetime = Field(sa_type=UtcDateTime)


class PrivatePaper(Row, table=True):
    """A liked paper that is not in the archive, as a subscriber pasted it. It only affects their profile."""

    __table_args__ = (UniqueConstraint("subscriber_id", "title_key"),)

    id: int | None = Field(default=None, primary_key=True, sa_type=BigId)
    subscriber_id: int = Field(foreign_key="subscriber.id", ondelete="CASCADE")
    title_key: str = Field(max_length=200)  # truncated, so that any title fits into an index
    title: str = Field(sa_type=Text)
    abstract: str = Field(default="", sa_type=Text)
    authors: list[str] = Field(default_factory=_empty_list, sa_type=JSON)
    at: datetime = Field(sa_type=UtcDateTime)


class Event(Row, table=True):
    """An event in the history of a subscriber: signed_up, confirmed, bounce, complaint, unsubscribed, …"""

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
    key: str | None = Field(default=None, unique=True, max_length=60)  # so that an event is not stored twice


class Suppression(Row, table=True):
    """An address that no mail is sent to. Only a hash is stored, so the row may outlive the subscriber."""

    id: int | None = Field(default=None, primary_key=True)
    address_hash: str = Field(unique=True, max_length=64)
    reason: str = Field(sa_type=Text)
    since: datetime = Field(sa_type=UtcDateTime)


class ApiKey(Row, table=True):
    """A key for the admin API. Only its hash is stored."""

    id: int | None = Field(default=None, primary_key=True)
    name: str = Field(max_length=100)
    key_hash: str = Field(unique=True, max_length=64)
    scopes: list[str] = Field(default_factory=_empty_list, sa_type=JSON)
    created_at: datetime = Field(sa_type=UtcDateTime)
    expires_at: datetime | None = Field(default=None, sa_type=UtcDateTime)  # None: never
    last_used_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    revoked_at: datetime | None = Field(default=None, sa_type=UtcDateTime)


class AdminSession(Row, table=True):
    """An operator who is signed in to the admin pages with a key. Only the hash of the cookie is stored."""

    id: int | None = Field(default=None, primary_key=True)
    token_hash: str = Field(unique=True, max_length=64)
    key_id: int = Field(foreign_key="api_key.id", ondelete="CASCADE")
    created_at: datetime = Field(sa_type=UtcDateTime)
    used_at: datetime = Field(sa_type=UtcDateTime)


class JobRun(Row, table=True):
    """One run of a job, with its counts and the rows it rejected."""

    id: int | None = Field(default=None, primary_key=True)
    job: str = Field(max_length=30, index=True)
    started_at: datetime = Field(sa_type=UtcDateTime)
    ended_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    counts: dict[str, int] = Field(default_factory=dict, sa_type=JSON)
    rejections: list[dict[str, Any]] = Field(default_factory=_empty_list, sa_type=JSON)
    error: str = Field(default="", sa_type=Text)
    # The part of the run in which each error occurred, such as a source; "" for the run as a whole.
    failed_parts: list[str] = Field(
        default_factory=_empty_list, sa_type=JSON, sa_column_kwargs={"server_default": "[]"}
    )


class Lock(Row, table=True):
    """A lock with a lease, for a job that only one process on all machines may run at a time."""

    name: str = Field(primary_key=True, max_length=40)
    holder: str = Field(max_length=100)  # empty if the row is not locked and only stores the edition
    until: datetime = Field(sa_type=UtcDateTime)
    edition: str = Field(
        default="", max_length=40
    )  # the last completed edition, if the job runs once per edition


class WorkerRow(Row, table=True):
    """A process that runs jobs. It writes `seen_at` every few seconds, by the database's clock."""

    name: str = Field(primary_key=True, max_length=100)  # machine:pid:process, as in the holders of leases
    started_at: datetime = Field(sa_type=UtcDateTime)
    seen_at: datetime = Field(sa_type=UtcDateTime)


class RateLimit(Row, table=True):
    """A counter of requests in its current window, shared by all processes."""

    name: str = Field(primary_key=True, max_length=100)
    hits: int
    expires_at: datetime = Field(sa_type=UtcDateTime, index=True)


class IdempotencyKey(Row, table=True):
    """A request that has an idempotency key, and its response. See `storage.idempotency_keys`."""

    name: str = Field(primary_key=True, max_length=64)  # the hash of the API key's id and the header
    fingerprint: str = Field(max_length=64)  # the hash of the request
    holder: str = Field(max_length=100)  # the attempt that may carry out the request until its lease ends
    until: datetime = Field(sa_type=UtcDateTime)
    changed: bool = False  # the request was carried out, whether or not its response was stored
    subject: str = Field(default="", sa_type=Text)  # as in the audit log, to erase the response
    status: int | None = None  # of the response; None while the request is running
    answer: str | None = Field(default=None, sa_type=Text)  # its body; None if not stored, or erased
    expires_at: datetime = Field(sa_type=UtcDateTime, index=True)


class AuditEntry(Row, table=True):
    """A change that an operator made, and the name of the API key they used, or `cli`.

    The actor of an automatic pause of all sending is `paperboy`.
    """

    id: int | None = Field(default=None, primary_key=True)
    at: datetime = Field(sa_type=UtcDateTime, index=True)
    actor: str = Field(max_length=100)
    action: str = Field(max_length=60)
    subject: str = Field(default="", sa_type=Text, index=True)
    detail: dict[str, Any] = Field(default_factory=dict, sa_type=JSON)


class WebhookEndpoint(Row, table=True):
    """A URL to which events are sent. The secret signs the events, so it cannot be stored as a hash."""

    id: int | None = Field(default=None, primary_key=True)
    url: str = Field(unique=True, max_length=2000)
    events: list[str] = Field(default_factory=_empty_list, sa_type=JSON)
    include_addresses: bool = False
    secret: str = Field(max_length=100)
    # One or two secrets, newest first, that also sign until `previous_until`. Each begins with “whsec_”.
    previous_secret: str = Field(default="", max_length=100)
    previous_until: datetime | None = Field(default=None, sa_type=UtcDateTime)
    created_at: datetime = Field(sa_type=UtcDateTime)
    accepted_at: datetime | None = Field(default=None, sa_type=UtcDateTime)  # when it last accepted an event
    disabled_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    paused_until: datetime | None = Field(default=None, sa_type=UtcDateTime)  # its last Retry-After, if any
    error: str = Field(default="", sa_type=Text)  # of the last attempt; empty if the event was accepted


class WebhookMessage(Row, table=True):
    """A row of the outbox: an event for an endpoint and its attempts, stored in the transaction of the event.

    The row contains no address: the address is looked up when the event is sent.
    """

    __table_args__ = (
        UniqueConstraint("endpoint_id", "key"),
        Index("ix_webhook_message_endpoint_id", "endpoint_id", "id"),
        _partial_index("ix_webhook_message_due", "next_attempt_at IS NOT NULL", "next_attempt_at"),
    )

    id: int | None = Field(default=None, primary_key=True, sa_type=BigId)
    endpoint_id: int = Field(foreign_key="webhook_endpoint.id", ondelete="CASCADE")
    message_id: str = Field(max_length=40)  # the same for all attempts
    event: str = Field(max_length=40)
    at: datetime = Field(sa_type=UtcDateTime, index=True)
    data: dict[str, Any] = Field(default_factory=dict, sa_type=JSON)
    key: str | None = Field(default=None, max_length=60)  # so that an event is not stored twice
    state: WebhookState = Field(default=WebhookState.PENDING, sa_type=enum_type(WebhookState))
    attempts: int = 0
    attempted_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    next_attempt_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    give_up_at: datetime = Field(sa_type=UtcDateTime)
    status: int | None = None  # of the last response
    error: str = Field(default="", sa_type=Text)


class OperatorAlert(Row, table=True):
    """A problem that needs attention, and the time at which the first operator got an alert about it."""

    cause: str = Field(primary_key=True, max_length=200)
    message: str = Field(sa_type=Text)
    since: datetime = Field(sa_type=UtcDateTime)
    seen_at: datetime = Field(sa_type=UtcDateTime)  # when the problem was last found
    mailed_at: datetime | None = Field(default=None, sa_type=UtcDateTime)


class ReceiverBackoff(Row, table=True):
    """A receiver that asked us to send less. Mail to it waits. See `delivery.receivers`."""

    receiver: str = Field(primary_key=True, max_length=255)
    reason: str = Field(sa_type=Text)
    count: int  # of such requests in a row
    until: datetime = Field(sa_type=UtcDateTime)


class SendingPause(Row, table=True):
    """A pause of all emails or some of them, begun by an operator or automatically."""

    id: int | None = Field(default=None, primary_key=True)
    edition: str = Field(unique=True, max_length=40)  # one edition, "first digests", or "*" for all
    reason: str = Field(sa_type=Text)
    since: datetime = Field(sa_type=UtcDateTime)
