"""Whose turn it is: providers wait for themselves only."""

from __future__ import annotations

import pytest

from app.delivery.smtp.fair_queue import (
    CONNECTIONS_PER_DOMAIN,
    STRICT_CONNECTIONS,
    FairQueue,
    ProviderQueue,
    QueuedMail,
    family_of,
)
from app.types import OutgoingMail


def turns(*recipients: str) -> FairQueue:
    made = FairQueue()
    for number, recipient in enumerate(recipients):
        made.add(OutgoingMail(number, f"<{number}@paperboy.test>", "x", "b@paperboy.test", recipient, b""))
    return made


def take(waiting: FairQueue, held: list[ProviderQueue] | None = None) -> str | None:
    """By a connection of its own, if not said otherwise."""
    parcel = waiting.take([] if held is None else held)
    return parcel.mail.recipient if parcel else None


@pytest.mark.parametrize(
    ("recipient", "family"),
    [
        ("alice@example.org", "example.org"),
        ("alice@EXAMPLE.org", "example.org"),
        ("bob@googlemail.com", "google"),
        ("bob@Hotmail.com", "outlook"),
        ("nobody", "nobody"),
    ],
)
def test_a_familys_domains(recipient: str, family: str) -> None:
    """Large providers count over all their domains; everybody else is a family of their own."""
    assert family_of(recipient) == family


def test_families_take_turns() -> None:
    """A long queue for one domain does not delay the others behind it."""
    waiting = turns("a@one.test", "b@one.test", "c@one.test", "d@two.test")
    assert [take(waiting) for _ in range(5)] == ["a@one.test", "d@two.test", "b@one.test", "c@one.test", None]


def test_a_family_has_so_many_connections() -> None:
    """Then its mails wait, until a connection has no mail of it left; others go on."""
    waiting = turns(*(f"r{n}@gmail.com" for n in range(STRICT_CONNECTIONS + 2)), "a@one.test")
    held: list[ProviderQueue] = []
    first = waiting.take(held)
    assert first is not None
    assert [take(waiting) for _ in range(STRICT_CONNECTIONS)] == [
        "a@one.test",
        *(f"r{n}@gmail.com" for n in range(1, STRICT_CONNECTIONS)),
    ]
    assert take(waiting) is None
    assert not waiting.free(1)
    waiting.release(first, held)
    assert waiting.free(1)
    assert take(waiting) == f"r{STRICT_CONNECTIONS}@gmail.com"
    assert len(waiting) == 1


def test_a_connection_counts_once() -> None:
    """Whoever carries a mail of a family may take its next one although the family has all it may."""
    waiting = turns(*(f"r{n}@gmail.com" for n in range(STRICT_CONNECTIONS + 2)))
    helds: list[list[ProviderQueue]] = [[] for _ in range(STRICT_CONNECTIONS)]
    parcels = [waiting.take(held) for held in helds]
    last = helds[-1]
    assert take(waiting, last) == f"r{STRICT_CONNECTIONS}@gmail.com"
    assert isinstance(parcels[-1], QueuedMail)
    waiting.release(parcels[-1], last)
    assert take(waiting) is None, "the connection still carries one of them"
    assert take(waiting, last) == f"r{STRICT_CONNECTIONS + 1}@gmail.com"


def test_a_mail_that_comes_back_is_the_next() -> None:
    """It keeps its place before the others of its family."""
    waiting = turns("a@one.test", "b@one.test")
    held: list[ProviderQueue] = []
    parcel = waiting.take(held)
    assert parcel is not None
    waiting.release(parcel, held)
    waiting.put_back(parcel)
    assert [take(waiting), take(waiting)] == ["a@one.test", "b@one.test"]


def test_a_family_without_mail_is_forgotten() -> None:
    """A morning has mails for a hundred thousand domains; what comes back or comes anew is known still."""
    waiting = turns(*(f"r{n}@d{n}.test" for n in range(100)))
    held: list[ProviderQueue] = []
    while parcel := waiting.take(held):
        waiting.release(parcel, held)
        last = parcel
    assert len(waiting._families) == 0
    waiting.put_back(last)
    waiting.add(last.mail._replace(recipient="other@d99.test"))
    assert len(waiting._families) == 1
    assert [mail.recipient for mail in waiting.clear()] == ["r99@d99.test", "other@d99.test"]


def test_how_many_connections_are_of_use() -> None:
    """As many as there are mails that may leave at the same time."""
    waiting = turns(*(f"r{n}@one.test" for n in range(CONNECTIONS_PER_DOMAIN + 5)), "a@gmail.com")
    assert waiting.free(CONNECTIONS_PER_DOMAIN + 1)
    assert not waiting.free(CONNECTIONS_PER_DOMAIN + 2)


def test_everything_is_taken_away() -> None:
    """What waits can be taken at once; then nothing waits."""
    waiting = turns("a@one.test", "b@two.test", "c@one.test")
    assert {mail.recipient for mail in waiting.clear()} == {"a@one.test", "b@two.test", "c@one.test"}
    assert [len(waiting), take(waiting)] == [0, None]
