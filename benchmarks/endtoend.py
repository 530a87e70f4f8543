"""Run a morning from end to end in Paperboy: due readers → match → compose → sign → send → the ledger.

    python -m benchmarks.endtoend [--quick] [--json] [--readers 100000]

There are 3,000 synthetic papers with a model trained on them; 300 are candidates. Readers have one to four of
2,000 interests, every tenth mutes a phrase, and all are due at eight. Nine minutes earlier, their digests are
composed and signed (DKIM, RSA-2048). At eight, they are sent over ten connections to Postfix's `smtp-sink`,
and the ledger is reconciled. One run has a tenth of the readers and one has all of them. Each uses its own
database and process, so that their peak memory can be compared. For comparison, the naive stack sends 200
emails: it fully renders the same templates and uses email.message, dkimpy and aiosmtplib.
"""

import argparse
import json
import multiprocessing
import random
import resource
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import structlog
from sqlmodel import Session, SQLModel, insert

from app import pipeline
from app.application import Application
from app.delivery import ledger, presigning
from app.digests import planning, reconciliation
from app.papers.title_normalization import title_key
from app.relevance import matching
from app.storage import schema
from app.storage.models import (
    InterestQuery,
    InterestRow,
    Listing,
    Paper,
    Source,
    Subscriber,
    SubscriberState,
    VoteCount,
)
from app.types import SourceKind
from benchmarks import forks, postfix_tools, rivals, sending, workload

READERS, QUICK = 100_000, 3_000
NAIVE = 200  # emails that the naive stack sends
PAPERS, CANDIDATES, INTERESTS, MOST, PICKS = 3_000, 300, 2_000, 4, 15
HOUR = datetime(2026, 11, 20, 8, tzinfo=UTC)  # when everybody is due
AHEAD = HOUR - timedelta(minutes=9)  # when their digests are composed
MUTE_EVERY = 10  # every tenth reader mutes a phrase
DAYS = 6  # number of days over which the candidates were listed
BATCH = 10_000  # rows per INSERT


def _split(names: str) -> list[str]:
    return names.split(", ")


_METHODS = _split(
    "sparse, hierarchical, contrastive, causal, federated, diffusion, recurrent, symbolic, bayesian, "
    "quantised, multimodal, equivariant, retrieval-augmented, self-supervised, few-shot, adversarial, "
    "neural, probabilistic, evolutionary, spectral"
)
_SUBJECTS = _split(
    "language agents, video generation, protein folding, speech recognition, robot manipulation, graph "
    "networks, code synthesis, reward models, weather forecasting, medical imaging, point clouds, theorem "
    "proving, machine translation, recommender systems, autonomous driving, drug discovery, music "
    "transcription, table understanding, federated clients, neural radiance, satellite images, traffic "
    "prediction, dialogue systems, knowledge graphs, brain decoding"
)
_GOALS = _split(
    "long contexts, small devices, noisy labels, unseen domains, scarce data, hard negatives, rare classes, "
    "open vocabularies, private records, distribution shift, tool use, human feedback, low latency, high "
    "resolution, safety cases, multiple languages, sparse rewards, fine details, moving cameras, missing "
    "values"
)
_SURNAMES = _split("Lovelace, Hopper, Turing, Liskov, Müller, García, Nakamura, Okafor, Zhang, Novák, Ibsen")
_SENTENCES = (
    "We study how {subject} cope with {aim}, and find that most of what is lost comes from one step.",
    "To address this, we propose a {way} method for {subject} that needs no labels beyond those at hand.",
    "Earlier work on {other} treats {aim} as an afterthought and pays for it in accuracy.",
    "On eleven benchmarks it gains {gain} points over the best earlier system, at a third of its cost.",
    "An ablation shows that the gain comes from the {way} objective rather than from the larger model.",
    "The same idea carries over to {other}, where {aim} matter just as much.",
)


def fill(app: Application, readers: int) -> None:
    """Fill the archive, train a model on it, and add readers who are all due at HOUR."""
    draw = random.Random(4)  # noqa: S311 - no secret
    with app.db.write() as session:
        _put(session, Source, [{"name": "arXiv", "kind": SourceKind.ARXIV, "created_at": HOUR}])
        _put(session, Paper, (_paper(number, draw) for number in range(1, PAPERS + 1)))
        _put(session, Listing, (_listing(number) for number in range(1, PAPERS + 1)))
        _put(session, VoteCount, (_votes(number, draw) for number in range(1, PAPERS + 1)))
        _put(session, InterestQuery, ({"text": text} for text in _interests(draw)))
    with app.db.write() as session:
        _put(session, Subscriber, map(_reader, range(1, readers + 1)))
        _put(
            session,
            InterestRow,
            (row for number in range(1, readers + 1) for row in _interest_rows(number, draw)),
        )
    pipeline.train(app, HOUR - timedelta(days=1))


def _put(session: Session, table: type[SQLModel], rows: Iterable[dict[str, Any]]) -> None:
    left = iter(rows)
    while batch := list(islice(left, BATCH)):
        session.execute(insert(table), batch)


