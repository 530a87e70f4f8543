"""Fetch the pictures of recently listed papers, and store small copies of them.

Pictures are untrusted, because their URLs come from the sources. Each picture is fetched only from public
addresses, within limits on time and size, and is decoded and encoded again. Digests and pages never wait for
a picture. A picture that cannot be fetched or decoded is tried again a few times, after ever longer waits.
"""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from time import monotonic

from sqlmodel import Session, col, func, or_, select

from app.errors import Stopping, UnreadableResponse
from app.papers import archive_lists, picture_encoding, polling
from app.papers.picture_encoding import EncodedPicture
from app.papers.polling import PollContext
from app.papers.sources import deadlines, host_rate_limits, http_client
from app.storage import job_runs
from app.storage.database import advisory_lock
from app.storage.models import Paper, PaperPicture, VoteCount
from app.text import sanitize
from app.types import Rejection

JOB = "fetch_pictures"
WINDOW = timedelta(days=30)  # must be shorter than the shortest `retention_days`
PICTURES_PER_RUN = 100
DEADLINE = timedelta(minutes=10)  # of a run
RESPONSE_TIMEOUT = timedelta(seconds=60)  # for one picture
ATTEMPTS = 4
BACK_OFF = timedelta(hours=1)  # after the first failure of a picture; quadrupled after each further one
HOST_FAILURES = 3  # consecutive failures after which a host is skipped until the next run
NO_PICTURE = (404, 410)  # statuses that say that a picture is missing, not that its host fails
# The wait before the next run if a host was skipped, doubled after each further such run.
FIRST_WAIT, LONGEST_WAIT = timedelta(minutes=15), timedelta(hours=2)
NO_RESPONSE = "no response in time"
NOT_USABLE = "the picture cannot be fetched or decoded"


@dataclass(frozen=True, slots=True)
class PictureToFetch:
    """A paper whose picture is to be fetched."""

    paper_id: int
    title: str
    url: str

    @property
    def host(self) -> str:
        return self.url.split("/")[2].lower()


@dataclass
class FetchResult:
    """The result of a run. `host_errors` maps each skipped host to its last error."""

    fetched: int = 0
    rejections: list[Rejection] = field(default_factory=list)
    host_errors: dict[str, str] = field(default_factory=dict)

    def counts(self) -> dict[str, int]:
        return {"fetched": self.fetched, "rejected": len(self.rejections)}


def pictures_to_fetch(session: Session, now: datetime) -> list[PictureToFetch]:
    """Return the pictures to fetch now, most recently listed papers first, with ties broken by upvotes.

    Return an empty list during the wait after a run in which a host failed.
    """
    if job_runs.is_backing_off(session, JOB, now, FIRST_WAIT, LONGEST_WAIT):
        return []
    upvotes = (
        select(func.max(VoteCount.upvotes)).where(col(VoteCount.paper_id) == col(Paper.id)).scalar_subquery()
    )
    papers = (
        select(Paper.id, Paper.title, Paper.thumbnail_url)
        .outerjoin(PaperPicture, col(PaperPicture.paper_id) == col(Paper.id))
        .where(
            col(Paper.last_listed_on) > now.date() - WINDOW,
            archive_lists.IS_SEARCHABLE,
            Paper.thumbnail_url != "",
            or_(
                col(PaperPicture.paper_id).is_(None),
                col(PaperPicture.url) != col(Paper.thumbnail_url),
                col(PaperPicture.next_attempt_at) <= now,
            ),
        )
        .order_by(col(Paper.last_listed_on).desc(), func.coalesce(upvotes, 0).desc(), col(Paper.id))
    )
    rows = session.exec(papers.limit(PICTURES_PER_RUN))
    return [PictureToFetch(paper_id or 0, title, url) for paper_id, title, url in rows]


