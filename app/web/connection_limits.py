"""Close slow connections at a deadline, and reserve file descriptors for sending and the database.

Uvicorn has no deadline for a request that never ends, and accepts connections until the process has no
descriptors left. After that, both pages and sending fail. This module closes connections that stay in a phase
(`ConnectionPhase`) beyond its deadline. At the connection limit, it closes the connection that has waited
longest for its peer, to admit a new one. Clients that send a whole request at once can therefore always
connect.
"""

from __future__ import annotations

import asyncio
import resource
from enum import Enum
from typing import Any

import structlog
from uvicorn.protocols.http.h11_impl import H11Protocol

from app.settings import Settings

log = structlog.get_logger(__name__)

MAX_DESCRIPTORS = 65_536
MAX_CONNECTIONS, LEAST_CONNECTIONS = 1000, 16
MAX_BACKLOG = 128
# Descriptors for the database's pool and files, logs, journals, sources and the mailbox.
RESERVED = 80


class ConnectionPhase(Enum):
    """The event that a connection is waiting for."""

    HEAD = "head"  # the head of the first or the next request
    BODY = "body"  # the rest of a request
    RESPONSE = "response"  # our response
    READER = "reader"  # the peer to read more of the response


DEADLINES = {
    ConnectionPhase.HEAD: 10.0,
    ConnectionPhase.BODY: 60.0,
    ConnectionPhase.RESPONSE: 300.0,
    ConnectionPhase.READER: 30.0,
}  # seconds


class GuardedProtocol(H11Protocol):
    """HTTP/1.1 with deadlines. `protocol` creates a subclass with its own `waiting` for each server."""

    most = MAX_CONNECTIONS
    deadlines = DEADLINES
    waiting: dict[GuardedProtocol, None]  # connections that wait for their peer, longest first

    def __init__(self, *values: Any, **named: Any) -> None:
        super().__init__(*values, **named)
        self._phase: ConnectionPhase | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._enter(ConnectionPhase.HEAD)
        if len(self.connections) > self.most:
            next(iter(self.waiting)).abort("too many connections")  # possibly the new connection

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._update_phase()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._update_phase()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._update_phase()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._update_phase()

    def abort(self, reason: str) -> None:
        """Close the connection at once, without sending buffered data."""
        log.debug("connection closed", reason=reason, waited_for=self._phase and self._phase.name)
        self._leave()
        self.transport.abort()

    def _update_phase(self) -> None:
        """Determine the current phase. If it has changed, start its deadline."""
        if self.cycle is None or self.cycle.response_complete:
            phase = ConnectionPhase.HEAD
        elif self.flow.write_paused:
            phase = ConnectionPhase.READER
        else:
            phase = ConnectionPhase.BODY if self.cycle.more_body else ConnectionPhase.RESPONSE
        if phase is not self._phase and self._phase is not None:
            self._enter(phase)

    def _enter(self, phase: ConnectionPhase) -> None:
        self._leave()
        self._phase = phase
        self._deadline = self.loop.call_later(self.deadlines[phase], self.abort, "deadline")
        if phase is not ConnectionPhase.RESPONSE:
            self.waiting[self] = None

    def _leave(self) -> None:
        self._phase = None
        self.waiting.pop(self, None)
        if self._deadline:
            self._deadline.cancel()


def protocol(most: int) -> type[GuardedProtocol]:
    """Return the protocol class for a server with at most `most` connections."""
    return type("Protocol", (GuardedProtocol,), {"most": most, "waiting": {}})


def raise_descriptor_limit() -> int:
    """Raise the soft limit on open descriptors to the hard limit or MAX_DESCRIPTORS, whichever is lower.

    Return the resulting soft limit, or MAX_DESCRIPTORS if it is unlimited.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < target:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
        soft = target
    return soft if soft != resource.RLIM_INFINITY else MAX_DESCRIPTORS


def limit_and_backlog(descriptors: int, smtp_connections: int) -> tuple[int, int]:
    """Return the connection limit, and the backlog, which is how many connections are accepted in one go."""
    free = descriptors - RESERVED - smtp_connections
    limit = max(LEAST_CONNECTIONS, min(MAX_CONNECTIONS, free * 4 // 5))
    return limit, min(MAX_BACKLOG, limit // 4)


def options(settings: Settings) -> dict[str, Any]:
    """Return uvicorn's options for a guarded server, and raise the process's descriptor limit."""
    limit, backlog = limit_and_backlog(raise_descriptor_limit(), settings.smtp_connections)
    return {"http": protocol(limit), "ws": "none", "backlog": backlog}
