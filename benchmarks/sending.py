"""Measure how fast digests are sent: the product's sending path, a load generator in C, and other programs.

    python -m benchmarks.sending [--quick] [--json] [--postfix FOLDER]

Digests of 15 papers (and of 5) go over ten connections to Postfix's `smtp-sink` here. `smtp-source`,
Postfix's generator in C, sends as many mails of the same size right before each measurement: at first
with a new connection for each mail, and then at its fastest, with connections that are kept (`-d`, shown as
"kept"). A ratio compares two such neighbouring measurements; the result is the median of all ratios. For the
product, mails wait in a migrated SQLite database. `pipeline.send_pending` claims, joins, signs, sends and
records them, in one process or in two on the same database.

The clock starts when all senders are ready: when they have sent 400 mails and have the fragments of this
edition's cards. It stops when the last mail is recorded and every connection to the sink is closed (the
database stays open, as in a service). For smtp-source it covers the whole run. The cost of the fragments is
printed separately.

Only the downloads stay, under var/benchmarks: smtp-source with smtp-sink, and nodemailer.
"""

from __future__ import annotations

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
from benchmarks import far, forks, parts, postfix_tools, rivals, workload
from benchmarks.forks import Took
from benchmarks.postfix_tools import Sink

CONNECTIONS = 10
ROUND_TRIP = 0.020
TARGETS = {"no_dkim_1p": 1.0, "signed_ahead_2p": 1.0, "rsa2048_2p": 0.42}
# Name, the ledger's name after that of its load, processes, and whether mails are signed.
WAYS = (
    ("no_dkim_1p", "", 1, False),
    ("signed_ahead_2p", "-signed", 2, True),
    ("rsa2048_2p", "", 2, True),
)
MAIN = "15_papers"
LOADS = {"15_papers": 3, "5_papers": 1}  # and of how many sections
BESIDE = {"nodemailer": 6.0, "naive": 20.0, "aiosmtplib_20ms": 3.8}


@dataclass(frozen=True)
class Size:
    """How much is measured, and for how many seconds at most; everything is measured once at least."""

    repetitions: int
    mails: int
    few: int  # of what is several times slower
    least: int  # of the slowest
    loads: Sequence[str]
    seconds: Sequence[float]  # since the beginning, after which no repetition of a part begins


FULL = Size(5, 10_000, 1_000, 100, ("15_papers", "5_papers"), (1200, 1500, 1800))
QUICK = Size(5, 5_000, 500, 30, ("15_papers",), (24, 31, 38))


@dataclass(frozen=True)
class Pair:
    """Two ways, one right after the other: how many times as fast the second was."""

    base: Took
    ours: Took

    @property
    def ratio(self) -> float:
        return self.ours.rate / self.base.rate


@dataclass
class Bench:
    """What all measurements share."""

    tools: postfix_tools.Tools
    sink: Sink
    size: Size
    folder: Path
    key: Path
    told: Callable[[str], None]
    began: float
    bytes: dict[str, int] = field(default_factory=dict)  # of a mail of each load, in the mean
    pairs: dict[str, list[Pair]] = field(default_factory=dict)

    def pair(self, name: str, base: Callable[[], Took], ours: Callable[[], Took]) -> None:
        self.add(name, base(), ours())

    def add(self, name: str, base: Took, ours: Took) -> None:
        pair = Pair(base, ours)
        self.pairs.setdefault(name, []).append(pair)
        self.told(f"{name:30} {ours.rate:7.0f}/s to {base.rate:7.0f}/s: {pair.ratio:.2f}")

    def of(self, kind: str) -> list[Took]:
        """Every time that smtp-source sent this load, with connections that were kept or without."""
        return [
            pair.base for name, found in self.pairs.items() if name.endswith(f"/{kind}") for pair in found
        ]

    def rounds(self, part: int) -> Iterator[int]:
        """The repetitions of one of the three parts."""
        for number in range(self.size.repetitions):
            if not number or time.monotonic() - self.began < self.size.seconds[part]:
                yield number

    # --- ways to send

    def source(self, load: str, *, kept: bool) -> Took:
        """smtp-source, a process of its own."""
        began, sunk, mails = time.monotonic(), self.sink.busy(), self.size.mails
        port, size = self.sink.port, self.bytes[load]
        took = forks.spent(self.tools.blast(port, mails, size, CONNECTIONS, kept=kept), mails, began)
        return took.with_sink(self.sink.busy() - sunk)

    def product(self, ledger: str, processes: int, mails: int, *, signs: bool) -> Took:
        """So many senders of the product on a copy of a ledger."""
        with tempfile.TemporaryDirectory(dir=self.folder) as copy:
            shutil.copytree(self.folder / ledger, copy, dirs_exist_ok=True)
            more = {"smtp_port": self.sink.port, "dkim_keys": self.keys if signs else ()}
            senders = [
                partial(_send, Path(copy), workload.warming_ids(n, processes), more) for n in range(processes)
            ]
            took = forks.race(senders, self.sink.busy)
        if took.mails != mails:
            raise RuntimeError(f"{took.mails} mails of {mails} were sent")
        return took

    @property
    def keys(self) -> tuple[str, ...]:
        return (f"bench:{self.key}",)


