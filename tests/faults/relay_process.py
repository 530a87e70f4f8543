"""A relay in a process of its own. It logs accepted emails and misbehaves as a test orders.

`RelayProcess` is the handle for tests. The process reads orders as lines of JSON from a socket and answers
each with a line. It reports events in lines of their own. It ends when the test shuts the socket down.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import queue
import socket
import struct
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.support import fork_server

STAGES = ("connect", "ehlo", "mail", "rcpt", "data", "body", "end")
USUAL = {
    "connect": "220 relay.test ready",
    "mail": "250 2.1.0 go on",
    "rcpt": "250 2.1.5 go on",
    "data": "354 send it",
    "end": "250 2.0.0 taken",
}
PATIENCE = 30  # seconds that a test waits for something that should happen at once


@dataclass
class Order:
    """What to do at a stage instead of the normal behaviour, and how often."""

    at: str
    say: str | None = None  # replaces the usual reply; "body" has none
    then: str = ""  # after the reply: "close", "reset" or "hang"
    tell: bool = False  # announce this stage, then wait for `go_on`
    late: float = 0.0  # seconds before the reply
    copies: int = 1  # of the reply
    mute: bool = False  # do not reply
    takes: bool | None = None  # at "end": whether the email counts as accepted. Default: by the reply.
    to: str = ""  # from "rcpt" on: only for this recipient
    after: int = 0  # the number that pass first
    times: int = 10**6

    def __post_init__(self) -> None:
        assert self.at in STAGES
        assert self.then in ("", "close", "reset", "hang")


@dataclass
class Behaviour:
    """Protocol behaviour on connections opened from now on."""

    pipelining: bool = True
    glued: bool = False  # hold replies back while there are more commands to read
    bytewise: bool = False  # send each byte of a reply separately
    pace: float = 0.0  # seconds for each email
    greylisting: bool = False  # 451 at the first attempt for each recipient
    keeps: bool = False  # the emails themselves, not just their hashes


# --- the process


class _ConnectionClosed(Exception):
    """The connection was closed by the client or by the server."""


class _Connection:
    def __init__(self, owner: _Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.owner, self.reader, self.writer = owner, reader, writer
        self.behaviour = owner.behaviour
        self.buffer = b""
        self.unsent = b""
        self.recipient = ""

    async def serve(self) -> None:
        await self.answer("connect")
        while True:
            line = await self.line()
            verb = line.split(b" ")[0].split(b":")[0].upper().decode("latin-1")
            match verb:
                case "EHLO" | "HELO":
                    await self.answer("ehlo")
                case "MAIL":
                    self.recipient = ""
                    await self.answer("mail")
                case "RCPT":
                    await self.rcpt(line.partition(b"<")[2].partition(b">")[0].decode())
                case "DATA":
                    await self.data()
                case "RSET" | "NOOP":
                    await self.say("250 2.0.0 done")
                case "QUIT":
                    await self.say("221 2.0.0 bye")
                    raise _ConnectionClosed
                case _:
                    await self.say("500 5.5.2 what?")

    async def rcpt(self, recipient: str) -> None:
        new = self.behaviour.greylisting and recipient not in self.owner.seen
        self.owner.seen.add(recipient)
        reply = await self.answer("rcpt", "451 4.7.1 greylisted" if new else None, to=recipient)
        if reply.startswith("2"):
            self.recipient = recipient

    async def data(self) -> None:
        if self.buffer:
            self.owner.complain(f"before 354: {self.buffer[:40]!r}")
        if not self.recipient:
            await self.say("503 5.5.1 no recipient")
            return
        if (await self.answer("data", to=self.recipient)).startswith("354"):
            body = await self.body()
            await self.finish(body)

    async def body(self) -> bytes:
        """Read the email up to its final dot, with dot-stuffing removed."""
        text, body_started = b"\r\n", False
        while True:
            text, self.buffer = text + (self.buffer or await self.read()), b""
            if not body_started and len(text) > 2:
                body_started = True
                await self.misbehave(self.owner.order("body", self.recipient), "body", "")
            end = text.find(b"\r\n.\r\n")
            if end >= 0:
                self.buffer = text[end + 5 :]
                return text[: end + 2].replace(b"\r\n..", b"\r\n.")[2:]

    async def finish(self, body: bytes) -> None:
        if self.behaviour.pace:
            await asyncio.sleep(self.behaviour.pace)
        order = self.owner.order("end", self.recipient)
        reply = USUAL["end"] if order is None or order.say is None else order.say
        takes = order.takes if order else None
        if takes if takes is not None else reply.startswith("2"):
            self.owner.take(self.recipient, body, keep=self.behaviour.keeps)
        await self.misbehave(order, "end", reply)
        self.recipient = ""

    async def answer(self, stage: str, usual: str | None = None, to: str = "") -> str:
        """Send and return the reply for a stage, using an order if one matches."""
        order = self.owner.order(stage, to)
        reply = usual or (self.greeting() if stage == "ehlo" else USUAL[stage])
        if order is not None and order.say is not None:
            reply = order.say
        await self.misbehave(order, stage, reply, to)
        return reply

    def greeting(self) -> str:
        offers = ["sink.test", *(["PIPELINING"] if self.behaviour.pipelining else []), "SIZE 50000000"]
        return "\r\n".join(f"250-{offer}" for offer in [*offers, "8BITMIME"]) + "\r\n250 SMTPUTF8"

    async def misbehave(self, order: Order | None, stage: str, reply: str, to: str = "") -> None:
        order = order or Order(stage)
        if order.tell:
            await self.owner.tell(stage, to or self.recipient)
        await asyncio.sleep(order.late)
        if reply and not order.mute:
            for _ in range(order.copies):
                await self.say(reply)
        match order.then:
            case "hang":
                while True:
                    await self.read()
            case "reset":
                linger = struct.pack("ii", 1, 0)  # a reset instead of an orderly close
                self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                self.writer.transport.abort()
                raise _ConnectionClosed
            case "close":
                raise _ConnectionClosed
        if reply.startswith("421") or (stage == "connect" and not reply.startswith("2")):
            raise _ConnectionClosed

    async def say(self, words: str) -> None:
        self.unsent += words.encode() + b"\r\n"
        if self.behaviour.glued and self.buffer:
            return
        unsent, self.unsent = self.unsent, b""
        pieces = [unsent[n : n + 1] for n in range(len(unsent))] if self.behaviour.bytewise else [unsent]
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            await asyncio.sleep(0)

    async def line(self) -> bytes:
        while b"\r\n" not in self.buffer:
            self.buffer += await self.read()
        line, _, self.buffer = self.buffer.partition(b"\r\n")
        if not self.behaviour.pipelining:
            await self.detect_early_command()
        return line

    async def detect_early_command(self) -> None:
        """Record a complaint if the client sends early although PIPELINING was not offered."""
        with suppress(TimeoutError):
            self.buffer += await asyncio.wait_for(self.read(), 0.01)
        if self.buffer:
            self.owner.complain(f"before the answer to the command before it: {self.buffer[:40]!r}")

    async def read(self) -> bytes:
        if data := await self.reader.read(1 << 18):
            return data
        raise _ConnectionClosed


def _run(log: Path, channel: socket.socket) -> None:
    asyncio.run(_Process(log).serve(channel))


class _Process:
    reports: asyncio.StreamWriter

    def __init__(self, log: Path) -> None:
        self.log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.folder = log.parent
        self.orders: list[Order] = []
        self.behaviour = Behaviour()
        self.seen: set[str] = set()
        self.resumed: asyncio.Queue[None] = asyncio.Queue()
        self.connections = self.open = self.most_open = self.mails = 0
        self.complaints: list[str] = []

    async def serve(self, channel: socket.socket) -> None:
        orders, self.reports = await asyncio.open_connection(sock=channel)
        server = await asyncio.start_server(self.accept, "127.0.0.1", 0, limit=1 << 20)
        self.report(port=server.sockets[0].getsockname()[1])
        while line := await orders.readline():
            self.execute(**json.loads(line))
        os._exit(0)  # closes open connections

    def execute(self, what: str, **fields: Any) -> None:
        match what:
            case "order":
                self.orders.append(Order(**fields))
            case "behave":
                self.orders.clear()
                self.behaviour = Behaviour()
            case "behaviour":
                self.behaviour = Behaviour(**fields)
            case "go on":
                self.resumed.put_nowait(None)
        self.report(
            connections=self.connections,
            open=self.open,
            most_open=self.most_open,
            complaints=self.complaints,
        )

    def report(self, **what: Any) -> None:
        self.reports.write(json.dumps(what).encode() + b"\n")

    def complain(self, words: str) -> None:
        self.complaints.append(words)

    async def tell(self, stage: str, to: str) -> None:
        self.report(at=stage, to=to)
        await self.resumed.get()

    def order(self, stage: str, to: str) -> Order | None:
        for order in self.orders:
            if order.at == stage and order.times > 0 and order.to in ("", to):
                if order.after > 0:
                    order.after -= 1
                    continue
                order.times -= 1
                return order
        return None

    def take(self, to: str, body: bytes, *, keep: bool) -> None:
        """Log the email before the client gets a reply."""
        self.mails += 1
        if keep:
            (self.folder / f"{self.mails}.eml").write_bytes(body)
        headers = body.partition(b"\r\n\r\n")[0].split(b"\r\n")
        name = next((line[11:].strip() for line in headers if line.lower().startswith(b"message-id:")), b"")
        entry = {"name": name.decode(), "to": to, "hash": hashlib.sha256(body).hexdigest(), "n": self.mails}
        os.write(self.log, json.dumps(entry).encode() + b"\n")

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        self.most_open = max(self.open, self.most_open)
        try:
            await _Connection(self, reader, writer).serve()
        except (_ConnectionClosed, ConnectionError):
            pass
        finally:
            self.open -= 1
            writer.close()


# --- the handle for tests


@dataclass(frozen=True)
class AcceptedMail:
    """An email that the relay accepted."""

    name: str  # its Message-ID
    to: str
    hash: str
    n: int


@dataclass
class RelayProcess:
    """A handle on the relay process for tests."""

    channel: socket.socket
    log: Path
    port: int = 0
    answers: queue.Queue[dict[str, Any]] = field(default_factory=queue.Queue)
    events: queue.Queue[dict[str, Any]] = field(default_factory=queue.Queue)

    def on(self, at: str, **how: Any) -> None:
        """Add an order; see `Order`."""
        self._ask("order", **asdict(Order(at, **how)))

    def talk(self, **behaviour: Any) -> None:
        """Set the protocol behaviour; see `Behaviour`."""
        self._ask("behaviour", **asdict(Behaviour(**behaviour)))

    def reset(self) -> None:
        """Remove all orders and restore the default behaviour."""
        self._ask("behave")

    def reached(self) -> dict[str, Any]:
        """Wait for the next stage that an order reports: {"at": stage, "to": recipient}."""
        return self.events.get(timeout=PATIENCE)

    def go_on(self) -> None:
        """Continue the connection that waits since it reported a stage."""
        self._ask("go on")

    def state(self) -> dict[str, Any]:
        """Return connections so far, open now and at most, and protocol violations of the client."""
        return self._ask("state")

    def accepted(self) -> list[AcceptedMail]:
        """Return all accepted emails in order."""
        return [AcceptedMail(**json.loads(line)) for line in self.log.read_bytes().splitlines()]

    def copies(self) -> dict[str, list[AcceptedMail]]:
        """Return the accepted emails by the local part of the recipient."""
        copies = defaultdict(list)
        for accepted in self.accepted():
            copies[accepted.to.partition("@")[0]].append(accepted)
        return dict(copies)

    def mail(self, accepted: AcceptedMail) -> bytes:
        """Return the bytes of an email, if the behaviour was set to keep them."""
        return (self.log.parent / f"{accepted.n}.eml").read_bytes()

    def _ask(self, what: str, **fields: Any) -> dict[str, Any]:
        self.channel.sendall(json.dumps({"what": what, **fields}).encode() + b"\n")
        return self.answers.get(timeout=PATIENCE)

    def _listen(self) -> None:
        with self.channel.makefile("rb") as lines:
            for line in lines:
                reply = json.loads(line)
                (self.events if "at" in reply else self.answers).put(reply)


@contextmanager
def run_relay(folder: Path) -> Iterator[RelayProcess]:
    """Run a relay process until the end of the block."""
    log = folder / "taken.jsonl"
    log.touch()
    channel, of_process = socket.socketpair()
    process = fork_server.context.Process(target=_run, args=(log, of_process), daemon=True)
    process.start()
    of_process.close()
    relay = RelayProcess(channel, log)
    listener = threading.Thread(target=relay._listen)
    listener.start()
    try:
        relay.port = relay.answers.get(timeout=PATIENCE)["port"]
        yield relay
    finally:
        channel.shutdown(socket.SHUT_WR)
        process.join(PATIENCE)
        listener.join()
        channel.close()
