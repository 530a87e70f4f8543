"""Find or unpack Postfix's load generator and sink. Postfix itself never runs.

`smtp-source` and `smtp-sink` are in Debian's package `postfix`. If they are not installed, the package is
downloaded and unpacked under `var/`. The system is not changed.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from app.storage.database import ROOT

CACHE = ROOT / "var" / "benchmarks" / "postfix"
FOLDERS = ("/usr/sbin", "/usr/local/sbin", "/usr/lib/postfix/sbin", "/usr/libexec/postfix")
SENDER, RECIPIENT = "bounce@paperboy.example", "reader@uni-1.example"


class Missing(Exception):
    """The tools are not available. The message explains what to do."""


@dataclass(frozen=True)
class Tools:
    """The paths of the two programs, and the environment in which they find their libraries."""

    source: Path
    sink: Path
    environment: Mapping[str, str]

    @contextmanager
    def run_sink(self) -> Iterator[Sink]:
        """Run smtp-sink on a free local port for the block."""
        port = free_port()
        as_root = ["-u", "root"] if os.geteuid() == 0 else []
        command: list[str | Path] = [self.sink, *as_root, f"127.0.0.1:{port}", "1024"]
        with subprocess.Popen(command, env=dict(self.environment)) as process:  # noqa: S603
            try:
                await_port(port, lambda: process.poll() is None)
                yield Sink(port, process.pid)
            finally:
                process.kill()

    def start_source(
        self, port: int, mails: int, size: int, connections: int, *, keep_connections: bool
    ) -> subprocess.Popen[bytes]:
        """Start smtp-source. It opens a new connection for each email unless `keep_connections` is set."""
        command: list[str | Path] = [self.source, *(["-d"] if keep_connections else [])]
        command += ["-s", str(connections), "-m", str(mails), "-l", str(size)]
        command += ["-f", SENDER, "-t", RECIPIENT, f"127.0.0.1:{port}"]
        return subprocess.Popen(command, env=dict(self.environment))  # noqa: S603


@dataclass(frozen=True)
class Sink:
    """A running smtp-sink."""

    port: int
    pid: int

    def cpu_seconds(self) -> float:
        """Return the CPU time in seconds that smtp-sink has used. It has one thread."""
        return int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[0]) / 1e9


def find(folder: Path | None = None) -> Tools:
    """Find the tools in a folder or on this machine, or unpack the package. Raise Missing if that fails."""
    if folder:
        return _tools_in(folder)
    for place in (*os.get_exec_path(), *FOLDERS):
        if all((Path(place) / name).is_file() for name in ("smtp-source", "smtp-sink")):
            return _checked(Tools(Path(place) / "smtp-source", Path(place) / "smtp-sink", os.environ))
    if not CACHE.is_dir():
        _unpack(CACHE)
    return _tools_in(CACHE)


def _tools_in(folder: Path) -> Tools:
    """Return the tools in a folder, or in a package that was unpacked there."""
    found = [next(iter(sorted(folder.rglob(name))), None) for name in ("smtp-source", "smtp-sink")]
    source, sink = found
    if not (source and sink):
        raise Missing(f"there is no smtp-source with smtp-sink under {folder}")
    libraries = {str(library.parent) for library in folder.rglob("libpostfix-util.so*")}
    known = os.environ.get("LD_LIBRARY_PATH")
    path = os.pathsep.join([*sorted(libraries), *([known] if known else [])])
    return _checked(Tools(source, sink, {**os.environ, "LD_LIBRARY_PATH": path}))


def _checked(tools: Tools) -> Tools:
    """Return the tools. Raise Missing if they need libraries that this machine does not have."""
    linked = subprocess.run(  # noqa: S603
        [shutil.which("ldd") or "ldd", tools.sink],
        env=dict(tools.environment),
        capture_output=True,
        text=True,
        check=False,
    )
    lacking = [line.split()[0] for line in linked.stdout.splitlines() if "not found" in line]
    if lacking:
        raise Missing(f"{tools.sink} needs {', '.join(lacking)}: install postfix, which brings them")
    return tools


def _unpack(into: Path) -> None:
    """Unpack Debian's package without installing it, so its scripts do not run and no mail server starts."""
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        raise Missing(
            "smtp-source and smtp-sink are not here, and this system has no apt-get to fetch them with: "
            "install your system's postfix, or name a folder that holds both with --postfix"
        )
    into.parent.mkdir(parents=True, exist_ok=True)
    new = into.with_name(f"{into.name}.{os.getpid()}")
    new.mkdir()
    try:
        _run(["apt-get", "download", "postfix"], new)
        package = next(new.glob("postfix_*.deb"))
        _run(["dpkg", "-x", package.name, "."], new)
        package.unlink()
        new.rename(into)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise Missing(
            f"`{' '.join(command)}` failed: {done.stderr.strip()[-300:]}\n"
            "Try `apt-get update` first, or name a folder that holds smtp-source and smtp-sink with --postfix"
        )


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        return port


def await_port(port: int, alive: Callable[[], bool]) -> None:
    """Wait until a process listens on the port. Raise RuntimeError if it exits or takes too long."""
    for _ in range(500):
        if not alive():
            raise RuntimeError(f"the process for port {port} ended at once: see its output above")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.01)
    raise RuntimeError(f"nothing listens on port {port}")
