"""The models: what was learned from the archive. Learning happens by itself; it can be asked for, too."""

from __future__ import annotations

from datetime import datetime

import structlog
from fastapi import APIRouter, BackgroundTasks
from pydantic import BaseModel, Field

from app import clock, pipeline
from app.application import Application
from app.relevance.model_store import ModelVersion
from app.storage import audit_log
from app.web.api.auth import CanRead, CanWrite, Limited, Now, Paperboy
from app.web.work_limits import WorkSlots

router = APIRouter(prefix="/models", tags=["models"])
log = structlog.get_logger(__name__)


class ModelOut(BaseModel):
    """A model, without its numbers."""

    id: int = Field(examples=[7])
    fitted_at: datetime
    papers: int = Field(description="In the archive that it was learned from.", examples=[12_480])
    size: int = Field(description="In bytes.", examples=[1_840_000])
    fault: str = Field(examples=[""], description="Why it is refused: corrupt, or of another format.")
    in_use: bool = Field(description="The newest one without a fault. If none is, what was shipped serves.")


class ModelList(BaseModel):
    """The newest three."""

    items: list[ModelOut]


@router.get("")
def list_models(app: Paperboy, _key: CanRead) -> ModelList:
    """The models that are kept, the newest first."""
    return _kept(app)


@router.post("", status_code=202)
def learn(app: Paperboy, key: CanWrite, now: Now, tasks: BackgroundTasks, limits: Limited) -> ModelList:
    """Learn from the archive now, if it has changed. What came of it stands among the runs.

    The answer comes at once, with the models that there are so far.
    """
    limits.jobs.check()
    with app.db.write() as session:
        audit_log.record(session, key.name, "model.learn", "", now)
    tasks.add_task(_learn, app, limits.jobs)
    return _kept(app)


def _learn(app: Application, slots: WorkSlots) -> None:
    try:
        with slots.take():
            pipeline.learn(app, clock.utcnow())
    except Exception:  # the answer is out already: the run and the log tell
        log.exception("learning failed")


def _kept(app: Application) -> ModelList:
    with app.db.read() as session:
        return ModelList(items=[_shown(version) for version in app.models.versions(session)])


def _shown(version: ModelVersion) -> ModelOut:
    return ModelOut(
        id=version.id,
        fitted_at=version.fitted_at,
        papers=version.archive.papers,
        size=version.size,
        fault=version.fault,
        in_use=version.in_use,
    )
