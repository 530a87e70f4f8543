"""Measure how fast digests are sent by Paperboy, by a load generator in C, and by other programs.

    python -m benchmarks.sending [--quick] [--json] [--postfix FOLDER]

Digests of 15 papers (and of 5) are sent over ten connections to Postfix's `smtp-sink` on this machine. Right
before each measurement, Postfix's load generator `smtp-source` sends as many emails of the same size: first
with a new connection for each email, and then at its fastest, with persistent connections (`-d`, shown as
"kept"). A ratio compares two such consecutive measurements, and the result is the median of all ratios. For
Paperboy, the emails wait in a migrated SQLite database. `pipeline.send_now` claims, joins, signs, sends
and records them, in one process or in two on the same database.

The clock starts when all senders are ready: they have sent 400 emails and encoded the fragments of this
edition's cards. It stops when the last email is recorded and every connection to the sink is closed (the
database stays open, as in a service). For smtp-source, it covers the whole run. The cost of the fragments is
printed separately.

Only the downloads are kept, under var/benchmarks: smtp-source with smtp-sink, and nodemailer.
"""

import argparse
import json
import os
import platform
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from app import pipeline
from benchmarks import far, forks, postfix_tools, rivals, stage_costs, workload
from benchmarks.forks import Measurement
from benchmarks.postfix_tools import Sink

CONNECTIONS = 10
ROUND_TRIP = 0.020
TARGETS = {"no_dkim_1p": 1.0, "signed_ahead_2p": 1.0, "rsa2048_2p": 0.42}
# The name, the suffix of the ledger's name, the number of processes, and whether emails are signed.
CONFIGURATIONS = (
    ("no_dkim_1p", "", 1, False),
    ("signed_ahead_2p", "-signed", 2, True),
    ("rsa2048_2p", "", 2, True),
)
MAIN = "15_papers"
LOADS = {"15_papers": 3, "5_papers": 1}  # the number of sections in each digest
COMPARED = {"nodemailer": 6.0, "naive": 20.0, "aiosmtplib_20ms": 3.8}


@dataclass(frozen=True)
class Size:
    """The size of the benchmark and its time limits. Everything is measured at least once."""

    repetitions: int
    mails: int
    few: int  # emails for programs that are several times slower
    least: int  # emails for the slowest program
    loads: Sequence[str]
    seconds: Sequence[float]  # for each part, the time from the start after which no repetition begins


FULL = Size(5, 10_000, 1_000, 100, ("15_papers", "5_papers"), (1200, 1500, 1800))
QUICK = Size(5, 5_000, 500, 30, ("15_papers",), (24, 31, 38))


@dataclass(frozen=True)
class Pair:
    """Two measurements, one right after the other."""

    base: Measurement
    ours: Measurement

    @property
    def ratio(self) -> float:
        return self.ours.rate / self.base.rate


@dataclass
class Bench:
    """The tools, folders and results that all measurements share."""

    tools: postfix_tools.Tools
    sink: Sink
    size: Size
    folder: Path
    key: Path
    log: Callable[[str], None]
    began: float
    bytes: dict[str, int] = field(default_factory=dict)  # the average size of an email, by load
    pairs: dict[str, list[Pair]] = field(default_factory=dict)

    def pair(self, name: str, base: Callable[[], Measurement], ours: Callable[[], Measurement]) -> None:
        self.add(name, base(), ours())

    def add(self, name: str, base: Measurement, ours: Measurement) -> None:
        pair = Pair(base, ours)
        self.pairs.setdefault(name, []).append(pair)
        self.log(f"{name:30} {ours.rate:7.0f}/s to {base.rate:7.0f}/s: {pair.ratio:.2f}")

    def of(self, kind: str) -> list[Measurement]:
        """Return the measurements of smtp-source for `kind`, such as 15_papers or 15_papers/kept."""
        return [
            pair.base
            for name, measured in self.pairs.items()
            if name.endswith(f"/{kind}")
            for pair in measured
        ]

    def rounds(self, part: int) -> Iterator[int]:
        """Yield the number of each repetition of one of the three parts, until its time limit."""
        for number in range(self.size.repetitions):
            if not number or time.monotonic() - self.began < self.size.seconds[part]:
                yield number

    # --- senders

    def run_smtp_source(self, load: str, *, keep_connections: bool) -> Measurement:
        """Send with smtp-source in one process."""
        began, sink_cpu, mails = time.monotonic(), self.sink.cpu_seconds(), self.size.mails
        port, size = self.sink.port, self.bytes[load]
        source = self.tools.start_source(port, mails, size, CONNECTIONS, keep_connections=keep_connections)
        measurement = forks.wait_and_measure(source, mails, began)
        return measurement.with_sink(self.sink.cpu_seconds() - sink_cpu)

    def run_paperboy(self, ledger: str, processes: int, mails: int, *, signs: bool) -> Measurement:
        """Send with Paperboy on a copy of a ledger, in `processes` processes."""
        with tempfile.TemporaryDirectory(dir=self.folder) as copy:
            shutil.copytree(self.folder / ledger, copy, dirs_exist_ok=True)
            more = {"smtp_port": self.sink.port, "dkim_keys": self.keys if signs else ()}
            senders = [
                partial(_send, Path(copy), workload.warm_up_ids(n, processes), more) for n in range(processes)
            ]
            measurement = forks.run_together(senders, self.sink.cpu_seconds)
        if measurement.mails != mails:
            raise RuntimeError(f"{measurement.mails} emails of {mails} were sent")
        return measurement

    @property
    def keys(self) -> tuple[str, ...]:
        return (f"bench:{self.key}",)


