"""PURE. Write the notes of a digest, such as why none was sent and what was left out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date
from itertools import chain

from app.digests.ranking import CandidatePool, Ranked, RankingRequest
from app.text.in_words import count_of

MAX_MISSING_WORDS = 3  # named in the reason for an empty digest
MAX_NAMED_SOURCES = 4

NOTHING_MATCHED = "Nothing new matched your interests, so here is what is trending."


def too_few_papers(count: int, request: RankingRequest) -> str:
    """Return the reason for holding back a digest that is smaller than the subscriber's minimum."""
    wait = "waits" if count == 1 else "wait"
    minimum = f"fewer than the minimum of {request.min_papers}"
    return f"{count_of(count, 'paper')} matched, {minimum}, and {wait} for the next digest"


def nothing_matched(edition: str, ranked: Ranked, considered: int) -> str:
    """Return why there is no digest, such as missing words or days on which sources list no papers.

    Both the subscriber and operators read it, so it addresses neither. It ends without a full stop, like all
    reasons. `considered` is the number of recently listed papers that the subscriber has not been sent.
    """
    count, pool = ranked.muted_count, ranked.pool
    muted = f"{count} more were muted" if count > 1 else "one more was muted" if count else ""
    calendar_note = pool.calendar_note(date.fromisoformat(edition))
    if not considered:
        none = "no new papers that are not muted" if count else "no new papers"
        return join(none, calendar_note, separator="; ")
    unmatched = f"none of {considered} recent papers matched an interest"
    if considered == 1:
        unmatched = "the one recent paper matched no interest"
    causes = _common_causes(pool, [interest.text for interest in ranked.request.interests])
    unmatched += f": {'; '.join(causes)}" if causes else ""
    invalid = ", ".join(ranked.request.invalid_interests)
    left_out = f"interests that could not be understood were left out: {invalid}" if invalid else ""
    return join(unmatched, muted, calendar_note, left_out, separator="; ")


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


def skipped_editions_note(request: RankingRequest) -> str:
    """Return a note on the digests skipped since the last one was sent, or "" if none was skipped."""
    if not request.skipped_editions:
        return ""
    edition, reason = request.skipped_editions[-1]
    day = date.fromisoformat(edition)
    when = f"on {day:%A}, {day.day} {day:%B}"
    if len(request.skipped_editions) > 1:
        when = f"several times, the last {when}"
    return f"There was no digest {when}: {reason.rstrip('.')}."  # earlier versions stored a full stop


def invalid_interests_note(request: RankingRequest) -> str:
    """Return a note on interests that can no longer be parsed and were left out, or "" if there are none."""
    if not request.invalid_interests:
        return ""
    texts = ", ".join(request.invalid_interests)
    return f"We could not understand this and left it out: {texts}. Please rewrite it in your preferences."


def added_note(site_name: str, contact: str) -> str:
    """Return a note for an added subscriber's first digest: who added them, and how to unsubscribe."""
    operator = f"the operator of {site_name}" + (f" ({contact})" if contact else "")
    return (
        f"Welcome. You get this digest because {operator} added your address. To stop it, use “Unsubscribe” "
        "at the end."
    )


def join(*texts: str, separator: str = " ") -> str:
    """Join the texts that are not empty."""
    return separator.join(filter(None, texts))
