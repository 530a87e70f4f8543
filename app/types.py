"""PURE. The values that packages exchange: stored enums, then values in the order in which data flows.

PaperRecord → ParseResult → (archive) → IngestSummary, PaperView → Trend, Match with an Interest or Feedback
→ CardReason → DigestItem → Section → Digest, with PaperUpdates, or Skip → MailRequest → RenderedMail
→ `mail.message.OutgoingMail` → `delivery.send_result.SendResult`

An OperatorReport becomes a RenderedMail without a MailRequest.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from datetime import date, datetime
from enum import StrEnum
from typing import Any, NamedTuple

DEFAULT_MIN_PAPERS, DEFAULT_MAX_PAPERS = 1, 10  # in a digest
MAX_CATEGORIES = 50  # of arXiv, in a source


class SourceKind(StrEnum):
    """The kind of a source. It determines how responses are parsed."""

    HUGGINGFACE = "huggingface"
    ARXIV = "arxiv"  # the query API
    ARXIV_FEED = "arxiv_feed"  # the daily announcement feed
    ARXIV_OAI = "arxiv_oai"  # the back catalog, through OAI-PMH
    FEED = "feed"
    PAGE = "page"  # a search page of Hugging Face, saved as text
    JSONL = "jsonl"  # one paper per line, for example from a crawler


class Cadence(StrEnum):
    """The days on which a subscriber gets a digest."""

    DAILY = "daily"
    WEEKDAYS = "weekdays"
    WEEKLY = "weekly"


class EmptyDigestPolicy(StrEnum):
    """The policy for a day without papers that match a subscriber's interests."""

    SKIP = "skip"
    TRENDING = "trending"


class MailKind(StrEnum):
    """The kind of an email. Each kind has a folder in `templates/email/`."""

    DIGEST = "digest"
    CONFIRM = "confirm"
    MANAGE = "manage"  # the link to the preferences, requested on the web
    EXPORT = "export"  # the link that downloads the data stored about a subscriber
    ERASE = "erase"
    NEW_LINKS = "new_links"  # new links, after all earlier ones were revoked
    ADDRESS = "address"  # confirm a change of address


@dataclass(frozen=True, slots=True)
class PaperRecord:
    """One row from a source, sanitized but not yet matched with the archive. Empty fields are unknown."""

    title: str
    arxiv_id: str = ""  # without version
    doi: str = ""  # lower case, without resolver
    abstract: str = ""
    authors: tuple[str, ...] = ()
    author_count: int = 0  # the true count: `authors` may be shorter
    organization_names: tuple[str, ...] = ()  # of one organization: as shown, then its short name
    categories: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    tldr: str = ""
    published_on: date | None = None
    url: str = ""
    pdf_url: str = ""
    code_url: str = ""
    project_url: str = ""
    thumbnail_url: str = ""
    withdrawn: bool | None = None  # None if the source does not say
    listed_on: date | None = None  # the day on which the source listed it
    rank: int | None = None  # its position on that day, from 1
    submitted_by: str = ""
    upvotes: int | None = None  # None if the source has no votes
    comments: int | None = None
    stars: int | None = None
    version: int = 0  # arXiv's vN, 0 if unknown
    as_of: date | None = None  # the day of these values, if it differs from `listed_on`


@dataclass(frozen=True, slots=True)
class Rejection:
    """A row that could not be used. `row` counts from 1; None means the whole response or its missing end."""

    reason: str  # a short fixed phrase, so that rejections can be counted by reason
    row: int | None = None
    detail: str = ""
    origin: str = ""  # the file or source that contains the row


@dataclass(frozen=True, slots=True)
class ParseResult:
    """The parsed response of a source. `rows` = len(records) + number of rejected rows."""

    rows: int = 0
    records: tuple[PaperRecord, ...] = ()
    rejections: tuple[Rejection, ...] = ()

    def __add__(self, other: ParseResult) -> ParseResult:
        """Append the next page of the same response. Its row numbers continue from this page's."""
        later = (
            rejection if rejection.row is None else replace(rejection, row=self.rows + rejection.row)
            for rejection in other.rejections
        )
        return ParseResult(self.rows + other.rows, self.records + other.records, (*self.rejections, *later))


MAX_REJECTIONS = 2_000  # rejections that a summary lists; further rejections are only counted


