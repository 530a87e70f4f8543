"""Distinct interests with their numbers of active subscribers, and hints on an interest."""

from dataclasses import asdict
from typing import Annotated, Self

from fastapi import APIRouter
from fastapi import Query as Param
from pydantic import BaseModel, Field
from sqlalchemy import func
from sqlmodel import col, exists, select

from app import pipeline
from app.errors import InvalidInterest
from app.relevance import suggestions
from app.relevance.suggestions import InterestHint
from app.storage.database import contains
from app.storage.models import InterestQuery, InterestRow, Subscriber, SubscriberState
from app.web.api.auth import Analysis, CanRead
from app.web.api.pagination import Page, Paging, cut

router = APIRouter(prefix="/interests", tags=["interests"])


class InterestCount(BaseModel):
    """An interest, and the number of active subscribers who have it."""

    id: int
    text: str = Field(examples=['"language agents" -game'])
    subscribers: int = Field(examples=[12])


class HintOut(BaseModel):
    """A hint on an interest. Each suggested text is an interest that can replace it."""

    interest: str = Field(examples=["vison language modles"])
    message: str = Field(description="The hint in words; empty if there is none.")
    did_you_mean: str = Field(
        description="The interest that was most likely meant. Papers may match either text.",
        examples=["vision language models"],
    )
    parts: list[str] = Field(description="The separate interests, if this one looks like several.")
    with_exclusion: str = Field(
        description="The interest with its negation (`NOT`, a separate dash, or a word such as “not”) "
        "written as an exclusion.",
        examples=["robots -driving"],
    )
    by_author: str = Field(
        description="An interest with the filter `author:`, if this one names an author.",
        examples=['author:"Jane Doe"'],
    )
    matching_authors: int = Field(
        description="The number of authors of recent papers whom a one-word filter `author:` matches, as a "
        "family or given name. 0 if there are at most three."
    )
    with_filters: str = Field(
        description="The interest with its filters corrected: unknown categories, missing quotation marks.",
        examples=["cat:cs.RO"],
    )
    missing_words: list[str] = Field(description="Words that no recent paper contains, if nothing matches.")
    missing_categories: list[str] = Field(description="Required categories that no recent paper is in.")
    categories: list[str] = Field(description="The most frequent categories, if a category is missing.")
    shorter: str = Field(description="A part of the interest that matches papers, if the whole does not.")
    topics: list[str] = Field(description="Topics of recent papers, if nothing matches.")

    @classmethod
    def of(cls, hint: InterestHint) -> Self:
        return cls(message=" ".join(suggestions.sentences(hint)), **asdict(hint))


@router.get("/hint")
def hint(
    caller: CanRead, text: Annotated[str, Param(max_length=300, description="An interest.")], _slot: Analysis
) -> HintOut:
    """Check an interest: its syntax, its spelling, and whether recent papers contain its words."""
    try:
        return HintOut.of(pipeline.interest_hint(caller.app, text, caller.now))
    except InvalidInterest as error:
        raise InvalidInterest(str(error), "text") from None


@router.get("")
def list_interests(
    caller: CanRead,
    window: Paging,
    q: Annotated[str, Param(max_length=300, description="Part of the text.")] = "",
) -> Page[InterestCount]:
    """List the distinct interests, newest first, including those that no longer have subscribers."""
    # Subqueries are evaluated only for the rows of the page. A GROUP BY would count the subscribers of all
    # interests. With a join instead of the inner subquery, SQLite would read all active subscribers for each
    # interest.
    is_active = exists().where(
        col(Subscriber.id) == InterestRow.subscriber_id, col(Subscriber.state) == SubscriberState.ACTIVE
    )
    count = select(func.count()).select_from(InterestRow).where(is_active)
    active = count.where(col(InterestRow.query_id) == InterestQuery.id).scalar_subquery()
    statement = select(InterestQuery.id, InterestQuery.text, active).where(
        contains(col(InterestQuery.text), q)
    )
    if window.after_id is not None:
        statement = statement.where(col(InterestQuery.id) < window.after_id)
    with caller.db.read() as session:
        rows = session.exec(statement.order_by(col(InterestQuery.id).desc()).limit(window.limit + 1)).all()
    page, cursor = cut(rows, window, lambda row: row[0])
    items = [InterestCount(id=number, text=text, subscribers=count) for number, text, count in page]
    return Page(items=items, next_cursor=cursor)
