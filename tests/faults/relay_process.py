"""A relay that is a process of its own, logs what it takes, and misbehaves as a test tells it.

`Sink` is the test's end of it. The process reads orders as lines of JSON and answers each with a line;
what happens meanwhile, it says in lines of their own. It ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import queue
import socket
import struct
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

STAGES = ("connect", "ehlo", "mail", "rcpt", "data", "body", "end")
USUAL = {
    "connect": "220 sink.test ready",
    "mail": "250 2.1.0 go on",
    "rcpt": "250 2.1.5 go on",
    "data": "354 send it",
    "end": "250 2.0.0 taken",
}
PATIENCE = 30  # seconds that a test waits for what must happen at once


@dataclass
class Order:
    """What to do at a stage instead of the usual, and how often."""

    at: str
    say: str | None = None  # in place of the usual answer; with "body" there is none
    then: str = ""  # after the answer: "close", "reset" or "hang"
    tell: bool = False  # first say that it has come to this, and wait for `go_on`
    late: float = 0.0  # seconds before the answer
    copies: int = 1  # of the answer
    mute: bool = False  # no answer at all
    takes: bool | None = None  # at "end": whether the mail counts as taken; by its answer unless told
    to: str = ""  # from "rcpt" on: for one recipient only
    after: int = 0  # lets so many pass first
    times: int = 10**6

    def __post_init__(self) -> None:
        assert self.at in STAGES
        assert self.then in ("", "close", "reset", "hang")


@dataclass
class Manners:
    """How it talks, on connections made from now on."""

    pipelining: bool = True
    glued: bool = False  # answers are kept back as long as there are more commands to read
    bytewise: bool = False  # each byte of an answer travels alone
    pace: float = 0.0  # seconds for each mail
    greylisting: bool = False  # 451 to the first try of each recipient
    keeps: bool = False  # the mails themselves, not just their hashes


# --- the process


class _Gone(Exception):
    """The connection is over, by the client's will or ours."""