def _paper(number: int, draw: random.Random) -> dict[str, Any]:
    subject, other = draw.sample(_SUBJECTS, 2)
    values = {"subject": subject, "other": other, "way": draw.choice(_METHODS), "aim": draw.choice(_GOALS)}
    title = f"{values['way']} {subject} for {values['aim']}, case {number}".title()
    url = f"https://papers.example/abs/2611.{number:05}"
    authors = [f"{draw.choice('ABCDEFG')}. {draw.choice(_SURNAMES)}" for _ in range(5)]
    day = _day(number)
    return {
        "arxiv_id": f"2611.{number:05}",
        "title": title,
        "title_key": title_key(title),
        "abstract": " ".join(_SENTENCES).format(**values, gain=number % 9 + 1),
        "authors": authors,
        "author_count": len(authors),
        "categories": ["cs.LG"],
        "url": url,
        "pdf_url": url.replace("/abs/", "/pdf/"),
        "code_url": f"https://code.example/lab/{number}" if number % 3 else "",
        "published_on": day,
        "content_hash": str(number),
        "first_listed_on": day,
        "last_listed_on": day,
        "created_at": HOUR - timedelta(days=1),
        "updated_at": HOUR - timedelta(days=1),
    }


def _day(number: int) -> date:
    """Return the listing day: one of the last DAYS days for candidates, at least 30 days ago for others."""
    days = number % DAYS if number > PAPERS - CANDIDATES else 30 + number % 300
    return (HOUR - timedelta(days=days)).date()


def _listing(number: int) -> dict[str, Any]:
    return {"paper_id": number, "original_paper_id": number, "source_id": 1, "listed_on": _day(number)}


def _votes(number: int, draw: random.Random) -> dict[str, Any]:
    at = datetime.combine(_day(number), datetime.min.time(), UTC)
    ids = {"paper_id": number, "original_paper_id": number, "source_id": 1}
    return {**ids, "at": at, "upvotes": int(draw.paretovariate(1)), "comments": number % 7}


def _interests(draw: random.Random) -> list[str]:
    """Return distinct interests, each made of two or three phrases from the papers."""
    pairs = [f"{way} {subject}" for way in _METHODS for subject in _SUBJECTS]
    pairs += [f"{subject} {aim}" for subject in _SUBJECTS for aim in _GOALS]
    threes = [f"{way} {subject} {aim}" for way in _METHODS for subject in _SUBJECTS for aim in _GOALS]
    return [*pairs, *draw.sample(threes, INTERESTS - len(pairs))]


