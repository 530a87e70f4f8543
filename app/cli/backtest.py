"""backtest: show the papers that some interests would have matched over recent days."""

from dataclasses import asdict
from typing import Annotated

import typer

from app import clock, pipeline
from app.cli import output
from app.types import Interest, Skip


def backtest(
    interest: Annotated[list[str], typer.Argument(help="One or more interests.")],
    days: Annotated[
        int, typer.Option(help="The number of days. Today counts from the default hour on.")
    ] = 14,
    at: output.At = None,
    as_json: output.AsJson = False,
) -> None:
    """Show the papers that interests would have matched on each recent day. Each paper is listed only once.

    Put two hyphens before an interest that begins with a hyphen: paperboy backtest -- "-survey agents"
    """
    now = at or clock.utcnow()
    with output.open_application(needs_secret=False) as app:
        editions = pipeline.backtest(app, now, [Interest(text) for text in interest], days)
        output.require_papers(app)
        if all(isinstance(edition.digest, Skip) for edition in editions):
            output.suggest_day(app, now, "--at")
    if as_json:
        output.print_json([asdict(edition) for edition in editions])
        return
    rows = []
    for edition in editions:
        if isinstance(edition.digest, Skip):
            rows.append((edition.edition, "", f"nothing: {edition.digest.reason}"))
            continue
        for section in edition.digest.sections:
            rows += [(edition.edition, section.interest, item.title) for item in section.picks]
    output.table(["day", "interest", "paper"], rows)
