"""sources: list, add, pause and resume the sources that are polled."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated
from urllib.parse import urlsplit

import typer

from app import clock
from app.cli import output
from app.papers import source_registry
from app.papers.sources.allowed_addresses import Allowed
from app.storage import audit_log
from app.types import SourceKind

sources = typer.Typer(no_args_is_help=True, help="List, add, pause and resume the sources of papers.")

SourceName = Annotated[str, typer.Argument(help="The name of the source.")]


class PolledKind(StrEnum):
    """The kinds of sources that can be polled. The others are read from files."""

    HUGGINGFACE = "huggingface"
    ARXIV = "arxiv"
    ARXIV_FEED = "arxiv_feed"
    FEED = "feed"


@sources.command("list")
def list_sources(as_json: output.AsJson = False) -> None:
    """List the sources and their states."""
    with output.open_application(needs_secret=False) as app, app.db.read() as session:
        rows = source_registry.all_sources(session)
    if as_json:
        output.print_json([row.model_dump(mode="json") for row in rows])
        return
    cells = []
    for row in rows:
        state = f"failed {row.failures}×" if row.failures else "ok"
        if not (row.next_poll_at or row.polled_at):
            state = "read from files"
        elif row.paused:
            state = "paused"
        next_poll = output.format_time(row.next_poll_at)
        cells.append((row.name, row.kind, state, row.watermark, next_poll, row.last_error))
    output.table(["name", "kind", "state", "read up to", "next poll", "last error"], cells)


@sources.command("add")
def add_source(
    name: SourceName,
    kind: Annotated[
        PolledKind,
        typer.Option(
            help="huggingface: Daily Papers. arxiv: arXiv's query API. arxiv_feed: arXiv's announcements. "
            "feed: any RSS or Atom feed."
        ),
    ],
    url: Annotated[str | None, typer.Option(help="The address of the feed (kind feed).")] = None,
    category: Annotated[
        list[str] | None,
        typer.Option(help="An arXiv category (kinds arxiv and arxiv_feed). Repeat the option for more."),
    ] = None,
    query: Annotated[
        str | None, typer.Option(help="An arXiv query, instead of categories (kind arxiv).")
    ] = None,
) -> None:
    """Add a source. It is first polled by the next `paperboy ingest` or scheduled run."""
    options = {"url": url, "categories": category, "query": query}
    config = {name: value for name, value in options.items() if value}
    now = clock.utcnow()
    with output.open_application(needs_secret=False) as app, app.db.write() as session:
        allowed = Allowed.parse(app.settings.allow_private_sources)
        source = source_registry.add(session, name, SourceKind(kind), config, now)
        audit_log.record(session, output.ACTOR, "source.add", source.name, now, kind=source.kind)
    output.out().print(f"Added the source “{output.escaped(source.name)}”.")
    host = (urlsplit(url).hostname or "") if url else ""
    if host and not allowed.may_permit_host(host):
        output.err().print(
            f"Warning: {output.escaped(host)} is a private address, so polling this source will fail. "
            "To allow it, add it to PAPERBOY_ALLOW_PRIVATE_SOURCES.",
            soft_wrap=True,
        )


@sources.command("pause")
def pause_source(name: SourceName) -> None:
    """Stop polling a source until it is resumed."""
    now = clock.utcnow()
    with output.open_application(needs_secret=False) as app, app.db.write() as session:
        source_registry.pause(session, source_registry.get_by_name(session, name))
        audit_log.record(session, output.ACTOR, "source.pause", name, now)
    output.out().print(f"The source “{output.escaped(name)}” is paused.")


@sources.command("resume")
def resume_source(name: SourceName) -> None:
    """Resume polling a source from where it stopped."""
    now = clock.utcnow()
    with output.open_application(needs_secret=False) as app, app.db.write() as session:
        source_registry.resume(session, source_registry.get_by_name(session, name), now)
        audit_log.record(session, output.ACTOR, "source.resume", name, now)
    output.out().print(f"The source “{output.escaped(name)}” is resumed.")
