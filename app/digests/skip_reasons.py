"""PURE. Write why a digest was skipped, such as words that no paper mentions, or too few papers."""

from collections.abc import Iterable, Sequence
from datetime import date
from itertools import chain

from app.digests import notes
from app.digests.ranking import CandidatePool, Ranked, RankingRequest
from app.text.in_words import count_of

MAX_MISSING_WORDS = 3
MAX_NAMED_SOURCES = 4


def too_few_papers(count: int, request: RankingRequest) -> str:
    """Return the reason for holding back a digest that is smaller than the subscriber's minimum.

    It is true both in a preview and when the digest after the skipped one repeats it.
    """
    matched = f"only {count_of(count, 'paper')} matched, fewer than the minimum of {request.min_papers}"
    return f"{matched}; {'it counts' if count == 1 else 'they count'} for the following digest"


def nothing_matched(edition: str, ranked: Ranked, considered: int) -> str:
    """Return why there is no digest, such as missing words or days on which sources list no papers.

    Both the subscriber and operators read it, so it addresses neither. It ends without a period, like all
    reasons. `considered` is the number of recently listed papers that the subscriber has not been sent.
    """
    count, pool = ranked.muted_count, ranked.pool
    muted = f"{count} more were muted" if count > 1 else "one more was muted" if count else ""
    calendar_note = pool.calendar_note(date.fromisoformat(edition))
    if not considered:
        none = "no new papers that are not muted" if count else "no new papers"
        return notes.join(none, calendar_note, separator="; ")
    unmatched = f"none of {considered} recent papers matched an interest"
    if considered == 1:
        unmatched = "the one recent paper matched no interest"
    causes = _common_causes(pool, [interest.text for interest in ranked.request.interests])
    unmatched += f": {'; '.join(causes)}" if causes else ""
    invalid = ", ".join(ranked.request.invalid_interests)
    left_out = f"interests that could not be understood were left out: {invalid}" if invalid else ""
    return notes.join(unmatched, muted, calendar_note, left_out, separator="; ")


def _common_causes(pool: CandidatePool, interests: Sequence[str]) -> list[str]:
    """Return phrases that name the words that no paper mentions and the fields that no paper has.

    Return no phrases unless each interest has such a word or field.
    """
    words = {text: pool.missing_words(text) for text in interests}
    fields = {text: pool.absent_fields_note(text) for text in interests}
    if not all(words[text] or fields[text] for text in interests):
        return []
    missing = [*dict.fromkeys(chain.from_iterable(words.values()))][:MAX_MISSING_WORDS]
    mentions = f"no paper mentions {', '.join(f'“{word}”' for word in missing)}" if missing else ""
    return [*filter(None, dict.fromkeys([mentions, *fields.values()]))]


def absent_fields_note(fields: Sequence[str], sources: Iterable[str]) -> str:
    """Return a note on required fields that no paper has, and on the sources that do not provide them."""
    if not fields:
        return ""
    *others, last = sorted(sources)
    givers = f"{', '.join(others)} and {last} give" if others else f"{last} gives"
    givers = givers if len(others) < MAX_NAMED_SOURCES else "the sources give"
    return f"no recent paper has {' or '.join(fields)} ({givers} none)"
