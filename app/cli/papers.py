"""papers: search, show, edit, hide, unhide, reinstate, pin, unpin, merge and split papers."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from sqlmodel import Session

from app import clock
from app.cli import output
from app.delivery import ledger
from app.digests import operator_changes
from app.digests.operator_changes import Editor
from app.errors import InvalidInput
from app.papers import (
    archive_lists,
    bylines,
    canonical_rows,
    editing,
    listings,
    merging,
    paper_views,
    pinning,
    source_registry,
)
from app.storage.models import Paper

papers = output.command_group("Search, show, edit, hide, reinstate, pin, merge and split papers.")

PaperReference = Annotated[str, typer.Argument(help="The paper's ID, arXiv ID, DOI or URL.")]


@papers.command("search")
def search_papers(
    text: Annotated[
        str, typer.Argument(help="Words of the title or abstract, an arXiv ID, DOI or URL.")
    ] = "",
    hidden: Annotated[bool, typer.Option("--hidden", help="Only hidden papers.")] = False,
    pinned: Annotated[bool, typer.Option("--pinned", help="Only pinned papers.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="The maximum number of papers.")] = 20,
    as_json: output.AsJson = False,
) -> None:
    """List papers, newest first. Hidden papers are marked."""
    with output.open_application(needs_secret=False) as app, app.db.read() as session:
        base_url = app.settings.base_url
        if paper_id := canonical_rows.find_by_reference(session, text, base_url) if text else None:
            views = paper_views.by_ids(session, [paper_id])
        else:
            views = archive_lists.search(
                session, text, hidden=hidden or None, pinned=pinned or None, pinned_at=clock.utcnow(),
                limit=limit,
            )  # fmt: skip
        rows = operator_changes.rows_of(session, [view.id for view in views])
    if as_json:
        output.print_json([_as_json(rows[view.id]) for view in views])
        return
    cells = [
        (view.id, view.title, view.arxiv_id, view.last_listed_on, view.upvotes, _state(rows[view.id]))
        for view in views
    ]
    output.table(["ID", "title", "arXiv ID", "last listed", "votes", "state"], cells)


@papers.command("show")
def show_paper(paper: PaperReference, as_json: output.AsJson = False) -> None:
    """Show everything stored about a paper, and the number of digests that contain it."""
    with output.open_application(needs_secret=False) as app, app.db.read() as session:
        stored = operator_changes.find(session, paper, app.settings.base_url)
        row_ids = merging.with_absorbed(session, merging.id_of(stored))
        rows = operator_changes.rows_of(session, sorted(row_ids - {stored.id}))
        listed = listings.of_paper(session, merging.id_of(stored))
        history = ledger.paper_history(session, row_ids)
    states = {state.value: count for state, count in history.states.items()}
    if as_json:
        merged = [_as_json(row) for row in rows.values()]
        output.print_json(
            {
                **_as_json(stored),
                "listings": [each._asdict() for each in listed],
                "merged_rows": merged,
                "digests": states,
            }
        )
        return
    fields = [(name, value) for name, value in _as_json(stored).items() if value not in (None, "", [])]
    output.table(["field", "value"], fields)
    output.table(["listed", "source", "rank"], [(each.day, each.source, each.rank) for each in listed])
    for row_id, row in rows.items():
        output.out().print(f"merged: row {row_id}, {output.escaped(row.title)}")
    counts = ", ".join(f"{count} {state}" for state, count in states.items()) or "none"
    output.out().print(f"digests with this paper: {counts}")


@papers.command("edit")
def edit_paper(
    paper: PaperReference,
    title: Annotated[str | None, typer.Option()] = None,
    abstract: Annotated[str | None, typer.Option()] = None,
    tldr: Annotated[str | None, typer.Option(help="The summary in one sentence.")] = None,
    author: Annotated[
        list[str] | None, typer.Option(help="An author (repeatable). Replaces all authors.")
    ] = None,
    published_on: Annotated[str | None, typer.Option(help="The day, such as 2026-11-20.")] = None,
    url: Annotated[str | None, typer.Option(help="The page with the abstract.")] = None,
    pdf_url: Annotated[str | None, typer.Option()] = None,
    code_url: Annotated[str | None, typer.Option()] = None,
    project_url: Annotated[str | None, typer.Option()] = None,
    reset: Annotated[
        list[str] | None, typer.Option(help="A field to reset to the value from the sources.")
    ] = None,
) -> None:
    """Edit a paper. Polls do not change edited fields."""
    options = {
        "title": title, "abstract": abstract, "tldr": tldr, "authors": author or None,
        "published_on": published_on, "url": url, "pdf_url": pdf_url, "code_url": code_url,
        "project_url": project_url,
    }  # fmt: skip
    changes: dict[str, Any] = {field: value for field, value in options.items() if value is not None}
    changes |= dict.fromkeys(reset or ())
    if not changes:
        raise InvalidInput("nothing to change: give at least one option")
    with _editor(paper) as (editor, paper_id):
        editor.edit(paper_id, changes)
    output.out().print(f"Changed {', '.join(changes)} of paper {paper_id}.")


@papers.command("hide")
def hide_paper(
    paper: PaperReference, reason: Annotated[str, typer.Option(help="The reason, for the audit log.")] = ""
) -> None:
    """Hide a paper: it is not sent, and is removed from public pages and waiting digests."""
    with _editor(paper) as (editor, paper_id):
        editor.hide(paper_id, reason)
    output.out().print(f"Paper {paper_id} is hidden.")


@papers.command("unhide")
def unhide_paper(paper: PaperReference) -> None:
    """Show a hidden paper again."""
    with _editor(paper) as (editor, paper_id):
        editor.show(paper_id)
    output.out().print(f"Paper {paper_id} is shown again.")


@papers.command("reinstate")
def reinstate_paper(paper: PaperReference) -> None:
    """Reinstate a withdrawn paper. Polls will not withdraw it again."""
    with _editor(paper) as (editor, paper_id):
        editor.reinstate(paper_id)
    output.out().print(f"Paper {paper_id} is no longer withdrawn.")


@papers.command("pin")
def pin_paper(
    paper: PaperReference, days: Annotated[int, typer.Option(help="The number of days.")] = pinning.PIN_DAYS
) -> None:
    """Pin a paper for some days: it comes first in digests with a matching interest or trending papers."""
    with _editor(paper) as (editor, paper_id):
        until = editor.pin(paper_id, days).pinned_until
    output.out().print(f"Paper {paper_id} is pinned until {output.format_time(until)}.")


@papers.command("unpin")
def unpin_paper(paper: PaperReference) -> None:
    """Unpin a paper."""
    with _editor(paper) as (editor, paper_id):
        editor.unpin(paper_id)
    output.out().print(f"Paper {paper_id} is no longer pinned.")


@papers.command("merge")
def merge_papers(
    paper: PaperReference,
    other: Annotated[str, typer.Argument(help="The duplicate: its ID, arXiv ID, DOI or URL.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Merge two records of the same paper. Subscribers who received one do not receive the other.

    The paper with an arXiv ID keeps its ID, otherwise the one with a DOI, otherwise the older one. Each
    field gets the newest value from the sources of both papers. Edited values, listings and votes are kept.
    `papers split` undoes a merge.
    """
    with output.open_application(needs_secret=False) as app:
        with app.db.read() as session:
            base_url = app.settings.base_url
            pair = [operator_changes.find(session, reference, base_url) for reference in (paper, other)]
            paper_id, other_id = map(merging.id_of, pair)
            ordered = merging.order_distinct(*pair)
            if not yes:
                print_comparison(session, *ordered)
            survivor_id, absorbed_id = map(merging.id_of, ordered)
        if not yes:
            typer.confirm(f"Merge paper {absorbed_id} into paper {survivor_id}?", abort=True)
        with app.db.write() as session:
            editor = Editor(session, output.ACTOR, clock.utcnow())
            survivor_id = merging.id_of(editor.merge(survivor_id, absorbed_id))
    output.out().print(f"Papers {paper_id} and {other_id} are now paper {survivor_id}.")


