"""Relevance models trained on the archive. Training runs on a schedule and can be requested."""

from datetime import datetime

from fastapi import APIRouter, BackgroundTasks
from pydantic import AliasPath, BaseModel, Field

from app import pipeline
from app.web import background
from app.web.api.auth import CanRead, CanWrite
from app.web.api.values import Representation

router = APIRouter(prefix="/models", tags=["models"])


class ModelOut(Representation):
    """A model, without its parameters."""

    id: int = Field(examples=[7])
    trained_at: datetime
    papers: int = Field(
        validation_alias=AliasPath("archive", "papers"),
        description="The number of papers on which it was trained.",
        examples=[12_480],
    )
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
def list_models(caller: CanRead) -> ModelList:
    """List the stored models, newest first."""
    with caller.db.read() as session:
        versions = caller.app.models.versions(session)
    return ModelList(items=[ModelOut.model_validate(version) for version in versions])


@router.post("", status_code=202)
def train(caller: CanWrite, tasks: BackgroundTasks) -> ModelList:
    """Start training a model, unless the archive is unchanged. See /runs for the result.

    The response is immediate and lists the existing models.
    """
    caller.capacity.jobs.check()
    with caller.db.write() as session:
        caller.record(session, "model.train", "")
    tasks.add_task(background.run_job, caller.capacity.jobs, "training", pipeline.train, caller.app)
    return list_models(caller)
