"""Measure the admin pages, the lists and figures of the API, the metrics and the checks on a large ledger.

    python -m benchmarks.admin [--database sqlite|postgresql] [--readers 100000] [--days 30] [--url URL]

The ledger has one digest per reader and day. There are also 10,000 papers, three interests per reader, and a
run per minute of a week. Every page and endpoint that only reads is requested from the application in this
process, with one connection. `first` is the CPU time of the first request after a start, and `later` the
median of the next ones. It includes the time of PostgreSQL's processes, in units of 10 ms. A database that
`--url` names is filled if it has no subscribers, and is not deleted.
"""

import argparse
import json
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import structlog
from fastapi.testclient import TestClient
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url

from app import clock, main
from app.application import Application
from app.doctor import daily_report, local_checks
from app.storage import api_keys, schema
from app.storage.api_keys import Scope
from app.storage.models import InterestQuery, InterestRow, JobRun
from benchmarks import endtoend, web, workload
from benchmarks.scale import DATABASES, run_database, server_cpu
from tests.support import large_ledger

NOW = large_ledger.LAST_HOUR + timedelta(minutes=5)
PAPERS, DISTINCT_INTERESTS, INTERESTS_PER_READER, MINUTES_OF_RUNS = 10_000, 10_000, 3, 7 * 24 * 60
REPETITIONS = 3
ADMIN, API = "/admin", "/api/v1"
EDITION = large_ledger.LAST_HOUR.date().isoformat()
# Values for the parameters in paths. Endpoints with other parameters are not measured.
PARAMETERS = {
    "edition": EDITION,
    "subscriber_id": "777",
    "delivery_id": "100777",
    "paper_id": "77",
    "run_id": "77",
}
# Lists with filters, in addition to those without.
FILTERED = (
    "/admin/editions/2026-11-19", "/admin/editions/2026-11-19/readers?state=failed",
    "/admin/subscribers?q=reader.777", "/admin/subscribers?q=nobody", "/admin/subscribers?state=paused",
    "/admin/papers?q=learning", "/admin/suppressions?why=bounced", "/admin/runs?failed=yes",
    "/api/v1/deliveries?state=failed", "/api/v1/deliveries?state=deferred",
    f"/api/v1/deliveries?edition={EDITION}", f"/api/v1/deliveries?edition={EDITION}&state=uncertain",
    "/api/v1/deliveries?kind=confirm", "/api/v1/deliveries?subscriber_id=777",
    "/api/v1/subscribers?state=paused", "/api/v1/subscribers?search=777@",
    "/api/v1/interests?q=learning", "/api/v1/statistics?days=30", "/api/v1/statistics/rates?days=31",
    "/api/v1/runs?failed=true", "/api/v1/editions?limit=200",
)  # fmt: skip
NO_FIGURES = re.compile(r"/(sign-in|docs|export|preview|explain)\b|/html$")


def fill(app: Application, readers: int, days: int) -> None:
    """Fill the ledger, and add papers, interests and runs."""
    large_ledger.fill(app.db.engine, readers, days)
    web.fill(app, PAPERS, NOW)
    queries = (
        {"id": number, "text": f"learning topic {number}"} for number in range(1, DISTINCT_INTERESTS + 1)
    )
    began = [NOW - timedelta(minutes=number) for number in range(MINUTES_OF_RUNS, 0, -1)]
    runs = (
        {"job": job, "started_at": at, "ended_at": at, "error": ""}
        for at in began
        for job in ("plan", "send")
    )
    with app.db.write() as session:
        endtoend._put(session, InterestQuery, queries)
        endtoend._put(session, InterestRow, _interest_rows(readers))
        endtoend._put(session, JobRun, runs)
    with app.db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("ANALYZE"))


def _interest_rows(readers: int) -> Iterator[dict[str, Any]]:
    for number in range(1, readers + 1):
        for position in range(INTERESTS_PER_READER):
            query_id = (number * (position + 1) * 7919) % DISTINCT_INTERESTS // (position + 1) + 1
            row = {"subscriber_id": number, "query_id": query_id + position * 3_000 % DISTINCT_INTERESTS}
            yield {**row, "position": position, "weight": 1.0}


