"""What interests would bring: the digest of today, and how many papers a day of late. Nothing is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from threading import Lock

import structlog
from fastapi import Request

from app import clock, subscribers
from app.application import Application
from app.digests import backtesting
from app.digests.builder import DigestBuilder
from app.errors import TooManyRequests
from app.relevance import query_language
from app.subscribers import MAX_INTERESTS, Preferences
from app.types import Digest, Skip
from app.web import forms
from app.web.forms import PreferencesForm
from app.web.security import visitor
from app.web.work_limits import Capacity

log = structlog.get_logger(__name__)

DAYS = 14
YOUNG = 7  # fewer days with papers than this are no fortnight to speak of
DIGEST = 10  # papers, unless a reader chooses otherwise
NARROW = 2  # papers in two weeks

FRESH = timedelta(minutes=1)  # for so long everybody is shown the papers of the same moment
MATCHED = 300  # interests that are kept for so long: a row for each, as wide as three weeks of papers


@dataclass(frozen=True, slots=True)
class InterestPreview:
    """What an interest would have brought."""

    text: str
    counts: tuple[int, ...]  # by day
    words: str
    pieces: tuple[str, ...] = ()  # the interests that it looks like, if it looks like several


@dataclass(frozen=True, slots=True)
class Preview:
    """What interests would bring, or why that is not told."""

    digest: Digest | None = None
    silence: str = ""  # why there would be no digest
    days: tuple[date, ...] = ()
    interests: tuple[InterestPreview, ...] = ()
    trouble: str = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)

    @classmethod
    def busy(cls, seconds: int) -> Preview:
        wait = "a second" if seconds == 1 else f"{seconds} seconds"
        said = f"That was a lot at once: the next preview can be had in {wait}."
        return cls(trouble=said, status=429, headers={"Retry-After": str(seconds)})

    @classmethod
    def failed(cls) -> Preview:
        return cls(trouble="No preview could be made just now. It has been noted.", status=500)


def asked(request: Request, form: PreferencesForm, split: str = "") -> tuple[PreferencesForm, Preview]:
    """A form looked over, and its preview or the reason why there is none now: nobody is kept from the form.

    What has a problem is left out. The form is looked over only where a preview may be had.
    """
    limits: Capacity = request.app.state.capacity
    try:
        limits.preview_limit.hit(visitor(request))
        form = forms.validated(form, split)
        with limits.previews.take():
            return form, _of(request.app.state.previews, form)
    except TooManyRequests as error:
        return form, Preview.busy(error.retry_after)
    except Exception:
        log.exception("no preview")
        return form, Preview.failed()


def _of(previews: Previews, form: PreferencesForm) -> Preview:
    if problem := form.problems.get("interests"):
        return Preview(silence=problem)
    wanted = form.usable
    if form.rows and not wanted.interests:
        return Preview()
    return previews.of(wanted, clock.utcnow())


class Previews:
    """Looks at the same papers for everybody within a minute: reading them is most of the work.

    One preview is made at a time, since they share what was matched before.
    """

    def __init__(self, app: Application) -> None:
        self._app = app
        self._turn = Lock()
        self._laid_out: tuple[DigestBuilder, datetime] | None = None
        self._matched: set[str] = set()

    def of(self, wanted: Preferences, now: datetime) -> Preview:
        """What somebody who wants this, all of which can be understood, would get."""
        with self._turn:
            return self._made(wanted, now)

    def _made(self, wanted: Preferences, now: datetime) -> Preview:
        desk, wishes = self._current(now), subscribers.deduplicate(wanted.interests)
        self._matched.update(wish.text for wish in wishes)
        digest = desk.preview(now.date().isoformat(), wanted)
        days = tuple(now.date() - timedelta(days=back) for back in reversed(range(DAYS)))
        known = {paper.first_listed_on for paper in desk.papers}.intersection(days)
        most = MAX_INTERESTS - len(wishes) + 1  # that one of them may be parted into
        muted = desk.muted_papers(wanted.muted)
        counted = tuple(_brought(desk, wish.text, days, len(known), most, muted) for wish in wishes)
        silence = digest.reason if isinstance(digest, Skip) else ""
        return Preview(digest if isinstance(digest, Digest) else None, silence, days, counted)

    def _current(self, now: datetime) -> DigestBuilder:
        """The papers of this minute, laid out."""
        if self._laid_out and now - self._laid_out[1] < FRESH and len(self._matched) < MATCHED:
            return self._laid_out[0]
        with self._app.db.read() as session:
            desk = DigestBuilder(self._app.digest_context, session, now, back=DAYS - 1)
        desk.rewind_to(now)  # the counts look back over all of it, the digest as far as any does
        self._laid_out, self._matched = (desk, now), set()
        return desk


def _brought(
    desk: DigestBuilder, text: str, days: Sequence[date], known: int, most: int, muted: frozenset[int]
) -> InterestPreview:
    counts, pieces = backtesting.daily_counts(desk, text, days, muted), query_language.split_suggestion(text)
    kept_out = muted and not any(counts) and any(backtesting.daily_counts(desk, text, days))
    words = "none that is not muted" if kept_out else in_words(text, counts, known)
    return InterestPreview(text, counts, words, pieces if len(pieces) <= most else ())


def in_words(text: str, counts: Sequence[int], known: int) -> str:
    """How many papers a day that is, where any papers are known of so many of the days."""
    total = sum(counts)
    if not total and not query_language.parse(text).terms:  # by authors or categories alone
        return "none"
    if not total:
        return f"none: try {'fewer' if ' ' in text else 'other'} words"
    if known < YOUNG:
        return f"{total} {'on the one day' if known == 1 else f'in the {known} days'} known so far"
    a_day = total / known
    if a_day > DIGEST:
        return f"about {a_day:.0f} a day: the best are sent"
    if a_day >= 0.75:
        return f"about {a_day:.0f} a day"
    return f"{total} in two weeks" + (": rather narrow" if total <= NARROW else "")
