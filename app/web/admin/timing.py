"""Phrases that say when requested work will be done. The demo has its own, because it has no schedule."""

from typing import NamedTuple, Self


class Timing(NamedTuple):
    """The times at which emails are sent, sources are polled and webhook events are sent, in words.

    Messages contain these words, for example "The source will be polled {timing.polls}."
    """

    mails: str = "within a minute"
    polls: str = "within minutes"
    events: str = "within a minute"

    def while_paused(self) -> Self:
        """Return the times while all sending is paused."""
        return self._replace(mails="when all sending is resumed")