def _send(folder: Path, warming: range, more: dict[str, Any], ready: Callable[[], None]) -> int:
    app = workload.build(folder, **more)
    pipeline.send_now(app, workload.EARLIER, warming)
    ready()
    counts = pipeline.send_now(app, workload.NOW)
    if counts.keys() - {"sent"}:
        raise RuntimeError(f"not all were sent: {dict(counts)}")
    return counts["sent"]


# --- measurements


def prepare(bench: Bench) -> None:
    """Create the ledgers, which are copied for each measurement, and the texts for nodemailer."""
    size = bench.size
    for load in size.loads:
        folder, sections = bench.folder / load, LOADS[load]
        folder.mkdir()
        workload.fill_ledger(folder, size.mails, sections)
        shutil.copytree(folder, bench.folder / f"{load}-signed")
        stage_costs.sign_ahead(bench.folder / f"{load}-signed", bench.keys)
        app = workload.build(folder)
        bench.bytes[load] = round(
            statistics.mean(len(m.data) for m in stage_costs.compose_mails(app, 50, sections))
        )
        app.db.dispose()
    few = bench.folder / "few"
    few.mkdir()
    workload.fill_ledger(few, size.few, LOADS[MAIN])
    rivals.write_texts(workload.build(few), 50, LOADS[MAIN], bench.folder / "texts")


def compare_with_smtp_source(bench: Bench) -> None:
    """Repeatedly measure smtp-source without and with persistent connections, then Paperboy."""
    mails = bench.size.mails
    for _ in bench.rounds(0):
        for load in bench.size.loads:
            for name, ledger, processes, signs in CONFIGURATIONS:
                plain = bench.run_smtp_source(load, keep_connections=False)
                kept = bench.run_smtp_source(load, keep_connections=True)
                ours = bench.run_paperboy(f"{load}{ledger}", processes, mails, signs=signs)
                bench.add(f"{name}/{load}", plain, ours)
                bench.add(f"{name}/{load}/kept", kept, ours)


def compare_with_other_programs(bench: Bench) -> str:
    """Measure nodemailer and the naive stack, each followed by Paperboy with signing. Each is one process.

    Return why nodemailer is missing, or "" if it is not.
    """
    missing = ""
    try:
        rivals.install_nodemailer()
    except rivals.Unavailable as reason:
        missing = f"nodemailer is left out: {reason}"
    app = workload.build(bench.folder / "few")
    few, least = bench.size.few, bench.size.least
    texts, sections = bench.folder / "texts", LOADS[MAIN]
    naive = rivals.naive(app, bench.sink.port, least, sections, bench.key.read_bytes())
    ours = partial(bench.run_paperboy, "few", 1, few, signs=True)
    for _ in bench.rounds(1):
        if not missing:
            bench.pair("nodemailer", lambda: rivals.nodemailer(bench.sink, few, texts, bench.key), ours)
        bench.pair("naive", lambda: forks.run_together([naive], bench.sink.cpu_seconds), ours)
    return missing


