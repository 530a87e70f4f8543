"""PURE. Write the notes of a digest, such as which digests were skipped and what was left out."""

from datetime import date

from app.digests.ranking import RankingRequest

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
    return f"There was no digest {when}: {reason.rstrip('.')}."  # earlier versions stored a period


def small_digest_note(request: RankingRequest, count: int, expiring: int) -> str:
    """Return a note on why a digest is sent with `count` matching papers, fewer than the minimum.

    `expiring` is the number of these papers that will be too old for the next digest.
    """
    papers = "the only one" if count == 1 else "they" if expiring == count else f"{expiring} of them"
    return (
        f"This digest has fewer matching papers than your minimum of {request.min_papers}, because {papers} "
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
