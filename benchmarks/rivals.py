"""Other ways to send the same mails: nodemailer, a stack of well-known libraries, plain aiosmtplib."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from email.message import EmailMessage
from email.utils import format_datetime, make_msgid
from pathlib import Path

import aiosmtplib
import dkim

from app.application import Application
from app.storage.database import ROOT
from app.types import OutgoingMail, RenderedMail
from benchmarks import workload
from benchmarks.forks import Measurement
from benchmarks.postfix_tools import Sink

CONNECTIONS = 10
NODEMAILER = ROOT / "benchmarks" / "nodemailer"
INSTALLED = ROOT / "var" / "benchmarks" / "nodemailer"


class Unavailable(Exception):
    """This rival cannot be had here; the message says why."""


# --- nodemailer


def install_nodemailer() -> None:
    """Install what its package.json pins, under `var/`; nothing to do where it is there already."""
    npm = shutil.which("npm")
    if not (npm and shutil.which("node")):
        raise Unavailable("node and npm are not installed")
    INSTALLED.mkdir(parents=True, exist_ok=True)
    wanted = NODEMAILER / "package.json"
    there = INSTALLED / "package.json"
    for file in (wanted, NODEMAILER / "send.js"):
        shutil.copy(file, INSTALLED)
    version = json.loads(there.read_text())["dependencies"]["nodemailer"]
    package = INSTALLED / "node_modules" / "nodemailer" / "package.json"
    if package.is_file() and json.loads(package.read_text())["version"] == version:
        return
    command = [npm, "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts"]
    try:
        subprocess.run(command, cwd=INSTALLED, check=True, capture_output=True, timeout=60)  # noqa: S603
    except (subprocess.SubprocessError, OSError) as error:
        raise Unavailable(f"npm could not install it: {error}") from None


def nodemailer(sink: Sink, mails: int, texts: Path, key: Path) -> Measurement:
    """One process of it, ten pooled connections, each mail composed and signed; from when it is ready."""
    options = [str(sink.port), str(CONNECTIONS), str(texts), str(key), str(mails)]
    command = [shutil.which("node") or "node", "send.js", *options]
    with _program(command, INSTALLED) as process:
        if not (process.stdin and process.stdout and process.stdout.readline() == b"ready\n"):
            raise RuntimeError("nodemailer did not get ready: what it said stands above")
        began, sunk = time.monotonic(), sink.cpu_seconds()
        process.stdin.write(b"go\n")
        process.stdin.flush()
        told = json.loads(process.stdout.readline() or '{"sent": 0}')
        seconds, sunk = time.monotonic() - began, sink.cpu_seconds() - sunk
    if told["sent"] != mails:
        raise RuntimeError(f"nodemailer sent {told['sent']} of {mails} mails")
    return Measurement(mails, seconds, told["cpu"], sunk)


@contextmanager
def _program(command: Sequence[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=folder, **pipes) as process:  # type: ignore[call-overload]  # noqa: S603
        try:
            yield process
        finally:
            process.kill()


def write_texts(app: Application, mails: int, sections: int, file: Path) -> None:
    """Rendered mails for nodemailer to compose: rendering is not counted against it."""
    with file.open("w") as lines:
        for number in range(mails):
            mail = rendered(app, number, sections)
            to = workload.address(number)
            told = {"to": to, "subject": mail.subject, "text": mail.text, "html": mail.html}
            lines.write(json.dumps(told) + "\n")


def rendered(app: Application, number: int, sections: int) -> RenderedMail:
    """A reader's mail by a full render of the product's templates."""
    return app.renderer.render(workload.mail_request(number, sections))


# --- the stack that most would write: Jinja, email.message, dkimpy, aiosmtplib


def naive(
    app: Application, port: int, mails: int, sections: int, key: bytes
) -> Callable[[Callable[[], None]], int]:
    """A sender that does each step with the library for it, one mail after the other a connection."""

    def written(number: int) -> bytes:
        mail, to = rendered(app, number, sections), workload.address(number)
        message = EmailMessage()
        message["From"], message["To"], message["Subject"] = "digest@paperboy.example", to, mail.subject
        message["Date"], message["Message-ID"] = format_datetime(workload.NOW), make_msgid(domain="x.example")
        for name, value in mail.headers.items():
            message[name] = value
        message.set_content(mail.text)
        message.add_alternative(mail.html, subtype="html")
        data = message.as_bytes().replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
        return bytes(dkim.sign(data, b"bench", b"paperboy.example", key)) + data

    def send(ready: Callable[[], None]) -> int:
        written(0)
        ready()
        return asyncio.run(_by_aiosmtplib(port, mails, written))

    return send


# --- aiosmtplib by itself


def plain(port: int, mails: Sequence[OutgoingMail]) -> Callable[[Callable[[], None]], int]:
    """A sender of ready-made mails with aiosmtplib's own `sendmail`."""

    def send(ready: Callable[[], None]) -> int:
        ready()
        return asyncio.run(_by_aiosmtplib(port, len(mails), lambda number: mails[number].data))

    return send


async def _by_aiosmtplib(port: int, mails: int, written: Callable[[int], bytes]) -> int:
    numbers = iter(range(mails))

    async def work() -> int:
        sent = 0
        async with aiosmtplib.SMTP(hostname="127.0.0.1", port=port, start_tls=False) as client:
            for number in numbers:
                data = written(number)
                refused, _ = await client.sendmail(
                    f"bounce+{number}@paperboy.example", [workload.address(number)], data
                )
                sent += not refused
        return sent

    return sum(await asyncio.gather(*(work() for _ in range(CONNECTIONS))))
