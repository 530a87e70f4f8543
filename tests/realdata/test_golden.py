"""Compare digests of three readers over ten recorded days with a golden file, title by title.

The golden file was reviewed by a person; docs/benchmarks.md lists its wrong picks. After an intended change,
regenerate it and review the difference: `python -m tests.realdata.test_golden`.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from app import main, pipeline, settings, subscribers
from app.application import Application
from app.digests.builder import DigestBuilder
from app.digests.digest_requests import DigestRequest
from app.storage import schema
from app.storage.models import Subscriber
from app.types import Digest
from tests.conftest import SHARED_DATA
from tests.support import factories

GOLDEN = Path(__file__).with_name("golden") / "digests.txt"
DAYS = 10
READERS = {
    "alice": ['"speculative decoding"', "LLM inference quantization", "world models"],
    "bob": ["GUI agents", "reinforcement learning for reasoning -robot", "agents"],
    "carol": ["medical imaging", "protein", "video generation", "text-to-SQL"],
}
# Other processors round differently, so a paper near the floor may be in or out.
ON_THE_EDGE = 0.03


def digests(app: Application) -> Iterator[str]:
    """Yield `reader day [interest] title` for every paper, or `reader day — reason` for a skipped digest."""
    files = {date.fromisoformat(path.stem): path for path in (SHARED_DATA / "hf_daily").glob("*.json")}
    *before, first = sorted(files)[: -DAYS + 1]
    start = datetime.combine(first, datetime.min.time(), UTC)
    for day in before:
        pipeline.read_files(app, [files[day]], start - timedelta(days=1), day=day)
    pipeline.train(app, start)
    with app.db.write() as session:
        readers = {
            name: factories.add_subscriber(session, f"{name}@example.org", interests, start)
            for name, interests in READERS.items()
        }
    seen = {name: set[int]() for name in readers}
    for day in sorted(files)[-DAYS:]:
        eight = datetime.combine(day, datetime.min.time(), UTC) + timedelta(hours=8)
        pipeline.read_files(app, [files[day]], eight - timedelta(hours=3), day=day)
        for name, number in readers.items():
            yield from (f"{name} {day} {line}" for line in digest_lines(app, number, eight, seen[name]))


def digest_lines(app: Application, reader: int, now: datetime, seen: set[int]) -> Iterator[str]:
    with app.db.read() as session:
        builder, row = DigestBuilder(app.digest_context, session, now), session.get_one(Subscriber, reader)
        interests = subscribers.interests_of(session, [reader])[reader]
        request = DigestRequest(row, interests, already_promised=frozenset(seen))
        result = builder.digest(row, str(now.date()), *builder.ranked([request]))
    if not isinstance(result, Digest):
        yield f"— {result.reason}"
        return
    for section in result.sections:
        seen.update(item.paper_id for item in section.picks)
        yield from (f"[{section.interest}] {item.title}" for item in section.picks)


@pytest.mark.realdata
@pytest.mark.once
@pytest.mark.timeout(300)
def test_digests_equal_the_golden_file(app: Application) -> None:
    """A change in ranking, matching or composing shows here as changed titles."""
    lines, golden = list(digests(app)), GOLDEN.read_text(encoding="utf-8").splitlines()
    changed = set(lines) ^ set(golden)
    assert len(changed) <= ON_THE_EDGE * len(golden), "\n".join(sorted(changed))
    assert len(lines) == len(set(lines)), "no paper comes twice"


def write() -> None:
    """Regenerate the golden file with a temporary database."""
    with TemporaryDirectory() as folder:
        new_settings = settings.load(
            _env_file=None, database_url=f"sqlite:///{folder}/paperboy.db", secret_keys=("golden" * 8,)
        )
        schema.migrate(new_settings.database_url)
        app = main.build(new_settings)
        GOLDEN.write_text("\n".join(digests(app)) + "\n", encoding="utf-8")
        app.db.dispose()


if __name__ == "__main__":
    write()
