"""Say when the schedule does what an operator requested, or in the demo, which has none, how to go on."""

from __future__ import annotations

from typing import NamedTuple


class Timing(NamedTuple):
    """When waiting mails are sent, sources are polled and webhook events are sent, as the end of a sentence.

    Messages refer to these times, for example "The source will be polled {timing.polls}."
    """

    mails: str = "within a minute"
    polls: str = "within minutes"
    events: str = "within a minute"
