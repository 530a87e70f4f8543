"""PURE. The values that cross from stage to stage, in the order in which they do.

PaperRecord → (archive) → PaperView → Match, Trend → Pick → Digest → Letter → RenderedMail → Outgoing → Answer
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import date, datetime
from enum import StrEnum
from typing import NamedTuple


class SourceKind(StrEnum):
    """What a source is, and so how its answers are read."""

    HUGGINGFACE = "huggingface"
    ARXIV = "arxiv"  # the query API
    ARXIV_FEED = "arxiv_feed"  # the daily announcement feed
    FEED = "feed"
    PAGE = "page"
    JSONL = "jsonl"


class Cadence(StrEnum):
    """How often a reader wants a digest."""

    DAILY = "daily"
    WEEKDAYS = "weekdays"
    WEEKLY = "weekly"


class EmptyDigestPolicy(StrEnum):
    """What a reader gets on a day when nothing matches."""

    SKIP = "skip"
    TRENDING = "trending"


class MailKind(StrEnum):
    """What a delivery carries; each kind is one folder in `templates/email/`."""

    DIGEST = "digest"
    CONFIRM = "confirm"
    MANAGE = "manage"  # the link to one's preferences, asked for on the web
    EXPORT = "export"  # the link that downloads what is stored about a reader
    ERASE = "erase"
    NEW_LINKS = "new_links"  # all links sent before are void


@dataclass(frozen=True, slots=True)
class PaperRecord:
    """One row of one source, cleaned but not yet recognised. Empty means that the source did not say."""

    title: str
    arxiv_id: str = ""  # without version
    doi: str = ""  # lower case, without resolver
    abstract: str = ""
    authors: tuple[str, ...] = ()
    author_count: int = 0  # the true count: `authors` may be shorter
    categories: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    tldr: str = ""
    published_on: date | None = None
    url: str = ""
    pdf_url: str = ""
    code_url: str = ""
    project_url: str = ""
    thumbnail_url: str = ""
    withdrawn: bool = False
    listed_on: date | None = None  # the day on which the source shows it
    rank: int | None = None  # its place on that day, from 1
    submitted_by: str = ""
    upvotes: int | None = None  # None: this source has no votes
    comments: int | None = None
    stars: int | None = None
    version: int = 0  # arXiv's vN where known
    as_of: date | None = None  # when this was so, where that is not the day of the listing


@dataclass(frozen=True, slots=True)
class Rejection:
    """A row that could not be used. `row` counts from 1; None is the whole answer, or its missing end."""

    reason: str  # a short fixed phrase, so that rejections can be counted by it
    row: int | None = None
    detail: str = ""
    origin: str = ""  # the file or the source it came in


@dataclass(frozen=True, slots=True)
class ParseResult:
    """What a source's answer held. `rows` = len(records) + the rejected rows."""

    rows: int = 0
    records: tuple[PaperRecord, ...] = ()
    rejections: tuple[Rejection, ...] = ()

    def __add__(self, other: ParseResult) -> ParseResult:
        """The next page of the same answer: its rows are counted on from the last."""
        later = (
            rejection if rejection.row is None else replace(rejection, row=self.rows + rejection.row)
            for rejection in other.rejections
        )
        return ParseResult(self.rows + other.rows, self.records + other.records, (*self.rejections, *later))


@dataclass(frozen=True, slots=True)
class IngestSummary:
    """What storing did. Always: rows = papers_new + papers_merged + changed + unchanged + rejected rows.

    A row is *merged* when it proved to be a paper known from elsewhere, *changed* when it altered
    anything at all (a field, a listing, votes), *unchanged* when the archive had it already.
    Rejections without a row number (an answer's missing end) are counted in `rejected` and are no rows.
    """

    rows: int = 0
    papers_new: int = 0
    papers_merged: int = 0
    changed: int = 0
    unchanged: int = 0
    listings: int = 0
    rejections: tuple[Rejection, ...] = ()

    @property
    def rejected(self) -> int:
        return len(self.rejections)

    def __add__(self, other: IngestSummary) -> IngestSummary:
        return IngestSummary(
            self.rows + other.rows,
            self.papers_new + other.papers_new,
            self.papers_merged + other.papers_merged,
            self.changed + other.changed,
            self.unchanged + other.unchanged,
            self.listings + other.listings,
            self.rejections + other.rejections,
        )

    def of(self, origin: str) -> IngestSummary:
        """Return the same with the file or source that the rejections came in."""
        return replace(self, rejections=tuple(replace(each, origin=origin) for each in self.rejections))

    def counts(self) -> dict[str, int]:
        names = ("rows", "papers_new", "papers_merged", "changed", "unchanged", "listings", "rejected")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True)
class VoteSample:
    """The votes of a paper, summed over its sources, as they stood from `at` on."""

    at: datetime
    upvotes: int


