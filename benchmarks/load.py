"""Measure how load from visitors and API keys affects page times and the sending rate.

    python -m benchmarks.load [--quick] [--json]

One process on 127.0.0.1 serves the web app over 10,000 synthetic papers and also sends mail, as `paperboy
serve` does with its schedule. A small SMTP server in another process accepts the emails. The results are

front      the front page, one request after the other
backtests  the same while an API key keeps requesting 40 backtests at once, and their status codes
sending    emails per second
beside     the same while eight visitors request new day pages, each as soon as the last one is answered

and the peak memory of the process. --quick uses 1,000 papers and fewer requests and emails.
"""

import argparse
import asyncio
import json
import multiprocessing
import socket
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from app import clock, main, pipeline
from app.storage import api_keys
from app.storage.api_keys import Scope
from benchmarks import web, workload

BACKTESTS, VISITORS, REQUESTS, MAILS = 40, 8, 200, 3000
QUICK_REQUESTS, QUICK_MAILS = 50, 800
INTERESTS = [{"text": "sparse diffusion models"}, {"text": "graph networks -survey"}]


async def _accept_mails(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Accept every email."""
    writer.write(b"220 sink\r\n")
    in_data = False
    while line := await reader.readline():
        if in_data:
            if line == b".\r\n":
                in_data = False
                writer.write(b"250 2.0.0 taken\r\n")
            continue
        verb = line[:4].upper()
        in_data = verb == b"DATA"
        writer.write(
            {b"EHLO": b"250-sink\r\n250 PIPELINING\r\n", b"DATA": b"354 go on\r\n", b"QUIT": b"221 bye\r\n"}
            .get(verb, b"250 2.0.0 fine\r\n")
        )  # fmt: skip
    writer.close()


def _sink(bound: socket.socket) -> None:
    async def serve() -> None:
        async with await asyncio.start_server(_accept_mails, sock=bound, limit=1 << 20) as server:
            await server.serve_forever()

    asyncio.run(serve())


def _service(folder: Path, bound: socket.socket, smtp_port: int, orders: Connection) -> None:
    """Serve the web app, and send the emails in each range of ids that arrives over the pipe."""
    app = workload.build(folder, trusted_proxies=(web.PEER,), smtp_port=smtp_port)
    site = main.create_app(app)

    def send() -> None:
        main.warm_up(site)
        while True:
            first, last = orders.recv()
            began = time.perf_counter()
            counts = pipeline.send_now(app, workload.NOW, range(first, last))
            orders.send((dict(counts), time.perf_counter() - began))

    threading.Thread(target=send, daemon=True).start()
    options: dict[str, Any] = {"log_level": "error", "access_log": False, "proxy_headers": False}
    uvicorn.Server(uvicorn.Config(site, **options)).run([bound])


def _bind() -> socket.socket:
    bound = socket.socket()
    bound.bind((web.PEER, 0))
    return bound


@contextmanager
def _run_service(folder: Path) -> Iterator[tuple[str, Connection, int]]:
    """Run the service and the sink. Yield the URL, the pipe for orders, and the service's process id."""
    fork = multiprocessing.get_context("fork")
    mails, pages, (ours, theirs) = _bind(), _bind(), fork.Pipe()
    service = (folder, pages, mails.getsockname()[1], theirs)
    processes = [fork.Process(target=_sink, args=(mails,)), fork.Process(target=_service, args=service)]
    for process in processes:
        process.start()
    try:
        yield f"http://{web.PEER}:{pages.getsockname()[1]}", ours, processes[1].pid or 0
    finally:
        for process in processes:
            process.kill()
            process.join()


def _time_front_page(url: str, requests: int) -> dict[str, float]:
    with httpx.Client(base_url=url, timeout=120) as client:
        times = []
        for _ in range(requests):
            began = time.perf_counter()
            client.get("/").raise_for_status()
            times.append((time.perf_counter() - began) * 1000)
    result = {"p50_ms": statistics.median(times), "p95_ms": statistics.quantiles(times, n=20)[-1]}
    return {name: round(value, 1) for name, value in result.items()}


@contextmanager
def _run_visitors(
    visitors: int, request: Callable[[httpx.Client], httpx.Response], url: str
) -> Iterator[Counter[int]]:
    """Send requests from `visitors` threads until the block ends. Yield the counts of status codes so far."""
    statuses, stop = Counter[int](), threading.Event()

    def visit() -> None:
        with httpx.Client(base_url=url, timeout=300) as client:
            while not stop.is_set():
                statuses[request(client).status_code] += 1

    with ThreadPoolExecutor(visitors) as pool:
        for _ in range(visitors):
            pool.submit(visit)
        yield statuses
        stop.set()


def measure(url: str, key: str, orders: Connection, requests: int, mails: int) -> dict[str, Any]:
    numbers, now = count(), clock.utcnow()

    def backtest(client: httpx.Client) -> httpx.Response:
        headers = {"Authorization": f"Bearer {key}"}
        answer = client.post("/api/v1/backtests", json={"interests": INTERESTS}, headers=headers)
        time.sleep(0.05 if answer.status_code == 429 else 0)  # much less than Retry-After
        return answer

    def page(client: httpx.Client) -> httpx.Response:
        number = next(numbers)
        day = (now - timedelta(days=number % 10)).date()
        visitor = {"X-Forwarded-For": web.ipv6(number)}
        return client.get(f"/day/{day}?page={number // 10 % 100_000 + 1}", headers=visitor)

    def send(first: int) -> float:
        orders.send((first, first + mails))
        counts, seconds = orders.recv()
        assert counts == {"sent": mails}, counts  # noqa: S101
        return round(mails / seconds)

    result: dict[str, Any] = {"front": _time_front_page(url, requests)}
    with _run_visitors(BACKTESTS, backtest, url) as statuses:
        time.sleep(1)
        result["backtests"] = {**_time_front_page(url, requests), "answers": dict(statuses)}
    first = workload.WARM_UP_MAILS + 1
    result["sending"] = send(first)
    with _run_visitors(VISITORS, page, url) as statuses:
        result["beside"] = {"mails_a_second": send(first + mails), "answers": dict(statuses)}
    return result


def run(quick: bool) -> dict[str, Any]:
    requests, mails = (QUICK_REQUESTS, QUICK_MAILS) if quick else (REQUESTS, MAILS)
    with tempfile.TemporaryDirectory() as name:
        folder, now = Path(name), clock.utcnow()
        workload.fill_ledger(folder, 2 * mails)
        app = workload.build(folder)
        web.fill(app, web.QUICK_PAPERS if quick else web.PAPERS, now)
        with app.db.write() as session:
            _, key = api_keys.create(session, "benchmark", [Scope.READ], now)
        app.db.dispose()
        with _run_service(folder) as (url, orders, process):
            _wait(url)
            result = measure(url, key, orders, requests, mails)
            status = Path(f"/proc/{process}/status").read_text("ascii")
            peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return result | {"peak_mb": int(peak.split()[1]) // 1024}


def _wait(url: str) -> None:
    for _ in range(600):
        try:
            httpx.get(url, timeout=60).raise_for_status()
        except httpx.TransportError:
            time.sleep(0.1)
        else:
            return
    raise SystemExit("the service did not start")


def cli() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--quick", action="store_true")
    options.add_argument("--json", action="store_true")
    arguments = options.parse_args()
    result = run(arguments.quick)
    if arguments.json:
        print(json.dumps(result, indent=2))
        return
    for name, value in result.items():
        print(f"{name:12}{value}")


if __name__ == "__main__":
    cli()
