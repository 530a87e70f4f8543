"""ingest, preview, send and sources: from upstreams to digests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.padding import Padding
from rich.progress import Progress

from app import clock, pipeline, subscribers
from app.cli import output, sending
from app.delivery import ledger
from app.papers import source_registry
from app.storage import audit_log
from app.storage.models import Source
from app.subscribers import Preferences
from app.types import Digest, DigestItem, Interest, Rejection, Section, Skip, SourceKind

sources = typer.Typer(no_args_is_help=True, help="The sources that are polled.")

Day = Annotated[
    datetime | None, typer.Option("--day", formats=["%Y-%m-%d"], help="The day, such as 2026-11-20.")
]
SourceName = Annotated[str, typer.Argument(help="The name of the source.")]


class As(StrEnum):
    """What a file is."""

    HUGGINGFACE = "huggingface"
    ARXIV = "arxiv"
    FEED = "feed"
    PAGE = "page"
    JSONL = "jsonl"


# --- ingest


def ingest(
    files: Annotated[list[Path] | None, typer.Argument(help="Saved answers; none: poll what is due.")] = None,
    as_: Annotated[As | None, typer.Option("--as", help="What the files are, if not guessed.")] = None,
    day: Day = None,
    as_json: output.AsJson = False,
) -> None:
    """Poll the sources that are due, or read saved answers. Exit code 1 when a source or file failed."""
    if not files and (as_ or day):
        raise typer.BadParameter("--as and --day are about files, and none was given")
    report = _read(files, as_, day, quiet=as_json) if files else _poll(quiet=as_json)
    if as_json:
        output.print_json(report)
    else:
        _show_report(report)
    if report["failed"]:
        raise typer.Exit(1)


def _read(files: Sequence[Path], as_: As | None, day: datetime | None, *, quiet: bool) -> dict[str, Any]:
    kind = SourceKind(as_) if as_ else None
    with (
        output.open_application(needs_secret=False) as app,
        Progress(console=output.err(), disable=quiet or not output.err().is_terminal) as progress,
    ):
        paths = progress.track(files, description="Reading")
        read = pipeline.read_files(app, paths, clock.utcnow(), kind=kind, day=day.date() if day else None)
    return {
        "files": read.files,
        **read.summary.counts(),
        "failed": list(read.unreadable),
        "rejections": [_told(rejection) for rejection in read.summary.rejections],
    }


def _poll(*, quiet: bool) -> dict[str, Any]:
    with output.open_application(needs_secret=False) as app, output.graceful_shutdown(app):
        console = output.err()
        if quiet or not console.is_terminal:
            refreshed = pipeline.refresh(app, clock.utcnow())
        else:
            with console.status("Asking the sources that are due, politely …"):
                refreshed = pipeline.refresh(app, clock.utcnow())
    if refreshed.busy:
        output.err().print("Another process is polling the sources at this moment.")
    return {
        "sources": list(refreshed.polled),
        **refreshed.summary.counts(),
        "failed": dict(refreshed.failed),
        "rejections": [_told(rejection) for rejection in refreshed.summary.rejections],
    }


def _told(rejection: Rejection) -> dict[str, Any]:
    return {
        "file": rejection.origin,
        "row": rejection.row,
        "reason": rejection.reason,
        "detail": rejection.detail,
    }


def _show_report(report: dict[str, Any]) -> None:
    counts: list[tuple[str, int | str]] = [
        (name.replace("_", " "), count) for name, count in report.items() if isinstance(count, int)
    ]
    if "sources" in report:
        counts.insert(0, ("sources", ", ".join(report["sources"]) or "none is due"))
    output.table(["what", "how many"], counts)
    if report["rejections"]:
        output.table(
            ["file", "row", "reason", "detail"],
            [list(rejection.values()) for rejection in report["rejections"][:20]],
            title="\nRejected",
        )
    if (more := len(report["rejections"]) - 20) > 0:
        output.out().print(f"… and {more} more: --json lists them all.")
    if report["papers_new"] and not report["listings"]:
        output.out().print("No listing day is known, so no digest takes these papers: --day gives one.")
    if report["failed"] and "sources" in report:
        output.table(["source", "failed because"], report["failed"].items(), title="\nFailed")


# --- preview


def preview(
    interest: Annotated[list[str], typer.Option(help="What to read about; once for each interest.")],
    min_papers: Annotated[int, typer.Option(help="Wait for as many.")] = 1,
    max_papers: Annotated[int, typer.Option(help="At most as many.")] = 10,
    beyond: Annotated[int | None, typer.Option(help="At most as many that trend beyond them.")] = None,
    mute: Annotated[list[str] | None, typer.Option(help="What keeps a paper out; once for each.")] = None,
    day: Day = None,
    html: Annotated[Path | None, typer.Option(help="Write the mail's HTML to this file.")] = None,
    as_json: output.AsJson = False,
) -> None:
    """Show the digest that a reader with these interests would get, without a subscriber."""
    now = clock.utcnow()
    with output.open_application(needs_secret=False) as app:
        wanted = Preferences(
            interests=tuple(Interest(text) for text in interest),
            min_papers=min_papers,
            max_papers=max_papers,
            beyond=app.settings.default_beyond if beyond is None else beyond,
            muted=tuple(mute or ()),
        )
        digest = pipeline.preview(app, subscribers.check(wanted), now, day=day.date() if day else None)
        if isinstance(digest, Skip):
            output.require_papers(app)
        if html and isinstance(digest, Digest):
            mail = pipeline.render_digest(app, digest, "you@example.org", now)
            html.write_text(mail.html, "utf-8")
    if as_json:
        output.print_json(_document(digest))
    elif isinstance(digest, Skip):
        output.out().print(f"There would be no digest: {output.escaped(digest.reason)}")
    else:
        _show_digest(digest)


def _document(digest: Digest | Skip) -> dict[str, Any]:
    if isinstance(digest, Skip):
        return {"skipped": digest.reason, **asdict(Digest(edition="", sections=()))}
    return {"skipped": None, **asdict(digest)}


def _show_digest(digest: Digest) -> None:
    console = output.out()
    for section in digest.sections:
        console.print(f"\n[bold]{output.escaped(_heading(section))}[/]")
        for pick in section.picks:
            _show_pick(pick)
    told = f"{len(digest.picks)} papers out of {digest.considered} for the edition {digest.edition}."
    console.print(f"\n{told} {output.escaped(digest.note)}".rstrip())


def _heading(section: Section) -> str:
    return section.interest or section.heading or "Trending beyond your interests"


def _show_pick(pick: DigestItem) -> None:
    console = output.out()
    console.print(f"\n  [bold]{output.escaped(pick.title)}[/]")
    for line in (pick.authors, pick.summary, " · ".join(filter(None, (pick.reason, pick.trend))), pick.url):
        if line:
            console.print(Padding(output.escaped(line), (0, 0, 0, 2), expand=False))


# --- send


def send(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show who is due, and for what.")] = False,
    as_json: output.AsJson = False,
) -> None:
    """Compose the digests that are due, and send whatever may leave. Exit code 1 when a mail failed."""
    if dry_run:
        _show_due(as_json=as_json)
        return
    with output.open_application() as app, output.graceful_shutdown(app):
        counts = pipeline.send_due(app, clock.utcnow())
        with app.db.read() as session:
            pauses, waiting = ledger.pauses(session), ledger.waiting_mails(session)
    if as_json:
        output.print_json(dict(counts))
    elif counts:
        output.table(["what", "how many"], sorted(counts.items()))
    elif not (pauses or waiting):
        output.out().print("Nobody is due, and no mail is waiting.")
    if waiting and not (pauses or as_json):
        output.out().print(f"{sending.describe_waiting(waiting)}.")
    sending.print_pauses(pauses)
    if counts["failed"]:
        raise typer.Exit(1)


def _show_due(*, as_json: bool) -> None:
    with output.open_application() as app:
        due = pipeline.preview_due(app, clock.utcnow())
    if as_json:
        output.print_json([{"email": each.email, **_document(each.digest)} for each in due])
        return
    rows = [(each.email, _in_short(each.digest)) for each in due]
    output.table(["reader", "would get"], rows)
    output.out().print(f"{len(rows)} readers are due.")


def _in_short(digest: Digest | Skip) -> str:
    if isinstance(digest, Skip):
        return f"nothing: {digest.reason}"
    return "; ".join(pick.title for pick in digest.picks)


# --- sources


@sources.command("list")
def list_sources(as_json: output.AsJson = False) -> None:
    """Every source, and how it is."""
    with output.open_application(needs_secret=False) as app, app.db.read() as session:
        rows = source_registry.all_sources(session)
    if as_json:
        output.print_json([row.model_dump(mode="json") for row in rows])
        return
    output.table(
        ["name", "kind", "state", "read up to", "asked next", "last error"],
        [
            (
                row.name,
                row.kind,
                _state(row),
                row.watermark,
                output.moment(row.next_poll_at),
                row.last_error,
            )
            for row in rows
        ],
    )


def _state(source: Source) -> str:
    if not (source.next_poll_at or source.polled_at):
        return "read from files"
    if source.paused:
        return "paused"
    return f"failed {source.failures}×" if source.failures else "well"


@sources.command("add")
def add_source(
    name: SourceName,
    kind: Annotated[SourceKind, typer.Option(help="huggingface, arxiv, arxiv_feed or feed.")],
    url: Annotated[str | None, typer.Option(help="The address of a feed.")] = None,
    category: Annotated[list[str] | None, typer.Option(help="An arXiv category; once for each.")] = None,
    query: Annotated[str | None, typer.Option(help="A query of arXiv, instead of categories.")] = None,
) -> None:
    """Add a source. It is asked for the first time by the next `paperboy ingest` or tick."""
    given = {"url": url, "categories": category, "query": query}
    config = {name: value for name, value in given.items() if value}
    now = clock.utcnow()
    with output.open_application(needs_secret=False) as app, app.db.write() as session:
        source = source_registry.add(session, name, kind, config, now)
        audit_log.record(session, output.ACTOR, "source.add", source.name, now, kind=source.kind)
    output.out().print(f"Added the source “{output.escaped(source.name)}”.")


@sources.command("pause")
def pause_source(name: SourceName) -> None:
    """Ask a source no more until it is resumed."""
    now = clock.utcnow()
    with output.open_application(needs_secret=False) as app, app.db.write() as session:
        source_registry.pause(session, source_registry.get_by_name(session, name))
        audit_log.record(session, output.ACTOR, "source.pause", name, now)
    output.out().print(f"“{output.escaped(name)}” is paused.")


@sources.command("resume")
def resume_source(name: SourceName) -> None:
    """Ask a source again, from where it stopped."""
    now = clock.utcnow()
    with output.open_application(needs_secret=False) as app, app.db.write() as session:
        source_registry.resume(session, source_registry.get_by_name(session, name), now)
        audit_log.record(session, output.ACTOR, "source.resume", name, now)
    output.out().print(f"“{output.escaped(name)}” is asked again.")
