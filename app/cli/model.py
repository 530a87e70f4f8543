"""model: train relevance models on the archive, and list them."""

from dataclasses import asdict

from app import clock, pipeline
from app.cli import output
from app.storage import audit_log
from app.text.in_words import count_of

models = output.command_group("Train relevance models on the archive, and list them.")


@models.command()
def train(as_json: output.AsJson = False) -> None:
    """Train a model on the archive, unless the archive is unchanged. The schedule does this every night."""
    now = clock.utcnow()
    with output.open_application(needs_secret=False) as app:
        with app.db.write() as session:
            audit_log.record(session, output.ACTOR, "model.train", "", now)
        result = pipeline.train(app, now)
    if as_json:
        output.print_json(asdict(result))
    elif result.model_id:
        output.out().print(f"Model {result.model_id} was trained on {count_of(result.papers, 'paper')}.")
    else:
        output.out().print(f"No model was trained: {result.why_not}.")


@models.command("list")
def list_models(as_json: output.AsJson = False) -> None:
    """List the stored models and show which one is in use."""
    with output.open_application(needs_secret=False) as app, app.db.read() as session:
        versions = app.models.versions(session)
    if as_json:
        names = ("id", "trained_at", "size", "fault", "in_use")
        output.print_json(
            [
                {name: getattr(version, name) for name in names} | {"papers": version.archive.papers}
                for version in versions
            ]
        )
        return
    rows = []
    for version in versions:
        size = f"{version.size / 1000:.0f} kB"
        state = "in use" if version.in_use else "spare"
        if version.fault:
            state = f"refused: {version.fault}"
        rows.append((version.id, version.trained_at, version.archive.papers, size, state))
    output.table(["id", "trained", "papers", "size", "state"], rows)
    if not any(version.in_use for version in versions):
        output.out().print("The bundled model is in use.")
