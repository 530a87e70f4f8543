"""Pin a paper: until the pin ends, it comes first in the digests of subscribers who have not received it."""

from datetime import datetime, timedelta

from sqlmodel import Session

from app.errors import Conflict, InvalidInput
from app.storage.models import Paper

PIN_DAYS = 7  # long enough for each daily and weekly subscriber to get a digest
MAX_PIN_DAYS = 30
# Pinning an older paper would be slow, because planning would have to read all digests since it was listed.
PINNABLE_DAYS = 30


def pin(session: Session, paper: Paper, days: int, now: datetime) -> None:
    """Put a paper first in digests for a number of days.

    Raise InvalidInput if `days` is out of range, Conflict if the paper cannot be pinned.
    """
    if not 1 <= days <= MAX_PIN_DAYS:
        raise InvalidInput(f"a paper can be pinned for 1 to {MAX_PIN_DAYS} days", "days")
    if paper.hidden_at:
        raise Conflict("the paper is hidden, so it is never sent: show it first")
    if paper.withdrawn_at:
        raise Conflict("the paper is withdrawn, so it is never sent")
    if paper.first_listed_on and paper.first_listed_on < now.date() - timedelta(days=PINNABLE_DAYS):
        raise Conflict(
            f"the paper was first listed on {paper.first_listed_on}: only papers first listed in the last "
            f"{PINNABLE_DAYS} days can be pinned, because many subscribers have already received older ones"
        )
    paper.pinned_at, paper.pinned_until = now, now + timedelta(days=days)
    session.add(paper)


def unpin(session: Session, paper: Paper) -> None:
    """Unpin a paper. Raise Conflict if the paper is not pinned."""
    if paper.pinned_until is None:
        raise Conflict("the paper is not pinned")
    paper.pinned_at = paper.pinned_until = None
    session.add(paper)
