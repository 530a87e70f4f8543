"""Measure the response time and the weight of pages, compared with an empty endpoint in the same application.

    python -m benchmarks.web [--quick] [--json]

There are 10,000 synthetic papers, 100 per day, with a model trained on them. A real uvicorn runs in its own
process on 127.0.0.1. One client requests the pages in turn over a persistent connection. Each preview has
three new interests, so that all of them are matched, and one has an exclusion. At every hundredth preview, so
many interests have been matched that the papers are read again, as they are after a minute. A page's weight
includes everything that a browser fetches to show it for the first time, compressed as sent. --quick uses
1,000 papers and fewer rounds.
"""

import argparse
import itertools
import json
import multiprocessing
import random
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from pathlib import Path

import httpx
import uvicorn
from fastapi import FastAPI, Response
from sqlmodel import Session, insert

from app import clock, main, pipeline, subscribers
from app.application import Application
from app.links import Purpose
from app.storage import schema
from app.storage.models import Listing, Paper, Source, VoteCount
from app.subscribers import Preferences
from app.types import Interest, SourceKind
from benchmarks import workload
from tests.support import page_weight
from tests.support.sample_archive import COMMON, SUBJECTS

PAPERS_PER_DAY = 100
PAPERS, ROUNDS = 10_000, 400
QUICK_PAPERS, QUICK_ROUNDS = 1_000, 40
WARM_UP_REQUESTS = 20
PEER = "127.0.0.1"  # a trusted proxy, so that each request can name a different visitor


def fill(app: Application, papers: int, now: datetime) -> None:
    """Add papers to the archive, the newest listed today, and train a model."""
    rng = random.Random(1)  # noqa: S311 - no secret
    with app.db.write() as session:
        source = Source(name="Made up", kind=SourceKind.HUGGINGFACE, created_at=now)
        session.add(source)
        session.flush()
        for start in range(0, papers, 1000):
            _add(session, source.id or 0, range(start, min(start + 1000, papers)), rng, now)
    pipeline.train(app, now)