@dataclass(frozen=True, slots=True)
class IngestSummary:
    """Counts of stored records: rows = papers_new + papers_merged + changed + unchanged + rejected rows.

    A row is *merged* if it turned out to be a paper known from elsewhere, *changed* if it altered anything (a
    field, a listing, votes), and *unchanged* if the archive already had all of it. Rejections without a row
    number (a response's missing end) count toward `rejected` but not toward `rows`.
    """

    rows: int = 0
    papers_new: int = 0
    papers_merged: int = 0
    changed: int = 0
    unchanged: int = 0
    listings: int = 0
    rejections: tuple[Rejection, ...] = ()  # the first MAX_REJECTIONS
    more_rejections: int = 0  # the number of further rejections

    @property
    def rejected(self) -> int:
        return len(self.rejections) + self.more_rejections

    def __add__(self, other: IngestSummary) -> IngestSummary:
        names = (part.name for part in fields(self))
        total = IngestSummary(*(getattr(self, name) + getattr(other, name) for name in names))
        excess = len(total.rejections) - MAX_REJECTIONS
        if excess <= 0:
            return total
        return replace(
            total,
            rejections=total.rejections[:MAX_REJECTIONS],
            more_rejections=total.more_rejections + excess,
        )

    def with_origin(self, origin: str) -> IngestSummary:
        """Return a copy whose rejections name the file or source that contains their rows."""
        rejections = tuple(replace(rejection, origin=origin) for rejection in self.rejections)
        return replace(self, rejections=rejections)

    def counts(self) -> dict[str, int]:
        """Return the counts by name, as jobs record them."""
        names = ("rows", "papers_new", "papers_merged", "changed", "unchanged", "listings", "rejected")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True)
class VoteSample:
    """A paper's votes from `at` until the next sample, summed over its sources."""

    at: datetime
    upvotes: int
    newly_counted: int = 0  # votes from sources whose first sample this is; when they were cast is unknown


@dataclass(frozen=True, slots=True)
class PaperView:
    """A paper in the archive, as the packages after `papers` see it."""

    id: int
    title: str
    abstract: str = ""
    authors: tuple[str, ...] = ()
    author_count: int = 0
    organization_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    tldr: str = ""
    tldr_by: str = ""  # the language model that wrote `tldr`; empty if a source or an operator did
    tldr_is_edited: bool = False  # by an operator
    arxiv_id: str = ""
    url: str = ""
    pdf_url: str = ""
    code_url: str = ""
    project_url: str = ""
    published_on: date | None = None
    first_listed_on: date | None = None
    last_listed_on: date | None = None
    listed_on: tuple[date, ...] = ()  # every day on which a source listed it, oldest first
    upvotes: int = 0
    comments: int = 0
    stars: int = 0  # of its code
    votes: tuple[VoteSample, ...] = ()  # oldest first; empty if no source has votes
    sources: tuple[str, ...] = ()
    submitted_by: str = ""  # who first submitted it to a source; empty if unknown
    hidden_at: datetime | None = None  # by an operator
    pinned_at: datetime | None = None
    pinned_until: datetime | None = None

    def is_pinned(self, at: datetime) -> bool:
        """Return whether the paper is pinned at a time, so that it comes first in digests."""
        return bool(self.pinned_at and self.pinned_until and self.pinned_at <= at < self.pinned_until)

    @property
    def organization(self) -> str:
        """The organization that published the paper, as shown to subscribers; empty if no source names it."""
        return next(iter(self.organization_names), "")


@dataclass(frozen=True, slots=True)
class Trend:
    """A paper's trend: a `score` in 0…1, and the wording that a subscriber sees."""

    score: float
    words: str
    note: str = ""  # the words without the number of votes: "+21 since yesterday"


@dataclass(frozen=True, slots=True)
class Match:
    """A paper's match with an interest: `relevance` in 0…1, comparable across interests, and the reason."""

    relevance: float
    reason: str


@dataclass(frozen=True, slots=True)
class Interest:
    """A subscriber's interest: the text as typed, its weight, and its maximum number of papers per digest."""

    text: str
    weight: float = 1.0
    quota: int | None = None


@dataclass(frozen=True, slots=True)
class Feedback:
    """A subscriber's like or dislike of a paper in the archive, or of a paper that they pasted."""

    title: str
    abstract: str
    authors: tuple[str, ...]
    liked: bool
    at: datetime
    paper_id: int | None = None  # the id of the paper in the archive, after merges
    own_key: str = ""  # the key of a private paper, unique for this subscriber


Spans = tuple[tuple[int, int], ...]  # (start, end) of excerpts from a text, in order


@dataclass(frozen=True, slots=True)
class Marks:
    """The words to mark on a paper's card. `rest` gives the reasons that the marks do not show."""

    title: Spans = ()
    summary: Spans = ()
    rest: str = ""


@dataclass(frozen=True, slots=True)
class CardReason:
    """The reason for a paper in a digest: in words and, where possible, as marks on its card."""

    text: str
    marks: Marks | None = None


