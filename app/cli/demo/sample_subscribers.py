"""The subscribers in the demo. Each one shows a feature of Paperboy."""

from dataclasses import dataclass
from typing import Any

from app.subscribers import Preferences
from app.types import Cadence, EmptyDigestPolicy, Interest


@dataclass(frozen=True, slots=True)
class SampleSubscriber:
    """A subscriber, and the feature that their mailbox shows."""

    email: str
    about: str
    preferences: Preferences


def _preferences(*interests: str | Interest, **options: Any) -> Preferences:
    given = tuple(item if isinstance(item, Interest) else Interest(item) for item in interests)
    return Preferences(interests=given, **{"max_papers": 6, "max_trending": 3, **options})


UNKNOWN = "trent@example.org"  # the mail server has no such mailbox
GREYLISTED = "heidi@example.org"  # the mail server defers the first email

SUBSCRIBERS = (
    SampleSubscriber(
        "alice@example.org",
        "Three interests with quotas; sent at 8 o'clock in Berlin, before and after the clocks change",
        _preferences(
            Interest("agents", quota=3),
            Interest("reinforcement learning", quota=2),
            Interest("reasoning", quota=2),
            zone="Europe/Berlin",
            hour=8,
        ),
    ),
    SampleSubscriber(
        "bob@example.org",
        "Weekdays only, so Monday's digest includes the weekend's papers; no trending papers",
        _preferences(
            "video generation",
            "video world models",
            "world models",
            zone="America/New_York",
            hour=7,
            cadence=Cadence.WEEKDAYS,
            max_papers=5,
            max_trending=0,
        ),
    ),
    SampleSubscriber(
        "carol@example.org",
        "One digest a week, on Friday evening in Tokyo",
        _preferences(
            "quantization",
            "sparse attention",
            "Diffusion language models",
            "memory",
            zone="Asia/Tokyo",
            hour=18,
            cadence=Cadence.WEEKLY,
            weekday=4,
            max_papers=10,
        ),
    ),
    SampleSubscriber(
        "dave@example.org",
        "A phrase, and a category with an exclusion: robotics, but not driving; benchmarks are muted",
        _preferences(
            '"robot"',
            "vision-language-action",
            "cat:cs.RO -driving",
            zone="Europe/London",
            hour=7,
            muted=("benchmark",),
        ),
    ),
    SampleSubscriber(
        "erin@example.org",
        "At least three papers per digest: papers from days with fewer wait for the next digest",
        _preferences(
            '"medical"', '"clinical"', "epidemiology", zone="Australia/Sydney", hour=6, min_papers=3
        ),
    ),
    SampleSubscriber(
        "frank@example.org",
        "Nothing matches, so no email is sent; the ledger gives the reason for every day",
        _preferences('"honey bees"', zone="Atlantic/Reykjavik", hour=9),
    ),
    SampleSubscriber(
        "grace@example.org",
        "Speech, also by category; trending papers on days without a match",
        _preferences(
            '"speech"',
            "cat:eess.AS",
            zone="Asia/Kolkata",
            hour=11,
            max_papers=4,
            when_empty=EmptyDigestPolicy.TRENDING,
        ),
    ),
    SampleSubscriber(
        GREYLISTED,
        "The mail server greylists: the first email is deferred, then sent; time zone UTC+05:45",
        _preferences("earth observation", "star clusters", "weather forecast", zone="Asia/Kathmandu", hour=8),
    ),
    SampleSubscriber(
        UNKNOWN,
        "A mailbox that does not exist: one email bounces, and no further mail is sent",
        _preferences("coding agents", zone="UTC", hour=10),
    ),
)
