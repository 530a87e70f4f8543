"""List the bundled sample files (recorded responses), each with the time at which it would be polled."""

from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from pathlib import Path

from app.text.dates import day_in

FOLDER = Path(__file__).parent
# Hours from the beginning of a file's day, in UTC, until a service polls the file.
ARXIV_ANNOUNCEMENT, MORNING, SAVED_PAGE, NEXT_MORNING = 0.5, 10, 12, 29


@dataclass(frozen=True, slots=True, order=True)
class SampleFile:
    """A file in the sample, and the time at which it is read."""

    at: datetime
    path: Path

    @property
    def folder(self) -> str:
        return self.path.parent.name


def sample_files() -> list[SampleFile]:
    """Return all files in the sample, in the order in which they are read."""
    files = []
    for path in FOLDER.rglob("*"):
        if path.suffix not in (".json", ".xml", ".txt"):
            continue
        day = day_in(path.name)
        if day is None:
            raise ValueError(f"the name of the file {path.name} contains no date, such as 2026-03-18")
        hours = {"arxiv_feed": ARXIV_ANNOUNCEMENT, "pages": SAVED_PAGE}.get(path.parent.name, MORNING)
        if path.stem.endswith("-next-morning"):
            hours = NEXT_MORNING
        files.append(SampleFile(datetime.combine(day, time(), UTC) + timedelta(hours=hours), path))
    return sorted(files)
