"""The connection pool: how many connections, for which mails; every mail has exactly one result."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import structlog
import trustme
import uvloop

from app.delivery.smtp import connection_pool, fair_queue
from app.settings import Settings, SmtpSecurity
from app.types import OutgoingMail, SendOutcome, SendResult
from tests.support.mail_server import MailServer

pytestmark = pytest.mark.once

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


@pytest.fixture(params=[True, False], ids=["pipelined", "plain"], autouse=True)
def pipelining(request: pytest.FixtureRequest) -> bool:
    """Run every test with and without PIPELINING."""
    if "mail_server" in request.fixturenames:
        request.getfixturevalue("mail_server").offers_pipelining = request.param
    return bool(request.param)


def mail(number: int = 1, recipient: str = "alice@example.org", **fields: Any) -> OutgoingMail:
    whole = {"data": f"Subject: {number}\r\n\r\n.dot\r\n..two\r\n".encode(), **fields}
    return OutgoingMail(number, f"<{number}@paperboy.test>", "x", "bounce@paperboy.test", recipient, **whole)


class RecordingTracker:
    """A tracker that allows every mail and checks that each has one result; it signals the first result."""

    def __init__(
        self,
        allows: Callable[[OutgoingMail], bool] = lambda _: True,
        first_result: asyncio.Event | None = None,
    ) -> None:
        self.allows = allows
        self.first_result = first_result or asyncio.Event()
        self.answers: dict[int, SendResult] = {}
        self.withdrawn: set[int] = set()

    def may_send(self, mail: OutgoingMail) -> bool:
        return mail.delivery_id not in self.withdrawn

    def commit(self, mail: OutgoingMail) -> bool:
        return self.allows(mail)

    def record(self, mail: OutgoingMail, result: SendResult) -> None:
        assert mail.delivery_id not in self.answers, "recorded twice"
        self.answers[mail.delivery_id] = result
        self.first_result.set()


def send(
    settings: Settings,
    *mails: OutgoingMail,
    commit: Callable[[OutgoingMail], bool] = lambda _: True,
    new_loop: LoopFactory | None = None,
) -> list[SendResult]:
    """Send mails over one pool; return their results in the same order."""
    tracker = RecordingTracker(commit)

    async def run() -> None:
        async with connection_pool.ConnectionPool(settings, tracker) as pool:
            for one in mails:
                await pool.submit(one)
            await pool.drain()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(run())
    return [tracker.answers[one.delivery_id] for one in mails]


def test_a_mail_arrives_byte_for_byte(settings: Settings, mail_server: MailServer) -> None:
    """Dots are stuffed and unstuffed, the envelope is right, and the reply is returned."""
    (answer,) = send(settings, mail())
    assert answer == SendResult(SendOutcome.ACCEPTED, 250, "2.0.0 taken")
    (received,) = mail_server.messages
    assert received.data == mail().data
    assert (received.sender, received.recipient) == ("bounce@paperboy.test", "alice@example.org")


def test_a_mail_that_is_not_committed_is_not_sent(settings: Settings, mail_server: MailServer) -> None:
    """After 354 closing is the only way back: the next mail goes over another connection."""

    def only_the_second(outgoing: OutgoingMail) -> bool:
        return outgoing.delivery_id == 2

    one = only(settings, 1)
    answers = send(one, mail(1), mail(2), commit=only_the_second)
    assert [answer.outcome for answer in answers] == [SendOutcome.WITHDRAWN, SendOutcome.ACCEPTED]
    assert [len(mail_server.messages), mail_server.connections] == [1, 2]
    assert mail_server.swallowed == []


def test_a_withdrawn_mail_costs_no_connection(settings: Settings, mail_server: MailServer) -> None:
    """Its envelope is not sent, and the next mail goes over the same connection."""
    tracker = RecordingTracker()
    tracker.withdrawn = {2, 3, 5}

    async def run() -> None:
        async with connection_pool.ConnectionPool(only(settings, 1), tracker) as pool:
            for number in range(1, 6):
                await pool.submit(mail(number))
            await pool.drain()

    asyncio.run(run())
    left = [number for number, answer in tracker.answers.items() if answer.outcome is SendOutcome.ACCEPTED]
    assert sorted(left) == [1, 4]
    assert [len(mail_server.messages), mail_server.connections] == [2, 1]


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_many_mails_that_are_not_committed(
    settings: Settings, mail_server: MailServer, new_loop: LoopFactory
) -> None:
    """Each costs its connection, which may end while it still counts as opening; none is forgotten."""
    answers = send(
        only(settings, 3), *(mail(n) for n in range(40)), commit=lambda _: False, new_loop=new_loop
    )
    assert {answer.outcome for answer in answers} == {SendOutcome.WITHDRAWN}


def test_a_tracker_that_fails_to_commit(settings: Settings, mail_server: MailServer) -> None:
    """No body is sent."""

    def divide_by_zero(_: OutgoingMail) -> bool:
        return bool(1 / 0)

    with pytest.raises(ZeroDivisionError):
        send(settings, mail(), commit=divide_by_zero)
    assert mail_server.messages == mail_server.swallowed == []


def test_a_tracker_that_cannot_be_read(settings: Settings, mail_server: MailServer) -> None:
    """No envelope is sent, every mail has a result, and the error is raised."""

    class Torn(RecordingTracker):
        def may_send(self, mail: OutgoingMail) -> bool:
            return bool(1 / 0)

    tracker = Torn()

    async def run() -> None:
        async with asyncio.timeout(10), connection_pool.ConnectionPool(settings, tracker) as pool:
            for number in range(3):
                await pool.submit(mail(number))
            await pool.drain()

    with pytest.raises(ZeroDivisionError):
        asyncio.run(run())
    assert {answer.outcome for answer in tracker.answers.values()} <= {
        SendOutcome.WITHDRAWN,
        SendOutcome.NOT_ATTEMPTED,
    }
    assert (len(tracker.answers), mail_server.messages) == (3, [])


def test_a_tracker_that_cannot_record(settings: Settings, mail_server: MailServer) -> None:
    """The run stops; each mail has one result, untried ones are held, and the error is raised."""

    class Full(RecordingTracker):
        def record(self, mail: OutgoingMail, result: SendResult) -> None:
            super().record(mail, result)
            if mail.delivery_id == 3:
                raise OSError("no space left on device")

    tracker = Full()

    async def run() -> None:
        async with connection_pool.ConnectionPool(only(settings, 1), tracker) as pool:
            for number in range(10):
                await pool.submit(mail(number))
            await pool.drain()

    with pytest.raises(OSError, match="no space left"):
        asyncio.run(run())
    verdicts = [tracker.answers[number].outcome for number in range(10)]
    assert verdicts == [SendOutcome.ACCEPTED] * 4 + [SendOutcome.NOT_ATTEMPTED] * 6
    assert len(mail_server.messages) == 4


def test_stopping(settings: Settings, mail_server: MailServer) -> None:
    """Mails in flight get their replies; all others are held, also those submitted later."""
    tracker = RecordingTracker()

    async def run() -> None:
        async with connection_pool.ConnectionPool(only(settings, 1), tracker) as pool:
            for number in range(5):
                await pool.submit(mail(number))
            mail_server.reply(
                "end", "250 taken late", times=1, first=lambda: loop.call_soon_threadsafe(pool.stop)
            )
            await pool.drain()
            assert pool.stopped
            await pool.submit(mail(5))
            await pool.drain()

    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        runner.run(run())
    assert [tracker.answers[number].outcome for number in range(6)] == [SendOutcome.ACCEPTED] + [
        SendOutcome.NOT_ATTEMPTED
    ] * 5


def test_cancelled_in_flight(settings: Settings, mail_server: MailServer) -> None:
    """The mail in flight is uncertain, the others are held."""
    tracker = RecordingTracker()

    async def run() -> None:
        task = asyncio.current_task()
        assert task

        def cancel() -> None:
            loop.call_soon_threadsafe(task.cancel)
            ended.wait(10)

        mail_server.reply("end", "250 taken too late", first=cancel)
        async with connection_pool.ConnectionPool(only(settings, 1), tracker) as pool:
            for number in range(3):
                await pool.submit(mail(number))
            await pool.drain()

    ended = threading.Event()
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        with pytest.raises(asyncio.CancelledError):
            runner.run(run())
    ended.set()
    verdicts = [tracker.answers[number].outcome for number in range(3)]
    assert verdicts == [SendOutcome.UNCERTAIN, SendOutcome.NOT_ATTEMPTED, SendOutcome.NOT_ATTEMPTED]


def test_leaving_without_draining(settings: Settings, mail_server: MailServer) -> None:
    """Mails that have not begun are held."""
    tracker = RecordingTracker()

    async def run() -> None:
        async with connection_pool.ConnectionPool(settings, tracker) as pool:
            for number in range(3):
                await pool.submit(mail(number))

    asyncio.run(run())
    assert {answer.outcome for answer in tracker.answers.values()} == {SendOutcome.NOT_ATTEMPTED}
    assert mail_server.messages == []


def test_a_busy_provider_delays_no_other(settings: Settings, mail_server: MailServer) -> None:
    """Mails for other providers overtake those of a slow one."""
    order: list[str] = []

    class Book(RecordingTracker):
        def record(self, mail: OutgoingMail, result: SendResult) -> None:
            super().record(mail, result)
            order.append(mail.recipient)

    tracker = Book()
    mails = [mail(n, "slow@gmail.com") for n in range(300)] + [
        mail(300 + n, f"r@d{n}.test") for n in range(20)
    ]

    async def run() -> None:
        async with connection_pool.ConnectionPool(settings, tracker) as pool:
            for one in mails:
                await pool.submit(one)
            await pool.drain()

    asyncio.run(run())
    assert len(tracker.answers) == 320
    last = max(n for n, recipient in enumerate(order) if recipient != "slow@gmail.com")
    assert last < 300, "they did not wait for all of the others"


def test_connections_are_kept_and_renewed(settings: Settings, mail_server: MailServer) -> None:
    """Twelve mails, five per connection, use three connections."""
    kept = settings.model_copy(update={"smtp_connections": 1, "smtp_messages_per_connection": 5})
    answers = send(kept, *(mail(n) for n in range(12)))
    assert {answer.outcome for answer in answers} == {SendOutcome.ACCEPTED}
    assert mail_server.connections == 3


def test_a_refused_mail_does_not_end_the_connection(settings: Settings, mail_server: MailServer) -> None:
    """The same connection carries the next mail."""
    one = only(settings, 1)
    mail_server.reply("rcpt", "550 5.1.1 unknown", to="bob@example.org")
    answers = send(one, mail(1, "bob@example.org"), mail(2), mail(3, "bob@example.org"), mail(4))
    assert [answer.outcome for answer in answers] == [SendOutcome.HARD_BOUNCE, SendOutcome.ACCEPTED] * 2
    assert mail_server.connections == 1


def test_strict_providers_get_few_connections(settings: Settings, mail_server: MailServer) -> None:
    """At most five to Google, over all its domains, while others use the rest."""
    domains = ("gmail.com", "googlemail.com")
    answers = send(settings, *(mail(n, f"r{n}@{domains[n % 2]}") for n in range(40)))
    assert {answer.outcome for answer in answers} == {SendOutcome.ACCEPTED}
    assert mail_server.connections <= fair_queue.STRICT_CONNECTIONS


def test_strict_providers_get_few_mails_a_connection(settings: Settings, mail_server: MailServer) -> None:
    """After fifty mails to one of them the connection is renewed."""
    one = only(settings, 1)
    send(one, *(mail(n, f"r{n}@outlook.com") for n in range(fair_queue.STRICT_MESSAGES + 1)))
    assert mail_server.connections == 2


def test_a_relay_that_wants_fewer_connections_gets_fewer(settings: Settings, mail_server: MailServer) -> None:
    """If it refuses all but the first, that one carries everything."""
    mail_server.allow_connections(1)
    answers = send(settings, *(mail(n) for n in range(20)))
    assert {answer.outcome for answer in answers} == {SendOutcome.ACCEPTED}


def test_an_absent_relay(settings: Settings) -> None:
    """One mail has the error, the log has it once, and the other mails are not tried."""
    with structlog.testing.capture_logs() as logged:
        answers = send(settings, *(mail(n) for n in range(30)))
    (warning,) = logged
    assert (warning["log_level"], warning["event"]) == ("warning", "no connection to the relay")
    assert (warning["host"], warning["port"]) == (settings.smtp_host, settings.smtp_port)
    assert "no connection" in warning["error"]
    (tried,) = (answer for answer in answers if answer.outcome is not SendOutcome.NOT_ATTEMPTED)
    assert tried.outcome is SendOutcome.UNREACHABLE
    assert "no connection" in tried.text


def test_a_refusing_greeting(settings: Settings, mail_server: MailServer) -> None:
    """A 5xx greeting is about the sender, not about a recipient."""
    mail_server.reply("connect", "554 5.7.1 no mail from you")
    assert send(settings, mail())[0].outcome is SendOutcome.SENDER_REJECTED


def test_our_fault_ends_the_run(settings: Settings, mail_server: MailServer) -> None:
    """After the first such refusal no other mail is tried."""
    mail_server.reply("rcpt", "550 5.7.26 not authenticated", times=1)
    one = only(settings, 1)
    answers = send(one, mail(1), mail(2), mail(3))
    assert [answer.outcome for answer in answers] == [
        SendOutcome.SENDER_REJECTED,
        SendOutcome.NOT_ATTEMPTED,
        SendOutcome.NOT_ATTEMPTED,
    ]


def test_a_sender_address_that_is_unknown_is_our_fault(settings: Settings, mail_server: MailServer) -> None:
    """5.1.1 to MAIL is about the sender's address, so the recipient must not be suppressed."""
    mail_server.reply("mail", "550 5.1.1 unknown sender")
    assert send(settings, mail())[0].outcome is SendOutcome.SENDER_REJECTED


