"""Test the connection pool: number of connections, and exactly one result for every email."""

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

from app.delivery import receivers
from app.delivery.send_result import SendOutcome, SendResult
from app.delivery.smtp import connection_pool
from app.mail.message import OutgoingMail
from app.settings import Settings, SmtpSecurity
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
    """Allow every email, check that each has one result, and signal the first result."""

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


def send_mails(
    settings: Settings,
    *mails: OutgoingMail,
    commit: Callable[[OutgoingMail], bool] = lambda _: True,
    new_loop: LoopFactory | None = None,
) -> list[SendResult]:
    """Send emails over one pool, and return their results in the same order."""
    tracker = RecordingTracker(commit)

    async def run() -> None:
        async with connection_pool.ConnectionPool(settings, tracker) as pool:
            for outgoing in mails:
                await pool.submit(outgoing)
            await pool.drain()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(run())
    return [tracker.answers[outgoing.delivery_id] for outgoing in mails]


def test_mail_is_transmitted_unchanged(settings: Settings, mail_server: MailServer) -> None:
    """Check dot-stuffing, the envelope and the reply."""
    (answer,) = send_mails(settings, mail())
    assert answer == SendResult(SendOutcome.ACCEPTED, 250, "2.0.0 taken")
    (received,) = mail_server.messages
    assert received.data == mail().data
    assert (received.sender, received.recipient) == ("bounce@paperboy.test", "alice@example.org")


def test_uncommitted_mail_is_not_sent(settings: Settings, mail_server: MailServer) -> None:
    """After 354 the connection must be closed, so the next email uses another one."""

    def only_the_second(outgoing: OutgoingMail) -> bool:
        return outgoing.delivery_id == 2

    one_connection = with_connections(settings, 1)
    answers = send_mails(one_connection, mail(1), mail(2), commit=only_the_second)
    assert [answer.outcome for answer in answers] == [SendOutcome.WITHDRAWN, SendOutcome.ACCEPTED]
    assert [len(mail_server.messages), mail_server.connections] == [1, 2]
    assert mail_server.swallowed == []


def test_withdrawn_mail_keeps_the_connection(settings: Settings, mail_server: MailServer) -> None:
    """Its envelope is not sent, and the next email uses the same connection."""
    tracker = RecordingTracker()
    tracker.withdrawn = {2, 3, 5}

    async def run() -> None:
        async with connection_pool.ConnectionPool(with_connections(settings, 1), tracker) as pool:
            for number in range(1, 6):
                await pool.submit(mail(number))
            await pool.drain()

    asyncio.run(run())
    accepted = [
        number for number, answer in tracker.answers.items() if answer.outcome is SendOutcome.ACCEPTED
    ]
    assert sorted(accepted) == [1, 4]
    assert [len(mail_server.messages), mail_server.connections] == [2, 1]


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_many_uncommitted_mails(settings: Settings, mail_server: MailServer, new_loop: LoopFactory) -> None:
    """Each closes its connection, maybe while it still counts as opening; every email gets a result."""
    answers = send_mails(
        with_connections(settings, 3),
        *(mail(n) for n in range(40)),
        commit=lambda _: False,
        new_loop=new_loop,
    )
    assert {answer.outcome for answer in answers} == {SendOutcome.WITHDRAWN}


def test_commit_error(settings: Settings, mail_server: MailServer) -> None:
    """No body is sent."""

    def divide_by_zero(_: OutgoingMail) -> bool:
        return bool(1 / 0)

    with pytest.raises(ZeroDivisionError):
        send_mails(settings, mail(), commit=divide_by_zero)
    assert mail_server.messages == mail_server.swallowed == []


def test_tracker_read_error(settings: Settings, mail_server: MailServer) -> None:
    """No envelope is sent, every email has a result, and the error is raised."""

    class FailingTracker(RecordingTracker):
        def may_send(self, mail: OutgoingMail) -> bool:
            return bool(1 / 0)

    tracker = FailingTracker()

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


