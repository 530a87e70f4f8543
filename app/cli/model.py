"""model: what was learned from the archive, and learning now."""

from __future__ import annotations

from dataclasses import asdict

import typer

from app import audit, clock, pipeline
from app.cli import showing
from app.lexicon import Version

models = typer.Typer(no_args_is_help=True, help="What was learned from the archive.")


@models.command()
def learn(as_json: showing.AsJson = False) -> None:
    """Learn from the archive now, if it has changed. The schedule does so every night."""
    now = clock.utcnow()
    with showing.opened(needs_secret=False) as app:
        with app.db.write() as session:
            audit.note(session, showing.ACTOR, "model.learn", "", now)
        lesson = pipeline.learn(app, now)
    if as_json:
        showing.say_json(asdict(lesson))
    elif lesson.model_id:
        showing.out().print(f"Model {lesson.model_id} was learned from {lesson.papers} papers.")
    else:
        showing.out().print(f"Nothing was learned: {lesson.why_not}.")


@models.command("list")
def list_models(as_json: showing.AsJson = False) -> None:
    """The models that are kept, and which one is in use."""
    with showing.opened(needs_secret=False) as app, app.db.read() as session:
        versions = app.lexicon.versions(session)
    if as_json:
        showing.say_json([_document(version) for version in versions])
        return
    showing.table(
        ["id", "learned", "papers", "size", "state"],
        [
            (
                version.id,
                showing.moment(version.fitted_at),
                version.archive.papers,
                f"{version.size / 1000:.0f} kB",
                _state(version),
            )
            for version in versions
        ],
    )
    if not any(version.in_use for version in versions):
        showing.out().print("What was shipped is in use.")


def _document(version: Version) -> dict[str, object]:
    kept = {name: getattr(version, name) for name in ("id", "fitted_at", "size", "fault", "in_use")}
    return kept | {"papers": version.archive.papers}


def _state(version: Version) -> str:
    if version.fault:
        return f"refused: {version.fault}"
    return "in use" if version.in_use else "spare"
