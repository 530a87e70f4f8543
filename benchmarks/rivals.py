"""Other ways to send the same emails: nodemailer, a stack of well-known libraries, plain aiosmtplib."""

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
from app.mail.message import OutgoingMail
from app.storage.database import ROOT
from app.types import RenderedMail
from benchmarks import workload
from benchmarks.forks import Measurement
from benchmarks.postfix_tools import Sink

CONNECTIONS = 10
NODEMAILER = ROOT / "benchmarks" / "nodemailer"
INSTALLED = ROOT / "var" / "benchmarks" / "nodemailer"


class Unavailable(Exception):
    """A program is not available on this machine. The message explains why."""


# --- nodemailer


def install_nodemailer() -> None:
    """Install the pinned version under `var/` unless it is already there. Raise Unavailable on failure."""
    npm = shutil.which("npm")
    if not (npm and shutil.which("node")):
        raise Unavailable("node and npm are not installed")
    INSTALLED.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "send.js"):
        shutil.copy(NODEMAILER / name, INSTALLED)
    version = json.loads((INSTALLED / "package.json").read_text())["dependencies"]["nodemailer"]
    package = INSTALLED / "node_modules" / "nodemailer" / "package.json"
    if package.is_file() and json.loads(package.read_text())["version"] == version:
        return
    command = [npm, "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts"]
    try:
        subprocess.run(command, cwd=INSTALLED, check=True, capture_output=True, timeout=60)  # noqa: S603
    except (subprocess.SubprocessError, OSError) as error:
        raise Unavailable(f"npm could not install it: {error}") from None


def nodemailer(sink: Sink, mails: int, texts: Path, key: Path) -> Measurement:
    """Compose, sign and send emails in one nodemailer process. Its startup is not measured."""
    options = [str(sink.port), str(CONNECTIONS), str(texts), str(key), str(mails)]
    command = [shutil.which("node") or "node", "send.js", *options]
    with _program(command, INSTALLED) as process:
        if not (process.stdin and process.stdout and process.stdout.readline() == b"ready\n"):
            raise RuntimeError("nodemailer did not start: see its output above")
        began, sink_cpu = time.monotonic(), sink.cpu_seconds()
        process.stdin.write(b"go\n")
        process.stdin.flush()
        result = json.loads(process.stdout.readline() or '{"sent": 0}')
        seconds, sink_cpu = time.monotonic() - began, sink.cpu_seconds() - sink_cpu
    if result["sent"] != mails:
        raise RuntimeError(f"nodemailer sent {result['sent']} of {mails} emails")
    return Measurement(mails, seconds, result["cpu"], sink_cpu)


@contextmanager
def _program(command: Sequence[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=folder, **pipes) as process:  # type: ignore[call-overload]  # noqa: S603
        try:
            yield process
        finally:
            process.kill()


def write_texts(app: Application, mails: int, sections: int, file: Path) -> None:
    """Write rendered emails for nodemailer to compose. Its measurement does not include rendering."""
    with file.open("w") as lines:
        for number in range(mails):
            mail = render_mail(app, number, sections)
            to = workload.address(number)
            fields = {"to": to, "subject": mail.subject, "text": mail.text, "html": mail.html}
            lines.write(json.dumps(fields) + "\n")


def render_mail(app: Application, number: int, sections: int) -> RenderedMail:
    """Render the email to a reader with Paperboy's templates."""
    return app.renderer.render(workload.mail_request(number, sections))


# --- the naive stack, which most developers would use: Jinja, email.message, dkimpy, aiosmtplib


def naive(
    app: Application, port: int, mails: int, sections: int, key: bytes
) -> Callable[[Callable[[], None]], int]:
    """Return a sender that uses a library for each step and sends one email at a time per connection."""

    def compose(number: int) -> bytes:
        mail, to = render_mail(app, number, sections), workload.address(number)
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
        compose(0)
        ready()
        return asyncio.run(_send_with_aiosmtplib(port, mails, compose))

    return send


# --- aiosmtplib by itself


def plain(port: int, mails: Sequence[OutgoingMail]) -> Callable[[Callable[[], None]], int]:
    """Return a sender that sends composed emails with aiosmtplib's `sendmail`."""

    def send(ready: Callable[[], None]) -> int:
        ready()
        return asyncio.run(_send_with_aiosmtplib(port, len(mails), lambda number: mails[number].data))

    return send


async def _send_with_aiosmtplib(port: int, mails: int, compose: Callable[[int], bytes]) -> int:
    numbers = iter(range(mails))

    async def work() -> int:
        sent = 0
        async with aiosmtplib.SMTP(hostname="127.0.0.1", port=port, start_tls=False) as client:
            for number in numbers:
                data = compose(number)
                refused, _ = await client.sendmail(
                    f"bounce+{number}@paperboy.example", [workload.address(number)], data
                )
                sent += not refused
        return sent

    return sum(await asyncio.gather(*(work() for _ in range(CONNECTIONS))))
