"""PURE. Whose turn it is: the mails of one provider wait behind each other, never in the way of others."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from app.types import OutgoingMail

# Providers that count connections and messages from one sender over all their domains.
_FAMILIES = {
    **dict.fromkeys(("gmail.com", "googlemail.com", "google.com"), "google"),
    **dict.fromkeys(("outlook.com", "hotmail.com", "live.com", "msn.com", "windowslive.com"), "outlook"),
}
_STRICT = frozenset(_FAMILIES.values())
STRICT_CONNECTIONS, STRICT_MESSAGES, CONNECTIONS_PER_DOMAIN = 5, 50, 10


def family_of(recipient: str) -> str:
    """The provider whose patience a mail costs."""
    domain = recipient.rpartition("@")[2].lower()
    return _FAMILIES.get(domain, domain)


@dataclass(slots=True, eq=False)
class ProviderQueue:
    """One provider's mails that wait, and how many connections carry others of its mails meanwhile."""

    name: str
    strict: bool  # takes at most STRICT_MESSAGES over one connection
    most: int  # connections at a time
    busy: int = 0
    listed: bool = False  # among those whose turn comes
    waiting: deque[QueuedMail] = field(default_factory=deque)


@dataclass(slots=True, eq=False)
class QueuedMail:
    """A mail on its way, and whose patience it costs."""

    mail: OutgoingMail
    family: ProviderQueue
    returned: bool = False  # it came back from a connection that broke before it could leave


class FairQueue:
    """Everything that waits. The families take turns, those that have all connections they may have wait.

    A connection tells what it holds as a list of families, an entry for each mail; `take` adds to it
    and `release` removes, so that a family counts a connection once, whatever that holds.
    """

    def __init__(self) -> None:
        self._families: dict[str, ProviderQueue] = {}
        self._next: deque[ProviderQueue] = deque()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, mail: OutgoingMail) -> None:
        name = family_of(mail.recipient)
        family = self._families.get(name)
        if family is None:
            strict = name in _STRICT
            family = ProviderQueue(name, strict, STRICT_CONNECTIONS if strict else CONNECTIONS_PER_DOMAIN)
            self._families[name] = family
        family.waiting.append(QueuedMail(mail, family))
        self._count += 1
        self._list(family)

    def put_back(self, parcel: QueuedMail) -> None:
        """It goes before all others of its family."""
        family = parcel.family
        self._families[family.name] = family
        family.waiting.appendleft(parcel)
        self._count += 1
        self._list(family)

    def take(self, held: list[ProviderQueue]) -> QueuedMail | None:
        """The next mail for a connection that holds mails of these families already."""
        while self._next:
            family = self._next.popleft()
            family.listed = False
            if family.waiting:
                return self._hand_out(family, held)
        for family in held:
            if family.waiting:
                return self._hand_out(family, held)
        return None

    def _hand_out(self, family: ProviderQueue, held: list[ProviderQueue]) -> QueuedMail:
        if family not in held:
            family.busy += 1
        held.append(family)
        self._count -= 1
        parcel = family.waiting.popleft()
        self._list(family)
        return parcel

    def release(self, parcel: QueuedMail, held: list[ProviderQueue]) -> None:
        """This mail has left the connection that took it, one way or another."""
        family = parcel.family
        held.remove(family)
        if family not in held:
            family.busy -= 1
            if family.busy or family.waiting:
                self._list(family)
            else:  # there may be as many domains as mails
                self._families.pop(family.name, None)

    def _list(self, family: ProviderQueue) -> None:
        if not family.listed and family.waiting and family.busy < family.most:
            family.listed = True
            self._next.append(family)

    def free(self, enough: int) -> bool:
        """Whether so many connections that hold nothing would each get a mail."""
        for family in self._next:
            enough -= min(len(family.waiting), family.most - family.busy)
            if enough <= 0:
                return True
        return enough <= 0

    def clear(self) -> Iterator[OutgoingMail]:
        """Everything that waits, taken away."""
        families, self._families, self._count = self._families, {}, 0
        self._next.clear()
        for family in families.values():
            family.listed = False
            while family.waiting:
                yield family.waiting.popleft().mail
