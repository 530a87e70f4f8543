"""The bundled sample of recorded answers: each file, and when a service that polls would have read it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from pathlib import Path

from app.text.sanitize import day_in

FOLDER = Path(__file__).parent
# When a service that polls would have had each kind of file: hours after its day began in UTC.
ARXIV_ANNOUNCES, MORNING, PAGE_SAVED, NEXT_MORNING = 0.5, 10, 12, 29


@dataclass(frozen=True, slots=True, order=True)
class Reading:
    """A file of the sample, and the moment at which it is read."""

    at: datetime
    path: Path

    @property
    def folder(self) -> str:
        return self.path.parent.name


def readings() -> list[Reading]:
    """The whole sample, in the order of time."""
    return sorted(
        Reading(_moment(path), path) for path in FOLDER.rglob("*") if path.suffix in (".json", ".xml", ".txt")
    )


def _moment(path: Path) -> datetime:
    day = day_in(path.name)
    if day is None:
        raise ValueError(f"{path.name} does not say of which day it is")
    hours = {"arxiv_feed": ARXIV_ANNOUNCES, "pages": PAGE_SAVED}.get(path.parent.name, MORNING)
    if path.stem.endswith("-next-morning"):
        hours = NEXT_MORNING
    return datetime.combine(day, time(), UTC) + timedelta(hours=hours)
