"""PURE. Write the reasons on cards: why a paper matches an interest or a reader's likes, or is trending.

`matching`, `user_profile` and `highlights` find the facts. `digests` combines the reasons for a paper.
"""

from collections.abc import Iterable, Sequence, Set
from dataclasses import replace
from datetime import date
from functools import lru_cache

from app.relevance import trending
from app.relevance.highlights import Highlights
from app.text.shortening import FUNCTION_WORDS
from app.text.tokenizer import WORD, content_stems
from app.types import CardReason, Marks, Trend

MAX_CLOSE_WORDS = 3  # per reason, besides the highlights
MAX_AUTHORS = 3  # per reason; many papers have more authors called Li
MAX_CACHED_WORDS = 20_000
WELL_VOTED = "more votes than most papers of its day"
EDITORS_PICK = CardReason("picked by the editor of this service")


def interest_reason(
    highlights: Highlights,
    unmarked: Highlights,
    missing: Sequence[str],
    close_words: Sequence[str] | None,
    authors: Sequence[str],
    organization: str,
    categories: Sequence[str],
) -> tuple[str, str]:
    """Return why a paper matches an interest: highlights, close words, and the filters it passed.

    Return two reasons: the full one, and one for a card that marks all highlights except those in `unmarked`.
    If the paper lacks some words of the interest, name these words and related words of the paper. Without
    highlights and related words, say “a similar topic”, unless `close_words` is None.
    """
    parts = []
    if missing:
        without = f"no {_quote(missing, ' or ')}" if highlights else ""
        topic = "a similar topic" if close_words is not None and not highlights else ""
        related = f"related words: {_quote(close_words)}" if close_words else topic
        parts.append(", but ".join(filter(None, [without, related])))
    if authors:
        others = f" and {len(authors) - MAX_AUTHORS} more" if len(authors) > MAX_AUTHORS else ""
        parts.append(f"by {', '.join(authors[:MAX_AUTHORS])}{others}")
    if organization:
        parts.append(f"from {organization}")
    if categories:
        parts.append(f"filed under {', '.join(categories)}")
    whole, rest = ([_in_field(texts, field) for field, texts in own] for own in (highlights, unmarked))
    return combine([*whole, *parts]), combine([*rest, *parts])


def _in_field(texts: Sequence[str], field: str) -> str:
    """Quote the highlights and name their field.

    If they are single words of the abstract, add "apart", because together they would look like a phrase.
    """
    if field == "abstract" and len(texts) > 1 and all(map(WORD.fullmatch, texts)):
        return f"{_quote(texts, ' and ')} apart in the {field}"
    return f"{_quote(texts)} in the {field}"


def reading_note(read: str) -> str:
    """Return a note saying that a misspelled or foreign interest was read as another one."""
    return f"your interest was read as “{read}”"


def feedback_reason(title: str, shared_words: Sequence[str], *, liked: bool) -> str:
    """Return the reason for a paper that is close to the liked or disliked paper with this title."""
    judgement = "you liked" if liked else "you asked less of"
    return f"close to “{title}”, which {judgement}{_through(shared_words)}"


def author_reason(authors: Sequence[str], liked_title: str, *, is_certain: bool = True) -> str:
    """Return the reason for a paper by authors of a liked paper. Name at most two of them.

    If it is not certain that they are the same people, name only the first and add “perhaps”.
    """
    if is_certain:
        return f"by {' and '.join(authors[:2])}, whose “{liked_title}” you liked"
    return f"by {authors[0]}, perhaps an author of “{liked_title}”, which you liked"


def author_and_like_reason(authors: Sequence[str], title: str, shared_words: Sequence[str]) -> str:
    """Return the reason for a paper that shares both authors and words with a liked paper."""
    return f"{author_reason(authors, title)}, and close to it{_through(shared_words)}"


def trending_reason(trend: Trend, votes: int, listed_on: date, today: date) -> CardReason:
    """Return why a trending paper is shown: it has more votes than most, or when it was listed."""
    if trending.is_well_voted(trend):
        return voted_reason(votes)
    is_new = (today - listed_on).days <= 1
    return CardReason("newly listed" if is_new else f"listed on {listed_on:%-d %B}")


def voted_reason(votes: int) -> CardReason:
    """Return the reason “more votes than most”. A card that shows the votes can omit it."""
    return CardReason(WELL_VOTED, Marks() if votes else None)


def combine(reasons: Iterable[str]) -> str:
    """Join the non-empty reasons with semicolons."""
    return "; ".join(filter(None, reasons))


def with_addition(reason: CardReason, addition: str) -> CardReason:
    """Add a further reason. Show it even on a card that marks the matching words."""
    marks = reason.marks and replace(reason.marks, rest=combine([reason.marks.rest, addition]))
    return CardReason(combine([reason.text, addition]), marks)


def distinct_words(texts: Iterable[str], excluded: Set[str], allowed: Set[str] | None = None) -> list[str]:
    """Return the first `MAX_CLOSE_WORDS` texts that share no stems with `excluded` or with each other.

    Leave out function words, such as "against". If `allowed` is given, also leave out texts with other stems.
    """
    used, chosen = set(excluded), list[str]()
    for text in texts:
        own = stems_in(text)
        if text.lower() in FUNCTION_WORDS:
            continue
        if own and own.isdisjoint(used) and (allowed is None or own <= allowed):
            chosen.append(text)
            used |= own
            if len(chosen) == MAX_CLOSE_WORDS:
                break
    return chosen


@lru_cache(maxsize=MAX_CACHED_WORDS)
def stems_in(word: str) -> frozenset[str]:
    """Return the stems of a word or a phrase without stop words."""
    return frozenset(content_stems(word))


def _quote(texts: Sequence[str], last: str = ", ") -> str:
    """Quote texts and join them with commas, but with `last` before the last one."""
    *others, final = (f"“{text}”" for text in texts)
    return f"{', '.join(others)}{last}{final}" if others else final


def _through(words: Sequence[str]) -> str:
    return f", through {_quote(words)}" if words else ""
