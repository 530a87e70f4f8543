"""The record of each job's run: when, what it counted, which rows it rejected and what went wrong."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, cast

import structlog

from app.errors import PaperboyError
from app.storage.database import Database
from app.storage.models import JobRun
from app.types import Rejection

MAX_LISTED = 500  # rejections are all counted, but a broken upstream must not fill the database

log = structlog.get_logger(__name__)


@dataclass
class Recording:
    """What a run has to tell so far. It is written down when the run ends, however it ends."""

    id: int
    counts: Counter[str] = field(default_factory=Counter)
    rejections: list[dict[str, Any]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def add(self, counts: Mapping[str, int]) -> None:
        """Add figures to the run's counts, name by name."""
        for name, figure in counts.items():
            self.counts[name] += figure

    def reject(self, rejections: Iterable[Rejection]) -> None:
        """List rejected rows. `add` has counted them."""
        room = MAX_LISTED - len(self.rejections)
        self.rejections += [asdict(rejection) for rejection in islice(rejections, room)]

    def fail(self, origin: str, error: object) -> None:
        """Note that one part failed while the rest of the run went on."""
        self.errors.append(f"{origin}: {error}")


@contextmanager
def recorded(db: Database, job: str, now: datetime) -> Iterator[Recording]:
    """Write a Run at the start and again at the end. An exception is recorded and goes on its way."""
    with db.write() as session:
        row = JobRun(job=job, started_at=now)
        session.add(row)
        session.flush()
        recording = Recording(cast("int", row.id))
    began = time.monotonic()  # so that a run of a simulated day has a true length, too
    try:
        yield recording
    except BaseException as error:
        recording.errors.append(_told(error))
        raise
    finally:
        _end(db, job, recording, now + timedelta(seconds=time.monotonic() - began))


def _end(db: Database, job: str, recording: Recording, at: datetime) -> None:
    error = "\n".join(recording.errors)
    with db.write() as session:
        row = session.get_one(JobRun, recording.id)
        row.ended_at, row.error = at, error
        row.counts, row.rejections = dict(recording.counts), recording.rejections
        session.add(row)
    if error:
        log.error("run failed", job=job, run=recording.id, error=error)
    else:
        log.info("run ended", job=job, run=recording.id, counts=dict(recording.counts))


def _told(error: BaseException) -> str:
    return str(error) if isinstance(error, PaperboyError) else f"{type(error).__name__}: {error}"
