"""FairQueue: a provider's mails wait only for each other."""

from __future__ import annotations

import pytest

from app.delivery.smtp.fair_queue import (
    CONNECTIONS_PER_DOMAIN,
    STRICT_CONNECTIONS,
    FairQueue,
    ProviderQueue,
    QueuedMail,
    provider_of,
)
from app.types import OutgoingMail


def queue_of(*recipients: str) -> FairQueue:
    queue = FairQueue()
    for number, recipient in enumerate(recipients):
        queue.add(OutgoingMail(number, f"<{number}@paperboy.test>", "x", "b@paperboy.test", recipient, b""))
    return queue


def take(waiting: FairQueue, carried: list[ProviderQueue] | None = None) -> str | None:
    """Take a mail for a connection; for a new one unless `carried` is given."""
    queued = waiting.take([] if carried is None else carried)
    return queued.mail.recipient if queued else None


@pytest.mark.parametrize(
    ("recipient", "provider"),
    [
        ("alice@example.org", "example.org"),
        ("alice@EXAMPLE.org", "example.org"),
        ("bob@googlemail.com", "google"),
        ("bob@Hotmail.com", "outlook"),
        ("nobody", "nobody"),
    ],
)
def test_domains_of_a_provider(recipient: str, provider: str) -> None:
    """Large providers count over all their domains; every other domain is its own provider."""
    assert provider_of(recipient) == provider


def test_providers_take_turns() -> None:
    """A long queue for one domain does not delay the others."""
    waiting = queue_of("a@one.test", "b@one.test", "c@one.test", "d@two.test")
    assert [take(waiting) for _ in range(5)] == ["a@one.test", "d@two.test", "b@one.test", "c@one.test", None]


def test_a_provider_has_a_limited_number_of_connections() -> None:
    """Beyond it, its mails wait until a connection carries none of them; others are sent."""
    waiting = queue_of(*(f"r{n}@gmail.com" for n in range(STRICT_CONNECTIONS + 2)), "a@one.test")
    carried: list[ProviderQueue] = []
    first = waiting.take(carried)
    assert first is not None
    assert [take(waiting) for _ in range(STRICT_CONNECTIONS)] == [
        "a@one.test",
        *(f"r{n}@gmail.com" for n in range(1, STRICT_CONNECTIONS)),
    ]
    assert take(waiting) is None
    assert not waiting.can_supply(1)
    waiting.release(first, carried)
    assert waiting.can_supply(1)
    assert take(waiting) == f"r{STRICT_CONNECTIONS}@gmail.com"
    assert len(waiting) == 1


def test_a_connection_counts_once() -> None:
    """A connection that carries a mail of a provider may take another one at the provider's limit."""
    waiting = queue_of(*(f"r{n}@gmail.com" for n in range(STRICT_CONNECTIONS + 2)))
    carried_lists: list[list[ProviderQueue]] = [[] for _ in range(STRICT_CONNECTIONS)]
    mails = [waiting.take(carried) for carried in carried_lists]
    last = carried_lists[-1]
    assert take(waiting, last) == f"r{STRICT_CONNECTIONS}@gmail.com"
    assert isinstance(mails[-1], QueuedMail)
    waiting.release(mails[-1], last)
    assert take(waiting) is None, "the connection still carries one of them"
    assert take(waiting, last) == f"r{STRICT_CONNECTIONS + 1}@gmail.com"


def test_a_mail_that_is_put_back_is_the_next() -> None:
    """It goes before the others of its provider."""
    waiting = queue_of("a@one.test", "b@one.test")
    carried: list[ProviderQueue] = []
    queued = waiting.take(carried)
    assert queued is not None
    waiting.release(queued, carried)
    waiting.put_back(queued)
    assert [take(waiting), take(waiting)] == ["a@one.test", "b@one.test"]


def test_a_provider_without_mail_is_forgotten() -> None:
    """A run may have mails for a hundred thousand domains; a forgotten one can be added again."""
    waiting = queue_of(*(f"r{n}@d{n}.test" for n in range(100)))
    carried: list[ProviderQueue] = []
    while queued := waiting.take(carried):
        waiting.release(queued, carried)
        last = queued
    assert len(waiting._queues) == 0
    waiting.put_back(last)
    waiting.add(last.mail._replace(recipient="other@d99.test"))
    assert len(waiting._queues) == 1
    assert [mail.recipient for mail in waiting.clear()] == ["r99@d99.test", "other@d99.test"]


def test_how_many_connections_can_be_supplied() -> None:
    """As many as mails may be sent at the same time."""
    waiting = queue_of(*(f"r{n}@one.test" for n in range(CONNECTIONS_PER_DOMAIN + 5)), "a@gmail.com")
    assert waiting.can_supply(CONNECTIONS_PER_DOMAIN + 1)
    assert not waiting.can_supply(CONNECTIONS_PER_DOMAIN + 2)


def test_clear_removes_all_mails() -> None:
    """It yields them; then the queue is empty."""
    waiting = queue_of("a@one.test", "b@two.test", "c@one.test")
    assert {mail.recipient for mail in waiting.clear()} == {"a@one.test", "b@two.test", "c@one.test"}
    assert [len(waiting), take(waiting)] == [0, None]