@pytest.mark.parametrize(
    ("stage", "verdict"),
    [
        ("mail", SendOutcome.DEFERRED),
        ("rcpt", SendOutcome.DEFERRED),
        ("data", SendOutcome.DEFERRED),
        ("end", SendOutcome.UNCERTAIN),
    ],
)
def test_a_broken_connection(
    settings: Settings, mail_server: MailServer, stage: str, verdict: SendOutcome
) -> None:
    """Before its body was sent, a mail is provably unsent; afterwards it is uncertain."""
    mail_server.drop(stage, times=1)
    one = only(settings, 1)
    answers = send(one, mail(1), mail(2))
    assert [answer.outcome for answer in answers] == [verdict, SendOutcome.ACCEPTED]


@pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS")
def test_a_relay_that_wants_a_password(settings: Settings) -> None:
    """The right password is accepted; a wrong one, or none, is our fault."""
    with MailServer(password="open sesame") as server:
        at = settings.model_copy(update={"smtp_port": server.port})
        for password, verdict in (
            ("open sesame", SendOutcome.ACCEPTED),
            ("wrong", SendOutcome.SENDER_REJECTED),
            ("", SendOutcome.SENDER_REJECTED),
        ):
            login = {"smtp_username": "paperboy" if password else "", "smtp_password": password}
            assert send(at.model_copy(update=login), mail())[0].outcome is verdict
        assert len(server.messages) == 1


