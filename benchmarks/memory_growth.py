"""Check that memory does not grow over thousands of sign-ups and single emails after a warm-up.

    python -m benchmarks.memory_growth [--quick] [--count N] [--before COMMIT] [--json]

The service is a real uvicorn in its own process on 127.0.0.1, with a real SMTP server that counts the emails.
Visitors sign up over HTTP, each from a different network. Each sign-up sends one confirmation in the
background, and the next visitors wait for it. Then the same number of emails is sent one by one with
`pipeline.send_now(ids)`, four at once in that process. All must arrive. The resident memory of the
process is read from /proc after every hundredth one. The exit status is 1 if memory grows by more than LIMIT
megabytes after the warm-up. The warm-up is the first quarter of the sign-ups, during which threads, pooled
connections with their page caches, and compiled statements are created, each up to a limit. --before first
runs the same with the code of an earlier commit, from a temporary git worktree. --quick runs a tenth of it.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

import httpx
import uvicorn
from fastapi import FastAPI, Response
from sqlmodel import col, insert, select

from app import clock, main, pipeline
from app.application import Application
from app.delivery import ledger
from app.storage import schema
from app.storage.models import Subscriber, SubscriberState
from app.types import MailKind
from benchmarks import workload

COUNT, QUICK_COUNT = 2_000, 200
LIMIT = 20.0  # megabytes
PEER = "127.0.0.1"
SENDERS = 4
MAIL_SLOTS = 16  # emails at once; a slot becomes free only some time after its email has arrived
OVERLAP = 2  # emails that may be in flight when the next visitor signs up
ARRIVAL_SECONDS = 60.0  # how long to wait for emails in flight
INTERVAL = 100
FORM = {"cadence": "daily", "weekday": "0", "hour": "8", "zone": "UTC"}


class Sink:
    """An SMTP server that accepts and counts all emails."""

    def __init__(self) -> None:
        self.received, self.port = 0, 0
        self._arrived = threading.Condition()
        self._loop = asyncio.new_event_loop()

    def __enter__(self) -> Self:
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)

    def wait_for(self, count: int) -> None:
        """Wait until `count` emails have arrived. Exit if they do not arrive in ARRIVAL_SECONDS."""
        with self._arrived:
            if not self._arrived.wait_for(lambda: self.received >= count, ARRIVAL_SECONDS):
                raise SystemExit(f"{count - self.received} of {count} emails have not arrived")

    async def _listen(self) -> None:
        server = await asyncio.start_server(self._talk, PEER, 0)
        self.port = server.sockets[0].getsockname()[1]

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 sink\r\n")
        while line := await reader.readline():
            verb = line[:4].upper()
            if verb == b"DATA":
                writer.write(b"354 go on\r\n")
                while await reader.readline() != b".\r\n":
                    pass
                with self._arrived:
                    self.received += 1
                    self._arrived.notify_all()
            writer.write(b"250 ok\r\n" if verb != b"QUIT" else b"221 bye\r\n")
            await writer.drain()
        writer.close()


def serve(folder: Path, bound: socket.socket, relay: int) -> None:
    """Serve the web app with an extra endpoint that sends one email by its id."""
    app = workload.build(
        folder, trusted_proxies=(PEER,), signups_per_hour=10**6, smtp_port=relay, smtp_host=PEER
    )
    site: FastAPI = main.create_app(app)
    if hasattr(site.state, "capacity"):  # earlier commits do not have it
        from app.web.capacity import WorkSlots

        site.state.capacity.mails = WorkSlots(MAIL_SLOTS)

    def send(number: int) -> Response:
        pipeline.send_now(app, clock.utcnow(), ids=[number])
        return Response()

    site.add_api_route("/soak/{number}", send, methods=["GET"])
    main.warm_up(site)
    config = uvicorn.Config(site, log_level="error", access_log=False, proxy_headers=False)
    uvicorn.Server(config).run([bound])


@contextmanager
def run_service(folder: Path, relay: int) -> Iterator[tuple[str, int]]:
    """Run the service for the block. Yield its URL and process id."""
    bound = socket.socket()
    bound.bind((PEER, 0))
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(folder, bound, relay))
    process.start()
    try:
        yield f"http://{PEER}:{bound.getsockname()[1]}", process.pid or 0
    finally:
        process.terminate()
        process.join()
        bound.close()


def megabytes(pid: int) -> float:
    """Return the resident memory of a process in megabytes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def visitor(number: int) -> dict[str, str]:
    """Return the request headers of a visitor from a different network than all others."""
    return {"X-Forwarded-For": f"2001:db8:{number >> 8:x}:{(number & 255) << 8:x}::1"}


def sign_up(client: httpx.Client, number: int) -> None:
    form = FORM | {"email": f"reader.{number}@uni-{number}.example", "interest": f"birds {number}"}
    client.post("/subscribe", data=form, headers=visitor(number)).raise_for_status()


