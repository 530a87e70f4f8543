"""Relevance models trained on the archive. Training runs on a schedule and can be requested."""

from __future__ import annotations

from datetime import datetime

from fastapi import APIRouter, BackgroundTasks
from pydantic import BaseModel, Field

from app import pipeline
from app.application import Application
from app.storage import audit_log
from app.web import background
from app.web.api.auth import CanRead, CanWrite, Limited, Now, Paperboy

router = APIRouter(prefix="/models", tags=["models"])


class ModelOut(BaseModel):
    """A model, without its parameters."""

    id: int = Field(examples=[7])
    trained_at: datetime
    papers: int = Field(description="The number of papers on which it was trained.", examples=[12_480])
    size: int = Field(description="The size in bytes.", examples=[1_840_000])
    fault: str = Field(
        examples=[""], description="The reason why the model cannot be used; empty if it can be used."
    )
    in_use: bool = Field(
        description="True for the newest model without a fault. If there is none, the bundled model is used."
    )


class ModelList(BaseModel):
    """The three newest models."""

    items: list[ModelOut]


@router.get("")
def list_models(app: Paperboy, _key: CanRead) -> ModelList:
    """List the stored models, newest first."""
    return _list(app)


@router.post("", status_code=202)
def train(app: Paperboy, key: CanWrite, now: Now, tasks: BackgroundTasks, limits: Limited) -> ModelList:
    """Start training a model, unless the archive is unchanged. See /runs for the result.

    The response is immediate and lists the existing models.
    """
    limits.jobs.check()
    with app.db.write() as session:
        audit_log.record(session, key.name, "model.train", "", now)
    tasks.add_task(background.run_job, limits.jobs, "training", pipeline.train, app)
    return _list(app)


def _list(app: Application) -> ModelList:
    with app.db.read() as session:
        versions = app.models.versions(session)
    return ModelList(
        items=[
            ModelOut(
                id=version.id,
                trained_at=version.trained_at,
                papers=version.archive.papers,
                size=version.size,
                fault=version.fault,
                in_use=version.in_use,
            )
            for version in versions
        ]
    )