def work_of(app: Application) -> dict[str, Callable[[], str]]:
    """Return what is measured: functions that return the status."""
    with app.db.write() as session:
        scopes = (Scope.READ, Scope.WRITE, Scope.SEND)
        key = api_keys.create(session, f"benchmark {time.time()}", scopes, clock.utcnow())[1]
    client = TestClient(main.create_app(app), base_url="https://paperboy.example")
    client.post("/admin/sign-in", data={"key": key}, follow_redirects=False)
    headers = {"Authorization": f"Bearer {key}"}

    def get(path: str) -> str:
        return str(client.get(path, headers={} if path.startswith(ADMIN) else headers).status_code)

    def findings() -> str:
        return str(len(local_checks.all_findings(app, clock.utcnow())))

    def report() -> str:
        return str(len(daily_report.build(app, clock.utcnow()).sections))

    paths = [*_paths(client), *FILTERED]
    work: dict[str, Callable[[], str]] = {path: lambda path=path: get(path) for path in paths}  # type: ignore[misc]
    return {**work, "checks of alerts": findings, "daily report": report}


def _paths(client: Any) -> Iterator[str]:
    """Yield the paths of all pages and endpoints that only read."""
    [api] = (route.app for route in client.app.routes if getattr(route, "path", "") == "/api")
    paths = [f"/api{path}" for path, methods in api.openapi()["paths"].items() if "get" in methods]
    pages = {route.path for route in _routes(client.app) if "GET" in route.methods}
    for path in (*sorted(pages), *paths, "/metrics", "/readyz", "/healthz"):
        filled = re.sub(r"\{(\w+)(:\w+)?\}", lambda match: PARAMETERS.get(match[1], "?"), path)
        if "?" not in filled and not NO_FIGURES.search(filled):
            yield filled


def _routes(app: Any) -> list[Any]:
    return [route for route in app.routes if getattr(route, "path", "").startswith(ADMIN)]


def measure(app: Application, server: int, only: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield names with the status, and the milliseconds of CPU time of the first and of later requests."""
    for name, work in work_of(app).items():
        if not re.search(only, name):
            continue
        times, status = [], ""
        for _ in range(1 + REPETITIONS):
            before, began = server_cpu(server), time.process_time()
            status = work()
            times.append((time.process_time() - began + server_cpu(server) - before) * 1000)
        first, *later = times
        yield name, {"status": status, "first": round(first), "later": round(statistics.median(later))}


def run(kind: str, url: str, readers: int, days: int, only: str) -> Iterator[tuple[str, dict[str, Any]]]:
    structlog.configure(processors=[endtoend._drop])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)  # the server may run as another user
        if url:
            yield from _run_on(url, _server_pid(url), folder, readers, days, only)
            return
        with run_database(kind, folder) as (made, pid):
            yield from _run_on(made, pid, folder, readers, days, only)


def _server_pid(url: str) -> int:
    if make_url(url).get_backend_name() == "sqlite":
        return 0
    with create_engine(url).connect() as connection:
        folder = connection.scalar(text("SHOW data_directory"))
    return int((Path(str(folder)) / "postmaster.pid").read_text().split()[0])


def _run_on(
    url: str, server: int, folder: Path, readers: int, days: int, only: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    schema.migrate(url)
    app = main.build(workload.settings(folder).model_copy(update={"database_url": url}))
    with app.db.read() as session:
        is_empty = session.execute(text("SELECT 1 FROM subscriber LIMIT 1")).first() is None
    if is_empty:
        fill(app, readers, days)
    clock.travel(NOW)
    yield from measure(app, server, only)
    app.db.dispose()


def cli() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--database", choices=DATABASES, action="append", help="default: both")
    parser.add_argument("--readers", type=int, default=large_ledger.READERS)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument(
        "--url",
        default="",
        help="a database to keep, instead of a temporary one; a PostgreSQL server must run on this machine, "
        "and the user must be a superuser or a member of pg_read_all_settings",
    )
    parser.add_argument("--only", default="", help="measure only what matches this regular expression")
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object")
    arguments = parser.parse_args()
    kinds = [make_url(arguments.url).get_backend_name()] if arguments.url else arguments.database or DATABASES
    for kind in kinds:
        results = run(kind, arguments.url, arguments.readers, arguments.days, arguments.only)
        if arguments.json:
            print(json.dumps({kind: dict(results)}))
            continue
        print(f"{kind}, ms of CPU time{'':48}status    first    later")
        for name, each in results:
            print(f"{name:68}{each['status']:>8}{each['first']:>9}{each['later']:>9}", flush=True)


if __name__ == "__main__":
    cli()
