"""Keeps what was learned from the archive: fitted when the archive has changed, whole or not used at all."""

from __future__ import annotations

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
from app.storage.database import Database
from app.storage.models import Paper, TrainedModel

# An archive smaller than this knows too little of what is common; the shipped counts serve instead.
YOUNG = 300
NEWEST = 20_000  # papers: older ones say little of how people write now
OUTGROWN = 1.5  # an archive that has grown by half does not wait for the night
KEPT = 3  # models: one to use, and older ones to go back to

log = structlog.get_logger(__name__)


class ArchiveFingerprint(NamedTuple):
    """How an archive is, merged papers left out. While this stays, a new model would be the old one."""

    papers: int
    newest_id: int | None
    changed_at: datetime | None


class _Key(NamedTuple):
    """Which model: an id alone may be given again after the newest row was deleted."""

    id: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Version:
    """A model that is kept, without its bytes."""

    id: int
    fitted_at: datetime
    archive: ArchiveFingerprint  # to which it was fitted
    size: int  # bytes
    fault: str  # why it is refused; empty where it is whole, as written, and of the format read here
    in_use: bool  # the newest one without a fault


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """What came of learning: the new model's id, or why there is none."""

    model_id: int | None
    papers: int  # in the archive
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class _Held:
    """What is handed out, and which model was the newest when that was decided."""

    newest: _Key | None
    model: _Key | None  # None: the shipped counts
    corpus: RelevanceModel


class ModelStore:
    """Hands out the newest sound model. While one thread reads a new one, the others go on with the old."""

    def __init__(self) -> None:
        self._held: _Held | None = None
        self._reading = Lock()
        self._faults: dict[_Key, str] = {}

    def current(self, session: Session) -> RelevanceModel:
        """The newest sound model, or what was shipped. Where nothing changed this is one small query."""
        newest = next(iter(_keys(session, limit=1)), None)
        held = self._held
        if held is None:  # there is nothing to go on with: wait for whoever reads it
            self._reading.acquire()
        elif held.newest == newest or not self._reading.acquire(blocking=False):
            return held.corpus
        try:
            renewed = self._held = self._renewed(session, newest)
            return renewed.corpus
        finally:
            self._reading.release()

    def _renewed(self, session: Session, newest: _Key | None) -> _Held:
        held = self._held
        if held and held.newest == newest:  # another thread was first
            return held
        for key in _keys(session):
            if held and held.model == key:
                break
            if read := self._read(session, key):
                return _Held(newest, key, read)
        if held and held.model:  # the last good one, even where the database has lost it
            return replace(held, newest=newest)
        return _Held(newest, None, RelevanceModel.shipped())

    def _read(self, session: Session, key: _Key) -> RelevanceModel | None:
        """A model's numbers, or None where it is refused; that is logged once."""
        data = None if self._faults.get(key) else _data(session, key)
        if data is None:
            return None
        try:
            if hashlib.sha256(data).hexdigest() != key.sha256:
                raise CorruptModel("Its bytes are not those that were written.")
            read = RelevanceModel.decode(data)
        except CorruptModel as error:
            log.error("model refused", model=key.id, error=str(error))
            self._faults[key] = str(error)
            return None
        self._faults[key] = ""
        return read

    def versions(self, session: Session) -> list[Version]:
        """The models that are kept, the newest first. Each is read once to see whether it is sound."""
        kept: list[Version] = []
        for row in _rows(session):
            key = _Key(row.id or 0, row.sha256)
            if key not in self._faults:
                self._read(session, key)
            fault = self._faults.get(key, "It is gone.")
            in_use = not fault and not any(newer.in_use for newer in kept)
            archive = ArchiveFingerprint(row.papers, row.newest_id, row.changed_at)
            kept.append(Version(key.id, row.fitted_at, archive, row.size, fault, in_use))
        return kept

    def outgrown(self, session: Session) -> bool:
        """Whether the archive has become much larger than the model in use knows, or has none yet."""
        size = _size(session)
        known = next((version.archive.papers for version in self.versions(session) if version.in_use), 0)
        return size >= YOUNG and size > known * OUTGROWN

    def learn(self, db: Database, now: datetime) -> TrainingResult:
        """Fit a model to the newest papers and keep it, unless the archive is young or as it was.

        It takes seconds; nothing is locked until the new model is written, in one transaction.
        """
        with db.read() as session:
            archive = extent(session)
            if archive.papers < YOUNG:
                return TrainingResult(
                    None, archive.papers, f"the archive is young: {YOUNG} papers are needed"
                )
            if any(newest.archive == archive and newest.in_use for newest in self.versions(session)[:1]):
                return TrainingResult(None, archive.papers, "nothing has changed since the last model")
            papers = _texts(session)
        data = RelevanceModel.of(papers).encode()
        with db.write() as session:
            lesson = TrainingResult(_store(session, archive, data, now), archive.papers)
        with db.read() as session:
            self.current(session)  # read at once, so that nobody in this process has to
        return lesson


def needed(session: Session) -> int:
    """How many papers the archive must hold for anything to be learned from it; 0 where something was.

    Until then no likes count. Whether a model is sound is not asked: this is one small query.
    """
    return 0 if _keys(session, limit=1) else YOUNG


def refused(versions: Sequence[Version]) -> list[Version]:
    """Those that would be in use, had they no fault."""
    return list(takewhile(lambda version: not version.in_use, versions))


def _rows(session: Session) -> Sequence[TrainedModel]:
    """The models, the newest first, without their bytes."""
    bare = select(TrainedModel).options(defer(col(TrainedModel.data), raiseload=True))  # type: ignore[arg-type]
    return session.exec(bare.order_by(col(TrainedModel.id).desc())).all()


def _keys(session: Session, limit: int = KEPT) -> Sequence[_Key]:
    newest = select(TrainedModel.id, TrainedModel.sha256).order_by(col(TrainedModel.id).desc()).limit(limit)
    return [_Key(number or 0, digest) for number, digest in session.exec(newest)]


def _data(session: Session, key: _Key) -> bytes | None:
    return session.exec(
        select(TrainedModel.data).where(TrainedModel.id == key.id, TrainedModel.sha256 == key.sha256)
    ).first()


def _size(session: Session) -> int:
    return session.exec(select(func.count()).where(col(Paper.merged_into_id).is_(None))).one()


def extent(session: Session) -> ArchiveFingerprint:
    """How the archive is now."""
    figures = select(func.count(), func.max(Paper.id), func.max(Paper.updated_at))
    return ArchiveFingerprint(*session.exec(figures.where(col(Paper.merged_into_id).is_(None))).one())


def _texts(session: Session) -> Sequence[tuple[str, str]]:
    kept = select(Paper.title, Paper.abstract).where(col(Paper.merged_into_id).is_(None))
    return session.exec(kept.order_by(col(Paper.id).desc()).limit(NEWEST)).all()


def _store(session: Session, archive: ArchiveFingerprint, data: bytes, now: datetime) -> int:
    """Write a model and let the oldest go, in the transaction of the session."""
    digest = hashlib.sha256(data).hexdigest()
    row = TrainedModel(fitted_at=now, **archive._asdict(), sha256=digest, size=len(data), data=data)
    session.add(row)
    session.flush()
    kept = [key.id for key in _keys(session)]
    session.connection().execute(delete(TrainedModel).where(col(TrainedModel.id).not_in(kept)))
    return row.id or 0