@dataclass(frozen=True, slots=True)
class PaperView:
    """A paper of the archive as matching, composing and the templates see it."""

    id: int
    title: str
    abstract: str = ""
    authors: tuple[str, ...] = ()
    author_count: int = 0
    categories: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    tldr: str = ""
    tldr_by: str = ""  # the language model that wrote it; empty: a source
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
    votes: tuple[VoteSample, ...] = ()  # oldest first; empty where no source has votes
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Trend:
    """How a paper is doing: `score` in 0…1, and the words a reader sees for it."""

    score: float
    words: str


@dataclass(frozen=True, slots=True)
class Match:
    """Why a paper fits one interest. `relevance` in 0…1 is comparable over interests."""

    relevance: float
    reason: str


@dataclass(frozen=True, slots=True)
class Interest:
    """One interest of one reader: the text as typed, how much it weighs, and at most how many papers."""

    text: str
    weight: float = 1.0
    quota: int | None = None


@dataclass(frozen=True, slots=True)
class Feedback:
    """What a reader said of a paper; or one that they pasted, which the archive may not know."""

    title: str
    abstract: str
    authors: tuple[str, ...]
    liked: bool
    at: datetime
    paper_id: int | None = None  # as the archive knows it today
    own_key: str = ""  # names a paper that is this reader's alone, among theirs


@dataclass(frozen=True, slots=True)
class DigestItem:
    """A paper in a digest, with everything its card shows, fixed at the moment of composing."""

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
    score: float = 0.0
    summary_by: str = ""  # the language model that wrote the summary; empty: a source, or the abstract itself


@dataclass(frozen=True, slots=True)
class Section:
    """The picks under one interest, or those that are trending beyond all of them (`interest` empty)."""

    interest: str
    picks: tuple[DigestItem, ...]
    heading: str = ""  # of picks under no interest, where they are not those that are trending


@dataclass(frozen=True, slots=True)
class Digest:
    """One edition for one reader."""

    edition: str
    sections: tuple[Section, ...]
    note: str = ""  # e.g. why papers of several days are in it
    considered: int = 0  # how many papers were looked at

    @property
    def picks(self) -> tuple[DigestItem, ...]:
        return tuple(pick for section in self.sections for pick in section.picks)


@dataclass(frozen=True, slots=True)
class Skip:
    """No digest for this reader now, and the reason they and the operator are told."""

    reason: str


class SkippedEdition(NamedTuple):
    """An edition that had nothing to bring, and why."""

    edition: str
    reason: str


class MailRequest(NamedTuple):
    """A mail that is to be written: what goes into it. The same letter always gives the same bytes."""

    delivery_id: int  # 0: outside of the ledger; its links grant nothing
    kind: MailKind
    edition: str
    subscriber_id: int
    email: str
    link_epoch: int
    issued_at: datetime  # when it was composed: its Date, and that of its links
    digest: Digest | None = None  # None: every kind but a digest
    message_id: str = ""  # empty: the one that follows from the delivery's id
    unreadable: int = 0  # picks of the stored digest that could not be read back
    signature: str = ""  # the DKIM-Signature header lines that were made ahead, and
    signature_fingerprint: str = ""  # the fingerprint of what they sign


@dataclass(frozen=True, slots=True)
class RenderedMail:
    """A mail as people read it. `headers` are those beyond From, To, Subject, Date and Message-ID."""

    subject: str
    text: str
    html: str
    headers: dict[str, str] = field(default_factory=dict)
    left_out: int = 0  # picks that could not be rendered


class OutgoingMail(NamedTuple):
    """A mail as it goes over the wire, and the envelope around it."""

    delivery_id: int
    message_id: str
    subject: str
    sender: str  # the signed return path
    recipient: str
    data: bytes  # lines end in CRLF
    needs_smtputf8: bool = False
    no_leading_dots: bool = False  # known of the data: looking for one in 30 kB takes 20 µs


class SendOutcome(StrEnum):
    """What became of one attempt to hand a mail to the relay."""

    ACCEPTED = "accepted"
    DEFERRED = "deferred"  # the relay says later, or the connection broke before the body left
    HARD = "hard"  # there is no such mailbox
    SOFT = "soft"  # this mail was refused; the address may well be fine
    FULL = "full"  # so is a full mailbox
    OUR_FAULT = "our_fault"  # the relay refuses us, whoever the reader is
    UNCERTAIN = "uncertain"  # the connection broke after the body had begun to leave
    UNREACHABLE = "unreachable"  # no connection could be made
    UNSENDABLE = "unsendable"  # this mail cannot be made, or not be carried by this relay
    WITHDRAWN = "withdrawn"  # the ledger said no at the last moment
    HELD = "held"  # not tried: the run had stopped before its turn


class SendResult(NamedTuple):
    """A verdict with the relay's own words."""

    verdict: SendOutcome
    code: int | None = None
    text: str = ""
