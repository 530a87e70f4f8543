"""Check whether the response times of forms that ask for an address reveal who is a subscriber.

    python -m benchmarks.timing [--requests 400] [--pause SECONDS] [--json]

A real uvicorn and a mail server run in their own processes on 127.0.0.1. One client posts the addresses of
readers, unknown addresses and suppressed ones in random order, each address once and each post over a new
connection. An AUC of 0.5 means that a time reveals nothing, and 1 that it reveals everything. `own` is the
time of the address's own post. `next` is the time of the post after it, which would show work that was still
being done then.
"""

import argparse
import http.client
import json
import multiprocessing
import random
import socket
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from urllib.parse import urlencode

import structlog
import uvicorn

from app import clock, main, subscribers
from app.delivery import suppression
from app.storage import schema
from app.subscribers import Preferences
from app.types import Interest
from benchmarks import workload
from tests.support.mail_server import MailServer

PEER = "127.0.0.1"  # a trusted proxy, so that each request can name a different visitor
KINDS = ("unknown", "reader", "suppressed")
WARM_UP_POSTS = 30
PREFERENCES = Preferences(interests=(Interest("robotics"),))
FORM = {"interest": "robotics", "cadence": "daily", "hour": "8", "zone": "UTC"}


def serve(folder: Path, bound: socket.socket, smtp_port: int) -> None:
    """Serve the web app with a limit on sign-ups that the benchmark does not reach."""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    app = workload.build(
        folder, trusted_proxies=(PEER,), smtp_host=PEER, smtp_port=smtp_port, signups_per_hour=10**6
    )
    config = uvicorn.Config(
        main.create_app(app, is_public=True),
        log_level="error",
        access_log=False,
        proxy_headers=False,
    )
    uvicorn.Server(config).run([bound])


@contextmanager
def run_service(folder: Path, smtp_port: int) -> Iterator[int]:
    bound = socket.socket()
    bound.bind((PEER, 0))
    bound.listen(100)
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(folder, bound, smtp_port))
    process.start()
    try:
        yield bound.getsockname()[1]
    finally:
        process.terminate()
        process.join()
        bound.close()


def serve_mail(connection: Connection) -> None:
    with MailServer() as server:
        connection.send(server.port)
        connection.recv()


@contextmanager
def run_mail_server() -> Iterator[int]:
    """Run a mail server in its own process, so that it does not slow down the client. Yield its port."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve_mail, args=(theirs,))
    process.start()
    yield ours.recv()
    ours.send(None)
    process.join()


def fill(folder: Path, count: int) -> None:
    """Add readers and suppressed addresses."""
    app, now = workload.build(folder), clock.utcnow()
    with app.db.write() as session:
        for number in range(count):
            subscribers.add(session, address("reader", number), PREFERENCES, now)
            suppression.suppress(session, address("suppressed", number), "complained", now)
    app.db.dispose()


def address(kind: str, number: int) -> str:
    return f"{kind[:3]}{number:06}@example.org"


def post(port: int, path: str, email: str, visitor: str) -> float:
    """Post the form over a new connection. Return the milliseconds until the whole response has arrived."""
    connection = http.client.HTTPConnection(PEER, port)
    connection.connect()
    headers = {"Content-Type": "application/x-www-form-urlencoded", "X-Forwarded-For": visitor}
    began = time.perf_counter()
    connection.request("POST", path, urlencode({**FORM, "email": email}), headers)
    answer = connection.getresponse()
    answer.read()
    milliseconds = (time.perf_counter() - began) * 1000
    connection.close()
    if answer.status != 200:
        raise RuntimeError(f"{path} answered {answer.status}")
    return milliseconds


def measure(port: int, path: str, requests: int, first: int, pause: float) -> dict[str, float]:
    """Post addresses in random order. Return the medians, and the AUCs against unknown addresses."""
    rng = random.Random(1)  # noqa: S311 - no secret
    order = [kind for kind in KINDS for _ in range(requests)]
    rng.shuffle(order)
    own: dict[str, list[float]] = {kind: [] for kind in KINDS}
    following: dict[str, list[float]] = {kind: [] for kind in KINDS}
    before = ""
    for number, kind in enumerate(order):
        visitor = f"10.{first % 250}.{number // 250}.{number % 250}"
        milliseconds = post(port, path, address(kind, first + len(own[kind])), visitor)
        own[kind].append(milliseconds)
        if before:
            following[before].append(milliseconds)
        before = kind
        time.sleep(pause)
    figures = {f"{kind}_ms": round(statistics.median(own[kind]), 2) for kind in KINDS}
    for kind in KINDS[1:]:
        figures[f"own_{kind}"] = auc(own["unknown"], own[kind])
        figures[f"next_{kind}"] = auc(following["unknown"], following[kind])
    return figures


def auc(one: Sequence[float], other: Sequence[float]) -> float:
    """Return how well a threshold separates two samples, from 0.5 (not at all) to 1 (completely)."""
    wins = sum((a < b) + (a == b) / 2 for a in one for b in other) / (len(one) * len(other))
    return round(max(wins, 1 - wins), 3)


def run(requests: int, pause: float) -> dict[str, dict[str, float]]:
    with tempfile.TemporaryDirectory() as name, run_mail_server() as smtp_port:
        folder = Path(name)
        schema.migrate(workload.settings(folder).database_url)
        fill(folder, 2 * requests + WARM_UP_POSTS)
        with run_service(folder, smtp_port) as port:
            for number in range(WARM_UP_POSTS):
                post(port, "/subscribe", f"warm{number}@example.org", f"10.255.0.{number}")
            return {
                path: measure(port, path, requests, requests * place, pause)
                for place, path in enumerate(("/subscribe", "/manage"))
            }


def cli() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--requests", type=int, default=400, help="of each kind of address")
    options.add_argument("--pause", type=float, default=0.0, help="seconds between two posts")
    options.add_argument("--json", action="store_true")
    arguments = options.parse_args()
    figures = run(arguments.requests, arguments.pause)
    if arguments.json:
        print(json.dumps(figures))
        return
    for path, row in figures.items():
        print(path, *(f"{name} {value}" for name, value in row.items()), sep="  ")


if __name__ == "__main__":
    cli()