def _send(folder: Path, warming: range, more: dict[str, Any], ready: Callable[[], None]) -> int:
    app = workload.build(folder, **more)
    pipeline.send_pending(app, workload.EARLIER, warming)
    ready()
    counts = pipeline.send_pending(app, workload.NOW)
    if counts.keys() - {"sent"}:
        raise RuntimeError(f"not all were sent: {dict(counts)}")
    return counts["sent"]


# --- what is measured


def prepare(bench: Bench) -> None:
    """The ledgers that are copied for each measurement, and the texts for nodemailer."""
    size = bench.size
    for load in size.loads:
        folder, sections = bench.folder / load, LOADS[load]
        folder.mkdir()
        workload.fill(folder, size.mails, sections)
        shutil.copytree(folder, bench.folder / f"{load}-signed")
        parts.sign_ahead(bench.folder / f"{load}-signed", bench.keys)
        app = workload.build(folder)
        bench.bytes[load] = round(statistics.mean(len(m.data) for m in parts.written(app, 50, sections)))
        app.db.dispose()
    few = bench.folder / "few"
    few.mkdir()
    workload.fill(few, size.few, LOADS[MAIN])
    rivals.write_texts(workload.build(few), 50, LOADS[MAIN], bench.folder / "texts")


def beside_source(bench: Bench) -> None:
    """Again and again: smtp-source in both its ways, and then ours."""
    mails = bench.size.mails
    for _ in bench.rounds(0):
        for load in bench.size.loads:
            for name, ledger, processes, signs in WAYS:
                plain, kept = bench.source(load, kept=False), bench.source(load, kept=True)
                ours = bench.product(f"{load}{ledger}", processes, mails, signs=signs)
                bench.add(f"{name}/{load}", plain, ours)
                bench.add(f"{name}/{load}/kept", kept, ours)


def beside_others(bench: Bench) -> str:
    """nodemailer and the naive stack, a process each, beside one of ours that signs. Why one is missing."""
    missing = ""
    try:
        rivals.install_nodemailer()
    except rivals.Unavailable as reason:
        missing = f"nodemailer is left out: {reason}"
    app = workload.build(bench.folder / "few")
    few, least = bench.size.few, bench.size.least
    texts, sections = bench.folder / "texts", LOADS[MAIN]
    naive = rivals.naive(app, bench.sink.port, least, sections, bench.key.read_bytes())
    ours = partial(bench.product, "few", 1, few, signs=True)
    for _ in bench.rounds(1):
        if not missing:
            bench.pair("nodemailer", lambda: rivals.nodemailer(bench.sink, few, texts, bench.key), ours)
        bench.pair("naive", lambda: forks.race([naive], bench.sink.busy), ours)
    return missing