def test_required_encryption_is_required(settings: Settings, mail_server: MailServer) -> None:
    """Without STARTTLS nothing is sent in clear text, except with opportunistic settings."""
    strict = settings.model_copy(update={"smtp_security": "starttls"})
    assert send(strict, mail())[0].outcome is SendOutcome.UNREACHABLE
    assert mail_server.messages == []
    lenient = settings.model_copy(update={"smtp_security": "opportunistic"})
    assert send(lenient, mail())[0].outcome is SendOutcome.ACCEPTED


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def trusted(authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the system trust this authority."""
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))


@contextmanager
def encrypting(
    certificate: trustme.LeafCert | None, *, at_once: bool = False, password: str | None = None
) -> Iterator[MailServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if certificate else None
    if certificate:
        certificate.configure_cert(context)
    with MailServer(password, context, tls_at_once=at_once) as server:
        yield server


def only(settings: Settings, connections: int) -> Settings:
    return settings.model_copy(update={"smtp_connections": connections})


def over(server: MailServer, settings: Settings, security: str, **more: Any) -> Settings:
    return settings.model_copy(
        update={"smtp_port": server.port, "smtp_security": SmtpSecurity(security), **more}
    )


@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize("security", ["starttls", "tls", "opportunistic"])
@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_encryption(
    settings: Settings, authority: trustme.CA, pipelining: bool, security: str, new_loop: LoopFactory
) -> None:
    """Large mails arrive byte for byte, on both event loops."""
    mails = [mail(n, data=f"Subject: {n}\r\n\r\n".encode() + b"0123456789\r\n" * 30_000) for n in range(5)]
    with encrypting(authority.issue_cert("127.0.0.1"), at_once=security == "tls") as server:
        server.offers_pipelining = pipelining
        one = over(server, settings, security, smtp_connections=1)
        answers = send(one, *mails, new_loop=new_loop)
        assert {answer.outcome for answer in answers} == {SendOutcome.ACCEPTED}
        assert [received.data for received in server.messages] == [one.data for one in mails]
        assert [server.encrypted, server.connections] == [5, 1]


@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize("flaw", ["unknown authority", "other name", "expired"])
@pytest.mark.parametrize("security", ["starttls", "tls", "opportunistic"])
def test_an_untrusted_certificate(
    settings: Settings, authority: trustme.CA, security: str, flaw: str
) -> None:
    """Required encryption refuses it; opportunistic encryption accepts it."""
    certificate = {
        "unknown authority": lambda: trustme.CA().issue_cert("127.0.0.1"),
        "other name": lambda: authority.issue_cert("mail.example.org"),
        "expired": lambda: authority.issue_cert("127.0.0.1", not_after=datetime(2020, 1, 1, tzinfo=UTC)),
    }[flaw]()
    with encrypting(certificate, at_once=security == "tls") as server:
        (answer,) = send(over(server, settings, security), mail())
        if security == "opportunistic":
            assert (answer.outcome, server.encrypted) == (SendOutcome.ACCEPTED, 1)
        else:
            assert (answer.outcome, server.messages) == (SendOutcome.UNREACHABLE, [])
            assert "certificate" in answer.text


@pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS")
@pytest.mark.parametrize(
    "certificate", [None, trustme.CA().issue_cert("127.0.0.1")], ids=["plain", "anybody"]
)
def test_a_password_requires_verified_encryption(
    settings: Settings, certificate: trustme.LeafCert | None
) -> None:
    """Opportunistic encryption is not enough, because anybody can offer it."""
    login = {"smtp_username": "paperboy", "smtp_password": "open sesame"}
    with encrypting(certificate, password="open sesame") as server:
        (answer,) = send(over(server, settings, "opportunistic", **login), mail())
    assert (answer.outcome, server.told) == (SendOutcome.UNREACHABLE, [])


def test_an_address_outside_ascii(settings: Settings, mail_server: MailServer) -> None:
    """It is sent if SMTPUTF8 is offered, and fails otherwise."""
    wide = mail(1, "jürgen@example.org", needs_smtputf8=True)
    assert send(settings, wide)[0].outcome is SendOutcome.ACCEPTED
    assert mail_server.messages[0].recipient == "jürgen@example.org"
    mail_server.offers_smtputf8 = False
    assert send(settings, wide)[0].outcome is SendOutcome.UNSENDABLE


def test_the_text_of_a_reply_is_cleaned(settings: Settings, mail_server: MailServer) -> None:
    """It ends up in the database and in terminals: one line, no control characters."""
    mail_server.reply("rcpt", "550-5.1.1 first\r\n550 5.1.1 second\0" + "x" * 900)
    (answer,) = send(settings, mail())
    assert answer.text.startswith("5.1.1 first 5.1.1 second")
    assert "\0" not in answer.text
    assert len(answer.text) <= 500