def _reader(number: int) -> dict[str, Any]:
    created = HOUR - timedelta(days=40)
    return {
        "id": number,
        "email": workload.address(number),
        "state": SubscriberState.ACTIVE,
        "hour": HOUR.hour,
        "max_papers": PICKS,
        "max_trending": 3,
        "muted": [_SUBJECTS[number // MUTE_EVERY % len(_SUBJECTS)]] if number % MUTE_EVERY == 0 else [],
        "next_due_at": HOUR,
        "due_since": HOUR,
        "created_at": created,
        "confirmed_at": created,
    }


def _interest_rows(number: int, draw: random.Random) -> Iterator[dict[str, Any]]:
    chosen = draw.sample(range(1, INTERESTS + 1), 1 + number % MOST)
    for position, query in enumerate(chosen):
        yield {"subscriber_id": number, "query_id": query, "position": position, "weight": 1.0}


# --- measurements


@dataclass(frozen=True)
class Stage:
    """The wall-clock time and the CPU time of a stage, in seconds."""

    name: str
    seconds: float
    cpu: float


@dataclass(frozen=True)
class Morning:
    """The measurements from one run, in its own process."""

    readers: int
    mails: int
    octets: int  # bytes per email, on average
    stages: list[Stage]
    peak: int  # peak memory of the process in megabytes
    counts: dict[str, int]
    reconciliation: dict[str, int | bool]

    @property
    def cpu_each(self) -> float:
        """Return the CPU time per email in µs, summed over all stages."""
        whole = (
            stage.cpu for stage in self.stages if not stage.name.startswith(" ")
        )  # indented ones are parts of other stages
        return sum(whole) / self.mails * 1e6


class Watch:
    """A stopwatch for stages and for functions inside them."""

    def __init__(self) -> None:
        self.stages: list[Stage] = []
        self.inside: Counter[str] = Counter()  # seconds in the functions of `look_into`

    def take(self, name: str, work: Callable[[], Counter[str]]) -> Counter[str]:
        began, busy = time.perf_counter(), time.process_time()
        counts = work()
        self.stages.append(Stage(name, time.perf_counter() - began, time.process_time() - busy))
        return counts

    def look_into(self, owner: Any, name: str) -> None:
        """Measure the seconds spent in a function from now on."""
        original = getattr(owner, name)

        def watched(*args: Any, **more: Any) -> Any:
            began = time.perf_counter()
            try:
                return original(*args, **more)
            finally:
                self.inside[name] += time.perf_counter() - began

        setattr(owner, name, watched)


def prepare(folder: Path, readers: int) -> None:
    """Create and fill a database in the folder."""
    structlog.configure(processors=[_drop])
    folder.mkdir()
    schema.migrate(workload.settings(folder).database_url)
    app = workload.build(folder)
    fill(app, readers)
    app.db.dispose()


def live(folder: Path, readers: int, port: int, key: str) -> Morning:
    """Plan, sign and send the digests for these readers. Must run in its own process."""
    structlog.configure(processors=[_drop])
    app = workload.build(folder, smtp_host="127.0.0.1", smtp_port=port, dkim_keys=(key,))
    watch = Watch()
    watch.look_into(matching.MatchIndex, "match")
    watch.look_into(ledger, "add_entries")
    counts = watch.take("match, compose, enter", lambda: planning.plan(app.digest_context, AHEAD))
    counts += watch.take("sign ahead", lambda: _sign(app))
    counts += watch.take("send, record", lambda: pipeline.send_now(app, HOUR))
    with app.db.read() as session:
        ledger_counts = reconciliation.reconcile_recent(session, HOUR).as_dict()
    inside = [Stage(f"  of it {name}", seconds, seconds) for name, seconds in watch.inside.items()]
    stages = [watch.stages[0], *inside, *watch.stages[1:]]
    return Morning(
        readers, int(ledger_counts["sent"]), _octets(app), stages, _peak(), {**counts}, ledger_counts
    )


def _sign(app: Application) -> Counter[str]:
    """Sign ahead until nothing is left, as the scheduled jobs do before the hour."""
    signed = Counter[str]()
    while more := presigning.sign_ahead(app.sender, AHEAD):
        signed["signed_ahead"] += more
    return signed


def _drop(*_: object) -> Any:
    raise structlog.DropEvent


def _octets(app: Application) -> int:
    with app.db.read() as session:
        requests = ledger.mail_requests(session, range(1, 101), app.snapshots)
    sizes = [
        len(app.composer.sign_and_serialize(app.composer.draft(request)).data)
        for request in requests
        if request.digest
    ]
    return sum(sizes) // len(sizes)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


# --- the whole benchmark


def run(readers: int, folder: Path) -> dict[str, Any]:
    """Measure runs with a tenth of the readers and with all of them, and the naive stack."""
    key = workload.make_key(folder / "key.pem")
    signs = f"bench:{key}"
    with postfix_tools.find().run_sink() as sink:
        small, large = (_morning(folder, number, sink.port, signs) for number in (readers // 10, readers))
        app = workload.build(folder)
        naive = rivals.naive(app, sink.port, NAIVE, sections=3, key=key.read_bytes())
        measurement = forks.run_together([naive], sink.cpu_seconds)
        app.db.dispose()
    return {
        "machine": sending.machine(),
        "mornings": [asdict(small), asdict(large)],
        "cpu_us_a_mail": {"paperboy": large.cpu_each, "naive": measurement.cpu_us},
        "times_as_cheap": measurement.cpu_us / large.cpu_each,
        "peak_mb": {str(small.readers): small.peak, str(large.readers): large.peak},
        "reconciliation": large.reconciliation,
    }


def _morning(folder: Path, readers: int, port: int, key: str) -> Morning:
    own = folder / str(readers)
    for work, more in ((prepare, ()), (live, (port, key))):
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
            result = alone.submit(work, own, readers, *more).result()  # type: ignore[operator]
    shutil.rmtree(own)
    return result  # type: ignore[no-any-return]


def show(result: dict[str, Any]) -> None:
    print("{cores} cores ({processor}), Python {python}, load {load:.1f}".format(**result["machine"]))
    for morning in result["mornings"]:
        mails = morning["mails"]
        print(f"\n{morning['readers']:,} readers, {mails:,} emails of {morning['octets']:,} bytes on average")
        print(f"{'':24}{'seconds':>10}{'busy':>10}{'µs an email':>12}")
        for stage in morning["stages"]:
            each = stage["cpu"] / mails * 1e6
            print(f"{stage['name']:24}{stage['seconds']:10.1f}{stage['cpu']:10.1f}{each:12.0f}")
        print(f"peak memory: {morning['peak']} MB; the ledger: {morning['reconciliation']}")
    cheap, ratio = result["cpu_us_a_mail"], result["times_as_cheap"]
    print(f"\nCPU time per email, all stages: {cheap['paperboy']:.0f} µs. The naive stack, which does not")
    print(f"match, compose or record: {cheap['naive']:.0f} µs, {ratio:.1f} times as much")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help=f"{QUICK:,} readers")
    parser.add_argument("--readers", type=int, default=READERS)
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        try:
            result = run(QUICK if arguments.quick else arguments.readers, Path(folder))
        except postfix_tools.Missing as missing:
            sys.exit(str(missing))
    if arguments.json:
        print(json.dumps(result, indent=1))
    else:
        show(result)


if __name__ == "__main__":
    main()
