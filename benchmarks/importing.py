"""Measure an import of subscribers: CPU seconds and peak memory, beside one transaction per row.

    python -m benchmarks.importing [--readers 200000] [--baseline 2000] [--json]

Each subscriber has three to five interests: most from a list that many share, a few of their own. Each
import runs in a process of its own, on an empty SQLite database, and includes a pass that checks the file.
"""

import argparse
import csv
import json
import multiprocessing
import random
import resource
import tempfile
import time
from pathlib import Path

from app.storage import schema
from app.storage.database import Database
from app.subscribers import Preferences, bulk, csv_format, import_file
from benchmarks import workload
from tests.conftest import NOW
from tests.support.page_weight import generate_text

SHARED_INTERESTS = 3000
OWN_SHARE = 0.1  # share of the interests that only one subscriber has
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Tokyo", "Asia/Kolkata")


def interest(rng: random.Random) -> str:
    return f"models of {generate_text(rng, rng.choice((1, 2, 2, 3)))}"


def write_file(path: Path, readers: int) -> None:
    """Write a CSV file with this many subscribers."""
    rng = random.Random(1)  # noqa: S311 - no secret
    shared = [interest(rng) for _ in range(SHARED_INTERESTS)]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["email", "interests", "weights", "zone", "hour", "cadence", "consent_at"])
        for number in range(readers):
            texts = rng.sample(shared, rng.randint(3, 5))
            texts = [interest(rng) if rng.random() < OWN_SHARE else text for text in texts]
            email = f"Reader.{number:06}@Institute{number % 997}.example.org"
            row = [rng.choice(ZONES), rng.randint(5, 20), "daily", "2026-10-01T08:00Z"]
            writer.writerow([email, "; ".join(texts), "1; 2", *row])


def import_by_row(db: Database, path: Path) -> int:
    """Add each subscriber in a transaction of its own, as the import did before it had batches."""
    with path.open("rb") as file:
        for row in csv_format.read_rows(file):
            new = csv_format.parse_row(row, Preferences(), NOW)
            with db.write() as session:
                bulk.add_one(session, new, NOW)
    return 0


def import_in_batches(db: Database, path: Path) -> int:
    with path.open("rb") as file:
        return import_file(db, file, Preferences(), NOW).rejected


def measure(readers: int, in_batches: bool) -> dict[str, float]:
    """Import a new file. Return the CPU seconds, the wall-clock seconds and the peak memory in MB."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "readers.csv"
        write_file(path, readers)
        url = workload.settings(Path(folder)).database_url
        schema.migrate(url)
        before, began, cpu = peak_mb(), time.perf_counter(), time.process_time()
        db = Database(url)
        rejected = (import_in_batches if in_batches else import_by_row)(db, path)
        if rejected:
            raise RuntimeError(f"{rejected} rows were rejected")
        cpu, seconds = time.process_time() - cpu, time.perf_counter() - began
        db.dispose()
        return {
            "readers": readers, "cpu_seconds": round(cpu, 1), "seconds": round(seconds, 1),
            "cpu_ms_per_reader": round(cpu / readers * 1000, 3), "peak_mb": peak_mb(),
            "peak_mb_before": before, "file_mb": round(path.stat().st_size / 1e6, 1),
        }  # fmt: skip


def peak_mb() -> float:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


def run(readers: int, baseline: int) -> dict[str, object]:
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as processes:
        by_row = processes.apply(measure, (baseline, False))
        in_batches = processes.apply(measure, (readers, True))
    ratio = by_row["cpu_ms_per_reader"] / in_batches["cpu_ms_per_reader"]
    return {"by_row": by_row, "in_batches": in_batches, "ratio_per_reader": round(ratio, 1)}


def cli() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--readers", type=int, default=200_000)
    options.add_argument("--baseline", type=int, default=2000, help="readers that are added row by row")
    options.add_argument("--json", action="store_true")
    arguments = options.parse_args()
    figures = run(arguments.readers, arguments.baseline)
    if arguments.json:
        print(json.dumps(figures))
        return
    for name, row in figures.items():
        print(name, row, sep="  ")


if __name__ == "__main__":
    cli()
