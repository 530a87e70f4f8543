"""Measure how well silent sources are reported: false alerts, and days with papers missed before an alert.

    python -m benchmarks.silence HF_PAPERS.jsonl.xz

The sources are the recorded days of Hugging Face Daily Papers, and three simulated ones: the announcements of
arXiv with its holidays, a weekly list that leaves out one week in 17, and a source with papers on 15 % of all
days. The baseline is the longest gap of the last 90 days and two more. A false alert is an alert while the
source still lists papers. The delay is the number of days with papers that are missed, after a source has
stopped, before the alert.
"""

import argparse
import itertools
import json
import lzma
import random
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from pathlib import Path
from statistics import mean

from app.papers import silent_sources

Rule = Callable[[Sequence[date], date], bool]
DAY, START, LENGTH = timedelta(days=1), date(2025, 1, 2), 700
CLOSED = {
    date(*day)
    for day in (
        (2025, 5, 26), (2025, 7, 4), (2025, 9, 1), (2025, 11, 27), (2025, 12, 25), (2025, 12, 26),
        (2026, 1, 1), (2026, 1, 2), (2026, 5, 25), (2026, 7, 3), (2026, 9, 7), (2026, 11, 26),
    )
}  # fmt: skip


def exceeds_longest_gap(days: Sequence[date], today: date) -> bool:
    """Return whether a source counts as silent by the baseline."""
    if len(days) < silent_sources.MIN_DAYS:
        return False
    longest = max(later - day for day, later in itertools.pairwise(days))
    return today - days[-1] > max(longest + 2 * DAY, 3 * DAY)


def false_alerts(rule: Rule, days: Sequence[date]) -> int:
    """Return the number of mornings on which a source becomes silent. The day's papers are not listed yet."""
    mornings = [days[0] + number * DAY for number in range((days[-1] - days[0]).days + 1)]
    silent = [rule(recent(days, morning), morning) for morning in mornings]
    return sum(later and not before for before, later in itertools.pairwise(silent))


def delay(rule: Rule, days: Sequence[date], last: date) -> int:
    """Return how many days with papers are missed before the alert if `last` is the last one."""
    before = [day for day in days if day <= last]
    morning = last + DAY
    while not rule(recent(before, morning), morning) and morning < last + 60 * DAY:
        morning += DAY
    return sum(last < day < morning for day in days)


def recent(days: Sequence[date], morning: date) -> list[date]:
    return [day for day in days if morning - silent_sources.HISTORY <= day < morning]


def sources(recorded: Path) -> dict[str, list[date]]:
    """Return the days with papers of each source, in order."""
    with lzma.open(recorded, "rt") as rows:
        huggingface = {date.fromisoformat(json.loads(row)["listed_on"][:10]) for row in rows}
    calendar = [START + number * DAY for number in range(LENGTH)]
    chance = random.Random(1)  # noqa: S311 - a simulation
    return {
        "Hugging Face": sorted(huggingface),
        "arXiv": [day for day in calendar if day.weekday() < 5 and day not in CLOSED],
        "weekly": [day for week, day in enumerate(calendar[::7]) if week % 17],
        "irregular": [day for day in calendar if chance.random() < 0.15],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recorded", type=Path)
    rules: dict[str, Rule] = {"longest gap": exceeds_longest_gap, "weekdays": silent_sources.is_silent}
    for name, days in sources(parser.parse_args().recorded).items():
        for label, rule in rules.items():
            delays = [delay(rule, days, last) for last in days[30:-20:5]]
            print(
                f"{name:13} {label:12} {false_alerts(rule, days):2} false alerts, missed before an alert: "
                f"{mean(delays):.2f} on average, at most {max(delays)}"
            )


if __name__ == "__main__":
    main()
