"""Test one SMTP connection, command by command, against a scripted relay."""

import asyncio
import random
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import pytest
import trustme

from app.delivery.send_result import SendOutcome, SendResult
from app.delivery.smtp import connection
from app.delivery.smtp.connection_pool import ConnectionPool
from app.delivery.smtp.timeouts import Timeouts
from app.mail.message import OutgoingMail
from app.settings import Settings, SmtpSecurity
from tests.delivery.smtp.test_connection_pool import RecordingTracker, mail

pytestmark = pytest.mark.once

ACCEPTED, DEFERRED, UNCERTAIN = SendOutcome.ACCEPTED, SendOutcome.DEFERRED, SendOutcome.UNCERTAIN
PIPELINING, PLAIN = "250-relay.test\r\n250 PIPELINING", "250 relay.test"
ENVELOPE = "250 sender ok\r\n250 recipient ok\r\n354 go on"


@dataclass
class FakeRelay:
    """The relay's end of one connection, played by a script."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    commands: list[str] = field(default_factory=list)  # commands, and bodies as "<body>"
    bodies: list[bytes] = field(default_factory=list)

    async def send(self, *replies: str) -> None:
        self.writer.write("".join(f"{reply}\r\n" for reply in replies).encode())
        await self.writer.drain()

    async def expect(self, *commands: str) -> None:
        """Read exactly these commands in this order, each given by its prefix."""
        for command in commands:
            line = (await self.reader.readline()).decode().rstrip("\r\n")
            self.commands.append(line.partition(" ")[0])
            assert line.startswith(command), f"{line!r} instead of {command!r}"

    async def expect_body(self) -> None:
        self.bodies.append(await self.reader.readuntil(b"\r\n.\r\n"))
        self.commands.append("<body>")

    async def greet(self, announcing: str) -> None:
        await self.send("220 relay.test")
        await self.expect("EHLO")
        await self.send(announcing)

    async def accept_envelope(self, until: str = "") -> bool:
        """Answer MAIL, RCPT and DATA, up to the command `until`."""
        for command, reply in (("MAIL", "250 ok"), ("RCPT", "250 ok"), ("DATA", "354 go on")):
            await self.expect(command)
            if command == until:
                return False
            await self.send(reply)
        return True

    async def expect_end(self) -> None:
        assert await self.reader.read() == b""

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        self.writer.transport.abort()


Script = Callable[[FakeRelay], Awaitable[None]]


async def accept_everything(peer: FakeRelay, announcing: str = PLAIN) -> None:
    """Accept every email."""
    await peer.greet(announcing)
    while line := (await peer.reader.readline()).decode():
        command = line.split()[0]
        peer.commands.append(command)
        if command == "DATA":
            await peer.send("354 go on")
            await peer.expect_body()
        await peer.send("221 bye" if command == "QUIT" else "250 ok")
        if command == "QUIT":
            return


async def short_timeouts(peer: FakeRelay) -> None:
    await accept_everything(peer, PIPELINING)


@dataclass
class PlayResult:
    """The results of a scripted session."""

    results: list[SendResult]
    peers: list[FakeRelay]
    relay: ConnectionPool

    @property
    def outcomes(self) -> list[SendOutcome]:
        return [result.outcome for result in self.results]


def play(
    settings: Settings,
    mails: int | Sequence[OutgoingMail],
    *scripts: Script,
    timeouts: Timeouts | None = None,
    tracker: RecordingTracker | None = None,
    after_first: asyncio.Event | None = None,
) -> PlayResult:
    """Send emails over one connection at a time. With `after_first`, send the second only after that event.

    The n-th connection follows the n-th script; all others accept everything.
    """
    tracker = tracker or RecordingTracker()
    mails = [mail(number) for number in range(mails)] if isinstance(mails, int) else mails
    peers: list[FakeRelay] = []
    failures: list[BaseException] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = FakeRelay(reader, writer)
        peers.append(peer)
        try:
            await (scripts[len(peers) - 1] if len(peers) <= len(scripts) else accept_everything)(peer)
        except (AssertionError, asyncio.IncompleteReadError) as error:
            failures.append(error)
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def run() -> ConnectionPool:
        async with await asyncio.start_server(serve, "127.0.0.1", 0, limit=2**20) as server:
            at = {"smtp_port": server.sockets[0].getsockname()[1], "smtp_connections": 1}
            async with ConnectionPool(settings.model_copy(update=at), tracker, timeouts) as relay:
                for outgoing in mails:
                    await relay.submit(outgoing)
                    if after_first:
                        await after_first.wait()
                async with asyncio.timeout(20):
                    await relay.drain()
        return relay

    relay = asyncio.run(run())
    if failures:
        raise failures[0]
    return PlayResult([tracker.answers[outgoing.delivery_id] for outgoing in mails], peers, relay)


# --- the order of things


def test_one_round_trip_per_mail(settings: Settings) -> None:
    """The next envelope follows a body in the same write; QUIT follows the last email."""

    async def script(peer: FakeRelay) -> None:
        await peer.greet(PIPELINING)
        await peer.expect("MAIL FROM:<bounce@paperboy.test>", "RCPT TO:<alice@example.org>", "DATA")
        await peer.send(ENVELOPE)
        await peer.expect_body()
        await peer.expect("MAIL", "RCPT", "DATA")
        await peer.send("250 taken", ENVELOPE)
        await peer.expect_body()
        await peer.send("250 taken too")
        await peer.expect("QUIT")
        await peer.send("221 bye")
        await peer.expect_end()

    played = play(settings, 2, script)
    assert played.results == [SendResult(ACCEPTED, 250, "taken"), SendResult(ACCEPTED, 250, "taken too")]
    assert played.peers[0].bodies[1].startswith(b"Subject: 1\r\n\r\n..dot\r\n...two\r\n")


def test_no_pipelining(settings: Settings) -> None:
    """Each command waits for the reply to the previous one."""

    async def script(peer: FakeRelay) -> None:
        await peer.greet(PLAIN)
        for _ in range(2):
            for command in ("MAIL", "RCPT", "DATA"):
                await peer.expect(command)
                assert not peer.reader._buffer  # type: ignore[attr-defined]
                await peer.send("354 go on" if command == "DATA" else "250 ok")
            await peer.expect_body()
            assert not peer.reader._buffer  # type: ignore[attr-defined]
            await peer.send("250 taken")
        await peer.expect("QUIT")

    assert play(settings, 2, script).outcomes == [ACCEPTED] * 2


def test_helo_fallback(settings: Settings) -> None:
    """A relay that refuses EHLO is greeted with HELO."""

    async def script(peer: FakeRelay) -> None:
        await peer.send("220 old.test")
        await peer.expect("EHLO")
        await peer.send("500 what?")
        await peer.expect("HELO")
        await peer.send("250 hello")
        await peer.expect("MAIL")
        await peer.send("250 ok")

    assert play(settings, 1, script).outcomes == [DEFERRED]


def test_mail_above_the_announced_size_is_not_sent(settings: Settings) -> None:
    async def script(peer: FakeRelay) -> None:
        await peer.greet("250-relay.test\r\n250 SIZE 20")
        await peer.expect("QUIT")

    (answer,) = play(settings, 1, script).results
    assert answer.outcome is SendOutcome.UNSENDABLE
    assert "accepts at most 20" in answer.text


def test_replies_injected_before_tls_are_ignored(settings: Settings) -> None:
    """An attacker can append them to the reply to STARTTLS (CVE-2011-0411)."""
    certificate, context = trustme.CA().issue_cert("127.0.0.1"), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)

    async def script(peer: FakeRelay) -> None:
        await peer.greet("250-relay.test\r\n250 STARTTLS")
        await peer.expect("STARTTLS")
        await peer.send("220 go on", PIPELINING, "250 ok")
        await peer.writer.start_tls(context)
        await peer.expect("EHLO")
        await peer.send(PLAIN)
        await peer.expect("MAIL")
        await peer.send("451 4.3.0 later")
        await peer.expect("RSET")

    opportunistic = settings.model_copy(update={"smtp_security": SmtpSecurity.OPPORTUNISTIC})
    assert play(opportunistic, 1, script).results == [SendResult(DEFERRED, 451, "4.3.0 later")]


@pytest.mark.parametrize("size", ["", "0", "much", "9" * 5000])
def test_invalid_size_announcement_is_ignored(settings: Settings, size: str) -> None:
    async def script(peer: FakeRelay) -> None:
        await accept_everything(peer, f"250-relay.test\r\n250 SIZE {size}")

    assert play(settings, 1, script).outcomes == [ACCEPTED]


def test_multiline_replies_in_many_packets(settings: Settings) -> None:
    """They are parsed correctly, and their text is kept."""

    async def script(peer: FakeRelay) -> None:
        await peer.greet(PIPELINING)
        await peer.expect("MAIL", "RCPT", "DATA")
        for byte in f"{ENVELOPE}\r\n".encode():
            peer.writer.write(bytes([byte]))
            await asyncio.sleep(0)
        await peer.expect_body()
        await peer.send("250-2.0.0 taken", "250-2.0.0 with", "250 2.0.0 thanks")
        await peer.expect("QUIT")

    assert play(settings, 1, script).results == [
        SendResult(ACCEPTED, 250, "2.0.0 taken 2.0.0 with 2.0.0 thanks")
    ]


# --- refusals


def test_refused_recipient(settings: Settings) -> None:
    """The body is not sent; the next envelope follows RSET in the same write."""

    async def script(peer: FakeRelay) -> None:
        await peer.greet(PIPELINING)
        await peer.expect("MAIL", "RCPT", "DATA")
        await peer.send("250 ok", "550 5.1.1 no such user", "503 5.5.1 no valid recipients")
        await peer.expect("RSET", "MAIL", "RCPT", "DATA")
        await peer.send("250 ok", ENVELOPE)
        await peer.expect_body()
        await peer.send("250 taken")
        await peer.expect("QUIT")

    played = play(settings, 2, script)
    assert played.results == [
        SendResult(SendOutcome.HARD_BOUNCE, 550, "5.1.1 no such user"),
        SendResult(ACCEPTED, 250, "taken"),
    ]


def test_refused_recipient_followed_by_354(settings: Settings) -> None:
    """A lone dot ends DATA, and nothing is delivered."""

    async def script(peer: FakeRelay) -> None:
        await peer.greet(PIPELINING)
        await peer.expect("MAIL", "RCPT", "DATA")
        await peer.send("250 ok", "450 4.2.1 later", "354 go on")
        await peer.expect(".", "MAIL", "RCPT", "DATA")
        await peer.send("554 no valid recipients", ENVELOPE)
        await peer.expect_body()
        await peer.send("250 taken")
        await peer.expect("QUIT")

    assert play(settings, 2, script).outcomes == [DEFERRED, ACCEPTED]


def test_refused_sender_followed_by_354(settings: Settings) -> None:
    """The connection is closed."""

    async def script(peer: FakeRelay) -> None:
        await peer.greet(PIPELINING)
        await peer.expect("MAIL", "RCPT", "DATA")
        await peer.send("451 4.3.0 later", "250 ok", "354 go on")
        await peer.expect_end()

    played = play(settings, 2, script)
    assert played.outcomes == [DEFERRED, ACCEPTED]
    assert played.results[0].code == 451


def test_sender_fault_followed_by_354(settings: Settings) -> None:
    """The run stops, and the relay does not read QUIT as a body."""

    async def script(peer: FakeRelay) -> None:
        await peer.greet(PIPELINING)
        await peer.expect("MAIL", "RCPT", "DATA")
        await peer.send("250 ok", "550 5.7.26 not authenticated", "354 go on")
        await peer.expect(".")
        await peer.expect_end()

    assert play(settings, 2, script).outcomes == [SendOutcome.SENDER_REJECTED, SendOutcome.NOT_ATTEMPTED]


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ("451 4.7.1 later", DEFERRED),
        ("552 5.2.2 full", SendOutcome.MAILBOX_FULL),
        ("554 5.6.0 no", SendOutcome.CONTENT_REFUSED),
    ],
)
@pytest.mark.parametrize("stage", ["data", "dot"])
def test_refusal_after_the_body(settings: Settings, reply: str, verdict: SendOutcome, stage: str) -> None:
    """It is a final result: the email is not uncertain."""

    async def script(peer: FakeRelay) -> None:
        await peer.greet(PIPELINING)
        await peer.expect("MAIL", "RCPT", "DATA")
        if stage == "data":
            await peer.send("250 ok", "250 ok", reply)
            await peer.expect("RSET")
        else:
            await peer.send(ENVELOPE)
            await peer.expect_body()
        await peer.expect("MAIL", "RCPT", "DATA")
        await peer.send("250 ok" if stage == "data" else reply, ENVELOPE)
        await peer.expect_body()
        await peer.send("250 taken")
        await peer.expect("QUIT")

    assert play(settings, 2, script).outcomes == [verdict, ACCEPTED]


def test_withdrawal_after_354(settings: Settings) -> None:
    """Only closing the connection prevents the delivery."""

    async def script(peer: FakeRelay) -> None:
        await peer.greet(PIPELINING)
        await peer.expect("MAIL", "RCPT", "DATA")
        await peer.send(ENVELOPE)
        await peer.expect_end()

    tracker = RecordingTracker(lambda outgoing: outgoing.delivery_id == 1)
    assert play(settings, 2, script, tracker=tracker).outcomes == [SendOutcome.WITHDRAWN, ACCEPTED]


# --- broken connections


@pytest.mark.parametrize("ending", [FakeRelay.close, FakeRelay.reset])
@pytest.mark.parametrize("announcing", [PIPELINING, PLAIN])
@pytest.mark.parametrize(
    ("stage", "verdict"),
    [("MAIL", DEFERRED), ("RCPT", DEFERRED), ("DATA", DEFERRED), ("body", UNCERTAIN), ("dot", UNCERTAIN),
     ("taken", ACCEPTED)],
)  # fmt: skip
def test_disconnect_at_every_stage(
    settings: Settings,
    ending: Callable[[FakeRelay], None],
    announcing: str,
    stage: str,
    verdict: SendOutcome,
) -> None:
    """Unsent emails are deferred, emails in flight are uncertain, and accepted ones are sent."""

    async def script(peer: FakeRelay) -> None:
        await peer.greet(announcing)
        if await peer.accept_envelope(until=stage):
            if stage == "body":
                await peer.reader.readexactly(5)
            else:
                await peer.expect_body()
            if stage == "taken":
                await peer.send("250 taken")
                await peer.expect("MAIL")
        ending(peer)

    assert play(settings, 2, script).outcomes == [verdict, ACCEPTED]


@pytest.mark.parametrize("ending", [FakeRelay.close, FakeRelay.reset])
def test_disconnect_after_the_greeting(settings: Settings, ending: Callable[[FakeRelay], None]) -> None:
    """It is detected at any point while the connection is handed over."""

    async def script(peer: FakeRelay) -> None:
        await peer.greet(PIPELINING)
        ending(peer)

    played = play(settings, 10, *[script] * 9)
    assert set(played.outcomes) <= {DEFERRED, SendOutcome.UNREACHABLE, SendOutcome.NOT_ATTEMPTED, ACCEPTED}
    assert played.outcomes[0] in (DEFERRED, SendOutcome.UNREACHABLE)


@pytest.mark.parametrize("announcing", [PIPELINING, PLAIN])
@pytest.mark.parametrize(
    ("stage", "verdict"), [("MAIL", DEFERRED), ("RCPT", DEFERRED), ("DATA", DEFERRED), ("dot", DEFERRED)]
)
def test_421_closes_the_connection(
    settings: Settings, announcing: str, stage: str, verdict: SendOutcome
) -> None:
    """The email is deferred, and the others use another connection."""

    async def script(peer: FakeRelay) -> None:
        await peer.greet(announcing)
        if await peer.accept_envelope(until=stage):
            await peer.expect_body()
        await peer.send("421 4.3.2 closing")

    played = play(settings, 2, script)
    assert played.outcomes == [verdict, ACCEPTED]
    assert played.results[0] == SendResult(DEFERRED, 421, "4.3.2 closing")


@pytest.mark.parametrize("goodbye", ["421 4.4.2 you were quiet for too long", ""])
def test_disconnect_between_mails(settings: Settings, goodbye: str) -> None:
    """An email of which only the envelope was sent uses another connection."""

    async def script(peer: FakeRelay) -> None:
        await peer.greet(PIPELINING)
        await peer.expect("MAIL", "RCPT", "DATA")
        await peer.send(ENVELOPE)
        await peer.expect_body()
        await peer.expect("MAIL", "RCPT", "DATA")
        await peer.send("250 taken", *[goodbye][: bool(goodbye)])

    played = play(settings, 2, script)
    assert played.outcomes == [ACCEPTED, ACCEPTED]
    assert len(played.peers) == 2


def test_mail_is_retried_once(settings: Settings) -> None:
    """If a second connection fails, the email is deferred, and the next email is tried."""

    async def script(peer: FakeRelay) -> None:
        await peer.greet(PIPELINING)
        await peer.accept_envelope()
        await peer.expect_body()
        await peer.send("250 taken")
        await peer.expect("MAIL")

    async def dead(peer: FakeRelay) -> None:
        await peer.greet(PIPELINING)
        await peer.expect("MAIL", "RCPT", "DATA")

    played = play(settings, 3, script, dead)
    assert played.outcomes == [ACCEPTED, DEFERRED, ACCEPTED]
    assert len(played.peers) == 3


# --- relays out of pace


@pytest.mark.parametrize(
    "words",
    [
        f"{ENVELOPE}\r\n250 and one more",
        "250 ok\r\n250 ok\r\n250 ok\r\n354 go on",
        "354 go on\r\n250 ok\r\n250 ok",
        "250 ok\r\n354 go on\r\n250 ok",
    ],
)
def test_surplus_replies(settings: Settings, words: str) -> None:
    """No body is sent on this connection, and pipelining is disabled from then on."""

    async def script(peer: FakeRelay) -> None:
        await peer.greet(PIPELINING)
        await peer.expect("MAIL", "RCPT", "DATA")
        await peer.send(words)
        await peer.expect_end()

    played = play(settings, 3, script, short_timeouts)
    assert played.outcomes == [ACCEPTED] * 3
    assert not played.relay.pipelining
    assert played.peers[0].bodies == []


@pytest.mark.parametrize(
    ("words", "pipelining"),
    [("250 did I say that it is taken?", False), ("421 4.4.2 quiet for too long", True)],
)
def test_unsolicited_reply(settings: Settings, words: str, pipelining: bool) -> None:
    """421 is allowed; after any other reply, pipelining is disabled."""
    disconnected = asyncio.Event()

    async def script(peer: FakeRelay) -> None:
        await peer.greet(PIPELINING)
        await peer.accept_envelope()
        await peer.expect_body()
        await peer.send("250 taken")
        await peer.send(words)
        await peer.expect_end()
        disconnected.set()

    played = play(settings, 2, script, short_timeouts, after_first=disconnected)
    assert played.outcomes == [ACCEPTED, ACCEPTED]
    assert played.relay.pipelining is pipelining


@pytest.mark.parametrize("announcing", [PIPELINING, PLAIN])
@pytest.mark.parametrize("garbage", ["HTTP/1.1 400 Bad Request", "x" * 5000, "999 ?"])
def test_invalid_replies(settings: Settings, announcing: str, garbage: str) -> None:
    """The email is unsent before the body and uncertain after it; the connection is closed."""

    async def early(peer: FakeRelay) -> None:
        await peer.greet(announcing)
        await peer.expect("MAIL")
        await peer.send(garbage)

    async def late(peer: FakeRelay) -> None:
        await peer.greet(announcing)
        await peer.accept_envelope()
        await peer.expect_body()
        await peer.send(garbage)

    assert play(settings, 2, early).outcomes == [DEFERRED, ACCEPTED]
    assert play(settings, 2, late).outcomes == [UNCERTAIN, ACCEPTED]


# --- timeouts


def test_default_timeouts() -> None:
    """They are those of RFC 5321, 4.5.3.2, in seconds."""
    usual = Timeouts()
    assert (usual.connect, usual.mail, usual.rcpt) == (300, 300, 300)
    assert (usual.data, usual.block, usual.end) == (120, 180, 600)


@pytest.mark.parametrize(
    ("stage", "verdict"),
    [("mail", DEFERRED), ("rcpt", DEFERRED), ("data", DEFERRED), ("end", UNCERTAIN)],
)
@pytest.mark.parametrize("announcing", [PIPELINING, PLAIN])
def test_silent_relay(settings: Settings, stage: str, verdict: SendOutcome, announcing: str) -> None:
    """The connection is closed after the timeout of the pending reply."""

    async def script(peer: FakeRelay) -> None:
        await peer.greet(announcing)
        if await peer.accept_envelope(until=stage.upper()):
            await peer.expect_body()
        await peer.reader.read()

    played = play(settings, 1, script, timeouts=Timeouts(**{stage: 0.05}))
    assert played.outcomes == [verdict]
    assert "in time" in played.results[0].text


def test_slow_reply_to_the_body(settings: Settings) -> None:
    """Timeouts of other commands do not shorten that of the final dot."""

    async def script(peer: FakeRelay) -> None:
        await peer.greet(PIPELINING)
        await peer.expect("MAIL", "RCPT", "DATA")
        await peer.send(ENVELOPE)
        await peer.expect_body()
        await asyncio.sleep(1.2)
        await peer.send("250 taken at last")
        await peer.expect("QUIT")

    short = Timeouts(mail=1, rcpt=1, data=1, block=1, end=10)
    assert play(settings, 1, script, timeouts=short).outcomes == [ACCEPTED]


def test_relay_that_does_not_read(settings: Settings) -> None:
    """The `block` timeout closes the connection if no byte of the body is sent."""

    async def script(peer: FakeRelay) -> None:
        await peer.greet(PIPELINING)
        await peer.accept_envelope()
        await recorded.wait()

    recorded = asyncio.Event()
    tracker = RecordingTracker(first_result=recorded)
    large = mail(0, data=b"0123456789" * 2_000_000)
    played = play(settings, [large], script, timeouts=Timeouts(block=0.2, end=60), tracker=tracker)
    assert played.outcomes == [UNCERTAIN]


def test_relay_that_reads_slowly(settings: Settings) -> None:
    """The connection stays open while bytes are sent, although all of them take longer than the timeout."""

    async def script(peer: FakeRelay) -> None:
        await peer.greet(PIPELINING)
        await peer.accept_envelope()
        for _ in range(8):
            await asyncio.sleep(0.2)
            await peer.reader.readexactly(2_500_000)
        await peer.expect("", ".")
        await peer.send("250 taken")
        await peer.expect("QUIT")

    large = mail(0, data=b"0123456789" * 2_000_000)
    assert play(settings, [large], script, timeouts=Timeouts(block=1.2, end=10)).outcomes == [ACCEPTED]


@pytest.mark.parametrize(("at", "verdict"), [("dot", UNCERTAIN), ("RCPT", DEFERRED)])
def test_internal_error(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, at: str, verdict: SendOutcome
) -> None:
    """It closes the connection, but every email gets a result."""

    def fail(code: int, words: str, **about: object) -> SendOutcome:
        raise ZeroDivisionError

    async def script(peer: FakeRelay) -> None:
        await peer.greet(PIPELINING)
        await peer.expect("MAIL", "RCPT", "DATA")
        await peer.send(*["250 ok", "550 5.1.1 no", "503 no"] if at == "RCPT" else [ENVELOPE])
        if at == "dot":
            await peer.expect_body()
            await peer.send("451 4.3.0 later")

    monkeypatch.setattr(connection, "classify", fail)
    assert play(settings, 2, script).outcomes == [verdict, ACCEPTED]


# --- anything


REFUSALS = {
    "MAIL": ["451 4.3.0 later"],
    "RCPT": ["450 4.2.1 later", "550 5.1.1 nobody", "552 5.2.2 full", "421 4.7.0 enough"],
    "DATA": ["451 4.3.0 later", "554 5.6.0 no", "421 4.3.2 closing"],
    "dot": ["451 4.3.0 later", "554 5.6.0 no", "421 4.3.2 closing"],
    "RSET": ["250 ok"],
    "QUIT": ["221 bye"],
}


@dataclass
class RandomRelay:
    """A relay that randomly refuses, disconnects and splits replies, but never misreports a delivery."""

    announcing: str
    chance: random.Random
    bodies: Counter[str] = field(default_factory=Counter)  # by subject
    taken: Counter[str] = field(default_factory=Counter)

    async def play(self, peer: FakeRelay) -> None:
        await peer.greet(self.announcing)
        sender = recipient = False
        while line := (await peer.reader.readline()).decode().strip():
            command = line.partition(" ")[0]
            well = {"QUIT": "221 bye", "DATA": "354 go on"}.get(command, "250 ok")
            if (command == "RCPT" and not sender) or (
                command == "DATA" and not self.goes_on(sender, recipient)
            ):
                well = "503 5.5.1 not now"
            reply = await self.answer(peer, command, well)
            if reply == "354 go on":
                await self.take(peer, recipient)
            sender = reply[0] == "2" if command == "MAIL" else sender and command == "RCPT"
            recipient = sender and command == "RCPT" and reply[0] == "2"

    def goes_on(self, sender: bool, recipient: bool) -> bool:
        return recipient or (sender and self.chance.random() < 0.3)

    async def take(self, peer: FakeRelay, recipient: bool) -> None:
        if not recipient:
            await peer.expect(".")
            await self.answer(peer, "dot", "554 5.5.1 for nobody")
            return
        subject = (await peer.reader.readuntil(b"\r\n.\r\n")).decode().partition("\r\n")[0]
        self.bodies[subject] += 1
        self.taken[subject] += (await self.answer(peer, "dot", "250 taken"))[0] == "2"

    async def answer(self, peer: FakeRelay, command: str, well: str) -> str:
        mood = self.chance.random()
        if mood < 0.02:
            self.chance.choice([FakeRelay.close, FakeRelay.reset])(peer)
            raise ConnectionResetError
        reply = self.chance.choice(REFUSALS[command]) if mood < 0.12 else well
        for piece in (f"{reply[:3]}-first\r\n", reply[:7], reply[7:] + "\r\n"):
            peer.writer.write(piece.encode())
            await asyncio.sleep(0)
        if reply.startswith("421"):
            raise ConnectionResetError
        return reply


@pytest.mark.parametrize("announcing", [PIPELINING, PLAIN])
@pytest.mark.parametrize("seed", range(8))
def test_random_relay(settings: Settings, seed: int, announcing: str) -> None:
    """Sent emails were accepted, accepted emails are sent or uncertain, and no body is sent twice."""
    random_relay = RandomRelay(announcing, random.Random(seed))  # noqa: S311 - a game
    played = play(settings, 150, *[random_relay.play] * 500)
    for number, verdict in enumerate(played.outcomes):
        accepted = random_relay.taken[f"Subject: {number}"]
        assert verdict is UNCERTAIN or accepted == (verdict is ACCEPTED)
    assert max(random_relay.bodies.values()) == 1
    assert played.relay.pipelining, "it kept the pace"
    assert {ACCEPTED, DEFERRED} <= set(played.outcomes)
