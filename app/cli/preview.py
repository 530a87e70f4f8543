"""preview: show the digest for some interests."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.padding import Padding

from app import clock, pipeline, subscribers
from app.cli import output
from app.mail import section_headings
from app.relevance import suggestions
from app.subscribers import Preferences
from app.text.in_words import count_of_recent, sentence
from app.types import DEFAULT_MIN_PAPERS, Digest, Interest, Skip


def preview(
    interest: Annotated[list[str], typer.Option(help="An interest. Repeat the option for more.")],
    min_papers: output.MinPapers = DEFAULT_MIN_PAPERS,
    max_papers: output.MaxPapers = None,
    max_trending: output.MaxTrending = None,
    mute: output.Mute = None,
    day: output.Day = None,
    html: Annotated[Path | None, typer.Option(help="Write the email's HTML to this file.")] = None,
    as_json: output.AsJson = False,
) -> None:
    """Show the digest that a new subscriber with these interests would get."""
    now = clock.utcnow()
    with output.open_application(needs_secret=False) as app:
        preferences = Preferences(
            interests=tuple(Interest(text) for text in interest),
            min_papers=min_papers,
            max_papers=app.settings.default_max_papers if max_papers is None else max_papers,
            max_trending=app.settings.default_max_trending if max_trending is None else max_trending,
            muted=tuple(mute or ()),
        )
        preferences = subscribers.check(preferences)
        digest, hints = pipeline.preview(app, preferences, now, day=day)
        if isinstance(digest, Skip):
            output.require_papers(app)
            if not day:
                output.suggest_day(app, now, "--day")
        if html and isinstance(digest, Digest):
            mail = pipeline.render_digest(app, digest, "you@example.org", now)
            html.write_text(mail.html, "utf-8")
    if as_json:
        output.print_json(output.digest_object(digest) | {"hints": [asdict(hint) for hint in hints]})
        return
    for hint in hints:
        explanation = " ".join(suggestions.sentences(hint))
        output.out().print(f"[bold]{output.escaped(hint.interest)}[/]: {output.escaped(explanation)}")
    if isinstance(digest, Skip):
        output.out().print(sentence(f"There would be no digest: {output.escaped(digest.reason)}"))
    else:
        print_digest(digest)


def print_digest(digest: Digest) -> None:
    console = output.out()
    for section in digest.sections:
        heading = section.interest or section.heading or section_headings.BEYOND_INTERESTS
        console.print(f"\n[bold]{output.escaped(heading)}[/]")
        for item in section.picks:
            console.print(f"\n  [bold]{output.escaped(item.title)}[/]")
            reasons = " · ".join(filter(None, (item.reason, item.trend)))
            people = " · ".join(filter(None, (item.authors, item.organization)))
            for line in (people, item.summary, reasons, item.url):
                if line:
                    console.print(Padding(output.escaped(line), (0, 0, 0, 2), expand=False))
    summary = count_of_recent(len(digest.picks), digest.considered, digest.trending_count)
    console.print(f"\n{summary}, edition {digest.edition}. {output.escaped(digest.note)}".rstrip())