def _add(session: Session, source_id: int, numbers: range, rng: random.Random, now: datetime) -> None:
    days = [(now - timedelta(days=number // PAPERS_PER_DAY)).date() for number in numbers]
    rows = [
        {
            "id": number + 1, "title_key": str(number), "content_hash": "", "arxiv_id": f"2611.{number:05}",
            "first_listed_on": day, "last_listed_on": day, "created_at": now, "updated_at": now,
            "authors": [page_weight.generate_text(rng, 2), page_weight.generate_text(rng, 2)],
            "author_count": 5,
            **_paper_text(rng),
            "url": f"https://arxiv.org/abs/2611.{number:05}",
            "pdf_url": f"https://arxiv.org/pdf/2611.{number:05}",
        }
        for number, day in zip(numbers, days, strict=True)
    ]  # fmt: skip
    session.execute(insert(Paper), rows)
    seen = [
        {"paper_id": number + 1, "original_paper_id": number + 1, "source_id": source_id}
        for number in numbers
    ]
    listed = [ids | {"listed_on": day} for ids, day in zip(seen, days, strict=True)]
    session.execute(insert(Listing), listed)
    for hours in (0, 12, 24):  # votes arrive over a day
        at = [now - timedelta(days=number // PAPERS_PER_DAY, hours=30 - hours) for number in numbers]
        votes = [ids | {"at": when, "upvotes": hours * 2} for ids, when in zip(seen, at, strict=True)]
        session.execute(insert(VoteCount), votes)


def _paper_text(rng: random.Random) -> dict[str, object]:
    """Return a title, an abstract of about 150 words, a summary and keywords."""
    subject = rng.choice([*SUBJECTS])
    own, common = SUBJECTS[subject].split(), COMMON.split()
    sentences = (
        f"We study {' '.join(rng.sample(own, 5))} for {subject} with a {' '.join(rng.sample(common, 6))}."
        for _ in range(8)
    )
    words = rng.sample(own, 3)
    title = f"{' '.join(words).title()} in {subject.title()} {rng.randrange(1000)}"
    text = {"title": title, "abstract": " ".join(sentences), "tldr": page_weight.generate_text(rng, 28)}
    return text | {"keywords": [subject, words[0]]}


def reader(app: Application, now: datetime) -> str:
    """Add a reader with as many interests as possible. Return the path of their preferences page."""
    typed = itertools.chain.from_iterable(interests())
    wishes = tuple(
        Interest(text, 1.0, 3) for text in itertools.islice(typed, subscribers.ABSOLUTE_MAX_INTERESTS)
    )
    with app.db.write() as session:
        number = subscribers.add(session, "alice@example.org", Preferences(interests=wishes), now)
    return f"/preferences/{app.signer.token(Purpose.PREFERENCES, number, now)}"


def interests() -> Iterator[list[str]]:
    """Yield three new interests at a time, one of them with an exclusion."""
    rng = random.Random(2)  # noqa: S311 - no secret
    for number in itertools.count():
        subjects = rng.sample([*SUBJECTS], 3)
        typed = [f"{each} {rng.choice(SUBJECTS[each].split())} {number}" for each in subjects]
        yield [*typed[:2], f"{typed[2]} -{rng.choice(COMMON.split())}"]


def serve(folder: Path, bound: socket.socket) -> None:
    """Serve the web app with an extra endpoint that does nothing."""
    app = workload.build(folder, trusted_proxies=(PEER,))
    site: FastAPI = main.create_app(app)
    site.add_api_route("/empty", lambda: Response(), methods=["GET"])
    threading.Thread(target=main.warm_up, args=(site,), daemon=True).start()  # as `paperboy serve` does
    config = uvicorn.Config(site, log_level="error", access_log=False, proxy_headers=False)
    uvicorn.Server(config).run([bound])


@contextmanager
def run_service(folder: Path) -> Iterator[str]:
    bound = socket.socket()
    bound.bind((PEER, 0))
    process = multiprocessing.get_context("fork").Process(target=serve, args=(folder, bound))
    process.start()
    try:
        yield f"http://{PEER}:{bound.getsockname()[1]}"
    finally:
        process.terminate()
        process.join()
        bound.close()


def measure(
    url: str, day: str, preferences: str, rounds: int
) -> tuple[dict[str, list[float]], dict[str, page_weight.Weight]]:
    """Return the response times in milliseconds and the weight of each page."""
    typed, visitors, papers = interests(), itertools.count(), itertools.count(1)
    with httpx.Client(base_url=url, timeout=60) as client:

        def visitor() -> dict[str, str]:
            return {"X-Forwarded-For": ipv6(next(visitors))}

        def preview() -> httpx.Response:
            asking = visitor() | {"HX-Request": "true"}
            return client.post("/preview", data={"interest": next(typed)}, headers=asking)

        def search(place: int, **only: str) -> httpx.Response:
            return client.get("/search", params={"q": next(typed)[place], **only}, headers=visitor())

        asks: dict[str, Callable[[], httpx.Response]] = {
            "empty": lambda: client.get("/empty"),
            "front": lambda: client.get("/"),
            "day": lambda: client.get(f"/day/{day}"),
            "week": lambda: client.get(f"/week/{date.fromisoformat(day):%G-W%V}"),
            "paper": lambda: client.get(f"/paper/{next(papers)}"),
            "search": lambda: search(0),
            "narrowed": lambda: search(2, day=day),
            "preferences": lambda: client.get(preferences),
            "preview": preview,
        }
        _wait(client)
        for ask in itertools.islice(itertools.cycle(asks.values()), WARM_UP_REQUESTS):
            ask().raise_for_status()
        results: dict[str, list[float]] = {name: [] for name in asks}
        for _ in range(rounds):
            for name, ask in asks.items():
                results[name].append(_timed(ask))
        paths = {name: str(ask().url) for name, ask in asks.items() if name not in ("empty", "preview")}
        return results, {name: page_weight.weigh(client, path) for name, path in paths.items()}


def ipv6(number: int) -> str:
    """Return an address in a different network for each number."""
    return f"2001:db8:{number >> 8:x}:{(number & 0xFF) << 8:x}::1"  # limits count by /56


def _wait(client: httpx.Client) -> None:
    for _ in range(200):
        try:
            client.get("/empty").raise_for_status()
        except httpx.TransportError:
            time.sleep(0.05)
        else:
            return
    raise SystemExit("the service did not start")


def _timed(ask: Callable[[], httpx.Response]) -> float:
    began = time.perf_counter()
    ask().raise_for_status()
    return (time.perf_counter() - began) * 1000


def figures(
    results: dict[str, list[float]], weights: dict[str, page_weight.Weight]
) -> dict[str, dict[str, float]]:
    """Return times in milliseconds, the ratio to the empty endpoint, and sizes in kB for each page."""
    nothing_sent = page_weight.Weight(0, 0)
    nothing = statistics.median(results["empty"])
    return {
        name: {
            "p50_ms": round(statistics.median(times), 2),
            "p95_ms": round(statistics.quantiles(times, n=20)[-1], 2),
            "most_ms": round(max(times), 2),
            "times_empty": round(statistics.median(times) / nothing, 1),
            "sent_kb": round(weights.get(name, nothing_sent).sent / 1000, 1),
            "html_kb": round(weights.get(name, nothing_sent).html / 1000, 1),
        }
        for name, times in results.items()
    }


def run(quick: bool) -> dict[str, dict[str, float]]:
    papers, rounds = (QUICK_PAPERS, QUICK_ROUNDS) if quick else (PAPERS, ROUNDS)
    now = clock.utcnow()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        schema.migrate(workload.settings(folder).database_url)
        app = workload.build(folder)
        fill(app, papers, now)
        preferences = reader(app, now)
        app.db.dispose()
        with run_service(folder) as url:
            return figures(*measure(url, now.date().isoformat(), preferences, rounds))


def cli() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--quick", action="store_true")
    options.add_argument("--json", action="store_true")
    arguments = options.parse_args()
    results = run(arguments.quick)
    if arguments.json:
        print(json.dumps(results, indent=2))
        return
    print("page            p50 ms    p95 ms   most ms   × empty   sent kB   HTML kB")
    for page, of in results.items():
        print(f"{page:12}" + "".join(f"{value:10.1f}" for value in of.values()))


if __name__ == "__main__":
    cli()
