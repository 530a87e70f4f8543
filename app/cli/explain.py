"""explain and backtest: why a reader was sent a paper, and what interests would have brought."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer

from app import clock, pipeline
from app.cli import output
from app.digests import ranking
from app.digests.backtesting import Edition
from app.digests.explanation_text import format_score
from app.digests.explanation_types import Explanation, InterestMatch, PastDelivery
from app.relevance import matching
from app.storage.models import DeliveryState
from app.types import Digest, Interest

At = Annotated[
    datetime | None,
    typer.Option("--at", formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M"], help="As at this moment, in UTC."),
]

LEGEND = (
    f"agreement = {matching.WORD_WEIGHT} × words + meaning + {matching.ALL_WORDS_BONUS:g} for all words; "
    f"it counts from {matching.MIN_AGREEMENT:g} on. "
    "Meaning: standard deviations nearer than usual, fewer if the archive hardly knows the interest. "
    "Weighted = 1 − (1 − relevance)^weight. The relevance above = 1 − the product of (1 − weighted) over all "
    "interests, times (1 − taste)."
)


def explain(
    subscriber: Annotated[str, typer.Argument(help="The reader's address, or their number.")],
    paper: Annotated[str, typer.Argument(help="The paper's number, arXiv id, DOI or URL.")],
    at: At = None,
    as_json: output.AsJson = False,
) -> None:
    """Why a reader was sent a paper, or why not: every number on the way.

    With --at: listings, votes, the reader's state and opinions, and what was sent are as they were at that
    moment; the reader's settings and interests are today's.
    """
    moment = at.replace(tzinfo=UTC) if at else None
    with output.open_application(needs_secret=False) as app:
        told = pipeline.explain(app, clock.utcnow(), subscriber, paper, moment)
    if as_json:
        output.print_json(asdict(told))
    else:
        _show(told, moment)


def _show(told: Explanation, asked: datetime | None) -> None:
    """The sentence, what was sent, and then the numbers of the moment that is asked about."""
    when = f"as things stood at {output.moment(asked)}" if asked else "as things stand now"
    output.out().print(f"[bold]{output.escaped(told.verdict)}[/]\n")
    output.table(["", ""], _facts(told))
    if told.recorded:
        columns = ["delivery", "edition", "state", "sent", "score then", "reason then"]
        output.table(columns, [_mention(each) for each in told.recorded], title="\nIn the ledger")
    if numbers := [*_outlook(told), *_numbers(told)]:
        output.table(["", ""], numbers, title=f"\nThe paper, {when}")
    if told.interests:
        _show_interests(told.interests, when)
    if told.standing and told.standing.before:
        better = [(f"{each.score:.3f}", each.title) for each in told.standing.before]
        output.table(["score", "title"], better, title="\nWhat has better scores")


def _facts(told: Explanation) -> Iterator[tuple[str, str]]:
    reader, paper = told.reader, told.paper
    yield "paper", f"{paper.id} {paper.title}"
    if paper.asked_for != paper.id:
        yield "", f"{paper.asked_for} was merged into it"
    yield "listed", ", ".join(f"{day} by {source}" for day, source in paper.listed) or "never"
    yield "reader", f"{reader.id} {reader.email}, {reader.state or 'not here yet'}"
    yield "papers wanted", f"{reader.min_papers} to {reader.max_papers}"
    if reader.next_due_at:
        yield "next digest", output.moment(reader.next_due_at)


def _outlook(told: Explanation) -> Iterator[tuple[str, str]]:
    """What hinders the paper or the next digest, which means nothing to a paper that was sent already."""
    if any(one.state is DeliveryState.SENT and one.made_at <= told.at for one in told.recorded):
        return
    if told.no_candidate:
        yield "no candidate", told.no_candidate
    if told.no_digest:
        yield "no digest", told.no_digest


def _numbers(told: Explanation) -> Iterator[tuple[str, str]]:
    if told.taste:
        yield "taste", f"{format_score(told.taste.relevance)}: {told.taste.reason}"
    if standing := told.standing:
        weighed = standing.weighed
        yield (
            "relevance",
            f"{format_score(weighed.relevance)}, and from {format_score(told.floor)} on a paper is sent",
        )
        if weighed.trend.score:
            yield "trend", f"{format_score(weighed.trend.score)}: {weighed.trend.words}"
        yield "freshness", format_score(weighed.freshness)
        yield "score", f"{weighed.score:.3f} = relevance × (1 + {ranking.TREND} × trend) × freshness"
        if standing.place:
            among = f"{standing.relevant} relevant papers, of {standing.candidates} new to the reader"
            yield "place", f"{standing.place} of {among}"
        if (likeness := format_score(standing.likeness)) > format_score(0):
            yield "likeness", f"{likeness} to “{standing.like}”, which is picked before it"


def _show_interests(interests: Sequence[InterestMatch], when: str) -> None:
    """A row for each, and how its numbers make its relevance."""
    columns = ["interest", "quota", "words", "meaning", "archive knows it", "all words", "in title"]
    columns += ["agreement", "relevance", "weight", "weighted"] + ["left out because"] * any(
        one.numbers.left_out for one in interests
    )
    rows = [_row(judged)[: len(columns)] for judged in interests]
    output.table(columns, rows, title=f"\nInterests, {when}")
    output.out().print(f"[dim]{LEGEND}[/]")


def _row(judged: InterestMatch) -> tuple[object, ...]:
    wish, found = judged.wish, judged.numbers
    strengths = (f"{found.words:.2f}", f"{found.meaning:.2f}", f"{found.archive_knows_it:.2f}")
    places = ("yes" if found.all_words else "no", "yes" if found.in_title else "no")
    end = (format_score(found.relevance), f"{wish.weight:g}", format_score(judged.weighted), found.left_out)
    return (wish.text, wish.quota, *strengths, *places, f"{found.agreement:.2f}", *end)


def _mention(one: PastDelivery) -> tuple[object, ...]:
    sent, score = output.moment(one.sent_at), f"{one.score:.3f}"
    return one.delivery_id, one.edition, one.state, sent, score, one.reason


def backtest(
    interest: Annotated[list[str], typer.Argument(help="What to read about; one argument an interest.")],
    days: Annotated[int, typer.Option(help="How many days back.")] = 14,
    at: At = None,
    as_json: output.AsJson = False,
) -> None:
    """Show what interests would have brought over the last days, day by day, each paper once.

    An interest that begins with a minus comes after two of them: paperboy backtest -- "-survey agents"
    """
    now = at.replace(tzinfo=UTC) if at else clock.utcnow()
    with output.open_application(needs_secret=False) as app:
        editions = pipeline.backtest(app, now, [Interest(text) for text in interest], days)
        output.require_papers(app)
    if as_json:
        output.print_json([asdict(edition) for edition in editions])
        return
    rows = [row for edition in editions for row in _rows(edition)]
    output.table(["day", "interest", "what it would have brought"], rows)


def _rows(edition: Edition) -> Iterator[tuple[str, str, str]]:
    if not isinstance(edition.digest, Digest):
        yield edition.edition, "", f"nothing: {edition.digest.reason}"
        return
    for section in edition.digest.sections:
        for pick in section.picks:
            yield edition.edition, section.interest, pick.title