@dataclass(frozen=True, slots=True)
class DigestItem:
    """A paper in a digest, with everything that its card shows. It is fixed when the digest is composed.

    All subscribers who get a paper for the same reason share one object.
    """

    paper_id: int
    title: str
    authors: str  # as shown: "Ada Lovelace, Alan Turing and 5 more"
    summary: str
    reason: str
    trend: str
    url: str
    pdf_url: str = ""
    code_url: str = ""
    project_url: str = ""
    published_on: str = ""  # ISO day
    comments: int = 0
    summary_by: str = ""  # the language model that wrote the summary; empty if from a source or the abstract
    organization: str = ""
    short_authors: str = ""  # "Ada Lovelace +6"
    votes: int = 0
    trend_note: str = ""
    stars: int = 0  # of its code
    submitted_by: str = ""
    marks: Marks | None = None  # None if the reason is given in words

    def __hash__(self) -> int:  # only the fields that differ most, because items are cache keys
        return hash((self.paper_id, self.reason, self.votes))


@dataclass(frozen=True, slots=True)
class Section:
    """The items under one interest or, if `interest` is empty, items that match no interest."""

    interest: str
    picks: tuple[DigestItem, ...]
    # Only if `interest` is empty. If this is empty, too, the items trend beyond the interests.
    heading: str = ""
    scores: tuple[float, ...] = ()  # of the items, for this subscriber; empty if all scores are 0

    @property
    def is_beyond_interests(self) -> bool:
        """Return True if the items match no interest and are included because they trend."""
        return not self.interest and not self.heading

    @property
    def scored(self) -> list[tuple[DigestItem, float]]:
        """Return the items with their scores, which are 0.0 if the section has none."""
        return list(zip(self.picks, self.scores or (0.0,) * len(self.picks), strict=True))


class UpdateKind(StrEnum):
    """A change to a paper that a subscriber was sent or liked."""

    WITHDRAWN = "withdrawn"
    CODE = "code"  # code for the paper has been published


class PaperUpdate(NamedTuple):
    """An update on a paper that a subscriber was sent or liked earlier."""

    kind: UpdateKind
    paper_id: int
    title: str
    url: str  # of the paper's page or, if the kind is CODE, of the code


@dataclass(frozen=True, slots=True)
class Digest:
    """One edition of the newsletter for one subscriber."""

    edition: str
    sections: tuple[Section, ...]
    note: str = ""  # e.g. why it contains papers from several days
    considered: int = 0  # number of candidate papers
    updates: tuple[PaperUpdate, ...] = ()  # on earlier papers, at the end

    @property
    def picks(self) -> tuple[DigestItem, ...]:
        """Return the items of all sections, in order."""
        return tuple(item for section in self.sections for item in section.picks)

    @property
    def trending_count(self) -> int:
        """Return the number of items that match no interest and are included because they trend."""
        return sum(len(section.picks) for section in self.sections if section.is_beyond_interests)

    def as_dict(self) -> dict[str, Any]:
        """Return the digest as plain values, with each score in its item."""
        values = asdict(self)
        for section, own in zip(values["sections"], self.sections, strict=True):
            del section["scores"]
            for item, (_, score) in zip(section["picks"], own.scored, strict=True):
                item["score"] = score
        return values


@dataclass(frozen=True, slots=True)
class Skip:
    """The decision not to send a digest, with the reason that the subscriber and the operator see."""

    reason: str
    considered: int = 0  # number of candidate papers


class SkippedEdition(NamedTuple):
    """An edition without a digest, and the reason."""

    edition: str
    reason: str


class MailRequest(NamedTuple):
    """Everything that goes into an email. The same request always produces the same bytes."""

    delivery_id: int  # 0 if the email is not in the ledger, so that its links do not work
    kind: MailKind
    edition: str
    subscriber_id: int
    email: str
    link_epoch: int
    issued_at: datetime  # when the email was composed: the time in its Date header and in its links
    digest: Digest | None = None  # only if the kind is DIGEST
    message_id: str = ""  # empty to derive it from the delivery's id
    unreadable: int = 0  # items of the stored digest that could not be read
    signature: str = ""  # DKIM-Signature header lines, if signed ahead
    signature_fingerprint: str = ""  # the fingerprint of the content that `signature` covers


@dataclass(frozen=True, slots=True)
class RenderedMail:
    """An email as text and HTML. `headers` excludes From, To, Subject, Date and Message-ID."""

    subject: str
    text: str
    html: str
    headers: dict[str, str] = field(default_factory=dict)
    left_out: int = 0  # items that could not be rendered


@dataclass(frozen=True, slots=True)
class ReportSection:
    """A part of an email to the operators: a heading and plain lines."""

    heading: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OperatorReport:
    """An email to the operators: the daily report, an alert, or a link to sign in.

    Its button leads to `path` on the web app.
    """

    subject: str
    sections: tuple[ReportSection, ...]
    path: str = "/admin"
    button: str = "Open the admin pages"
