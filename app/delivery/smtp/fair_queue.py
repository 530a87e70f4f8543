"""PURE. Emails that wait for a connection, in one queue per receiver, so that no receiver delays another."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from app.delivery.receivers import CONNECTIONS_PER_DOMAIN, STRICT, STRICT_CONNECTIONS, receiver_of
from app.mail.message import OutgoingMail


@dataclass(slots=True, eq=False)
class ReceiverQueue:
    """The emails waiting for one receiver, and the number of connections that carry emails to it."""

    receiver: str
    is_strict: bool  # accepts at most STRICT_MESSAGES over one connection
    max_connections: int
    connections: int = 0
    is_ready: bool = False  # the queue is in FairQueue._ready
    waiting: deque[QueuedMail] = field(default_factory=deque)


@dataclass(slots=True, eq=False)
class QueuedMail:
    """An email and the queue of its receiver."""

    mail: OutgoingMail
    queue: ReceiverQueue
    is_retry: bool = False  # its first connection broke before the body was sent


class FairQueue:
    """All waiting emails. Receivers take turns; a receiver that already uses all its connections waits.

    Each connection has a list with the queue of each email that it carries. `take` adds to the list and
    `release` removes from it, so that a queue counts a connection once, however many of its emails the
    connection carries.
    """

    def __init__(self) -> None:
        self._queues: dict[str, ReceiverQueue] = {}
        self._ready: deque[ReceiverQueue] = deque()  # queues with emails that may use another connection
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, mail: OutgoingMail) -> None:
        """Add an email at the end of its receiver's queue."""
        receiver = receiver_of(mail.recipient)
        queue = self._queues.get(receiver)
        if queue is None:
            is_strict = receiver in STRICT
            queue = ReceiverQueue(
                receiver, is_strict, STRICT_CONNECTIONS if is_strict else CONNECTIONS_PER_DOMAIN
            )
            self._queues[receiver] = queue
        queue.waiting.append(QueuedMail(mail, queue))
        self._count += 1
        self._update_ready(queue)

    def put_back(self, queued: QueuedMail) -> None:
        """Put an email back at the front of its receiver's queue."""
        queue = queued.queue
        self._queues[queue.receiver] = queue
        queue.waiting.appendleft(queued)
        self._count += 1
        self._update_ready(queue)

    def take(self, carried: list[ReceiverQueue]) -> QueuedMail | None:
        """Return the next email for a connection and add its queue to `carried`, the connection's list."""
        while self._ready:
            queue = self._ready.popleft()
            queue.is_ready = False
            if queue.waiting:
                return self._pop(queue, carried)
        for queue in carried:
            if queue.waiting:
                return self._pop(queue, carried)
        return None

    def _pop(self, queue: ReceiverQueue, carried: list[ReceiverQueue]) -> QueuedMail:
        if queue not in carried:
            queue.connections += 1
        carried.append(queue)
        self._count -= 1
        queued = queue.waiting.popleft()
        self._update_ready(queue)
        return queued

    def release(self, queued: QueuedMail, carried: list[ReceiverQueue]) -> None:
        """Remove an email's queue from the list of the connection that took the email."""
        queue = queued.queue
        carried.remove(queue)
        if queue not in carried:
            queue.connections -= 1
            if queue.connections or queue.waiting:
                self._update_ready(queue)
            else:  # otherwise there could be as many queues as emails
                self._queues.pop(queue.receiver, None)

    def _update_ready(self, queue: ReceiverQueue) -> None:
        if not queue.is_ready and queue.waiting and queue.connections < queue.max_connections:
            queue.is_ready = True
            self._ready.append(queue)

    def can_supply(self, connections: int) -> bool:
        """Return whether each of `connections` idle connections would get an email."""
        for queue in self._ready:
            connections -= min(len(queue.waiting), queue.max_connections - queue.connections)
            if connections <= 0:
                return True
        return connections <= 0

    def clear(self) -> Iterator[OutgoingMail]:
        """Remove all waiting emails and yield them."""
        queues, self._queues, self._count = self._queues, {}, 0
        self._ready.clear()
        for queue in queues.values():
            queue.is_ready = False
            while queue.waiting:
                yield queue.waiting.popleft().mail
