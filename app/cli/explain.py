"""explain: show why a paper was or was not sent to a subscriber."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from app import clock, pipeline
from app.cli import output, subscriber_history
from app.digests.explanation_text import format_score, list_scores
from app.digests.explanation_types import Explanation, InterestMatch
from app.relevance import scoring

LEGEND = (
    (
        f"Agreement = {scoring.AGREEMENT_WEIGHTS.words} × words + meaning + "
        f"{scoring.AGREEMENT_WEIGHTS.all_words:g} for all words − {scoring.AGREEMENT_WEIGHTS.missing:g} × "
        "the share of the words that is missing."
    ),
    "A paper is relevant enough if its agreement reaches the cut-off, or if its title has all words.",
    "Meaning: standard deviations above the average paper, reduced if the archive hardly knows the interest.",
    "Weighted = 1 − (1 − relevance)^weight.",
    "The papers in a digest are ordered by score: their strength, adjusted for trend and freshness.",
)
RANK_LEGEND = (
    "The relevance above = 1 − the product of (1 − weighted) over all interests, times (1 − profile).",
    "The strength above is combined from the strengths in the same way.",
)


def explain(
    subscriber: Annotated[str, typer.Argument(help="The subscriber's address or number.")],
    paper: Annotated[
        str, typer.Argument(help="The paper's ID, arXiv ID, DOI or URL. Default: list the latest emails.")
    ] = "",
    at: output.At = None,
    as_json: output.AsJson = False,
) -> None:
    """Show why a paper was or was not sent to a subscriber, with all scores.

    If no paper is given, show the subscriber's latest emails and events, the reasons for digests that were
    not sent, and the papers that the subscriber would get now.

    With --at, the listings, votes, feedback, sent emails and the subscriber's state are as of that time.
    The subscriber's preferences and interests are the current ones. If they have changed since then, a
    note below the first sentence says so.
    """
    if not paper:
        subscriber_history.print_history(subscriber, as_json=as_json)
        return
    with output.open_application(needs_secret=False) as app:
        explanation = pipeline.explain(app, clock.utcnow(), subscriber, paper, at)
    if as_json:
        output.print_json(asdict(explanation))
        return
    when = f"at {output.format_time(at)}" if at else "now"
    output.out().print(f"[bold]{output.escaped(explanation.verdict)}[/]")
    if explanation.note:
        output.out().print(f"[yellow]{output.escaped(explanation.note)}[/]")
    output.out().print()
    output.table(["", ""], _facts(explanation))
    if explanation.deliveries:
        columns = ["delivery", "edition", "state", "sent", "score then", "reason then"]
        rows = [
            (row.delivery_id, row.edition, row.state, row.sent_at or "–", f"{row.score:.3f}", row.reason)
            for row in explanation.deliveries
        ]
        output.table(columns, rows, title="\nIn the ledger")
    if scores := list(list_scores(explanation)):
        output.table(["", ""], scores, title=f"\nThe paper, {when}")
    if explanation.interests:
        _print_interests(explanation.interests, when)
        output.out().print()
        for line in (*LEGEND, *(RANK_LEGEND if explanation.rank else ())):
            output.out().print(f"[dim]{line}[/]")
    if explanation.rank and explanation.rank.higher_ranked:
        better = [(f"{paper.score:.3f}", paper.title) for paper in explanation.rank.higher_ranked]
        output.table(["score", "title"], better, title="\nPapers with higher scores")


def _facts(explanation: Explanation) -> Iterator[tuple[str, str]]:
    subscriber, paper = explanation.subscriber, explanation.paper
    yield "paper", f"{paper.id} {paper.title}"
    if paper.requested_id != paper.id:
        yield "", f"{paper.requested_id} was merged into this paper"
    yield "listed", ", ".join(f"{day} by {source}" for day, source in paper.listings) or "never"
    yield "subscriber", f"{subscriber.id} {subscriber.email}, {subscriber.state or 'not signed up yet'}"
    yield "papers per digest", f"{subscriber.min_papers} to {subscriber.max_papers}"
    if subscriber.next_due_at:
        yield "next digest", output.format_time(subscriber.next_due_at)


def _print_interests(interests: Sequence[InterestMatch], when: str) -> None:
    columns = ["interest", "quota", "relevance", "weight", "weighted", "strength"]
    columns += ["left out because"] * any(match.details.rejection_reason for match in interests)
    agreement_columns = ["interest", "words", "meaning", "archive knows it", "all words", "in title"]
    agreement_columns += ["from organization", "agreement", "cut off"]
    rows, agreement_rows = [], []
    for match in interests:
        interest, details = match.interest, match.details
        row = (
            interest.text,
            interest.quota,
            format_score(details.relevance),
            f"{interest.weight:g}",
            format_score(match.weighted),
            format_score(details.strength),
            details.rejection_reason,
        )
        rows.append(row[: len(columns)])
        tests = (details.all_words, details.in_title, details.from_organization)
        agreement_rows.append(
            (
                interest.text,
                *(f"{score:.2f}" for score in (details.words, details.meaning, details.archive_knows_it)),
                *("yes" if holds else "no" for holds in tests),
                f"{details.agreement:.2f}",
                f"{details.cut_off:.2f}",
            )
        )
    output.table(columns, rows, title=f"\nInterests, {when}")
    output.table(agreement_columns, agreement_rows, title="\nAgreement with the interests")
