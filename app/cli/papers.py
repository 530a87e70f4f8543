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

from app import audit, catalogue, clock, deliver, pipeline, subscribers
from app.cli import sending, showing
from app.models import Source, SourceKind
from app.records import Digest, Pick, Rejection, Section, Skip, Wish
from app.subscribers import Preferences

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
    as_json: showing.AsJson = False,
) -> None:
    """Poll the sources that are due, or read saved answers. Exit code 1 when a source or file failed."""
    if not files and (as_ or day):
        raise typer.BadParameter("--as and --day are about files, and none was given")
    report = _read(files, as_, day, quiet=as_json) if files else _poll(quiet=as_json)
    if as_json:
        showing.say_json(report)
    else:
        _show_report(report)
    if report["failed"]:
        raise typer.Exit(1)


def _read(files: Sequence[Path], as_: As | None, day: datetime | None, *, quiet: bool) -> dict[str, Any]:
    kind = SourceKind(as_) if as_ else None
    with (
        showing.opened(needs_secret=False) as app,
        Progress(console=showing.err(), disable=quiet or not showing.err().is_terminal) as progress,
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
    with showing.opened(needs_secret=False) as app, showing.ending_gently(app):
        console = showing.err()
        if quiet or not console.is_terminal:
            refreshed = pipeline.refresh(app, clock.utcnow())
        else:
            with console.status("Asking the sources that are due, politely …"):
                refreshed = pipeline.refresh(app, clock.utcnow())
    if refreshed.busy:
        showing.err().print("Another process is polling the sources at this moment.")
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
    showing.table(["what", "how many"], counts)
    if report["rejections"]:
        showing.table(
            ["file", "row", "reason", "detail"],
            [list(rejection.values()) for rejection in report["rejections"][:20]],
            title="\nRejected",
        )
    if (more := len(report["rejections"]) - 20) > 0:
        showing.out().print(f"… and {more} more: --json lists them all.")
    if report["papers_new"] and not report["listings"]:
        showing.out().print("No listing day is known, so no digest takes these papers: --day gives one.")
    if report["failed"] and "sources" in report:
        showing.table(["source", "failed because"], report["failed"].items(), title="\nFailed")


# --- preview


def preview(
    interest: Annotated[list[str], typer.Option(help="What to read about; once for each interest.")],
    min_papers: Annotated[int, typer.Option(help="Wait for as many.")] = 1,
    max_papers: Annotated[int, typer.Option(help="At most as many.")] = 10,
    beyond: Annotated[int | None, typer.Option(help="At most as many that trend beyond them.")] = None,
    mute: Annotated[list[str] | None, typer.Option(help="What keeps a paper out; once for each.")] = None,
    day: Day = None,
    html: Annotated[Path | None, typer.Option(help="Write the mail's HTML to this file.")] = None,
    as_json: showing.AsJson = False,
) -> None:
    """Show the digest that a reader with these interests would get, without a subscriber."""
    now = clock.utcnow()
    with showing.opened(needs_secret=False) as app:
        wanted = Preferences(
            interests=tuple(Wish(text) for text in interest),
            min_papers=min_papers,
            max_papers=max_papers,
            beyond=app.settings.default_beyond if beyond is None else beyond,
            muted=tuple(mute or ()),
        )
        digest = pipeline.preview(app, subscribers.check(wanted), now, day=day.date() if day else None)
        if isinstance(digest, Skip):
            showing.need_papers(app)
        if html and isinstance(digest, Digest):
            mail = pipeline.show(app, digest, "you@example.org", now)
            html.write_text(mail.html, "utf-8")
    if as_json:
        showing.say_json(_document(digest))
    elif isinstance(digest, Skip):
        showing.out().print(f"There would be no digest: {showing.escaped(digest.reason)}")
    else:
        _show_digest(digest)


def _document(digest: Digest | Skip) -> dict[str, Any]:
    if isinstance(digest, Skip):
        return {"skipped": digest.reason, **asdict(Digest(edition="", sections=()))}
    return {"skipped": None, **asdict(digest)}


def _show_digest(digest: Digest) -> None:
    console = showing.out()
    for section in digest.sections:
        console.print(f"\n[bold]{showing.escaped(_heading(section))}[/]")
        for pick in section.picks:
            _show_pick(pick)
    told = f"{len(digest.picks)} papers out of {digest.considered} for the edition {digest.edition}."
    console.print(f"\n{told} {showing.escaped(digest.note)}".rstrip())


def _heading(section: Section) -> str:
    return section.interest or section.heading or "Trending beyond your interests"


def _show_pick(pick: Pick) -> None:
    console = showing.out()
    console.print(f"\n  [bold]{showing.escaped(pick.title)}[/]")
    for line in (pick.authors, pick.summary, " · ".join(filter(None, (pick.reason, pick.trend))), pick.url):
        if line:
            console.print(Padding(showing.escaped(line), (0, 0, 0, 2), expand=False))


# --- send


def send(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show who is due, and for what.")] = False,
    as_json: showing.AsJson = False,
) -> None:
    """Compose the digests that are due, and send whatever may leave. Exit code 1 when a mail failed."""
    if dry_run:
        _show_due(as_json=as_json)
        return
    with showing.opened() as app, showing.ending_gently(app):
        counts = pipeline.send_due(app, clock.utcnow())
        with app.db.read() as session:
            pauses, waiting = deliver.pauses(session), deliver.waiting(session)
    if as_json:
        showing.say_json(dict(counts))
    elif counts:
        showing.table(["what", "how many"], sorted(counts.items()))
    elif not (pauses or waiting):
        showing.out().print("Nobody is due, and no mail is waiting.")
    if waiting and not (pauses or as_json):
        showing.out().print(f"{sending.say_waiting(waiting)}.")
    sending.say_paused(pauses)
    if counts["failed"]:
        raise typer.Exit(1)


def _show_due(*, as_json: bool) -> None:
    with showing.opened() as app:
        due = pipeline.foresee(app, clock.utcnow())
    if as_json:
        showing.say_json([{"email": each.email, **_document(each.digest)} for each in due])
        return
    rows = [(each.email, _in_short(each.digest)) for each in due]
    showing.table(["reader", "would get"], rows)
    showing.out().print(f"{len(rows)} readers are due.")


def _in_short(digest: Digest | Skip) -> str:
    if isinstance(digest, Skip):
        return f"nothing: {digest.reason}"
    return "; ".join(pick.title for pick in digest.picks)


# --- sources


@sources.command("list")
def list_sources(as_json: showing.AsJson = False) -> None:
    """Every source, and how it is."""
    with showing.opened(needs_secret=False) as app, app.db.read() as session:
        rows = catalogue.listed(session)
    if as_json:
        showing.say_json([row.model_dump(mode="json") for row in rows])
        return
    showing.table(
        ["name", "kind", "state", "read up to", "asked next", "last error"],
        [
            (
                row.name,
                row.kind,
                _state(row),
                row.watermark,
                showing.moment(row.next_poll_at),
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
    with showing.opened(needs_secret=False) as app, app.db.write() as session:
        source = catalogue.add(session, name, kind, config, now)
        audit.note(session, showing.ACTOR, "source.add", source.name, now, kind=source.kind)
    showing.out().print(f"Added the source “{showing.escaped(source.name)}”.")


@sources.command("pause")
def pause_source(name: SourceName) -> None:
    """Ask a source no more until it is resumed."""
    now = clock.utcnow()
    with showing.opened(needs_secret=False) as app, app.db.write() as session:
        catalogue.pause(session, catalogue.named(session, name))
        audit.note(session, showing.ACTOR, "source.pause", name, now)
    showing.out().print(f"“{showing.escaped(name)}” is paused.")


@sources.command("resume")
def resume_source(name: SourceName) -> None:
    """Ask a source again, from where it stopped."""
    now = clock.utcnow()
    with showing.opened(needs_secret=False) as app, app.db.write() as session:
        catalogue.resume(session, catalogue.named(session, name), now)
        audit.note(session, showing.ACTOR, "source.resume", name, now)
    showing.out().print(f"“{showing.escaped(name)}” is asked again.")
