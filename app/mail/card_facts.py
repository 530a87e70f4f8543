"""PURE. Format the facts on a card, and label its links.

The order of the facts is: votes, people, date, submitter, trend, comments.
"""

from datetime import date

from app.text.direction import with_ltr_mark
from app.text.in_words import count_of
from app.types import DigestItem


def below_title(item: DigestItem, is_lead: bool) -> str:
    """Return the line below a title: people, trend and comments.

    Add votes and the submitter if the card is the lead, and the date if nobody voted.
    """
    votes = count_of(item.votes, "vote") if is_lead and item.votes else ""
    day = date.fromisoformat(item.published_on) if item.published_on else None
    published = f"{day.day} {day:%b %Y}" if day and not item.votes else ""
    people = (with_ltr_mark(item.organization), with_ltr_mark(item.short_authors))
    # Name the submitter after the date, which would otherwise look like the date of the submission.
    submitter = f"submitted by {with_ltr_mark(item.submitted_by)}" if is_lead and item.submitted_by else ""
    # The first comment is usually by the person who submitted the paper.
    comments = count_of(item.comments, "comment") if item.comments > 1 else ""
    return " · ".join(filter(None, (votes, *people, published, submitter, item.trend_note, comments)))


def links(item: DigestItem) -> list[tuple[str, str]]:
    """Return the labels and URLs of the links to the PDF and to the code or, without code, to the project."""
    code = ("Code", item.code_url) if item.code_url else ("Project", item.project_url)
    return [(label, url) for label, url in (("PDF", item.pdf_url), code) if url]
