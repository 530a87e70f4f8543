"""explain and backtest: why a reader was sent a paper, and what interests would have brought."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer

from app import clock, pipeline
from app.cli import showing
from app.explaining import Explanation, Judged, Recorded
from app.hindsight import Edition
from app.records import Digest, Wish

At = Annotated[
    datetime | None,
    typer.Option("--at", formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M"], help="As at this moment, in UTC."),
]


def explain(
    subscriber: Annotated[str, typer.Argument(help="The reader's address, or their number.")],
    paper: Annotated[str, typer.Argument(help="The paper's number, arXiv id, DOI or URL.")],
    at: At = None,
    as_json: showing.AsJson = False,
) -> None:
    """Why a reader was sent a paper, or why not: every number on the way.

    With --at: listings, votes, the reader's state and opinions, and what was sent are as they were at that
    moment; the reader's settings and interests are today's.
    """
    moment = at.replace(tzinfo=UTC) if at else None
    with showing.opened(needs_secret=False) as app:
        told = pipeline.explain(app, clock.utcnow(), subscriber, paper, moment)
    if as_json:
        showing.say_json(asdict(told))
    else:
        _show(told)


def _show(told: Explanation) -> None:
    showing.out().print(f"[bold]{showing.escaped(told.verdict)}[/]\n")
    showing.table(["", ""], [*_facts(told), *_numbers(told)])
    if told.interests:
        columns = ["interest", "weight", "quota", "words", "closeness", "known", "whole", "titled", "z"]
        rows = [_row(judged) for judged in told.interests]
        showing.table([*columns, "relevance", "left out because"], rows, title="\nInterests")
    if told.recorded:
        columns = ["delivery", "edition", "state", "sent", "score then", "reason then"]
        showing.table(columns, [_mention(each) for each in told.recorded], title="\nIn the ledger")
    if told.standing and told.standing.before:
        better = [(f"{each.score:.3f}", each.title) for each in told.standing.before]
        showing.table(["score", "title"], better, title="\nWhat stands before it")


def _facts(told: Explanation) -> Iterator[tuple[str, str]]:
    reader, paper = told.reader, told.paper
    yield "paper", f"{paper.id} {paper.title}"
    if paper.asked_for != paper.id:
        yield "", f"{paper.asked_for} was merged into it"
    yield "listed", ", ".join(f"{day} by {source}" for day, source in paper.listed) or "never"
    yield "candidate", f"no: {told.no_candidate}" if told.no_candidate else "yes"
    yield "reader", f"{reader.id} {reader.email}, {reader.state or 'not here yet'}"
    yield "papers wanted", f"{reader.min_papers} to {reader.max_papers}"
    if reader.next_due_at:
        yield "next digest", showing.moment(reader.next_due_at)
    if told.no_digest:
        yield "", f"none as it stands: {told.no_digest}"


def _numbers(told: Explanation) -> Iterator[tuple[str, str]]:
    if told.taste:
        yield "taste", f"{told.taste.relevance:.3f} {told.taste.reason}"
    if standing := told.standing:
        weighed = standing.weighed
        yield "relevance", f"{weighed.relevance:.3f}, floor {told.floor:.3f}"
        yield "trend", f"{weighed.trend.score:.3f} {weighed.trend.words}"
        yield "freshness", f"{weighed.freshness:.3f}"
        yield "score", f"{weighed.score:.3f}"
        yield "place", f"{standing.place or 'none'} of {standing.relevant} relevant of {standing.candidates}"
        yield "likeness", f"{standing.likeness:.3f} to {standing.like}" if standing.like else "–"


def _row(judged: Judged) -> tuple[object, ...]:
    wish, found = judged.wish, judged.numbers
    strengths = (f"{found.words:.2f}", f"{found.closeness:.2f}", f"{found.known:.2f}")
    places = ("yes" if found.whole else "no", "yes" if found.titled else "no")
    end = (f"{found.agreement:.2f}", f"{found.relevance:.3f}", found.left_out)
    return (wish.text, wish.weight, wish.quota, *strengths, *places, *end)


def _mention(one: Recorded) -> tuple[object, ...]:
    return one.delivery_id, one.edition, one.state, showing.moment(one.sent_at), one.score, one.reason


def backtest(
    interest: Annotated[list[str], typer.Argument(help="What to read about; one argument an interest.")],
    days: Annotated[int, typer.Option(help="How many days back.")] = 14,
    as_json: showing.AsJson = False,
) -> None:
    """Show what interests would have brought over the last days, day by day, each paper once."""
    now = clock.utcnow()
    with showing.opened(needs_secret=False) as app:
        editions = pipeline.backtest(app, now, [Wish(text) for text in interest], days)
    if as_json:
        showing.say_json([asdict(edition) for edition in editions])
        return
    rows = [row for edition in editions for row in _rows(edition)]
    showing.table(["day", "interest", "what it would have brought"], rows)


def _rows(edition: Edition) -> Iterator[tuple[str, str, str]]:
    if not isinstance(edition.digest, Digest):
        yield edition.edition, "", f"nothing: {edition.digest.reason}"
        return
    for section in edition.digest.sections:
        for pick in section.picks:
            yield edition.edition, section.interest, pick.title
