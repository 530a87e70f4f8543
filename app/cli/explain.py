"""explain: show why a paper was or was not sent to a subscriber."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer

from app import clock, pipeline
from app.cli import output
from app.digests import ranking
from app.digests.explanation_text import format_score
from app.digests.explanation_types import Explanation, InterestMatch
from app.relevance import matching
from app.storage.models import DeliveryState

At = Annotated[
    datetime | None,
    typer.Option("--at", formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M"], help="The moment to look at, in UTC."),
]

LEGEND = (
    f"agreement = {matching.WORD_WEIGHT} × words + meaning + {matching.ALL_WORDS_BONUS:g} for all words; "
    f"at least {matching.MIN_AGREEMENT:g} is needed. "
    "Meaning: standard deviations above the average paper, less if the archive hardly knows the interest. "
    "Weighted = 1 − (1 − relevance)^weight. The relevance above = 1 − the product of (1 − weighted) over all "
    "interests, times (1 − profile)."
)


def explain(
    subscriber: Annotated[str, typer.Argument(help="The subscriber's address or number.")],
    paper: Annotated[str, typer.Argument(help="The paper's number, arXiv id, DOI or URL.")],
    at: At = None,
    as_json: output.AsJson = False,
) -> None:
    """Show why a paper was or was not sent to a subscriber, with all numbers.

    With --at, listings, votes, feedback, the subscriber's state and the sent mails are those of that moment;
    the subscriber's settings and interests are today's.
    """
    moment = at.replace(tzinfo=UTC) if at else None
    with output.open_application(needs_secret=False) as app:
        explanation = pipeline.explain(app, clock.utcnow(), subscriber, paper, moment)
    if as_json:
        output.print_json(asdict(explanation))
        return
    when = f"at {output.format_time(moment)}" if moment else "now"
    output.out().print(f"[bold]{output.escaped(explanation.verdict)}[/]\n")
    output.table(["", ""], _facts(explanation))
    if explanation.recorded:
        columns = ["delivery", "edition", "state", "sent", "score then", "reason then"]
        rows = []
        for past in explanation.recorded:
            sent, score = output.format_time(past.sent_at), f"{past.score:.3f}"
            rows.append((past.delivery_id, past.edition, past.state, sent, score, past.reason))
        output.table(columns, rows, title="\nIn the ledger")
    if numbers := list(_numbers(explanation)):
        output.table(["", ""], numbers, title=f"\nThe paper, {when}")
    if explanation.interests:
        _print_interests(explanation.interests, when)
    if explanation.standing and explanation.standing.before:
        better = [(f"{paper.score:.3f}", paper.title) for paper in explanation.standing.before]
        output.table(["score", "title"], better, title="\nPapers with higher scores")


def _facts(explanation: Explanation) -> Iterator[tuple[str, str]]:
    reader, paper = explanation.reader, explanation.paper
    yield "paper", f"{paper.id} {paper.title}"
    if paper.asked_for != paper.id:
        yield "", f"{paper.asked_for} was merged into it"
    yield "listed", ", ".join(f"{day} by {source}" for day, source in paper.listed) or "never"
    yield "subscriber", f"{reader.id} {reader.email}, {reader.state or 'not signed up yet'}"
    yield "papers per digest", f"{reader.min_papers} to {reader.max_papers}"
    if reader.next_due_at:
        yield "next digest", output.format_time(reader.next_due_at)


def _numbers(explanation: Explanation) -> Iterator[tuple[str, str]]:
    """Yield what prevents the paper or the digest, unless the paper was sent already, then the scores."""
    sent = (past.made_at for past in explanation.recorded if past.state is DeliveryState.SENT)
    if all(made_at > explanation.at for made_at in sent):
        if explanation.no_candidate:
            yield "no candidate", explanation.no_candidate
        if explanation.no_digest:
            yield "no digest", explanation.no_digest
    if explanation.taste:
        yield "profile", f"{format_score(explanation.taste.relevance)}: {explanation.taste.reason}"
    if standing := explanation.standing:
        weighed, floor = standing.weighed, format_score(explanation.floor)
        yield "relevance", f"{format_score(weighed.relevance)}; at least {floor} is needed"
        if weighed.trend.score:
            yield "trend", f"{format_score(weighed.trend.score)}: {weighed.trend.words}"
        yield "freshness", format_score(weighed.freshness)
        yield "score", f"{weighed.score:.3f} = relevance × (1 + {ranking.TREND} × trend) × freshness"
        if standing.place:
            among = f"{standing.relevant} relevant papers, of {standing.candidates} candidates"
            yield "rank", f"{standing.place} of {among}"
        if (similarity := format_score(standing.likeness)) > format_score(0):
            yield "similarity", f"{similarity} to “{standing.like}”, which is selected before it"


def _print_interests(interests: Sequence[InterestMatch], when: str) -> None:
    """Print a row of numbers for each interest, and the formula of its relevance."""
    columns = ["interest", "quota", "words", "meaning", "archive knows it", "all words", "in title"]
    columns += ["agreement", "relevance", "weight", "weighted"] + ["left out because"] * any(
        interest.numbers.left_out for interest in interests
    )
    rows = []
    for match in interests:
        interest, details = match.wish, match.numbers
        strengths = (details.words, details.meaning, details.archive_knows_it)
        row = (
            interest.text,
            interest.quota,
            *(f"{strength:.2f}" for strength in strengths),
            *("yes" if holds else "no" for holds in (details.all_words, details.in_title)),
            f"{details.agreement:.2f}",
            format_score(details.relevance),
            f"{interest.weight:g}",
            format_score(match.weighted),
            details.left_out,
        )
        rows.append(row[: len(columns)])
    output.table(columns, rows, title=f"\nInterests, {when}")
    output.out().print(f"[dim]{LEGEND}[/]")