def print_comparison(session: Session, survivor: Paper, absorbed: Paper) -> None:
    """Print the fields of two papers side by side."""
    rows = survivor, absorbed
    views = paper_views.views_of(session, rows)
    fields = [
        ("title", *(view.title for view in views)),
        ("authors", *(bylines.byline(view.authors, view.author_count) for view in views)),
        ("published", *(view.published_on for view in views)),
        ("arXiv ID", *(row.arxiv_id for row in rows)),
        ("DOI", *(row.doi for row in rows)),
        ("sources", *(", ".join(view.sources) for view in views)),
        ("state", *map(_state, rows)),
    ]
    output.table(["field", f"paper {survivor.id} (kept)", f"paper {absorbed.id}"], fields)


@papers.command("split")
def split_paper(
    paper: PaperReference,
    row: Annotated[int | None, typer.Option(help="The ID of a merged row (see papers show).")] = None,
    doi: Annotated[bool, typer.Option("--doi", help="Split off the DOI.")] = False,
    source: Annotated[str | None, typer.Option(help="Split off the listings of this source.")] = None,
) -> None:
    """Split off a part that belongs to another paper. The two are never merged automatically again."""
    with _editor(paper) as (editor, paper_id):
        source_id = source_registry.find(editor.session, source).id if source else None
        part = editor.split(paper_id, row_id=row, doi=doi, source_id=source_id)
        part_id = merging.id_of(part)
    output.out().print(f"Split off paper {part_id} from paper {paper_id}.")


@contextmanager
def _editor(reference: str) -> Iterator[tuple[Editor, int]]:
    """Open the application, and yield an editor and the paper's id."""
    with output.change() as change:
        paper = operator_changes.find(change.session, reference, change.app.settings.base_url)
        yield Editor(change.session, output.ACTOR, change.now), merging.id_of(paper)


def _state(paper: Paper) -> str:
    pinned = f"pinned until {paper.pinned_until:%Y-%m-%d}" if paper.pinned_until else ""
    states = ("hidden" if paper.hidden_at else "", "withdrawn" if paper.withdrawn_at else "", pinned)
    return ", ".join(filter(None, states))


def _as_json(paper: Paper) -> dict[str, Any]:
    internal = {"title_key", "title_end", "content_hash", "versions", "sourced", "thumbnail_url"}
    return {**paper.model_dump(mode="json", exclude=internal), "edited_fields": editing.edited_fields(paper)}
