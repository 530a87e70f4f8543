"""Preview a digest: today's papers for a form, and recent matches for each interest. Nothing is stored."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from threading import Lock

import structlog
from fastapi import Request

from app import clock, subscribers
from app.application import Application
from app.digests import backtesting, compose, selection
from app.digests.builder import DigestBuilder
from app.errors import TooManyRequests
from app.relevance.suggestions import InterestHint
from app.subscribers import AMOUNTS, Preferences
from app.types import Digest, Feedback, Interest, Section, Skip
from app.web import forms
from app.web.forms import PreferencesForm
from app.web.site_state import capacity
from app.web.visitors import visitor

log = structlog.get_logger(__name__)

DAYS = 14
MIN_DAYS = 7  # minimum number of days with papers for stating a rate
DEFAULT_DIGEST_SIZE = 10  # papers
BUILDER_LIFETIME = timedelta(minutes=1)  # previews share a builder and its papers for this long
_KEEP = {"HX-Reswap": "none"}  # htmx keeps the last preview and shows only the message
MAX_MATCHED = 300  # interests per builder; each needs a value for every loaded paper


@dataclass(frozen=True, slots=True)
class InterestPreview:
    """The number of recent papers that match an interest, by day."""

    text: str
    counts: tuple[int, ...]  # by day
    description: str
    hint: InterestHint
    other_amounts: Mapping[str, str] = field(default_factory=dict)  # rates in words, keyed by amount names


@dataclass(frozen=True, slots=True)
class Preview:
    """A preview, or the error that prevented it."""

    digest: Digest | None = None
    skip_reason: str = ""  # why there would be no digest
    days: tuple[date, ...] = ()
    interests: tuple[InterestPreview, ...] = ()
    largest: Section | None = None  # see `largest_section`
    error: str = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


def validate_and_preview(
    request: Request,
    form: PreferencesForm,
    split: str = "",
    change: str = "",
    load_feedback: Callable[[], Sequence[Feedback]] = tuple,
) -> tuple[PreferencesForm, Preview]:
    """Return the validated form and its preview, which ignores invalid values. Raise no exceptions.

    If given, first split the interest `split` and apply `change` (see forms.replace_interest). If the preview
    fails or the rate limit is exceeded, return a preview with the error. If the rate limit is exceeded, the
    form is not validated. `load_feedback` is called only for a preview that is built.
    """
    previews: Previews = request.app.state.previews
    try:
        capacity(request).visitors.previews.hit(visitor(request))
        form = forms.split_interest(form, split) if split else form
        form = forms.validated(forms.replace_interest(form, change) if change else form)
        with capacity(request).previews.take():
            preferences = form.valid_preferences
            if problem := form.problems.get("interests"):
                return form, Preview(skip_reason=problem)
            if form.rows and not preferences.interests:
                return form, Preview()
            return form, previews.build(preferences, clock.utcnow(), load_feedback())
    except TooManyRequests as error:
        wait = "a second" if error.retry_after == 1 else f"{error.retry_after} seconds"
        problem = f"Too many requests. The next preview is available in {wait}."
        headers = _KEEP | {"Retry-After": str(error.retry_after)}
        return form, Preview(error=problem, status=429, headers=headers)
    except Exception:
        log.exception("preview failed")
        return form, Preview(error="The preview failed. We have logged the error.", status=500, headers=_KEEP)


class Previews:
    """A builder of previews. Previews within a minute share the papers, because loading them takes longest.

    They also share the matches of interests, so only one preview is built at a time.
    """

    def __init__(self, app: Application) -> None:
        self._app = app
        self._lock = Lock()
        self._builder: tuple[DigestBuilder, datetime] | None = None
        self._matched: set[str] = set()  # texts of interests

    def build(self, preferences: Preferences, now: datetime, feedback: Sequence[Feedback] = ()) -> Preview:
        """Return the preview for valid preferences and a subscriber's feedback."""
        days = tuple(now.date() - timedelta(days=back) for back in reversed(range(DAYS)))
        with self._lock:
            builder, interests = self._current_builder(now), subscribers.deduplicate(preferences.interests)
            self._matched.update(interest.text for interest in interests)
            selected = selection.select(builder.rank(preferences, feedback=feedback))
            digest = compose.compose(now.date().isoformat(), selected.ranked, selected)
            # The number of parts for which there is room if one interest is split.
            max_parts = self._app.settings.max_interests - len(interests) + 1
            muted = builder.interests.muted_papers(preferences.muted)
            hints = builder.interests.hints(interest.text for interest in interests)
            interest_previews = tuple(
                preview_interest(builder, interest, days, muted, hint.limited_to(max_parts))
                for interest, hint in zip(interests, hints, strict=True)
            )
        if isinstance(digest, Skip):
            return Preview(None, digest.reason, days, interest_previews)
        largest = largest_section(digest, interests, selected.crowded_interests)
        return Preview(digest, "", days, interest_previews, largest)

    def _current_builder(self, now: datetime) -> DigestBuilder:
        """Return the current builder with its papers loaded. Replace it first if it is too old or full."""
        if self._builder and now - self._builder[1] < BUILDER_LIFETIME and len(self._matched) < MAX_MATCHED:
            return self._builder[0]
        with self._app.db.read() as session:
            builder = DigestBuilder(self._app.digest_context, session, now, back=DAYS - 1)
        builder.rewind_to(now)  # the digest looks back as usual; the counts cover all loaded days
        self._builder, self._matched = (builder, now), set()
        return builder


