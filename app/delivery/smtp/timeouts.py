"""How long to wait for the relay in each phase of a session."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds to wait for the relay. The defaults, except `quit`, are the minimums of RFC 5321, 4.5.3.2.

    With a shorter `end`, emails may be sent twice.
    """

    connect: float = 300.0  # until the relay's greeting
    mail: float = 300.0
    rcpt: float = 300.0
    data: float = 120.0
    block: float = 180.0  # until the relay reads more of a body
    end: float = 600.0  # after the final dot
    quit: float = 5.0