def far_away(bench: Bench) -> None:
    """Ready-made mails over ten connections to a relay 20 ms away: aiosmtplib, and the product's relay.

    Ours gets four times as many, so that both send for as long, and connecting weighs the same.
    """
    written = parts.written(workload.build(bench.folder / "few"), 50, LOADS[MAIN])
    mails = [written[number % 50] for number in range(2 * bench.size.few)]
    with far.relay(bench.sink.port, ROUND_TRIP) as port:
        theirs, ours = rivals.plain(port, mails[: bench.size.few // 2]), parts.carry(port, mails)
        for _ in bench.rounds(2):
            bench.pair(
                "aiosmtplib_20ms",
                lambda: forks.race([theirs], bench.sink.busy),
                lambda: forks.race([ours], bench.sink.busy),
            )


# --- what is told


def middle(values: Iterable[float]) -> dict[str, float]:
    found = sorted(values)
    return {"median": statistics.median(found), "min": found[0], "max": found[-1]}


def summary(bench: Bench, missing: str, costs: dict[str, float]) -> dict[str, Any]:
    pairs = bench.pairs
    kinds = [f"{load}{kept}" for load in bench.size.loads for kept in ("", "/kept")]
    took = {f"smtp_source/{kind}": bench.of(kind) for kind in kinds}
    own = [name for name in pairs if name not in BESIDE and not name.endswith("/kept")]
    took |= {name: [pair.ours for pair in pairs[name]] for name in own}
    took |= {name: [pair.base for pair in pairs[name]] for name in BESIDE if name in pairs}
    took |= {"ours_rsa2048_1p": [pair.ours for pair in pairs["naive"]]}
    took |= {"ours_20ms": [pair.ours for pair in pairs["aiosmtplib_20ms"]]}
    ratios = {name: middle(pair.ratio for pair in found) for name, found in pairs.items()}
    return {
        "ratio_to_smtp_source": {name: round(ratios[f"{name}/{MAIN}"]["median"], 3) for name in TARGETS},
        "ratio_to_smtp_source_kept": {
            name: round(ratios[f"{name}/{MAIN}/kept"]["median"], 3) for name in TARGETS
        },
        "ratios": ratios,
        "rates": {name: middle(one.rate for one in found) for name, found in took.items()},
        "cpu_us": {
            name: {
                "sender": statistics.median(one.each for one in found),
                "sink": statistics.median(one.sink_each for one in found),
            }
            for name, found in took.items()
        },
        "parts_us": costs,
        "noise": {kind: spread([one.rate for one in bench.of(kind)]) for kind in kinds},
        "targets": TARGETS | BESIDE,
        "missing": missing,
        "repetitions": {name: len(found) for name, found in pairs.items()},
        "mails": {"each": bench.size.mails, "few": bench.size.few, "least": bench.size.least},
        "bytes_a_mail": bench.bytes,
        "seconds": round(time.monotonic() - bench.began, 1),
        "machine": machine(),
    }


def spread(rates: Sequence[float]) -> float:
    """How far apart the same thing is measured: the distance of the quartiles, as a share of the median."""
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


def show(told: dict[str, Any]) -> None:
    sizes = ", ".join(f"{load}: {size} bytes" for load, size in told["bytes_a_mail"].items())
    print(f"\n{told['mails']['each']} mails at a time ({sizes}), {told['seconds']:.0f} s")
    print("{cores} cores ({processor}), Python {python}, load {load:.1f}".format(**told["machine"]))
    for kind, apart in told["noise"].items():
        print(f"smtp-source's own rates, {kind}: quartiles {apart:.0%} of the median apart")
    print(f"\n{'':32} {'mails a second':25} {'µs of processor: sender':>24} {'sink':>6}")
    for name, rate in told["rates"].items():
        cpu = told["cpu_us"][name]
        span = "{median:8.0f} ({min:.0f}–{max:.0f})".format(**rate)
        print(f"{name:32} {span:25} {cpu['sender']:24.0f} {cpu['sink']:6.0f}")
    print(f"\n{'times as fast':32} {'median (range)':25} {'wanted':>10} {'pairs':>6}")
    for name, ratio in told["ratios"].items():
        of = f"ours / {name}" if name in BESIDE else name
        span = "{median:8.2f} ({min:.2f}–{max:.2f})".format(**ratio)
        wanted = told["targets"].get(name.removesuffix(f"/{MAIN}"), "")
        print(f"{of:32} {span:25} {wanted:>10} {told['repetitions'][name]:6}")
    if told["missing"]:
        print(told["missing"])
    print("\nµs of processor a mail, by part")
    for name, cost in told["parts_us"].items():
        print(f"{name:52} {cost:10.1f}")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    began = time.monotonic()
    tools = postfix_tools.find(arguments.postfix)
    size = QUICK if arguments.quick else FULL

    def tell(text: str) -> None:
        print(text, file=sys.stderr)

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sink = stack.enter_context(tools.sinking())
        bench = Bench(tools, sink, size, folder, workload.make_key(folder / "key.pem"), tell, began)
        prepare(bench)
        beside_source(bench)
        missing = beside_others(bench)
        far_away(bench)
        costs = parts.costs(folder / MAIN, bench.keys, sink, size.mails, 1 if arguments.quick else 3)
        return summary(bench, missing, costs)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer mails and repetitions: within a minute")
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object")
    parser.add_argument(
        "--postfix",
        type=Path,
        metavar="FOLDER",
        default=os.environ.get("PAPERBOY_BENCHMARK_POSTFIX"),
        help="where smtp-source and smtp-sink lie, installed or unpacked",
    )
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    try:
        told = run(arguments)
    except postfix_tools.Missing as missing:
        sys.exit(str(missing))
    except KeyboardInterrupt:
        sys.exit("interrupted")
    if arguments.json:
        print(json.dumps(told, indent=1))
    else:
        show(told)


if __name__ == "__main__":
    main()
