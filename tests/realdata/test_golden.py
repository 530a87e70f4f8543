"""Three readers over ten recorded days: the digests that they get, title by title.

The golden file was read by eye; docs/benchmarks.md lists its wrong picks. After a change that is meant,
write it anew and read what changed: `python -m tests.realdata.test_golden`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from app import main, pipeline, settings, subscribers
from app.application import Application
from app.digests.builder import DigestBuilder, DigestRequest
from app.storage import database
from app.storage.models import Subscriber
from app.types import Digest
from tests import shelves
from tests.conftest import SHARED_DATA

GOLDEN = Path(__file__).with_name("golden") / "digests.txt"
DAYS = 10
READERS = {
    "alice": ['"speculative decoding"', "LLM inference quantization", "world models"],
    "bob": ["GUI agents", "reinforcement learning for reasoning -robot", "agents"],
    "carol": ["medical imaging", "protein", "video generation", "text-to-SQL"],
}
# Other processors round otherwise, and a pick on the edge may fall on its other side.
ON_THE_EDGE = 0.03


def digests(app: Application) -> Iterator[str]:
    """`reader day [interest] title` for every pick, and why there was none where there was none."""
    files = {date.fromisoformat(path.stem): path for path in (SHARED_DATA / "hf_daily").glob("*.json")}
    *before, first = sorted(files)[: -DAYS + 1]
    start = datetime.combine(first, datetime.min.time(), UTC)
    for day in before:
        pipeline.read_files(app, [files[day]], start - timedelta(days=1), day=day)
    pipeline.learn(app, start)
    with app.db.write() as session:
        readers = {
            name: shelves.reader(session, f"{name}@example.org", interests, start)
            for name, interests in READERS.items()
        }
    seen = {name: set[int]() for name in readers}
    for day in sorted(files)[-DAYS:]:
        eight = datetime.combine(day, datetime.min.time(), UTC) + timedelta(hours=8)
        pipeline.read_files(app, [files[day]], eight - timedelta(hours=3), day=day)
        for name, number in readers.items():
            yield from (f"{name} {day} {line}" for line in digest(app, number, eight, seen[name]))


def digest(app: Application, reader: int, now: datetime, seen: set[int]) -> Iterator[str]:
    with app.db.read() as session:
        desk, row = DigestBuilder(app.digest_context, session, now), session.get_one(Subscriber, reader)
        order = DigestRequest(
            row, subscribers.interests_of(session, [reader])[reader], already=frozenset(seen)
        )
        made = desk.digest(row, str(now.date()), *desk.ranked([order]))
    if not isinstance(made, Digest):
        yield f"— {made.reason}"
        return
    for section in made.sections:
        seen.update(pick.paper_id for pick in section.picks)
        yield from (f"[{section.interest}] {pick.title}" for pick in section.picks)


@pytest.mark.realdata
@pytest.mark.once
@pytest.mark.timeout(300)
def test_digests_are_those_that_were_read(app: Application) -> None:
    """A change of any part on the way shows here, as titles that can be judged."""
    made, golden = list(digests(app)), GOLDEN.read_text(encoding="utf-8").splitlines()
    changed = set(made) ^ set(golden)
    assert len(changed) <= ON_THE_EDGE * len(golden), "\n".join(sorted(changed))
    assert len(made) == len(set(made)), "no paper comes twice"


def write() -> None:
    """Make the golden file anew, with a database of its own."""
    with TemporaryDirectory() as folder:
        chosen = settings.load(
            _env_file=None, database_url=f"sqlite:///{folder}/paperboy.db", secret_keys=("golden" * 8,)
        )
        database.migrate(chosen.database_url)
        app = main.build(chosen)
        GOLDEN.write_text("\n".join(digests(app)) + "\n", encoding="utf-8")
        app.db.dispose()


if __name__ == "__main__":
    write()
