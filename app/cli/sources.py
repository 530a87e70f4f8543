"""sources: list, try, add, edit, pause, resume and remove the sources that are polled."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import date
from enum import StrEnum
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from app import clock, pipeline
from app.cli import output
from app.errors import InvalidInput
from app.papers import poll_schedule, source_registry
from app.papers.source_trial import TrialResult
from app.papers.sources.allowed_addresses import Allowed
from app.papers.sources.source_types import POLLED
from app.settings import Settings
from app.text.in_words import count_of
from app.types import SourceKind

sources = output.command_group("List, try, add, edit, pause, resume and remove sources of papers.")

NewName = Annotated[str, typer.Argument(metavar="NAME", help="The name of the new source.")]
SourceName = Annotated[
    str, typer.Argument(metavar="SOURCE", help="The name of the source, in any letter case, or its number.")
]


Url = Annotated[str | None, typer.Option(help="The address of the feed (kind feed).")]
Categories = Annotated[
    list[str] | None,
    typer.Option(
        "--category", help="An arXiv category (kinds arxiv and arxiv_feed). Repeat the option for more."
    ),
]
Query = Annotated[str | None, typer.Option(help="An arXiv query, instead of categories (kind arxiv).")]
Set = Annotated[
    str | None, typer.Option("--set", help="Only this set, such as cs or physics:hep-th (kind arxiv_oai).")
]
From = Annotated[
    date | None, output.day_option("--from", "Only records that changed since this day (kind arxiv_oai).")
]
Until = Annotated[
    date | None, output.day_option("--until", "Only records that changed up to this day (kind arxiv_oai).")
]

PolledKind = StrEnum("PolledKind", {kind.name: kind.value for kind in POLLED})  # type: ignore[misc]
_DEFAULT_KIND = PolledKind(SourceKind.FEED)


@sources.command("list")
def list_sources(as_json: output.AsJson = False) -> None:
    """List the sources and their states."""
    with output.open_application(needs_secret=False) as app, app.db.read() as session:
        rows = source_registry.all_sources(session)
    if as_json:
        output.print_json([row.model_dump(mode="json") for row in rows])
        return
    cells, now = [], clock.utcnow()
    for row in rows:
        is_active = not (row.paused or source_registry.is_read_from_files(row))
        is_due = is_active and poll_schedule.is_due(row, now)
        next_poll = "due" if is_due else output.format_time(row.next_poll_at) if is_active else "–"
        cells.append(
            (row.id, row.name, row.kind, source_registry.describe_state(row), row.watermark, next_poll)
        )
    output.table(["number", "name", "kind", "state", "read up to", "next poll"], cells)


@sources.command("add")
def add_source(
    name: NewName,
    kind: Annotated[
        PolledKind,
        typer.Option(
            metavar="KIND", help=" ".join(f"{kind}: {polled.label}." for kind, polled in POLLED.items())
        ),
    ],
    url: Url = None,
    category: Categories = None,
    query: Query = None,
    only_set: Set = None,
    start: From = None,
    until: Until = None,
) -> None:
    """Add a source. It is first polled by the next `paperboy ingest` or scheduled run."""
    config = _config(url, category, query, {"set": only_set, "from": start, "until": until})
    with output.change() as change:
        source = source_registry.add(change.session, name, SourceKind(kind), config, change.now)
        change.record("source.add", source.name, kind=source.kind)
        output.out().print(f"Added the source “{output.escaped(source.name)}”.")
        _warn_if_private(change.app.settings, url)


@sources.command("try")
def try_source(
    kind: Annotated[PolledKind, typer.Option(metavar="KIND", help="As for `sources add`.")] = _DEFAULT_KIND,
    url: Url = None,
    category: Categories = None,
    query: Query = None,
    only_set: Set = None,
    as_json: output.AsJson = False,
) -> None:
    """Show the newest papers of a source before you add it. Nothing is stored.

    Examples: paperboy sources try --url https://example.org/papers.xml

    paperboy sources try --kind arxiv_feed --category cs.CL
    """
    config = _config(url, category, query, {"set": only_set})
    with output.open_application(needs_secret=False) as app:
        result = pipeline.try_source(app, SourceKind(kind), config, clock.utcnow())
    if as_json:
        output.print_json(asdict(result))
    else:
        _print_trial(result)
    if result.error:
        raise typer.Exit(1)


def _print_trial(result: TrialResult) -> None:
    if not result.error or result.rows:
        cells = [
            (
                paper.record.title,
                paper.record.listed_on or paper.record.published_on,
                paper.record.arxiv_id or paper.record.doi,
                "new" if paper.paper_id is None else f"paper {paper.paper_id}",
            )
            for paper in result.papers
        ]
        output.table(["title", "day", "identifier", "in the archive"], cells)
        output.out().print(
            f"{count_of(result.new, 'new paper')}, {result.existing} already in the archive, "
            f"{count_of(result.rejected, 'row')} skipped. Nothing was stored."
        )
    for rejection in result.rejections:
        row = "" if rejection.row is None else f"row {rejection.row}: "
        output.err().print(f"skipped: {row}{output.escaped(f'{rejection.reason} {rejection.detail}')}")
    if result.warning:
        output.err().print(f"Warning: {output.escaped(result.warning)}")
    if result.error:
        output.fail(result.error)


@sources.command("edit")
def edit_source(
    name: SourceName,
    new_name: Annotated[str | None, typer.Option("--name", help="A new name.")] = None,
    url: Url = None,
    category: Categories = None,
    query: Query = None,
    only_set: Set = None,
    start: From = None,
    until: Until = None,
) -> None:
    """Rename or reconfigure a source. A reconfigured source fetches recent papers, like a new source."""
    config = _config(url, category, query, {"set": only_set, "from": start, "until": until}) or None
    if not (new_name or config):
        raise InvalidInput("nothing to change: give at least one option")
    with output.change() as change:
        source = source_registry.find(change.session, name)
        source_registry.change(change.session, source, change.now, name=new_name, config=config)
        change.record("source.change", source.name)
        output.out().print(f"Changed the source “{output.escaped(source.name)}”.")
        _warn_if_private(change.app.settings, url)


@sources.command("remove")
def remove_source(name: SourceName) -> None:
    """Remove a source. Its papers and votes remain, and belong to the source again if you add it again."""
    with output.change() as change:
        source = source_registry.find(change.session, name)
        source_registry.remove(change.session, source, change.now)
        change.record("source.remove", source.name)
    output.out().print(f"Removed the source “{output.escaped(source.name)}”.")


@sources.command("pause")
def pause_source(name: SourceName) -> None:
    """Stop polling a source until it is resumed."""
    with output.change() as change:
        source = source_registry.find(change.session, name)
        source_registry.pause(change.session, source)
        change.record("source.pause", source.name)
    output.out().print(f"The source “{output.escaped(source.name)}” is paused.")


@sources.command("resume")
def resume_source(name: SourceName) -> None:
    """Resume polling a source from where it stopped."""
    with output.change() as change:
        source = source_registry.find(change.session, name)
        source_registry.resume(change.session, source, change.now)
        change.record("source.resume", source.name)
    output.out().print(f"The source “{output.escaped(source.name)}” is resumed.")


def _config(
    url: str | None, categories: list[str] | None, query: str | None, harvest: Mapping[str, str | date | None]
) -> dict[str, Any]:
    options = {"url": url, "categories": categories, "query": query, **harvest}
    given = {name: value for name, value in options.items() if value}
    return {name: str(value) if isinstance(value, date) else value for name, value in given.items()}


def _warn_if_private(settings: Settings, url: str | None) -> None:
    host = (urlsplit(url).hostname or "") if url else ""
    if host and not Allowed.parse(settings.allow_private_sources).may_permit_host(host):
        output.err().print(
            f"Warning: {output.escaped(host)} is a private address, so polling this source will fail. "
            "To allow it, add it to PAPERBOY_ALLOW_PRIVATE_SOURCES and restart the service.",
            soft_wrap=True,
        )
