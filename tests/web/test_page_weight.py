"""No page is heavy, however much there is to read."""

from __future__ import annotations

import random
import re

import pytest
from fastapi.testclient import TestClient

from app import clock, subscribers
from app.application import Application
from app.links import Purpose
from app.subscribers import MatchedReferences, Preferences
from app.types import Interest, PaperRecord
from tests.support import page_weight
from tests.web.conftest import Link
from tests.web.pages.test_home import DAY, paper, shelve

PAPERS = 100
pytestmark = pytest.mark.once


def test_no_page_is_heavy(app: Application, client: TestClient, link: Link) -> None:
    """With a hundred papers a day, twenty interests, two hundred likes: as it is sent, and as it is read."""
    dice, day = random.Random(1), clock.utcnow().date()  # noqa: S311 - no secret
    titles = [page_weight.prose(dice, 11) for _ in range(PAPERS)]
    shelve(
        app,
        *(
            paper(
                number, day, title=title, abstract=page_weight.prose(dice, 150), upvotes=number,
                tldr=page_weight.prose(dice, 28),
                authors=(page_weight.prose(dice, 2), page_weight.prose(dice, 2)),
                pdf_url=f"https://arxiv.org/pdf/2611.{number:05}", keywords=(page_weight.prose(dice, 2),),
                code_url="https://example.org/someones/repository",
            )
            for number, title in enumerate(titles, 1)
        ),
    )  # fmt: skip
    wishes = tuple(Interest(" ".join(title.split()[:4]), 1.0, 3) for title in titles[:20])
    liked = tuple(
        PaperRecord(
            title=page_weight.prose(dice, 11),
            authors=(page_weight.prose(dice, 2), page_weight.prose(dice, 2)),
        )
        for _ in range(200)
    )
    wanted = Preferences(interests=wishes, max_papers=30, max_trending=30)
    with app.db.write() as session:
        carol = subscribers.add(session, "carol@example.org", wanted, clock.utcnow())
        subscribers.like(session, carol, MatchedReferences(own=liked), clock.utcnow())
    theirs = link(Purpose.PREFERENCES, carol)
    week = f"/week/{day:%G-W%V}"
    paths = ["/", f"/day/{day}", f"/day/{day}?page=2", week, "/paper/1", "/search", "/manage"]
    paths += [f"/search?q={titles[0].split()[0]}", theirs, f"{theirs}/papers", f"{theirs}/preview"]
    weights = {path: page_weight.weigh(client, path) for path in paths}
    typed = {"interest": [wish.text for wish in wishes]}
    weights["/preview"] = page_weight.weigh(client, "/preview", typed)
    assert client.get(f"{theirs}/preview").text.count('<p class="why">') == 30
    assert {path: of for path, of in weights.items() if max(of.sent, of.html) > page_weight.LIMIT} == {}


def test_a_day_is_shown_page_by_page(app: Application, client: TestClient) -> None:
    """Every paper once, numbered on; each page says which it is, and there are no others."""
    shelve(app, *(paper(number, upvotes=number) for number in range(1, 53)))
    first, second = client.get(f"/day/{DAY}").text, client.get(f"/day/{DAY}?page=2").text
    shown = [int(number) for page in (first, second) for number in re.findall(r"On the Number (\d+)<", page)]
    assert shown == [*range(52, 0, -1)]
    assert "1 to 50 of 52 papers" in first
    assert f'rel="next" href="/day/{DAY}?page=2"' in first
    assert '<ol class="papers" start="51">' in second
    assert f'rel="prev" href="/day/{DAY}"' in second
    assert f'<link rel="canonical" href="https://paperboy.test/day/{DAY}?page=2">' in second
    assert "There are only 2 pages of" in client.get(f"/day/{DAY}?page=3").text
    assert client.get(f"/day/{DAY}?page=x").text == first
