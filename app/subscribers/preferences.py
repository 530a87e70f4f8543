"""Subscribers' preferences, and clear errors for invalid values. This module does not use the database."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from app.errors import InvalidInterest, InvalidPreference
from app.relevance import muted_texts, query_language
from app.settings import Settings
from app.text import dates
from app.text.in_words import count_of
from app.types import DEFAULT_MAX_PAPERS, DEFAULT_MIN_PAPERS, Cadence, EmptyDigestPolicy, Interest

# The limit for operators, too. PAPERBOY_MAX_INTERESTS limits what subscribers add themselves.
ABSOLUTE_MAX_INTERESTS = 50
MAX_PAPERS = 30  # with more, an email would exceed the 100 kB at which mailbox providers clip it
MAX_WEIGHT = 3.0
MAX_MUTED = 50
ADD_INTEREST = "Add at least one interest, or choose to get trending papers."
# The weights that the preferences page offers for an interest. `benchmarks.sent` measures their effect.
AMOUNTS = {0.5: "fewer", 1.0: "normal", 1.5: "more", 2.0: "most"}


@dataclass(frozen=True, slots=True)
class Preferences:
    """A subscriber's schedule, interests and limits. `problems` finds invalid values."""

    cadence: Cadence = Cadence.DAILY
    weekday: int = 0  # of the weekly digest; 0 is Monday
    hour: int = 8  # local
    zone: str = "UTC"
    min_papers: int = DEFAULT_MIN_PAPERS
    max_papers: int = DEFAULT_MAX_PAPERS
    when_empty: EmptyDigestPolicy = EmptyDigestPolicy.SKIP
    max_trending: int = 0  # maximum number of trending papers in a digest that match no interest
    paper_updates: bool = True  # updates on papers sent earlier, at the end of a digest
    muted: tuple[str, ...] = ()  # papers to leave out: words, phrases or filters, see `parse_muted`
    interests: tuple[Interest, ...] = ()


def default_preferences(settings: Settings) -> Preferences:
    """Return the default preferences from the settings, without interests."""
    return Preferences(
        cadence=settings.default_cadence, hour=settings.default_hour, zone=settings.default_zone,
        max_papers=settings.default_max_papers, max_trending=settings.default_max_trending,
    )  # fmt: skip


def lacks_interests(preferences: Preferences) -> bool:
    """Return whether digests would have nothing to contain: neither interests nor only trending papers."""
    return not preferences.interests and preferences.when_empty is EmptyDigestPolicy.SKIP


def problems(
    preferences: Preferences, max_interests: int = ABSOLUTE_MAX_INTERESTS, stored: Collection[str] = ()
) -> dict[str, str]:
    """Return error messages keyed by field (`interests.0` is the first interest), or {} if there are none.

    `stored` contains the interests and muted texts that are already stored. The stricter rules for new texts
    do not apply to them.
    """
    least, most = preferences.min_papers, preferences.max_papers
    bounds, limit = f"Choose a number from 1 to {MAX_PAPERS}.", count_of(max_interests, "interest")
    rules = (
        ("weekday", 0 <= preferences.weekday <= 6, "Choose a day of the week."),
        ("hour", 0 <= preferences.hour <= 23, "Choose an hour from 0 to 23."),
        (
            "zone",
            dates.find_zone(preferences.zone) is not None,
            f"“{preferences.zone[:64]}” is not a known time zone. Use a name such as Europe/Berlin.",
        ),
        ("max_papers", 1 <= most <= MAX_PAPERS, bounds),
        ("min_papers", 1 <= least <= MAX_PAPERS, bounds),
        ("min_papers", not 1 <= most < least <= MAX_PAPERS, "The minimum is greater than the maximum."),
        (
            "max_trending",
            0 <= preferences.max_trending <= MAX_PAPERS,
            f"Choose a number from 0 (none) to {MAX_PAPERS}.",
        ),
        (
            "interests",
            len(preferences.interests) <= max_interests,
            f"You can have at most {limit}. Fewer, more specific interests work better.",
        ),
        ("interests", not lacks_interests(preferences), ADD_INTEREST),
    )
    by_field = {field: problem for field, is_valid, problem in rules if not is_valid}
    for index, interest in enumerate(preferences.interests):
        if problem := _problem_of_interest(interest, is_stored=interest.text in stored):
            by_field[f"interests.{index}"] = problem
    if problem := _problem_of_muted(preferences.muted, stored):
        by_field["muted"] = problem
    return by_field


def _problem_of_muted(texts: Sequence[str], stored: Collection[str]) -> str:
    """Return only the first problem, because all muted texts are typed into one field."""
    if len(texts) > MAX_MUTED:
        return f"You can mute at most {MAX_MUTED} words."
    for text in texts:
        try:
            if text in stored:
                muted_texts.parse_muted(text)
            else:
                muted_texts.parse_typed_muted(text)
        except InvalidInterest as error:
            return str(error)
    return ""


def check(
    preferences: Preferences, max_interests: int = ABSOLUTE_MAX_INTERESTS, before: Preferences | None = None
) -> Preferences:
    """Return the normalized preferences. Raise InvalidPreference, which names the first invalid field.

    `before` contains the stored preferences: see `stored` in `problems`.
    """
    stored = [*(interest.text for interest in before.interests), *before.muted] if before else []
    for field, problem in problems(preferences, max_interests, stored).items():
        raise InvalidPreference(problem, field)
    return normalize_preferences(preferences)


def normalize_preferences(preferences: Preferences) -> Preferences:
    """Return preferences with the current name of the time zone, and with normalized, distinct texts."""
    zone = dates.find_zone(preferences.zone) or preferences.zone
    muted = dict[tuple[str, frozenset[str]], str]()
    for text in map(query_language.normalize, preferences.muted):
        muted.setdefault(query_language.comparison_key(text), text)
    interests = deduplicate(preferences.interests)
    return replace(preferences, zone=zone, interests=interests, muted=tuple(muted.values()))


def deduplicate(interests: Iterable[Interest]) -> tuple[Interest, ...]:
    """Return normalized interests. Of several interests with the same text, keep only the first."""
    unique = dict[tuple[str, frozenset[str]], Interest]()
    for interest in interests:
        text = query_language.normalize(interest.text)
        unique.setdefault(query_language.comparison_key(text), replace(interest, text=text))
    return tuple(unique.values())


def _problem_of_interest(interest: Interest, *, is_stored: bool) -> str:
    parse = query_language.parse if is_stored else query_language.parse_typed
    try:
        parse(interest.text)
    except InvalidInterest as error:
        return str(error)
    if not 0 < interest.weight <= MAX_WEIGHT:
        return f"Choose a weight above 0 and up to {MAX_WEIGHT:g}."
    if interest.quota is not None and not 1 <= interest.quota <= MAX_PAPERS:
        return f"Choose a maximum from 1 to {MAX_PAPERS} papers, or leave the field empty."
    return ""
