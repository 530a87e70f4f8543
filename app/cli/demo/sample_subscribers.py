"""The readers of the demo: each shows something that Paperboy does."""

from __future__ import annotations

from dataclasses import dataclass

from app.subscribers import Preferences
from app.types import Cadence, EmptyDigestPolicy, Interest


@dataclass(frozen=True, slots=True)
class Person:
    """A reader, and what to look at in their mailbox."""

    email: str
    about: str
    wants: Preferences


def _wants(
    *interests: str | Interest,
    zone: str,
    hour: int,
    cadence: Cadence = Cadence.DAILY,
    weekday: int = 0,
    least: int = 1,
    most: int = 6,
    when_empty: EmptyDigestPolicy = EmptyDigestPolicy.SKIP,
    beyond: int = 3,
    muted: tuple[str, ...] = (),
) -> Preferences:
    return Preferences(
        cadence=cadence,
        weekday=weekday,
        hour=hour,
        zone=zone,
        min_papers=least,
        max_papers=most,
        when_empty=when_empty,
        beyond=beyond,
        muted=muted,
        interests=tuple(each if isinstance(each, Interest) else Interest(each) for each in interests),
    )


UNKNOWN = "trent@example.org"  # the postbox has no such mailbox
GREYLISTED = "heidi@example.org"  # the postbox puts the first mail off

PEOPLE = (
    Person(
        "alice@example.org",
        "Three separate interests with quotas; her 8 o'clock stays 8 o'clock when Berlin's clocks change",
        _wants(
            Interest("agents", quota=3),
            Interest("reinforcement learning", quota=2),
            Interest("reasoning", quota=2),
            zone="Europe/Berlin",
            hour=8,
        ),
    ),
    Person(
        "bob@example.org",
        "Working days only, so Monday's digest holds what the weekend brought; nothing beyond his interests",
        _wants(
            "video generation",
            "video world models",
            "world models",
            zone="America/New_York",
            hour=7,
            cadence=Cadence.WEEKDAYS,
            most=5,
            beyond=0,
        ),
    ),
    Person(
        "carol@example.org",
        "One digest a week, on Friday evening in Tokyo",
        _wants(
            "quantization",
            "sparse attention",
            "Diffusion language models",
            "memory",
            zone="Asia/Tokyo",
            hour=18,
            cadence=Cadence.WEEKLY,
            weekday=4,
            most=10,
        ),
    ),
    Person(
        "dave@example.org",
        "A phrase, and a category with an exclusion: robotics, nothing about driving; benchmarks are muted",
        _wants(
            '"robot"',
            "vision-language-action",
            "cat:cs.RO -driving",
            zone="Europe/London",
            hour=7,
            muted=("benchmark",),
        ),
    ),
    Person(
        "erin@example.org",
        "Thin days are kept back and folded into the next digest, until three papers are together",
        _wants(
            '"medical"',
            '"clinical"',
            "epidemiology",
            zone="Australia/Sydney",
            hour=6,
            least=3,
        ),
    ),
    Person(
        "frank@example.org",
        "Nothing matches, so no mail comes, and the ledger says why for every day",
        _wants('"honey bees"', zone="Atlantic/Reykjavik", hour=9),
    ),
    Person(
        "grace@example.org",
        "Speech, by category as well; what is trending on days without a match",
        _wants(
            '"speech"',
            "cat:eess.AS",
            zone="Asia/Kolkata",
            hour=11,
            most=4,
            when_empty=EmptyDigestPolicy.TRENDING,
        ),
    ),
    Person(
        GREYLISTED,
        "Her mail server puts strangers off at first: deferred, then sent; UTC+05:45",
        _wants("earth observation", "star clusters", "weather forecast", zone="Asia/Kathmandu", hour=8),
    ),
    Person(
        UNKNOWN,
        "A mailbox that does not exist: refused once, and never written to again",
        _wants("coding agents", zone="UTC", hour=10),
    ),
)
