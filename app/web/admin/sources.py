"""The sources of papers: their health and recent polls; try, add, pause, resume and poll them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Unpack

from fastapi import APIRouter, BackgroundTasks, Response
from sqlmodel import col, select

from app.errors import Conflict, InvalidInput, TooManyRequests
from app.papers import polling, source_registry
from app.papers.sources import source_types
from app.storage.models import JobRun
from app.types import SourceKind
from app.web.admin.double_clicks import AdminRoute
from app.web.admin.sign_in import FormOutcome, Operator, ProspectiveWriter, Reader, Writer, back_to
from app.web.api import sources
from app.web.api.auth import Id
from app.web.forms import Text

router = APIRouter(include_in_schema=False, route_class=AdminRoute)

PATH = "/admin/sources"
RUNS_SHOWN = 10
KIND_LABELS = {
    kind: each.polled.label if each.polled else each.source_of_files
    for kind, each in source_types.SOURCE_TYPES.items()
}
MESSAGES = {
    "added": "Added. The source will be polled {timing.polls}.",
    "changed": "Saved. If you changed what the source reads, its papers are fetched as if it were new.",
    "paused": "Paused.",
    "resumed": "Resumed. The source will be polled {timing.polls}.",
    "removed": "Removed. Its papers remain.",
    "polling": "The source is being polled. Reload the page in a moment to see the result.",
}


@dataclass(frozen=True, slots=True)
class SourceInput:
    """The form that adds a source as typed, with its errors keyed by field name."""

    name: str = ""
    kind: str = ""
    address: str = ""
    problems: Mapping[str, str] = field(default_factory=dict)


@router.get("/admin/sources")
def list_sources(operator: Reader, done: str = "") -> Response:
    return _sources_page(operator, message=MESSAGES.get(done, ""))


@router.post("/admin/sources")
def add_source(
    operator: Writer, name: Text = "", kind: Text = "", address: Text = "", action: Text = ""
) -> Response:
    """Add a source or, if `action` is `try`, only show its newest papers.

    `address` is a feed's URL, arXiv categories or an arXiv set.
    """
    typed = SourceInput(name, kind, address)
    trial = None
    try:
        config = _config(kind, address, {})
        if action == "try":
            tried = sources.SourceTrial(kind=SourceKind(kind), config=config)
            trial = sources.try_source(operator, tried)
        else:
            body = sources.NewSource(name=name, kind=SourceKind(kind), config=config)
            sources.add_source(operator, body)
    except (InvalidInput, Conflict) as error:
        problems = {error.field if error.field in ("name", "kind") else "address": str(error)}
        return _sources_page(operator, typed=replace(typed, problems=problems), status=422)
    except TooManyRequests as error:
        return _sources_page(operator, typed=typed, problem=str(error), status=422)
    if trial:
        return _sources_page(operator, typed=typed, trial=trial)
    return back_to(PATH, "added")


def _config(kind: str, address: str, before: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration that a form describes. `before` is the current configuration, or empty.

    Raise InvalidInput if no kind was chosen.
    """
    if kind not in source_types.POLLED:
        raise InvalidInput("Choose the kind of the source.", field="kind")
    if kind == SourceKind.FEED:
        return {"url": address.strip()}
    if kind == SourceKind.ARXIV_OAI:
        return {**before, "set": address.strip()}
    if "query" in before:
        return {"query": address}
    has_categories = "categories" in source_types.POLLED[SourceKind(kind)].options
    return {"categories": address.replace(",", " ").split()} if has_categories else {}


def _address(config: dict[str, Any]) -> str:
    """Return the part of a configuration that a form shows: its URL, query, set or categories."""
    parts = (config.get(name) for name in ("url", "query", "set"))
    return next(filter(None, parts), " ".join(config.get("categories", ())))


@router.get("/admin/sources/{source_id}")
def show_source(operator: Reader, source_id: Id, done: str = "") -> Response:
    """Show a source and the results of its last polls."""
    return _source_page(operator, source_id, message=MESSAGES.get(done, ""))


