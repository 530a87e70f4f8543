"""Search papers, including hidden ones, and edit, hide, reinstate, pin, merge and split them."""

from typing import Annotated, Any, Unpack

from fastapi import APIRouter, Depends, Form, HTTPException, Request, Response
from sqlmodel import col, select

from app import subscribers
from app.digests import operator_changes
from app.digests.operator_changes import Editor
from app.errors import Conflict, InvalidInput, NotFound
from app.papers import canonical_rows, merging, pinning
from app.storage.models import Paper
from app.web import form_versions
from app.web.admin.double_clicks import AdminRoute
from app.web.admin.sign_in import FormOutcome, Operator, Reader, Writer, back_to
from app.web.api import paper_changes, papers
from app.web.api.auth import Id
from app.web.api.pagination import window_of
from app.web.forms import Text, replace_surrogates

router = APIRouter(include_in_schema=False, route_class=AdminRoute)

PATH = "/admin/papers"
LABELS = {  # of the fields of the form that edits a paper
    "title": "title", "tldr": "summary in one sentence", "abstract": "abstract", "authors": "authors",
    "published_on": "published on", "url": "page with the abstract", "pdf_url": "PDF", "code_url": "code",
    "project_url": "project page",
}  # fmt: skip
PAPERS_SHOWN, ROWS_SHOWN = 50, 30
MAX_QUERY = 300  # characters; a longer query can only be a URL
MESSAGES = {
    "edited": "Saved. Polls do not change what you edited.",
    "hidden": "Hidden. It is no longer sent, and disappears from public pages within minutes.",
    "shown": "The paper is shown again.",
    "reinstated": "The paper is no longer withdrawn, and polls will not withdraw it again.",
    "pinned": "Pinned.",
    "unpinned": "The paper is no longer pinned.",
    "merged": "Merged. Subscribers who received one of the papers do not receive the other.",
    "split": "Split. The two papers will not be merged again automatically.",
}
REFUSED = (InvalidInput, NotFound, Conflict)


@router.get(PATH)
def list_papers(operator: Reader, q: str = "", state: str = "any", cursor: str | None = None) -> Response:
    """Search papers. If the query is the id, DOI or URL of a paper, go to the paper's page."""
    problem, window = "", window_of(PAPERS_SHOWN, cursor)
    try:
        with operator.db.read() as session:
            base_url = operator.settings.base_url
            paper_id = canonical_rows.find_by_reference(session, q, base_url) if q.strip() else None
        if paper_id:
            return back_to(f"{PATH}/{paper_id}")
    except NotFound as error:
        problem = str(error)
    only = {"hidden": True} if state == "hidden" else {"pinned": True} if state == "pinned" else {}
    listed = papers.list_papers(
        operator,
        window,
        q[:MAX_QUERY],
        **only,  # type: ignore[arg-type]
    )
    ids = [paper.id for paper in listed.items]
    is_withdrawn = col(Paper.id).in_(ids), col(Paper.withdrawn_at).is_not(None)
    with operator.db.read() as session:
        withdrawn = set(session.exec(select(Paper.id).where(*is_withdrawn)))
    return operator.page(
        "admin/papers.html", papers=listed.items, withdrawn=withdrawn, next_cursor=listed.next_cursor,
        q=q, state=state, now=operator.now, problem=problem,
    )  # fmt: skip


@router.get(PATH + "/{paper_id}")
def show_paper(operator: Reader, paper_id: Id, done: str = "") -> Response:
    return _page(operator, paper_id, message=MESSAGES.get(done, ""))


async def _typed_fields(request: Request) -> dict[str, str]:
    """Return the typed values of the form that edits a paper, keyed by name.

    Raise HTTPException (422) if one of them is a file.
    """
    form = await request.form()
    values = {name: form.get(name, "") for name in LABELS}
    typed = {name: replace_surrogates(value) for name, value in values.items() if isinstance(value, str)}
    if len(typed) < len(values):
        raise HTTPException(422, "A field contains a file. Go back, and type the text instead.")
    return typed


@router.post(PATH + "/{paper_id}")
def edit_paper(
    operator: Writer,
    paper_id: Id,
    typed: Annotated[dict[str, str], Depends(_typed_fields)],
    reset: Annotated[list[str] | None, Form()] = None,
    seen: Annotated[list[str] | None, Form()] = None,
) -> Response:
    """Store the fields that the operator changed, and revert the edits whose boxes are checked.

    `seen` contains the versions of the values that the page showed. A poll or another operator may have
    changed them since then. If this operator changed the same field, refuse the form once.
    """
    versions = form_versions.parse(seen or ())
    try:
        with operator.db.write() as session:
            stored = _fields(papers.detail(session, paper_id))
            versions = {**form_versions.versions_of(stored), **versions}
            changes = form_versions.edits(typed, versions)
            if conflicts := form_versions.conflicts(changes, stored, versions):
                versions |= conflicts
                raise Conflict(form_versions.describe_conflicts(LABELS[name] for name in conflicts))
            changes |= dict.fromkeys(reset or ())  # type: ignore[arg-type]
            edits: dict[str, Any] = dict(changes)
            if edits.get("published_on") == "":
                edits["published_on"] = None
            if edits.get("authors") is not None:
                edits["authors"] = [line for line in map(str.strip, typed["authors"].splitlines()) if line]
            Editor(session, operator.key.name, operator.now).edit(paper_id, edits)
    except (InvalidInput, Conflict) as error:
        return _page(operator, paper_id, typed=typed, versions=versions, problem=str(error), status=422)
    return back_to(f"{PATH}/{paper_id}", "edited")


