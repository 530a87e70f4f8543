"""PURE. Word the notes of a digest: why a paper is in it, why no digest came, what was left out."""

from __future__ import annotations

from datetime import date

from app.digests.ranking import FLOOR, Ranked, RankingRequest
from app.digests.selection import SelectedPaper, is_well_voted
from app.types import Trend

MAX_MISSING_WORDS = 3  # named in the reason for an empty digest

WELL_VOTED = "more votes than most papers of its day"
LIKED_HEADING = "Close to what you liked"
TRENDING_HEADING = "Trending now"
NOTHING_MATCHED = "Nothing new matched your interests, so here is what is trending."


def selection_reason(selected: SelectedPaper, ranked: Ranked) -> str:
    """Return why a paper fits its interest, and why it fits the reader's profile if that alone would do."""
    number, profile = selected.paper.id, ranked.profile
    reasons = [ranked.pool.reason(selected.interest.text, number)] if selected.interest.text else []
    if number in profile and (not reasons or profile[number] >= FLOOR):
        reasons.append(ranked.request.profile_reason(number))
    return "; ".join(filter(None, reasons))


def trending_reason(trend: Trend) -> str:
    """Return why a trending paper is shown. Few votes are no reason."""
    return WELL_VOTED if is_well_voted(trend) else "newly listed"


def too_few_papers(count: int, request: RankingRequest) -> str:
    """Return the reason for holding back a digest that is smaller than the reader's minimum."""
    return f"{count} of at least {request.min_papers} papers: kept for the next digest"


def nothing_matched(ranked: Ranked, considered: int) -> str:
    """Return why there is no digest: the number of new papers, words that no paper has, the calendar."""
    muted = _muted_clause(ranked.muted_count)
    if not considered:
        return join(f"no new papers{muted}.", ranked.pool.calendar_note)
    unmatched = f"none of the {considered} new papers matched your interests"
    if considered == 1:
        unmatched = "the one new paper did not match your interests"
    words = dict.fromkeys(
        word for interest in ranked.request.interests for word in ranked.pool.missing_words(interest.text)
    )
    missing = ", ".join(f"“{word}”" for word in [*words][:MAX_MISSING_WORDS])
    sentence = f"{unmatched}{missing and f': no paper says {missing}'}{muted}."
    return join(sentence, ranked.pool.calendar_note, invalid_interests_note(ranked.request))


def _muted_clause(count: int) -> str:
    if not count:
        return ""
    return "; one says what you muted" if count == 1 else f"; {count} say what you muted"


def skipped_editions_note(request: RankingRequest) -> str:
    """Return why no digest came since the last one; empty if none was skipped."""
    if not request.skipped_editions:
        return ""
    edition, reason = request.skipped_editions[-1]
    day = date.fromisoformat(edition)
    when = f"on {day:%A}, {day.day} {day:%B}"
    if len(request.skipped_editions) > 1:
        when = f"several times, the last {when}"
    return f"No digest came {when}: {reason.rstrip('.')}."


def invalid_interests_note(request: RankingRequest) -> str:
    """Return which interests were left out because they can no longer be parsed."""
    if not request.invalid_interests:
        return ""
    texts = ", ".join(request.invalid_interests)
    return (
        f"This could not be understood and was left out: {texts}. Please write it anew in your preferences."
    )


def join(*sentences: str) -> str:
    return " ".join(filter(None, sentences))
