"""PURE. Write the notes of a digest, such as which digests were skipped and what was left out."""

from __future__ import annotations

from datetime import date

from app.digests.ranking import RankingRequest
from app.text.in_words import count_of

NOTHING_MATCHED = "Nothing new matched your interests, so here is what is trending."


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


def small_digest_note(request: RankingRequest, count: int) -> str:
    """Return a note on why a digest of `count` papers was sent if that is below the minimum, otherwise ""."""
    if not request.interests or count >= request.min_papers:
        return ""
    papers = "the paper" if count == 1 else "some"
    return (
        f"{count_of(count, 'paper')} matched, fewer than your minimum of {request.min_papers}, but {papers} "
        "would be too old for the next digest."
    )


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
