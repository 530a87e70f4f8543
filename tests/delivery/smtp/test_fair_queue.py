"""Test FairQueue: emails of a receiver wait only for each other."""

import pytest

from app.delivery.receivers import STRICT_CONNECTIONS, receiver_of
from app.delivery.smtp.fair_queue import (
    CONNECTIONS_PER_DOMAIN,
    FairQueue,
    QueuedMail,
    ReceiverQueue,
)
from app.mail.message import OutgoingMail


def build_queue(*recipients: str) -> FairQueue:
    queue = FairQueue()
    for number, recipient in enumerate(recipients):
        queue.add(OutgoingMail(number, f"<{number}@paperboy.test>", "x", "b@paperboy.test", recipient, b""))
    return queue


def take_mail(waiting: FairQueue, carried: list[ReceiverQueue] | None = None) -> str | None:
    """Take an email for a connection, for a new one unless `carried` is given."""
    queued = waiting.take([] if carried is None else carried)
    return queued.mail.recipient if queued else None


@pytest.mark.parametrize(
    ("recipient", "receiver"),
    [
        ("alice@example.org", "example.org"),
        ("alice@EXAMPLE.org", "example.org"),
        ("bob@googlemail.com", "google"),
        ("bob@Hotmail.com", "outlook"),
        ("nobody", "nobody"),
    ],
)
def test_domains_of_a_receiver(recipient: str, receiver: str) -> None:
    """Large receivers are counted over all their domains; other domains are their own receiver."""
    assert receiver_of(recipient) == receiver


def test_receivers_take_turns() -> None:
    """A long queue for one domain does not delay the others."""
    waiting = build_queue("a@one.test", "b@one.test", "c@one.test", "d@two.test")
    assert [take_mail(waiting) for _ in range(5)] == [
        "a@one.test",
        "d@two.test",
        "b@one.test",
        "c@one.test",
        None,
    ]


def test_connection_limit_per_receiver() -> None:
    """Beyond it, emails wait until a connection carries none of them; others are sent."""
    waiting = build_queue(*(f"r{n}@gmail.com" for n in range(STRICT_CONNECTIONS + 2)), "a@one.test")
    carried: list[ReceiverQueue] = []
    first = waiting.take(carried)
    assert first is not None
    assert [take_mail(waiting) for _ in range(STRICT_CONNECTIONS)] == [
        "a@one.test",
        *(f"r{n}@gmail.com" for n in range(1, STRICT_CONNECTIONS)),
    ]
    assert take_mail(waiting) is None
    assert not waiting.can_supply(1)
    waiting.release(first, carried)
    assert waiting.can_supply(1)
    assert take_mail(waiting) == f"r{STRICT_CONNECTIONS}@gmail.com"
    assert len(waiting) == 1


def test_connection_is_counted_once() -> None:
    """At the limit, a connection that carries the receiver's mail may take another."""
    waiting = build_queue(*(f"r{n}@gmail.com" for n in range(STRICT_CONNECTIONS + 2)))
    carried_lists: list[list[ReceiverQueue]] = [[] for _ in range(STRICT_CONNECTIONS)]
    mails = [waiting.take(carried) for carried in carried_lists]
    last = carried_lists[-1]
    assert take_mail(waiting, last) == f"r{STRICT_CONNECTIONS}@gmail.com"
    assert isinstance(mails[-1], QueuedMail)
    waiting.release(mails[-1], last)
    assert take_mail(waiting) is None, "the connection still carries one of them"
    assert take_mail(waiting, last) == f"r{STRICT_CONNECTIONS + 1}@gmail.com"


def test_requeued_mail_is_next() -> None:
    """It comes before the others of its receiver."""
    waiting = build_queue("a@one.test", "b@one.test")
    carried: list[ReceiverQueue] = []
    queued = waiting.take(carried)
    assert queued is not None
    waiting.release(queued, carried)
    waiting.put_back(queued)
    assert [take_mail(waiting), take_mail(waiting)] == ["a@one.test", "b@one.test"]


def test_empty_receiver_is_removed() -> None:
    """There may be a hundred thousand domains; a removed one can be added again."""
    waiting = build_queue(*(f"r{n}@d{n}.test" for n in range(100)))
    carried: list[ReceiverQueue] = []
    while queued := waiting.take(carried):
        waiting.release(queued, carried)
        last = queued
    assert len(waiting._queues) == 0
    waiting.put_back(last)
    waiting.add(last.mail._replace(recipient="other@d99.test"))
    assert len(waiting._queues) == 1
    assert [mail.recipient for mail in waiting.clear()] == ["r99@d99.test", "other@d99.test"]


def test_usable_connections() -> None:
    """The number is that of emails that may be sent at the same time."""
    waiting = build_queue(*(f"r{n}@one.test" for n in range(CONNECTIONS_PER_DOMAIN + 5)), "a@gmail.com")
    assert waiting.can_supply(CONNECTIONS_PER_DOMAIN + 1)
    assert not waiting.can_supply(CONNECTIONS_PER_DOMAIN + 2)


def test_clear_removes_all_mails() -> None:
    """It yields them, and the queue is empty."""
    waiting = build_queue("a@one.test", "b@two.test", "c@one.test")
    assert {mail.recipient for mail in waiting.clear()} == {"a@one.test", "b@two.test", "c@one.test"}
    assert [len(waiting), take_mail(waiting)] == [0, None]