def add_mails(app: Application, count: int) -> list[int]:
    """Add readers with one confirmation each. Return the ids of these emails."""
    now = clock.utcnow()
    fields = {"state": SubscriberState.PENDING, "created_at": now}
    rows = [{"email": f"late.{n}@lab-{n}.example", **fields} for n in range(count)]
    with app.db.write() as session:
        session.execute(insert(Subscriber), rows)
        query = select(Subscriber.id).where(col(Subscriber.email).startswith("late."))
        mail: dict[str, Any] = {"kind": MailKind.CONFIRM, "edition": "soak", "due_at": now, "now": now}
        mail["give_up_at"] = now + timedelta(days=1)
        readers = session.exec(query).all()
        ids = [ledger.enqueue(session, subscriber_id=reader or 0, **mail) for reader in readers]
    return [number for number in ids if number]


def soak(count: int) -> dict[str, Any]:
    """Run the test. Return the memory in megabytes at the start, after the warm-up, and so on."""
    with tempfile.TemporaryDirectory() as name, Sink() as sink:
        folder = Path(name)
        schema.migrate(workload.settings(folder).database_url)
        with run_service(folder, sink.port) as (url, pid), httpx.Client(base_url=url, timeout=120) as client:
            wait(client)
            start = megabytes(pid)
            by_sign_ups = list(sign_ups(client, sink, pid, count))
            app = workload.build(folder)
            ids = add_mails(app, count)
            app.db.dispose()
            by_mails = list(single_mails(client, pid, ids))
            sink.wait_for(2 * count)
    warm_up = max(1, len(by_sign_ups) // 4)
    warm, end = by_sign_ups[warm_up - 1], by_mails[-1]
    thousands = (2 * count - warm_up * INTERVAL) / 1000
    figures = {
        "start_mb": start, "warm_mb": warm, "signed_up_mb": by_sign_ups[-1], "end_mb": end,
        "grown_mb": end - warm, "grown_per_thousand_mb": (end - warm) / thousands, "mails": sink.received,
    }  # fmt: skip
    return {key: round(value, 1) for key, value in figures.items()}


def sign_ups(client: httpx.Client, sink: Sink, pid: int, count: int) -> Iterator[float]:
    """Sign up visitors. Yield the memory after every hundredth one."""
    for number in range(count):
        sign_up(client, number)
        sink.wait_for(number + 1 - OVERLAP)
        if number % INTERVAL == INTERVAL - 1:
            sink.wait_for(number + 1)
            yield megabytes(pid)


def single_mails(client: httpx.Client, pid: int, ids: list[int]) -> Iterator[float]:
    """Have the service send the emails, SENDERS at once. Yield the memory after every hundredth one."""
    with ThreadPoolExecutor(SENDERS) as senders:
        for start in range(0, len(ids), INTERVAL):
            for answer in senders.map(
                client.get, [f"/soak/{each}" for each in ids[start : start + INTERVAL]]
            ):
                answer.raise_for_status()
            yield megabytes(pid)


def wait(client: httpx.Client) -> None:
    for _ in range(600):
        try:
            client.get("/healthz").raise_for_status()
        except httpx.TransportError:
            time.sleep(0.1)
        else:
            return
    raise SystemExit("the service did not start")


def measure_commit(commit: str, count: int) -> dict[str, Any]:
    """Measure the code of an earlier commit with this version of the benchmark."""
    root = Path(__file__).resolve().parent.parent
    with tempfile.TemporaryDirectory() as name:
        tree = Path(name) / "tree"
        git = ["git", "-C", str(root), "worktree"]
        subprocess.run([*git, "add", "--detach", str(tree), commit], check=True, capture_output=True)  # noqa: S603 - a commit of ours
        try:
            (tree / "benchmarks" / "memory_growth.py").write_text(Path(__file__).read_text())
            command = [sys.executable, "-m", "benchmarks.memory_growth", "--json", "--count", str(count)]
            environment = os.environ | {"PYTHONPATH": str(tree)}
            ran = subprocess.run(  # noqa: S603
                command, cwd=tree, env=environment, capture_output=True, text=True, check=False
            )
            found: dict[str, Any] = json.loads(ran.stdout[ran.stdout.index("{") :])
            return found["now"]  # type: ignore[no-any-return]
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True, capture_output=True)  # noqa: S603


def cli() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--quick", action="store_true")
    options.add_argument("--count", type=int, default=0, metavar="N", help="sign-ups, and as many emails")
    options.add_argument("--json", action="store_true")
    options.add_argument("--before", metavar="COMMIT")
    arguments = options.parse_args()
    count = arguments.count or (QUICK_COUNT if arguments.quick else COUNT)
    found = {"before": measure_commit(arguments.before, count)} if arguments.before else {}
    found["now"] = soak(count)
    if arguments.json:
        print(json.dumps(found, indent=2))
    else:
        for name, figures in found.items():
            print(f"{name:8}" + "".join(f"{key} {value:<9}" for key, value in figures.items()))
    return int(found["now"]["grown_mb"] > LIMIT)


if __name__ == "__main__":
    sys.exit(cli())