@router.post("/admin/sources/{source_id}")
def change_source(
    operator: Writer,
    source_id: Id,
    name: Text = "",
    address: Text = "",
    shown_name: Text = "",
    shown_address: Text = "",
) -> Response:
    """Rename or reconfigure a source. Refuse this if the source has changed since the page was shown."""
    try:
        with operator.db.write() as session:
            source = source_registry.get_for_update(session, source_id)
            if (shown_name, shown_address) != (source.name, _address(source.config)):
                raise Conflict(
                    "someone else has changed this source in the meantime: compare your changes with its "
                    "state above, and save again to overwrite it"
                )
            config = None if address == shown_address else _config(source.kind, address, source.config)
            source_registry.change(session, source, operator.now, name=name, config=config)
            operator.record(session, "source.change", source.name)
    except (InvalidInput, Conflict) as error:
        typed = {"name": name, "address": address}
        return _source_page(operator, source_id, typed=typed, problem=str(error), status=422)
    return back_to(f"{PATH}/{source_id}", "changed")


@router.post("/admin/sources/{source_id}/pause")
def pause_source(operator: Writer, source_id: Id) -> Response:
    sources.pause_source(operator, source_id)
    return back_to("/admin/sources", "paused")


@router.post("/admin/sources/{source_id}/resume")
def resume_source(operator: Writer, source_id: Id) -> Response:
    sources.resume_source(operator, source_id)
    return back_to("/admin/sources", "resumed")


@router.get("/admin/sources/{source_id}/remove")
def ask_removal(operator: ProspectiveWriter, source_id: Id) -> Response:
    """Ask before a source is removed, and show what must be typed to add it again."""
    source = sources.get_source(operator, source_id)
    options = {
        name: value if isinstance(value, str) else ", ".join(value) for name, value in source.config.items()
    }
    if source.state == source_registry.READ_FROM_FILES:
        consequences = "Its papers and their votes remain. If such files are read again, the source is back."
    else:
        how = "add it again" if _form_can_add(source) else "use `paperboy sources add` or the API"
        consequences = (
            "The source will no longer be polled. Its papers and their votes remain. To undo this, "
            f"{how}, with the same name and these values. It will be read as if it were new."
        )
    return operator.confirmation_page(
        f"Remove “{source.name}”?",
        consequences,
        confirm="Remove the source",
        section=PATH,
        back=f"{PATH}/{source_id}",
        facts={"Name": source.name, "Kind": KIND_LABELS[source.kind], **options},
    )


def _form_can_add(source: sources.SourceOut) -> bool:
    """Return whether the form that adds sources can produce the configuration of this one."""
    try:
        typed = _config(source.kind, _address(source.config), {})
        return source_registry.check_config(source.kind, typed) == source.config
    except InvalidInput:
        return False


@router.post("/admin/sources/{source_id}/remove")
def remove_source(operator: Writer, source_id: Id) -> Response:
    sources.remove_source(operator, source_id)
    return back_to("/admin/sources", "removed")


@router.post("/admin/sources/{source_id}/poll")
def poll_source(operator: Writer, source_id: Id, later: BackgroundTasks) -> Response:
    sources.refresh_source(operator, source_id, later)
    return back_to("/admin/sources", "polling")


def _source_page(
    operator: Operator, source_id: int, *, typed: dict[str, str] | None = None, **outcome: Unpack[FormOutcome]
) -> Response:
    source = sources.get_source(operator, source_id)
    polled = source_types.POLLED.get(source.kind)
    return operator.page(
        "admin/source.html", source=source, kinds=KIND_LABELS,
        typed=typed or {"name": source.name, "address": _address(source.config)},
        shown_address=_address(source.config),
        address_label="Query" if source.config.get("query") else polled.address_label if polled else "",
        days=operator.settings.run_retention_days,
        polls=sources.list_polls(operator, source_id).items,
        from_files=source.state == source_registry.READ_FROM_FILES, now=operator.now, **outcome,
    )  # fmt: skip


def _sources_page(
    operator: Operator,
    *,
    typed: SourceInput = SourceInput(),
    trial: sources.TrialOut | None = None,
    **outcome: Unpack[FormOutcome],
) -> Response:
    polls = select(JobRun).where(JobRun.job == polling.JOB).order_by(col(JobRun.id).desc()).limit(RUNS_SHOWN)
    with operator.db.read() as session:
        runs = session.exec(polls).all()
    return operator.page(
        "admin/sources.html", runs=runs, sources=sources.list_sources(operator).items,
        polled=source_types.POLLED, typed=typed, trial=trial, address_of=_address, kinds=KIND_LABELS,
        from_files=source_registry.READ_FROM_FILES, now=operator.now, **outcome,
    )  # fmt: skip
