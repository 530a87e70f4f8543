"""Simulate the servers of two sources: Hugging Face, and a feed that lists some of its papers again later."""

import random
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from email.utils import format_datetime
from functools import lru_cache
from typing import Any
from xml.sax.saxutils import escape

import httpx

from app.papers.sources.http_client import HttpTransport
from benchmarks import scale

FIRST_DAY = date(2027, 8, 1)  # of the first paper
DELAYS = (0, 1, 9, 45, 59, 61, 70)  # days until a paper is also in the feed
PAGE = 100  # papers
FEED = "https://lab.example/rss"


@dataclass
class Sources:
    """The simulated servers of the sources. Figures of a paper depend on its number and its age only."""

    per_day: int
    now: datetime
    down_until: datetime | None = None
    refused_requests: int = 0

    def transport(self) -> HttpTransport:
        """Return a transport that requests nothing from the internet and never waits."""

        async def resolve(*_: object) -> list[str]:
            return ["93.184.216.34"]

        async def skip_sleep(_: float) -> None:
            return None

        return HttpTransport(httpx.MockTransport(self.respond), sleep=skip_sleep, resolve=resolve)

    def respond(self, request: httpx.Request) -> httpx.Response:
        if self.down_until and self.now < self.down_until:
            self.refused_requests += 1
            return httpx.Response(503)
        if "daily_papers" in request.url.path:
            day, page = date.fromisoformat(request.url.params["date"]), int(request.url.params["p"])
            rows = [self._row(number) for number in self._listed_on(day)] if day <= self.now.date() else []
            more = {"link": '<x>; rel="next"'} if len(rows) > PAGE * (page + 1) else {}
            return httpx.Response(200, json=rows[PAGE * page : PAGE * (page + 1)], headers=more)
        if "/api/papers/" in request.url.path:
            return httpx.Response(200, json=self._row(int(request.url.path.rpartition(".")[2]))["paper"])
        return httpx.Response(200, text=self._feed())

    def _listed_on(self, day: date) -> range:
        """Return the numbers of a day's papers. There are fewer on weekends."""
        if day < FIRST_DAY:
            return range(0)
        first = (day - FIRST_DAY).days * self.per_day
        return range(first, first + (self.per_day if day.weekday() < 5 else self.per_day // 5))

    def _listing_day(self, number: int) -> date:
        return FIRST_DAY + timedelta(days=number // self.per_day)

    def _row(self, number: int) -> dict[str, Any]:
        paper, day = make_paper(number), self._listing_day(number)
        votes = number % 40 * (1 + (self.now.date() - day).days)
        inner = {
            "id": f"{day:%y%m}.{number:05}", "title": paper["title"], "summary": paper["abstract"],
            "authors": [{"name": name} for name in paper["authors"]], "upvotes": votes,
            "submittedOnDailyAt": f"{day}T05:00:00.000Z", "publishedAt": f"{day}T00:00:00.000Z",
        }  # fmt: skip
        return {"paper": inner, "numComments": 1, "title": paper["title"]}

    def _feed(self) -> str:
        """Return the feed: every tenth paper of the days that lie one of DELAYS back."""
        days = [self.now.date() - timedelta(days=back) for back in DELAYS]
        entries = [number for day in days for number in self._listed_on(day)[::10]]
        items = "".join(map(self._feed_item, entries))
        channel = f"<title>Lab</title><link>https://lab.example/</link><description>d</description>{items}"
        return f'<?xml version="1.0"?><rss version="2.0"><channel>{channel}</channel></rss>'

    def _feed_item(self, number: int) -> str:
        paper = make_paper(number)
        at = format_datetime(datetime.combine(self.now.date(), time(1), UTC))
        return (
            f"<item><title>{escape(paper['title'])}</title><link>https://lab.example/{number}</link>"
            f"<description>{escape(paper['abstract'])}</description><pubDate>{at}</pubDate></item>"
        )


@lru_cache(4_000)
def make_paper(number: int) -> dict[str, Any]:
    return scale._paper(number, random.Random(number))  # noqa: S311 - no secret
