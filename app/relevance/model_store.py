"""Train, store, load and verify models. A model is either used as a whole or not at all."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import takewhile
from threading import Lock
from typing import NamedTuple

import structlog
from sqlalchemy.orm import defer
from sqlmodel import Session, col, delete, func, select

from app.errors import CorruptModel
from app.relevance.model import RelevanceModel
from app.runtime import interpreter
from app.storage.database import Database
from app.storage.models import Paper, TrainedModel

JOB = "train"

# With fewer papers, the bundled model is used. A model trained on this many is as good (docs/benchmarks.md).
MIN_PAPERS = 2_000
MAX_PAPERS = 20_000  # the newest ones are used for training; older ones say little about how people write now
GROWTH_FACTOR = 1.5  # an archive that has grown by half does not wait for the nightly training
MAX_MODELS = 3  # stored: one to use, and older ones to fall back on

log = structlog.get_logger(__name__)


class ArchiveFingerprint(NamedTuple):
    """The state of the archive, without merged papers. Training again has no effect until it changes."""

    papers: int
    newest_id: int | None
    changed_at: datetime | None


class _ModelKey(NamedTuple):
    """The identity of a stored model. The id alone may be reused after the newest row is deleted."""

    id: int
    sha256: str


@dataclass(frozen=True, slots=True)
class ModelVersion:
    """A stored model, without its bytes."""

    id: int
    trained_at: datetime
    archive: ArchiveFingerprint  # at the time of training
    size: int  # bytes
    fault: str  # why the model cannot be used (it is corrupt or has another format), or ""
    in_use: bool  # True for the newest model without a fault


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """The id of the new model, or the reason why none was trained."""

    model_id: int | None
    papers: int  # in the archive
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """The model in use. `newest` identifies the newest stored model, which may be invalid."""

    newest: _ModelKey | None
    key: _ModelKey | None  # None: the bundled model
    model: RelevanceModel

    @property
    def digest(self) -> str:
        """Return the checksum of the model, or "bundled"."""
        return self.key.sha256 if self.key else "bundled"


class ModelStore:
    """A cache of the newest valid model. While one thread loads a new model, the others use the old one."""

    def __init__(self) -> None:
        self._loaded: LoadedModel | None = None
        self._loading = Lock()
        self._faults: dict[_ModelKey, str] = {}

    def current(self, session: Session) -> RelevanceModel:
        """Return the newest valid model, or the bundled one. If it is loaded, this takes one small query."""
        return self.loaded(session).model

    def loaded(self, session: Session) -> LoadedModel:
        """Return the model that `current` returns, with its digest."""
        newest = next(iter(_model_keys(session, limit=1)), None)
        loaded = self._loaded
        if loaded is None:  # there is no old model to use, so wait if another thread is loading one
            self._loading.acquire()
        elif loaded.newest == newest or not self._loading.acquire(blocking=False):
            return loaded
        try:
            reloaded = self._loaded = self._reload(session, newest)
            return reloaded
        finally:
            self._loading.release()

    def _reload(self, session: Session, newest: _ModelKey | None) -> LoadedModel:
        loaded = self._loaded
        if loaded and loaded.newest == newest:  # another thread has loaded it in the meantime
            return loaded
        for key in _model_keys(session):
            if loaded and loaded.key == key:
                break
            if model := self._load(session, key):
                return LoadedModel(newest, key, model)
        if loaded and loaded.key:  # the last valid one, even if it was deleted from the database
            return replace(loaded, newest=newest)
        return LoadedModel(newest, None, RelevanceModel.bundled())

    def _load(self, session: Session, key: _ModelKey) -> RelevanceModel | None:
        """Return a stored model, or None if it is invalid or was deleted. Log each invalid model once."""
        if self._faults.get(key):
            return None
        matches = (TrainedModel.id == key.id, TrainedModel.sha256 == key.sha256)
        data = session.exec(select(TrainedModel.data).where(*matches)).first()
        if data is None:
            return None
        try:
            if hashlib.sha256(data).hexdigest() != key.sha256:
                raise CorruptModel("The stored bytes do not match their SHA-256 checksum.")
            model = RelevanceModel.decode(data)
        except CorruptModel as error:
            log.error("model cannot be used; run `paperboy model train`", model=key.id, error=str(error))
            self._faults[key] = str(error)
            return None
        self._faults[key] = ""
        return model

    def versions(self, session: Session) -> list[ModelVersion]:
        """Return the stored models, newest first. Each one is loaded once to check that it is valid."""
        versions: list[ModelVersion] = []
        without_data = select(TrainedModel).options(defer(col(TrainedModel.data), raiseload=True))  # type: ignore[arg-type]
        for row in session.exec(without_data.order_by(col(TrainedModel.id).desc())):
            key = _ModelKey(row.id or 0, row.sha256)
            if key not in self._faults:
                self._load(session, key)
            fault = self._faults.get(key, "The model was deleted.")
            in_use = not fault and not any(newer.in_use for newer in versions)
            archive = ArchiveFingerprint(row.papers, row.newest_id, row.changed_at)
            versions.append(ModelVersion(key.id, row.trained_at, archive, row.size, fault, in_use))
        return versions

    def needs_training(self, session: Session) -> bool:
        """Return True if the archive is large enough and has outgrown the model in use by `GROWTH_FACTOR`.

        Also return True if it is large enough and the bundled model is in use.
        """
        # Two counts in indexes. Counting the rows that are not merged would read the whole archive.
        merged = select(func.count()).where(col(Paper.merged_into_id).is_not(None)).scalar_subquery()
        papers = session.exec(select(func.count() - merged).select_from(Paper)).one()
        trained_on = next((version.archive.papers for version in self.versions(session) if version.in_use), 0)
        return papers >= MIN_PAPERS and papers > trained_on * GROWTH_FACTOR

    def train(self, db: Database, now: datetime) -> TrainingResult:
        """Train a model on the newest papers and store it, unless the archive is too small or unchanged.

        Training takes seconds. Nothing is locked until the new model is written, in one transaction.
        """
        with db.read() as session:
            archive = archive_fingerprint(session)
            if archive.papers < MIN_PAPERS:
                return TrainingResult(
                    None, archive.papers, f"the archive has too few papers: {MIN_PAPERS} are needed"
                )
            if any(newest.archive == archive and newest.in_use for newest in self.versions(session)[:1]):
                return TrainingResult(None, archive.papers, "nothing has changed since the last model")
            unmerged = select(Paper.title, Paper.abstract).where(col(Paper.merged_into_id).is_(None))
            papers = session.exec(unmerged.order_by(col(Paper.id).desc()).limit(MAX_PAPERS)).all()
        data = RelevanceModel.train(papers).encode()
        with db.write() as session:
            result = TrainingResult(_store(session, archive, data, now), archive.papers)
        with db.read() as session:
            self.current(session)  # load the model now, so that no request in this process has to
        interpreter.return_free_memory()
        return result


def rejected_versions(versions: Sequence[ModelVersion]) -> list[ModelVersion]:
    """Return the invalid models that are newer than the one in use, or all of them if none is valid."""
    return list(takewhile(lambda version: not version.in_use, versions))


def _model_keys(session: Session, limit: int = MAX_MODELS) -> Sequence[_ModelKey]:
    newest = select(TrainedModel.id, TrainedModel.sha256).order_by(col(TrainedModel.id).desc()).limit(limit)
    return [_ModelKey(number or 0, digest) for number, digest in session.exec(newest)]


def archive_fingerprint(session: Session) -> ArchiveFingerprint:
    figures = select(func.count(), func.max(Paper.id), func.max(Paper.updated_at))
    return ArchiveFingerprint(*session.exec(figures.where(col(Paper.merged_into_id).is_(None))).one())


def _store(session: Session, archive: ArchiveFingerprint, data: bytes, now: datetime) -> int:
    """Write a model and delete all but the newest MAX_MODELS. Return the new model's id."""
    digest = hashlib.sha256(data).hexdigest()
    row = TrainedModel(trained_at=now, **archive._asdict(), sha256=digest, size=len(data), data=data)
    session.add(row)
    session.flush()
    newest = [key.id for key in _model_keys(session)]
    session.connection().execute(delete(TrainedModel).where(col(TrainedModel.id).not_in(newest)))
    return row.id or 0