def test_tracker_write_error(settings: Settings, mail_server: MailServer) -> None:
    """The run stops, each email has one result, untried ones are held, and the error is raised."""

    class FailingTracker(RecordingTracker):
        def record(self, mail: OutgoingMail, result: SendResult) -> None:
            super().record(mail, result)
            if mail.delivery_id == 3:
                raise OSError("no space left on device")

    tracker = FailingTracker()

    async def run() -> None:
        async with connection_pool.ConnectionPool(with_connections(settings, 1), tracker) as pool:
            for number in range(10):
                await pool.submit(mail(number))
            await pool.drain()

    with pytest.raises(OSError, match="no space left"):
        asyncio.run(run())
    verdicts = [tracker.answers[number].outcome for number in range(10)]
    assert verdicts == [SendOutcome.ACCEPTED] * 4 + [SendOutcome.NOT_ATTEMPTED] * 6
    assert len(mail_server.messages) == 4


def test_stop(settings: Settings, mail_server: MailServer) -> None:
    """Emails in flight get their replies; all others are held, also those submitted later."""
    tracker = RecordingTracker()

    async def run() -> None:
        async with connection_pool.ConnectionPool(with_connections(settings, 1), tracker) as pool:
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


def test_cancel_in_flight(settings: Settings, mail_server: MailServer) -> None:
    """The email in flight is uncertain, the others are held."""
    tracker = RecordingTracker()

    async def run() -> None:
        task = asyncio.current_task()
        assert task

        def cancel() -> None:
            loop.call_soon_threadsafe(task.cancel)
            ended.wait(10)

        mail_server.reply("end", "250 taken too late", first=cancel)
        async with connection_pool.ConnectionPool(with_connections(settings, 1), tracker) as pool:
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


def test_exit_without_draining(settings: Settings, mail_server: MailServer) -> None:
    """Emails that were not started are held."""
    tracker = RecordingTracker()

    async def run() -> None:
        async with connection_pool.ConnectionPool(settings, tracker) as pool:
            for number in range(3):
                await pool.submit(mail(number))

    asyncio.run(run())
    assert {answer.outcome for answer in tracker.answers.values()} == {SendOutcome.NOT_ATTEMPTED}
    assert mail_server.messages == []


def test_slow_receiver_does_not_delay_others(settings: Settings, mail_server: MailServer) -> None:
    order: list[str] = []

    class OrderTracker(RecordingTracker):
        def record(self, mail: OutgoingMail, result: SendResult) -> None:
            super().record(mail, result)
            order.append(mail.recipient)

    tracker = OrderTracker()
    mails = [mail(n, "slow@gmail.com") for n in range(300)] + [
        mail(300 + n, f"r@d{n}.test") for n in range(20)
    ]

    async def run() -> None:
        async with connection_pool.ConnectionPool(settings, tracker) as pool:
            for outgoing in mails:
                await pool.submit(outgoing)
            await pool.drain()

    asyncio.run(run())
    assert len(tracker.answers) == 320
    last = max(n for n, recipient in enumerate(order) if recipient != "slow@gmail.com")
    assert last < 300, "they did not wait for all of the others"


def test_connections_are_reused_and_renewed(settings: Settings, mail_server: MailServer) -> None:
    """Twelve emails at five per connection use three connections."""
    five_per_connection = settings.model_copy(
        update={"smtp_connections": 1, "smtp_messages_per_connection": 5}
    )
    answers = send_mails(five_per_connection, *(mail(n) for n in range(12)))
    assert {answer.outcome for answer in answers} == {SendOutcome.ACCEPTED}
    assert mail_server.connections == 3


def test_refused_mail_keeps_the_connection(settings: Settings, mail_server: MailServer) -> None:
    one_connection = with_connections(settings, 1)
    mail_server.reply("rcpt", "550 5.1.1 unknown", to="bob@example.org")
    answers = send_mails(
        one_connection, mail(1, "bob@example.org"), mail(2), mail(3, "bob@example.org"), mail(4)
    )
    assert [answer.outcome for answer in answers] == [SendOutcome.HARD_BOUNCE, SendOutcome.ACCEPTED] * 2
    assert mail_server.connections == 1


def test_strict_receivers_get_few_connections(settings: Settings, mail_server: MailServer) -> None:
    """Google gets at most five over all its domains, while others use the rest."""
    domains = ("gmail.com", "googlemail.com")
    answers = send_mails(settings, *(mail(n, f"r{n}@{domains[n % 2]}") for n in range(40)))
    assert {answer.outcome for answer in answers} == {SendOutcome.ACCEPTED}
    assert mail_server.connections <= receivers.STRICT_CONNECTIONS


def test_strict_receivers_get_few_mails_a_connection(settings: Settings, mail_server: MailServer) -> None:
    """The connection is renewed after fifty emails to one of them."""
    one_connection = with_connections(settings, 1)
    send_mails(one_connection, *(mail(n, f"r{n}@outlook.com") for n in range(receivers.STRICT_MESSAGES + 1)))
    assert mail_server.connections == 2


