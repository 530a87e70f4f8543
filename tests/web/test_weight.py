"""No page is heavy, however much there is to read."""

from __future__ import annotations

import random
import re

import pytest
from fastapi.testclient import TestClient

from app import clock, subscribers
from app.pipeline import App
from app.records import Wish
from app.subscribers import Preferences
from app.tokens import Purpose
from tests import weight
from tests.web.conftest import Link
from tests.web.test_public import DAY, paper, shelve

PAPERS = 100
pytestmark = pytest.mark.once


def test_no_page_is_heavy(app: App, client: TestClient, link: Link) -> None:
    """With a hundred papers a day and twenty interests: as it is sent, and the page alone as it is read."""
    dice = random.Random(1)  # noqa: S311 - no secret
    shelve(
        app,
        *(
            paper(
                number, title=weight.prose(dice, 11), abstract=weight.prose(dice, 150), upvotes=number,
                tldr=weight.prose(dice, 28), authors=(weight.prose(dice, 2), weight.prose(dice, 2)),
                pdf_url=f"https://arxiv.org/pdf/2611.{number:05}", keywords=(weight.prose(dice, 2),),
                code_url="https://example.org/someones/repository",
            )
            for number in range(1, PAPERS + 1)
        ),
    )  # fmt: skip
    wishes = tuple(Wish(weight.prose(dice, 4), 1.0, 3) for _ in range(20))
    with app.db.write() as session:
        carol = subscribers.add(session, "carol@example.org", Preferences(interests=wishes), clock.utcnow())
    paths = ["/", f"/day/{DAY}", f"/day/{DAY}?page=2", "/week/2026-W47", "/paper/1", "/search", "/manage"]
    weights = {path: weight.weigh(client, path) for path in [*paths, link(Purpose.PREFERENCES, carol)]}
    assert {path: of for path, of in weights.items() if max(of.sent, of.html) > weight.LIMIT} == {}


def test_a_day_is_shown_page_by_page(app: App, client: TestClient) -> None:
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