async def fetch(context: PollContext, pictures: Sequence[PictureToFetch], now: datetime) -> FetchResult:
    """Fetch pictures one after the other, and store them, until the deadline or until the service stops."""
    deadline = monotonic() + DEADLINE.total_seconds()
    http = replace(context.http, timeout_fix="")  # RESPONSE_TIMEOUT would still apply
    async with polling.client_of(replace(context, http=http), now) as client:
        fetcher = _Fetcher(context, client, now)
        for picture in pictures:
            if context.stopping.is_set() or monotonic() > deadline:
                break
            if picture.host not in fetcher.result.host_errors:
                await fetcher.fetch(picture)
    return fetcher.result


@dataclass
class _Fetcher:
    """The state of one run."""

    context: PollContext
    client: http_client.Client
    now: datetime
    result: FetchResult = field(default_factory=FetchResult)
    failures: Counter[str] = field(default_factory=Counter)  # consecutive failures, by host

    async def fetch(self, picture: PictureToFetch) -> None:
        """Fetch and store a picture. If this fails, store the time of the next attempt."""
        encoded: EncodedPicture | None = None
        retry_at: datetime | None = None
        try:
            encoded = await self._download(picture)
        except Stopping:
            return
        except Exception as error:  # otherwise, each run would end at the same picture
            retry_at = getattr(error, "retry_at", None)
            # Text from an untrusted server may contain characters that PostgreSQL refuses.
            reason = NO_RESPONSE if isinstance(error, TimeoutError) else sanitize.one_line(str(error))
            self.result.rejections.append(
                Rejection(NOT_USABLE, None, f"{reason} {picture.url}", picture.title)
            )
            if isinstance(error, UnreadableResponse) or getattr(error, "status", None) in NO_PICTURE:
                self.failures.pop(picture.host, None)  # the host responds
            else:
                self._note_host_failure(picture.host, reason, retry_at)
        else:
            self.result.fetched += 1
            self.failures.pop(picture.host, None)
        await asyncio.to_thread(self._store, picture, encoded, retry_at)

    async def _download(self, picture: PictureToFetch) -> EncodedPicture:
        # arXiv allows only one connection, which another process may be using now.
        if host_rate_limits.service_of(picture.url) == host_rate_limits.ARXIV:
            raise UnreadableResponse("pictures are not fetched from arXiv:")
        request = self.client.get(picture.url, public_only=True)
        seconds = RESPONSE_TIMEOUT.total_seconds()
        response = await deadlines.wait_for(request, seconds, self.context.stopping)
        return await asyncio.to_thread(picture_encoding.encode_small, response.body)

    def _note_host_failure(self, host: str, reason: str, retry_at: datetime | None) -> None:
        """Count a failure of a host. Skip the host after HOST_FAILURES in a row, or if it asks to wait."""
        self.failures[host] += 1
        if retry_at or self.failures[host] >= HOST_FAILURES:
            # Remove the host's name, because it is stored as the name of the failed part of the run.
            self.result.host_errors[host] = reason.removeprefix(f"{host.partition(':')[0]}: ")

    def _store(
        self, picture: PictureToFetch, encoded: EncodedPicture | None, retry_at: datetime | None
    ) -> None:
        row = PaperPicture(paper_id=picture.paper_id, url=picture.url, fetched_at=self.now)
        with self.context.db.write() as session:
            advisory_lock(session, "archive")  # a merge may be copying a picture to this paper
            if encoded:
                row.data, row.media_type = encoded.data, picture_encoding.MEDIA_TYPE
                row.width, row.height = encoded.width, encoded.height
                row.version = hashlib.sha256(encoded.data).hexdigest()[:16]
            else:
                before = session.get(PaperPicture, picture.paper_id)
                failures = before.failures if before and before.url == picture.url else 0
                row.failures = failures + 1
                if row.failures < ATTEMPTS:
                    wait_until = self.now + BACK_OFF * 4.0**failures
                    row.next_attempt_at = max(wait_until, retry_at or wait_until)
            session.merge(row)
