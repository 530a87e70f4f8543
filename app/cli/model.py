"""model: what was learned from the archive, and learning now."""

from __future__ import annotations

from dataclasses import asdict

import typer

from app import clock, pipeline
from app.cli import output
from app.relevance.model_store import ModelVersion
from app.storage import audit_log

models = typer.Typer(no_args_is_help=True, help="What was learned from the archive.")


@models.command()
def learn(as_json: output.AsJson = False) -> None:
    """Learn from the archive now, if it has changed. The schedule does so every night."""
    now = clock.utcnow()
    with output.open_application(needs_secret=False) as app:
        with app.db.write() as session:
            audit_log.record(session, output.ACTOR, "model.learn", "", now)
        lesson = pipeline.learn(app, now)
    if as_json:
        output.print_json(asdict(lesson))
    elif lesson.model_id:
        output.out().print(f"Model {lesson.model_id} was learned from {lesson.papers} papers.")
    else:
        output.out().print(f"Nothing was learned: {lesson.why_not}.")


@models.command("list")
def list_models(as_json: output.AsJson = False) -> None:
    """The models that are kept, and which one is in use."""
    with output.open_application(needs_secret=False) as app, app.db.read() as session:
        versions = app.models.versions(session)
    if as_json:
        output.print_json([_document(version) for version in versions])
        return
    output.table(
        ["id", "learned", "papers", "size", "state"],
        [
            (
                version.id,
                output.moment(version.fitted_at),
                version.archive.papers,
                f"{version.size / 1000:.0f} kB",
                _state(version),
            )
            for version in versions
        ],
    )
    if not any(version.in_use for version in versions):
        output.out().print("What was shipped is in use.")


def _document(version: ModelVersion) -> dict[str, object]:
    kept = {name: getattr(version, name) for name in ("id", "fitted_at", "size", "fault", "in_use")}
    return kept | {"papers": version.archive.papers}


def _state(version: ModelVersion) -> str:
    if version.fault:
        return f"refused: {version.fault}"
    return "in use" if version.in_use else "spare"