class _Conversation:
    def __init__(self, owner: _Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.owner, self.reader, self.writer = owner, reader, writer
        self.manners = owner.manners
        self.buffer = b""
        self.unsaid = b""
        self.recipient = ""

    async def hold(self) -> None:
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
                    raise _Gone
                case _:
                    await self.say("500 5.5.2 what?")

    async def rcpt(self, recipient: str) -> None:
        new = self.manners.greylisting and recipient not in self.owner.seen
        self.owner.seen.add(recipient)
        said = await self.answer("rcpt", "451 4.7.1 greylisted" if new else None, to=recipient)
        if said.startswith("2"):
            self.recipient = recipient

    async def data(self) -> None:
        if self.buffer:
            self.owner.complain(f"before 354: {self.buffer[:40]!r}")
        if not self.recipient:
            await self.say("503 5.5.1 no recipient")
            return
        if (await self.answer("data", to=self.recipient)).startswith("354"):
            body = await self.body()
            await self.taken(body)

    async def body(self) -> bytes:
        """The mail to its final dot, dots unstuffed."""
        text, looked = b"\r\n", False
        while True:
            text, self.buffer = text + (self.buffer or await self.read()), b""
            if not looked and len(text) > 2:
                looked = True
                await self.misbehave(self.owner.order("body", self.recipient), "body", "")
            end = text.find(b"\r\n.\r\n")
            if end >= 0:
                self.buffer = text[end + 5 :]
                return text[: end + 2].replace(b"\r\n..", b"\r\n.")[2:]

    async def taken(self, body: bytes) -> None:
        if self.manners.pace:
            await asyncio.sleep(self.manners.pace)
        order = self.owner.order("end", self.recipient)
        said = USUAL["end"] if order is None or order.say is None else order.say
        takes = order.takes if order else None
        if takes if takes is not None else said.startswith("2"):
            self.owner.take(self.recipient, body, keep=self.manners.keeps)
        await self.misbehave(order, "end", said)
        self.recipient = ""

    async def answer(self, stage: str, usual: str | None = None, to: str = "") -> str:
        """Say what is due at a stage, unless ordered otherwise; what was said."""
        order = self.owner.order(stage, to)
        said = usual or (self.greeting() if stage == "ehlo" else USUAL[stage])
        if order is not None and order.say is not None:
            said = order.say
        await self.misbehave(order, stage, said, to)
        return said

    def greeting(self) -> str:
        offers = ["sink.test", *(["PIPELINING"] if self.manners.pipelining else []), "SIZE 50000000"]
        return "\r\n".join(f"250-{offer}" for offer in [*offers, "8BITMIME"]) + "\r\n250 SMTPUTF8"

    async def misbehave(self, order: Order | None, stage: str, said: str, to: str = "") -> None:
        order = order or Order(stage)
        if order.tell:
            await self.owner.tell(stage, to or self.recipient)
        await asyncio.sleep(order.late)
        if said and not order.mute:
            for _ in range(order.copies):
                await self.say(said)
        match order.then:
            case "hang":
                while True:
                    await self.read()
            case "reset":
                linger = struct.pack("ii", 1, 0)  # a reset instead of an orderly end
                self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                self.writer.transport.abort()
                raise _Gone
            case "close":
                raise _Gone
        if said.startswith("421") or (stage == "connect" and not said.startswith("2")):
            raise _Gone

    async def say(self, words: str) -> None:
        self.unsaid += words.encode() + b"\r\n"
        if self.manners.glued and self.buffer:
            return
        unsaid, self.unsaid = self.unsaid, b""
        pieces = [unsaid[n : n + 1] for n in range(len(unsaid))] if self.manners.bytewise else [unsaid]
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            await asyncio.sleep(0)

    async def line(self) -> bytes:
        while b"\r\n" not in self.buffer:
            self.buffer += await self.read()
        line, _, self.buffer = self.buffer.partition(b"\r\n")
        if not self.manners.pipelining:
            await self.watch_for_more()
        return line

    async def watch_for_more(self) -> None:
        """Whoever was not offered PIPELINING sends nothing before it has the answer."""
        with suppress(TimeoutError):
            self.buffer += await asyncio.wait_for(self.read(), 0.01)
        if self.buffer:
            self.owner.complain(f"before the answer to the command before it: {self.buffer[:40]!r}")

    async def read(self) -> bytes:
        if got := await self.reader.read(1 << 18):
            return got
        raise _Gone


class _Process:
    def __init__(self, log: Path) -> None:
        self.log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.folder = log.parent
        self.orders: list[Order] = []
        self.manners = Manners()
        self.seen: set[str] = set()
        self.held: asyncio.Queue[None] = asyncio.Queue()
        self.connections = self.open = self.most_open = self.mails = 0
        self.complaints: list[str] = []

    async def serve(self) -> None:
        server = await asyncio.start_server(self.welcome, "127.0.0.1", 0, limit=1 << 20)
        self.report(port=server.sockets[0].getsockname()[1])
        orders = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
        while line := await orders.readline():
            self.obey(**json.loads(line))
        os._exit(0)  # whoever still talks to it is cut off

    def obey(self, what: str, **fields: Any) -> None:
        match what:
            case "order":
                self.orders.append(Order(**fields))
            case "behave":
                self.orders.clear()
                self.manners = Manners()
            case "manners":
                self.manners = Manners(**fields)
            case "go on":
                self.held.put_nowait(None)
        self.report(
            connections=self.connections,
            open=self.open,
            most_open=self.most_open,
            complaints=self.complaints,
        )

    def report(self, **what: Any) -> None:
        os.write(1, json.dumps(what).encode() + b"\n")

    def complain(self, words: str) -> None:
        self.complaints.append(words)

    async def tell(self, stage: str, to: str) -> None:
        self.report(at=stage, to=to)
        await self.held.get()

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
        """Write down that this mail is here, before anybody is told so."""
        self.mails += 1
        if keep:
            (self.folder / f"{self.mails}.eml").write_bytes(body)
        headers = body.partition(b"\r\n\r\n")[0].split(b"\r\n")
        name = next((line[11:].strip() for line in headers if line.lower().startswith(b"message-id:")), b"")
        entry = {"name": name.decode(), "to": to, "hash": hashlib.sha256(body).hexdigest(), "n": self.mails}
        os.write(self.log, json.dumps(entry).encode() + b"\n")

    async def welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        self.most_open = max(self.open, self.most_open)
        try:
            await _Conversation(self, reader, writer).hold()
        except (_Gone, ConnectionError):
            pass
        finally:
            self.open -= 1
            writer.close()


# --- the test's end


@dataclass(frozen=True)
class Taken:
    """A mail that it took responsibility for."""

    name: str  # its Message-ID
    to: str
    hash: str
    n: int


@dataclass
class Sink:
    """The process, as a test holds it."""

    process: subprocess.Popen[bytes]
    log: Path
    port: int = 0
    answers: queue.Queue[dict[str, Any]] = field(default_factory=queue.Queue)
    events: queue.Queue[dict[str, Any]] = field(default_factory=queue.Queue)

    def on(self, at: str, **how: Any) -> None:
        """Order something: see `Order`."""
        self._ask("order", **asdict(Order(at, **how)))

    def talk(self, **manners: Any) -> None:
        """Set its manners: see `Manners`."""
        self._ask("manners", **asdict(Manners(**manners)))

    def behave(self) -> None:
        """Forget orders and manners."""
        self._ask("behave")

    def reached(self) -> dict[str, Any]:
        """Wait for the next thing that it was ordered to tell: {"at": stage, "to": recipient}."""
        return self.events.get(timeout=PATIENCE)

    def go_on(self) -> None:
        """Let the conversation go on that waits since it was told of."""
        self._ask("go on")

    def state(self) -> dict[str, Any]:
        """Connections so far, open now and at most, and what the client did against the protocol."""
        return self._ask("state")

    def taken(self) -> list[Taken]:
        """Everything that it took, in order."""
        return [Taken(**json.loads(line)) for line in self.log.read_bytes().splitlines()]

    def copies(self) -> dict[str, list[Taken]]:
        """The same, by the name before the @."""
        copies = defaultdict(list)
        for taken in self.taken():
            copies[taken.to.partition("@")[0]].append(taken)
        return dict(copies)

    def mail(self, taken: Taken) -> bytes:
        """Its bytes, where its manners were to keep them."""
        return (self.log.parent / f"{taken.n}.eml").read_bytes()

    def _ask(self, what: str, **fields: Any) -> dict[str, Any]:
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"what": what, **fields}).encode() + b"\n")
        self.process.stdin.flush()
        return self.answers.get(timeout=PATIENCE)

    def _listen(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            said = json.loads(line)
            (self.events if "at" in said else self.answers).put(said)


@contextmanager
def running(folder: Path) -> Iterator[Sink]:
    """A sink, for the block."""
    log = folder / "taken.jsonl"
    log.touch()
    command = [sys.executable, "-I", __file__, str(log)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:  # noqa: S603 - our own
        sink = Sink(process, log)
        listener = threading.Thread(target=sink._listen)
        listener.start()
        try:
            sink.port = sink.answers.get(timeout=PATIENCE)["port"]
            yield sink
        finally:
            assert process.stdin
            process.stdin.close()
            process.wait(PATIENCE)
            listener.join()


if __name__ == "__main__":
    asyncio.run(_Process(Path(sys.argv[1])).serve())