def largest_section(
    digest: Digest, interests: Sequence[Interest], crowded: Collection[str]
) -> Section | None:
    """Return the section with over half of a digest, if a maximum for its interest makes room for others.

    Otherwise, return None. `crowded` are the texts of the interests that match papers for which the digest
    has no room.
    """
    unlimited = {interest.text for interest in interests if interest.quota is None}
    large = (section for section in digest.sections if len(section.picks) * 2 > len(digest.picks))
    largest = next((section for section in large if section.interest in unlimited), None)
    return largest if largest and any(text != largest.interest for text in crowded) else None


def preview_interest(
    builder: DigestBuilder,
    interest: Interest,
    days: Sequence[date],
    muted: Collection[int],
    hint: InterestHint,
) -> InterestPreview:
    """Return the daily matches of an interest, the rates that the other amounts would give, and its hint."""
    paper_days = len(builder.listing_days.intersection(days))
    note = builder.interests.absent_fields_note(interest.text)

    def counts_at(weight: float, muted: Collection[int] = muted) -> tuple[int, ...]:
        return backtesting.daily_counts(builder, replace(interest, weight=weight), days, muted)

    counts = counts_at(interest.weight)
    description = in_words(counts, paper_days, note)
    if muted and not any(counts) and any(counts_at(interest.weight, muted=())):
        description = "none except muted ones"
    others = [weight for weight in AMOUNTS if weight != interest.weight] if paper_days >= MIN_DAYS else []
    amounts: dict[str, list[str]] = {}  # names of amounts, keyed by rate
    for weight in others:
        amounts.setdefault(in_words(counts_at(weight), paper_days, note), []).append(AMOUNTS[weight])
    return InterestPreview(
        *(interest.text, counts, description, hint),
        other_amounts={", ".join(names): rate for rate, names in amounts.items() if rate != description},
    )


def in_words(counts: Sequence[int], paper_days: int, absent_fields_note: str = "") -> str:
    """Describe daily counts. `paper_days` is the number of days on which any papers were listed."""
    total = sum(counts)
    if not total and absent_fields_note:
        return f"none: {absent_fields_note}"
    if not total:
        return "none"
    if paper_days < MIN_DAYS:
        return f"{total} {'on the one day' if paper_days == 1 else f'in the {paper_days} days'} known so far"
    rate = total / paper_days
    if rate > DEFAULT_DIGEST_SIZE:
        return f"about {rate:.0f} a day: the best are sent"
    if rate >= 0.75:
        return f"about {rate:.0f} a day"
    return f"{total} in two weeks"
