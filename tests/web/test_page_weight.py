"""Check that no page is too large."""

import random
import re
from datetime import timedelta

import pytest
from fastapi.testclient import TestClient

from app import clock, subscribers
from app.application import Application
from app.links import Purpose
from app.subscribers import MatchedReferences, Preferences
from app.types import Interest, PaperRecord
from tests.support import page_weight
from tests.web.conftest import Link
from tests.web.pages.test_home import DAY, add_papers, record

PAPERS = 100
pytestmark = pytest.mark.once


def test_page_sizes(app: Application, client: TestClient, link: Link) -> None:
    """Check sizes with a hundred papers a day, twenty interests and two hundred likes."""
    rng, day = random.Random(1), clock.utcnow().date()  # noqa: S311 - no secret
    titles = [page_weight.generate_text(rng, 11) for _ in range(PAPERS)]
    add_papers(
        app,
        *(
            record(
                number, day, title=title, abstract=page_weight.generate_text(rng, 150), upvotes=number,
                tldr=page_weight.generate_text(rng, 28),
                authors=(page_weight.generate_text(rng, 2), page_weight.generate_text(rng, 2)),
                pdf_url=f"https://arxiv.org/pdf/2611.{number:05}",
                keywords=(page_weight.generate_text(rng, 2),),
                code_url="https://example.org/someones/repository",
            )
            for number, title in enumerate(titles, 1)
        ),
        # A week of papers, so that the preview says what other amounts bring.
        *(record(PAPERS + back, day - timedelta(days=back)) for back in range(1, 7)),
    )  # fmt: skip
    interests = tuple(Interest(" ".join(title.split()[:4]), 1.0, 3) for title in titles[:20])
    liked = tuple(
        PaperRecord(
            title=page_weight.generate_text(rng, 11),
            authors=(page_weight.generate_text(rng, 2), page_weight.generate_text(rng, 2)),
        )
        for _ in range(200)
    )
    preferences = Preferences(interests=interests, max_papers=30, max_trending=30)
    with app.db.write() as session:
        carol = subscribers.add(session, "carol@example.org", preferences, clock.utcnow())
        subscribers.like(session, carol, MatchedReferences(own=liked), clock.utcnow())
    preferences_path = link(Purpose.PREFERENCES, carol)
    week = f"/week/{day:%G-W%V}"
    paths = ["/", f"/day/{day}", f"/day/{day}?page=2", week, "/paper/1", "/search", "/manage"]
    paths += [f"/search?q={titles[0].split()[0]}"]
    paths += [preferences_path, f"{preferences_path}/papers", f"{preferences_path}/preview"]
    weights = {path: page_weight.weigh(client, path) for path in paths}
    typed = {"interest": [interest.text for interest in interests]}
    weights["/preview"] = page_weight.weigh(client, "/preview", typed)
    assert client.get(f"{preferences_path}/preview").text.count('<p class="v">') == 30
    assert {path: of for path, of in weights.items() if max(of.sent, of.html) > page_weight.LIMIT} == {}


def test_day_page_is_paginated(app: Application, client: TestClient) -> None:
    """Every paper appears once, and ranks continue on the next page."""
    add_papers(app, *(record(number, upvotes=number) for number in range(1, 53)))
    first, second = client.get(f"/day/{DAY}").text, client.get(f"/day/{DAY}?page=2").text
    numbers = [
        int(number) for page in (first, second) for number in re.findall(r"On the Number (\d+)<", page)
    ]
    assert numbers == [*range(52, 0, -1)]
    assert "1 to 50 of 52 papers" in first
    assert f'rel="next" href="/day/{DAY}?page=2"' in first
    assert '<ol class="papers" start="51">' in second
    assert f'rel="prev" href="/day/{DAY}"' in second
    assert f'<link rel="canonical" href="https://paperboy.test/day/{DAY}?page=2">' in second
    assert "There are only 2 pages of" in client.get(f"/day/{DAY}?page=3").text
    assert client.get(f"/day/{DAY}?page=x").text == first