def test_relay_limits_the_connections(settings: Settings, mail_server: MailServer) -> None:
    """If it refuses all but the first, that one carries everything."""
    mail_server.allow_connections(1)
    answers = send_mails(settings, *(mail(n) for n in range(20)))
    assert {answer.outcome for answer in answers} == {SendOutcome.ACCEPTED}


def test_unreachable_relay(settings: Settings) -> None:
    """One email has the error, it is logged once, and the other emails are not tried."""
    with structlog.testing.capture_logs() as logged:
        answers = send_mails(settings, *(mail(n) for n in range(30)))
    (warning,) = logged
    assert (warning["log_level"], warning["event"]) == ("warning", "no connection to the relay")
    assert (warning["host"], warning["port"]) == (settings.smtp_host, settings.smtp_port)
    assert "no connection" in warning["error"]
    (tried,) = (answer for answer in answers if answer.outcome is not SendOutcome.NOT_ATTEMPTED)
    assert tried.outcome is SendOutcome.UNREACHABLE
    assert "no connection" in tried.text


def test_greeting_with_5xx(settings: Settings, mail_server: MailServer) -> None:
    """It is about the sender and not a recipient."""
    mail_server.reply("connect", "554 5.7.1 no mail from you")
    assert send_mails(settings, mail())[0].outcome is SendOutcome.SENDER_REJECTED


def test_sender_fault_stops_the_run(settings: Settings, mail_server: MailServer) -> None:
    """No other email is tried after the first such refusal."""
    mail_server.reply("rcpt", "550 5.7.26 not authenticated", times=1)
    one_connection = with_connections(settings, 1)
    answers = send_mails(one_connection, mail(1), mail(2), mail(3))
    assert [answer.outcome for answer in answers] == [
        SendOutcome.SENDER_REJECTED,
        SendOutcome.NOT_ATTEMPTED,
        SendOutcome.NOT_ATTEMPTED,
    ]


def test_unknown_sender_address_is_a_sender_fault(settings: Settings, mail_server: MailServer) -> None:
    """5.1.1 to MAIL is about the sender's address, so the recipient must not be suppressed."""
    mail_server.reply("mail", "550 5.1.1 unknown sender")
    assert send_mails(settings, mail())[0].outcome is SendOutcome.SENDER_REJECTED


@pytest.mark.parametrize(
    ("stage", "verdict"),
    [
        ("mail", SendOutcome.DEFERRED),
        ("rcpt", SendOutcome.DEFERRED),
        ("data", SendOutcome.DEFERRED),
        ("end", SendOutcome.UNCERTAIN),
    ],
)
def test_lost_connection(
    settings: Settings, mail_server: MailServer, stage: str, verdict: SendOutcome
) -> None:
    """An email is unsent before its body, and uncertain after it."""
    mail_server.drop(stage, times=1)
    one_connection = with_connections(settings, 1)
    answers = send_mails(one_connection, mail(1), mail(2))
    assert [answer.outcome for answer in answers] == [verdict, SendOutcome.ACCEPTED]


@pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS")
def test_authentication(settings: Settings) -> None:
    """A wrong or missing password is a sender fault."""
    with MailServer(password="open sesame") as server:
        at = settings.model_copy(update={"smtp_port": server.port})
        for password, verdict in (
            ("open sesame", SendOutcome.ACCEPTED),
            ("wrong", SendOutcome.SENDER_REJECTED),
            ("", SendOutcome.SENDER_REJECTED),
        ):
            login = {"smtp_username": "paperboy" if password else "", "smtp_password": password}
            assert send_mails(at.model_copy(update=login), mail())[0].outcome is verdict
        assert len(server.messages) == 1