def compare_over_slow_link(bench: Bench) -> None:
    """Send composed emails over ten connections to a relay 20 ms away: aiosmtplib, then Paperboy's pool.

    Paperboy sends four times as many, so that both take about equally long and connecting weighs the same.
    """
    composed = stage_costs.compose_mails(workload.build(bench.folder / "few"), 50, LOADS[MAIN])
    mails = [composed[number % 50] for number in range(2 * bench.size.few)]
    with far.relay(bench.sink.port, ROUND_TRIP) as port:
        aiosmtplib = rivals.plain(port, mails[: bench.size.few // 2])
        paperboy = stage_costs.pool_sender(port, mails)
        for _ in bench.rounds(2):
            bench.pair(
                "aiosmtplib_20ms",
                lambda: forks.run_together([aiosmtplib], bench.sink.cpu_seconds),
                lambda: forks.run_together([paperboy], bench.sink.cpu_seconds),
            )


# --- results


def median_and_range(values: Iterable[float]) -> dict[str, float]:
    found = sorted(values)
    return {"median": statistics.median(found), "min": found[0], "max": found[-1]}


def summary(bench: Bench, missing: str, costs: dict[str, float]) -> dict[str, Any]:
    pairs = bench.pairs
    kinds = [f"{load}{kept}" for load in bench.size.loads for kept in ("", "/kept")]
    measurements = {f"smtp_source/{kind}": bench.of(kind) for kind in kinds}
    own = [name for name in pairs if name not in COMPARED and not name.endswith("/kept")]
    measurements |= {name: [pair.ours for pair in pairs[name]] for name in own}
    measurements |= {name: [pair.base for pair in pairs[name]] for name in COMPARED if name in pairs}
    measurements |= {"ours_rsa2048_1p": [pair.ours for pair in pairs["naive"]]}
    measurements |= {"ours_20ms": [pair.ours for pair in pairs["aiosmtplib_20ms"]]}
    ratios = {name: median_and_range(pair.ratio for pair in measured) for name, measured in pairs.items()}
    return {
        "ratio_to_smtp_source": {name: round(ratios[f"{name}/{MAIN}"]["median"], 3) for name in TARGETS},
        "ratio_to_smtp_source_kept": {
            name: round(ratios[f"{name}/{MAIN}/kept"]["median"], 3) for name in TARGETS
        },
        "ratios": ratios,
        "rates": {
            name: median_and_range(run.rate for run in measured) for name, measured in measurements.items()
        },
        "cpu_us": {
            name: {
                "sender": statistics.median(run.cpu_us for run in measured),
                "sink": statistics.median(run.sink_cpu_us for run in measured),
            }
            for name, measured in measurements.items()
        },
        "parts_us": costs,
        "noise": {kind: spread([run.rate for run in bench.of(kind)]) for kind in kinds},
        "targets": TARGETS | COMPARED,
        "missing": missing,
        "repetitions": {name: len(measured) for name, measured in pairs.items()},
        "mails": {"each": bench.size.mails, "few": bench.size.few, "least": bench.size.least},
        "bytes_a_mail": bench.bytes,
        "seconds": round(time.monotonic() - bench.began, 1),
        "machine": machine(),
    }


def spread(rates: Sequence[float]) -> float:
    """Return the interquartile range as a fraction of the median."""
    low, median, high = statistics.quantiles(rates, n=4)
    return (high - low) / median


def machine() -> dict[str, Any]:
    cpus = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(": ")[2] for line in cpus if line.startswith("model name")), "unknown")
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": model,
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
    }


def show(result: dict[str, Any]) -> None:
    sizes = ", ".join(f"{load}: {size} bytes" for load, size in result["bytes_a_mail"].items())
    print(f"\n{result['mails']['each']} emails at a time ({sizes}), {result['seconds']:.0f} s")
    print("{cores} cores ({processor}), Python {python}, load {load:.1f}".format(**result["machine"]))
    for kind, apart in result["noise"].items():
        print(f"smtp-source's own rates, {kind}: quartiles {apart:.0%} of the median apart")
    print(f"\n{'':32} {'emails a second':25} {'CPU µs: sender':>24} {'sink':>6}")
    for name, rate in result["rates"].items():
        cpu = result["cpu_us"][name]
        span = "{median:8.0f} ({min:.0f}–{max:.0f})".format(**rate)
        print(f"{name:32} {span:25} {cpu['sender']:24.0f} {cpu['sink']:6.0f}")
    print(f"\n{'times as fast':32} {'median (range)':25} {'wanted':>10} {'pairs':>6}")
    for name, ratio in result["ratios"].items():
        of = f"ours / {name}" if name in COMPARED else name
        span = "{median:8.2f} ({min:.2f}–{max:.2f})".format(**ratio)
        wanted = result["targets"].get(name.removesuffix(f"/{MAIN}"), "")
        print(f"{of:32} {span:25} {wanted:>10} {result['repetitions'][name]:6}")
    if result["missing"]:
        print(result["missing"])
    print("\nCPU µs per email, by part")
    for name, cost in result["parts_us"].items():
        print(f"{name:52} {cost:10.1f}")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    began = time.monotonic()
    tools = postfix_tools.find(arguments.postfix)
    size = QUICK if arguments.quick else FULL

    def log(text: str) -> None:
        print(text, file=sys.stderr)

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sink = stack.enter_context(tools.run_sink())
        bench = Bench(tools, sink, size, folder, workload.make_key(folder / "key.pem"), log, began)
        prepare(bench)
        compare_with_smtp_source(bench)
        missing = compare_with_other_programs(bench)
        compare_over_slow_link(bench)
        costs = stage_costs.measure(folder / MAIN, bench.keys, sink, size.mails, 1 if arguments.quick else 3)
        return summary(bench, missing, costs)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer emails and repetitions: within a minute")
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object")
    parser.add_argument(
        "--postfix",
        type=Path,
        metavar="FOLDER",
        default=os.environ.get("PAPERBOY_BENCHMARK_POSTFIX"),
        help="the folder of smtp-source and smtp-sink, installed or unpacked",
    )
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    try:
        result = run(arguments)
    except postfix_tools.Missing as missing:
        sys.exit(str(missing))
    except KeyboardInterrupt:
        sys.exit("interrupted")
    if arguments.json:
        print(json.dumps(result, indent=1))
    else:
        show(result)


if __name__ == "__main__":
    main()
