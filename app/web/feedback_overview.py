"""A subscriber's feedback as the preferences pages show it."""

from collections.abc import Iterable
from dataclasses import dataclass

from sqlmodel import Session

from app import subscribers
from app.relevance import query_rewriting, user_profile
from app.types import Feedback, Interest

AUTHORS_SHOWN = 30
# Messages shown after a redirect to the preferences, keyed by the name in the URL.
MESSAGES = {
    "removed": "Removed.",
    "weighed": "Saved.",
    "forgotten": "Your feedback was deleted. Your digests are now based on your interests only.",
}


@dataclass(frozen=True, slots=True)
class FeedbackOverview:
    """The papers that a subscriber liked and disliked, and the authors of the liked ones."""

    liked: tuple[Feedback, ...]
    disliked: tuple[Feedback, ...]
    authors: tuple[tuple[str, int], ...]  # name and number of liked papers
    more_authors: int  # number of further authors of liked papers
    followed: frozenset[str]  # the authors in `authors` whom the subscriber follows
    ignored: tuple[str, ...]  # authors of liked papers whom the ranking ignores


def overview(session: Session, subscriber_id: int) -> FeedbackOverview:
    feedback = subscribers.feedback_for_ranking(session, [subscriber_id]).get(subscriber_id, ())
    all_authors = user_profile.liked_authors(feedback)
    authors = all_authors[:AUTHORS_SHOWN]
    subscriber = subscribers.get(session, subscriber_id)
    interests = subscribers.preferences_of(session, subscriber).interests
    return FeedbackOverview(
        liked=tuple(item for item in feedback if item.liked),
        disliked=tuple(item for item in feedback if not item.liked),
        authors=tuple(authors),
        more_authors=len(all_authors) - len(authors),
        followed=frozenset(followed_authors((name for name, _ in authors), interests)),
        ignored=tuple(subscriber.ignored_authors),
    )


def followed_authors(names: Iterable[str], interests: Iterable[Interest]) -> list[str]:
    """Return those of the authors who are followed by an interest, such as `author:"Ada Lovelace"`."""
    texts = {interest.text.casefold() for interest in interests}
    return [name for name in names if query_rewriting.query_for("author", name).casefold() in texts]