def test_required_encryption(settings: Settings, mail_server: MailServer) -> None:
    """Without STARTTLS nothing is sent in clear text, except with opportunistic encryption."""
    strict = settings.model_copy(update={"smtp_security": "starttls"})
    assert send_mails(strict, mail())[0].outcome is SendOutcome.UNREACHABLE
    assert mail_server.messages == []
    lenient = settings.model_copy(update={"smtp_security": "opportunistic"})
    assert send_mails(lenient, mail())[0].outcome is SendOutcome.ACCEPTED


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def trust_authority(authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the system trust this authority."""
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))


@contextmanager
def tls_server(
    certificate: trustme.LeafCert | None, *, at_once: bool = False, password: str | None = None
) -> Iterator[MailServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if certificate else None
    if certificate:
        certificate.configure_cert(context)
    with MailServer(password, context, tls_at_once=at_once) as server:
        yield server


def with_connections(settings: Settings, connections: int) -> Settings:
    return settings.model_copy(update={"smtp_connections": connections})


def with_security(server: MailServer, settings: Settings, security: str, **more: Any) -> Settings:
    return settings.model_copy(
        update={"smtp_port": server.port, "smtp_security": SmtpSecurity(security), **more}
    )


@pytest.mark.usefixtures("trust_authority")
@pytest.mark.parametrize("security", ["starttls", "tls", "opportunistic"])
@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_encryption(
    settings: Settings, authority: trustme.CA, pipelining: bool, security: str, new_loop: LoopFactory
) -> None:
    """Large emails arrive unchanged, on both event loops."""
    mails = [mail(n, data=f"Subject: {n}\r\n\r\n".encode() + b"0123456789\r\n" * 30_000) for n in range(5)]
    with tls_server(authority.issue_cert("127.0.0.1"), at_once=security == "tls") as server:
        server.offers_pipelining = pipelining
        one = with_security(server, settings, security, smtp_connections=1)
        answers = send_mails(one, *mails, new_loop=new_loop)
        assert {answer.outcome for answer in answers} == {SendOutcome.ACCEPTED}
        assert [received.data for received in server.messages] == [one.data for one in mails]
        assert [server.encrypted, server.connections] == [5, 1]


@pytest.mark.usefixtures("trust_authority")
@pytest.mark.parametrize("flaw", ["unknown authority", "other name", "expired"])
@pytest.mark.parametrize("security", ["starttls", "tls", "opportunistic"])
def test_untrusted_certificate(settings: Settings, authority: trustme.CA, security: str, flaw: str) -> None:
    """Required encryption refuses it; opportunistic encryption accepts it."""
    certificate = {
        "unknown authority": lambda: trustme.CA().issue_cert("127.0.0.1"),
        "other name": lambda: authority.issue_cert("mail.example.org"),
        "expired": lambda: authority.issue_cert("127.0.0.1", not_after=datetime(2020, 1, 1, tzinfo=UTC)),
    }[flaw]()
    with tls_server(certificate, at_once=security == "tls") as server:
        (answer,) = send_mails(with_security(server, settings, security), mail())
        if security == "opportunistic":
            assert (answer.outcome, server.encrypted) == (SendOutcome.ACCEPTED, 1)
        else:
            assert (answer.outcome, server.messages) == (SendOutcome.UNREACHABLE, [])
            assert "certificate" in answer.text


@pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS")
@pytest.mark.parametrize(
    "certificate", [None, trustme.CA().issue_cert("127.0.0.1")], ids=["plain", "anybody"]
)
def test_password_requires_verified_encryption(
    settings: Settings, certificate: trustme.LeafCert | None
) -> None:
    """Opportunistic encryption is not enough, because an attacker can offer it."""
    login = {"smtp_username": "paperboy", "smtp_password": "open sesame"}
    with tls_server(certificate, password="open sesame") as server:
        (answer,) = send_mails(with_security(server, settings, "opportunistic", **login), mail())
    assert (answer.outcome, server.passwords) == (SendOutcome.UNREACHABLE, [])


def test_non_ascii_address(settings: Settings, mail_server: MailServer) -> None:
    """It is sent if SMTPUTF8 is offered, and fails otherwise."""
    wide = mail(1, "jürgen@example.org", needs_smtputf8=True)
    assert send_mails(settings, wide)[0].outcome is SendOutcome.ACCEPTED
    assert mail_server.messages[0].recipient == "jürgen@example.org"
    mail_server.offers_smtputf8 = False
    assert send_mails(settings, wide)[0].outcome is SendOutcome.UNSENDABLE


def test_reply_text_is_cleaned(settings: Settings, mail_server: MailServer) -> None:
    """It is stored and printed, so it becomes one line without control characters."""
    mail_server.reply("rcpt", "550-5.1.1 first\r\n550 5.1.1 second\0" + "x" * 900)
    (answer,) = send_mails(settings, mail())
    assert answer.text.startswith("5.1.1 first 5.1.1 second")
    assert "\0" not in answer.text
    assert len(answer.text) <= 500