@router.post(PATH + "/{paper_id}/hide")
def hide_paper(operator: Writer, paper_id: Id, reason: Text = "") -> Response:
    response = _change(operator, paper_id, "hidden", lambda editor: editor.hide(paper_id, reason[:500]))
    operator.clear_public_caches()
    return response


@router.post(PATH + "/{paper_id}/show")
def unhide_paper(operator: Writer, paper_id: Id) -> Response:
    return _change(operator, paper_id, "shown", lambda editor: editor.show(paper_id))


@router.post(PATH + "/{paper_id}/reinstate")
def reinstate_paper(operator: Writer, paper_id: Id) -> Response:
    return _change(operator, paper_id, "reinstated", lambda editor: editor.reinstate(paper_id))


@router.post(PATH + "/{paper_id}/pin")
def pin_paper(operator: Writer, paper_id: Id) -> Response:
    return _change(operator, paper_id, "pinned", lambda editor: editor.pin(paper_id))


@router.post(PATH + "/{paper_id}/unpin")
def unpin_paper(operator: Writer, paper_id: Id) -> Response:
    return _change(operator, paper_id, "unpinned", lambda editor: editor.unpin(paper_id))


@router.get(PATH + "/{paper_id}/merge")
def preview_merge(operator: Reader, paper_id: Id, other: str = "") -> Response:
    """Show both papers, beginning with the one that a merge keeps."""
    try:
        with operator.db.read() as session:
            paper = operator_changes.get(session, paper_id)
            duplicate = operator_changes.find(session, other, operator.settings.base_url)
            ids = map(merging.id_of, merging.order_distinct(paper, duplicate))
            survivor, absorbed = (papers.detail(session, each) for each in ids)
    except REFUSED as error:
        return _page(operator, paper_id, problem=str(error), status=409, other=other)
    return operator.page("admin/paper_merge.html", survivor=survivor, absorbed=absorbed, paper_id=paper_id)


@router.post(PATH + "/{paper_id}/merge")
def merge_papers(operator: Writer, paper_id: Id, other: Text = "") -> Response:
    """Merge the paper with another, and redirect to the surviving paper."""

    def merge(editor: Editor) -> Any:
        duplicate = operator_changes.find(editor.session, other, operator.settings.base_url)
        return editor.merge(paper_id, merging.id_of(duplicate))

    return _change(operator, paper_id, "merged", merge, other=other)


@router.post(PATH + "/{paper_id}/split")
def split_paper(
    operator: Writer, paper_id: Id, row_id: Text = "", doi: Text = "", source_id: Text = ""
) -> Response:
    """Split off a part of the paper, and redirect to the new paper."""

    def split(editor: Editor) -> Any:
        return editor.split(paper_id, row_id=_number(row_id), doi=bool(doi), source_id=_number(source_id))

    return _change(operator, paper_id, "split", split)


def _change(operator: Operator, paper_id: int, done: str, change: Any, **values: Any) -> Response:
    """Apply a change, and redirect to the paper that `change` returns. If it is refused, show the reason."""
    try:
        with operator.db.write() as session:
            changed = merging.id_of(change(Editor(session, operator.key.name, operator.now)))
    except REFUSED as error:
        return _page(operator, paper_id, problem=str(error), status=409, **values)
    return back_to(f"{PATH}/{changed}", done)


def _page(
    operator: Operator,
    paper_id: int,
    *,
    typed: dict[str, str] | None = None,
    versions: dict[str, str] | None = None,
    other: str = "",
    **outcome: Unpack[FormOutcome],
) -> Response:
    paper = papers.get_paper(operator, paper_id)
    with operator.capacity.analyses.take():
        history = paper_changes.list_paper_deliveries(operator, None, paper_id)
    with operator.db.read() as session:
        addresses = subscribers.addresses_of(session, [each.subscriber_id for each in history.newest])
    fields = _fields(paper)
    return operator.page(
        "admin/paper.html", paper=paper, history=history, typed=typed, fields=fields,
        versions=versions or form_versions.versions_of(fields), other=other, addresses=addresses,
        now=operator.now, pin_days=pinning.PIN_DAYS, listings_shown=ROWS_SHOWN, **outcome,
    )  # fmt: skip


def _fields(paper: papers.PaperDetail) -> dict[str, str]:
    """Return the values of the form's fields, keyed by name."""
    names = ("title", "abstract", "tldr", "url", "pdf_url", "code_url", "project_url")
    fields = {name: getattr(paper, name) for name in names}
    if paper.tldr_by:
        fields["tldr"] = ""  # a model wrote the summary, so the field is empty
    published_on = paper.published_on.isoformat() if paper.published_on else ""
    return {**fields, "authors": "\n".join(paper.authors), "published_on": published_on}


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
