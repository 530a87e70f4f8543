"""Test the pages of papers and weeks, and the search."""

import re
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from html import unescape
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import event
from sqlmodel import select

from app import clock, main
from app.application import Application
from app.papers import archive_lists, editing, merging
from app.papers.archive_lists import PaperFilter
from app.relevance import archive_search, query_language
from app.relevance.archive_search import ArchiveSearch, SearchPage
from app.storage.models import GeneratedSummary, Listing, Paper, PaperPicture, Source, VoteCount
from app.text import sanitize
from app.types import PaperRecord, VoteSample
from app.web import paper_cards, rate_limits, templating, vote_chart
from app.web.capacity import Capacity
from app.web.paper_cards import Week
from tests.support import factories
from tests.web.pages.test_home import DAY, add_papers, record

AT = datetime(2026, 11, 19, 8, tzinfo=UTC)


def add_numbered_papers(app: Application, *records: PaperRecord) -> list[int]:
    """Ingest papers as a source does, and return their ids."""
    add_papers(app, *records)
    with app.db.read() as session:
        ids = {row.title: row.id or 0 for row in session.exec(select(Paper))}
    return [ids[record.title] for record in records]


# --- pictures


@pytest.mark.once
def test_pages_show_pictures(app: Application, client: TestClient) -> None:
    """Lists and the paper's page load one lazily, with its size and a text. Other papers look as before."""
    figure, card, _ = add_numbered_papers(app, *(record(n, title=f"Herds {n}") for n in (1, 2, 3)))
    with app.db.write() as session:
        factories.add_picture(session, figure, AT)
        factories.add_picture(session, card, AT, "https://cdn.test/social-thumbnails/papers/2.png")
    pages = {
        path: client.get(path).text for path in ("/", f"/day/{DAY}", "/week/2026-W47", "/search?q=herds")
    }
    rest = 'width="480" height="259" alt="{}" loading="lazy" decoding="async"'
    expected = [
        ("picture", f"/paper/{figure}/picture?v=1f", rest.format("Figure for this paper")),
        ("picture title-card", f"/paper/{card}/picture?v=1f", rest.format("")),
    ]
    for path, page in pages.items():
        assert sorted(re.findall(r'<img class="(.*?)" src="(.*?)" (.*)>', page)) == expected, path
    assert 'alt="Figure for “Herds 1”"' in client.get(f"/paper/{figure}").text
    assert 'alt=""' in client.get(f"/paper/{card}").text
    assert "<figure>" not in client.get("/paper/3").text


def test_picture_response(app: Application, client: TestClient) -> None:
    """With its version in the URL, it may be cached for a week. Otherwise, it is checked each time."""
    (number,) = add_numbered_papers(app, record(1))
    with app.db.write() as session:
        data = factories.add_picture(session, number, AT)
    answer = client.get(f"/paper/{number}/picture?v=1f")
    assert (answer.status_code, answer.content) == (200, data)
    assert answer.headers["content-type"] == "image/webp"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "public, max-age=604800, immutable"
    assert "content-encoding" not in answer.headers
    for path in (f"/paper/{number}/picture", f"/paper/{number}/picture?v=2a"):
        assert client.get(path).headers["cache-control"] == "no-cache"
    unchanged = client.get(f"/paper/{number}/picture", headers={"If-None-Match": answer.headers["etag"]})
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    assert client.head(f"/paper/{number}/picture").headers["content-length"] == str(len(data))


def test_pictures_are_limited(app: Application, client: TestClient) -> None:
    """Any text may follow `?v=`, so caches do not bound the requests. Pages do not count."""
    (number,) = add_numbered_papers(app, record(1))
    with app.db.write() as session:
        factories.add_picture(session, number, AT)
    limits: Capacity = client.app.state.capacity  # type: ignore[attr-defined]
    for _ in range(rate_limits.PICTURES_A_MINUTE - 1):
        limits.visitors.pictures.hit("testclient")
    answers = [client.get(f"/paper/{number}/picture?v={version}") for version in (1, 2)]
    assert [answer.status_code for answer in answers] == [200, 429]
    assert "retry-after" in answers[1].headers
    assert client.get(f"/paper/{number}").status_code == 200


@pytest.mark.parametrize("field", ["withdrawn_at", "hidden_at"])
def test_picture_of_a_paper_that_is_not_public(app: Application, client: TestClient, field: str) -> None:
    (number,) = add_numbered_papers(app, record(1))
    with app.db.write() as session:
        factories.add_picture(session, number, AT)
        setattr(session.get_one(Paper, number), field, AT)
    assert client.get(f"/paper/{number}/picture?v=1f").status_code == 404


@pytest.mark.parametrize("number", ["1", "2", "0", "-1", "x", "99999999999999999999"])
def test_missing_picture_is_not_found(app: Application, client: TestClient, number: str) -> None:
    """So is one that could not be fetched."""
    add_numbered_papers(app, record(1))
    with app.db.write() as session:
        session.add(PaperPicture(paper_id=1, url="", failures=1, fetched_at=AT))
    assert client.get(f"/paper/{number}/picture").status_code == 404


def test_pictures_can_be_turned_off(app: Application) -> None:
    """Pages and the address of a picture then ignore those that are still stored."""
    (number,) = add_numbered_papers(app, record(1))
    with app.db.write() as session:
        factories.add_picture(session, number, AT)
    off = replace(app, settings=app.settings.model_copy(update={"pictures": False}))
    with TestClient(main.create_app(off), base_url="https://paperboy.test") as visitor:
        assert visitor.get(f"/paper/{number}/picture?v=1f").status_code == 404
        for path in (f"/day/{DAY}", f"/paper/{number}"):
            assert "<img" not in visitor.get(path).text


# --- a paper


def test_paper_page(app: Application, client: TestClient) -> None:
    """It shows authors, abstract, links, stars and listings with who submitted the paper."""
    (number,) = add_numbered_papers(
        app,
        record(
            1, title="Of <b>Herds</b>", abstract="We follow zebras & say so.", authors=("Ada Lovelace",),
            categories=("q-bio.PE",), code_url="https://example.org/code", rank=3, upvotes=1,
            stars=2207, submitted_by="mei <b>",
            organization_names=("Of <b>Birds</b>", "birds"),
            published_on=DAY - timedelta(days=2), tldr="Zebras go in herds.",
        ),
    )  # fmt: skip
    answer = client.get(f"/paper/{number}")
    assert answer.status_code == 200
    assert '<h1 dir="auto">Of &lt;b&gt;Herds&lt;/b&gt;</h1>' in answer.text
    assert "We follow zebras &amp; say so." in answer.text
    assert "Published on Tuesday, 17 November 2026" in answer.text
    assert 'href="/search?q=author%3A%22Ada+Lovelace%22">Ada Lovelace</a>' in answer.text
    assert 'From <a dir="auto" href="/search?q=org%3A%22Of+%3Cb%3EBirds' in answer.text
    assert ">Of &lt;b&gt;Birds&lt;/b&gt;</a>" in answer.text
    for url in (
        "https://arxiv.org/abs/2611.00001",
        "https://arxiv.org/pdf/2611.00001",
        "https://example.org/code",
    ):
        assert f'href="{url}"' in answer.text
    assert "Zebras go in herds." in answer.text
    assert "Summary by a source." in answer.text
    assert "1 vote</h2>" in answer.text
    assert 'href="/day/2026-11-19"' in answer.text
    assert "a source, rank 3, submitted by <bdi>mei &lt;b&gt;</bdi>" in answer.text
    assert (
        '>Code <span aria-hidden="true">★</span> 2,207<span class="unseen"> stars</span></a>' in answer.text
    )
    assert f'<link rel="canonical" href="https://paperboy.test/paper/{number}">' in answer.text
    assert '<meta name="description" content="Zebras go in herds.">' in answer.text


def test_latex_is_rendered_as_text(app: Application, client: TestClient) -> None:
    """It is converted once on ingest, so emails and pages show the same."""
    title, abstract = (
        sanitize.title(r"On $\pi_0$ and 50\% Zebras"),
        sanitize.clean_text(r"The \emph{herd} has $O(\log n)$."),
    )
    (number,) = add_numbered_papers(app, record(1, title=title, abstract=abstract))
    page = client.get(f"/paper/{number}").text
    assert "On π₀ and 50% Zebras" in page
    assert "The herd has O(log n)." in page
    assert "\\" not in page


def test_long_author_lists_are_collapsed(app: Application, client: TestClient) -> None:
    """The first eight are visible, the rest expands, and unnamed authors are counted."""
    names = tuple(f"Author {letter}" for letter in "ABCDEFGHIJ")
    number, unfolded = add_numbered_papers(
        app, record(1, authors=names, author_count=12), record(2, authors=names)
    )
    visible, _, folded = client.get(f"/paper/{number}").text.partition("<details>")
    assert ">Author H</a>" in visible
    assert ">Author I</a>" not in visible
    assert "<summary>and 4 more</summary>" in folded
    assert "2 more whose names are unknown" in folded
    page = client.get(f"/paper/{unfolded}").text
    assert ">Author J</a>" in page, "for two more nobody has to press a key"
    assert "<details>" not in page


@pytest.mark.parametrize(("count", "line"), [(1, "1 author"), (3, "3 authors")])
def test_unnamed_authors_are_counted(app: Application, client: TestClient, count: int, line: str) -> None:
    (number,) = add_numbered_papers(app, record(1, author_count=count))
    assert f"<p>{line}</p>" in client.get(f"/paper/{number}").text


def test_author_and_category_links(app: Application, client: TestClient) -> None:
    """Test names with quotes, categories with spaces, and names that cannot be searched for."""
    authors = ("Ada “Countess” Lovelace", 'Alan "T" Turing', "„García“, José", "…", "x" * 400)
    (number,) = add_numbered_papers(
        app, record(1, authors=authors, categories=("Machine Learning", "cs.CL", "-"))
    )
    page = client.get(f"/paper/{number}").text
    ways = [unescape(way) for way in re.findall(r'href="(/search\?q=[^"]*)"', page)]
    assert len(ways) == 5
    for way in ways:
        assert f'href="/paper/{number}"' in client.get(way).text, way
    assert "…" in page
    assert "x" * 400 in page


def test_generated_summary_names_the_model(app: Application, client: TestClient) -> None:
    (number,) = add_numbered_papers(app, record(1, abstract="Zebras."))
    with app.db.write() as session:
        session.add(GeneratedSummary(paper_id=number, text="It is on zebras.", model="small-1", at=AT))
    page = client.get(f"/paper/{number}").text
    assert "It is on zebras." in page
    assert "Written by small-1, a language model." in page


def test_edited_summary_is_not_attributed_to_a_source(app: Application, client: TestClient) -> None:
    (number,) = add_numbered_papers(app, record(1, tldr="Zebras go in herds."))
    with app.db.write() as session:
        editing.edit(session, session.get_one(Paper, number), {"tldr": "Zebras go home."}, AT)
    page = client.get(f"/paper/{number}").text
    assert "Zebras go home." in page
    assert f"Summary edited by {app.settings.site_name}." in page
    assert "Summary by a source." not in page


def test_votes_are_shown_as_chart_and_text(app: Application, client: TestClient) -> None:
    """The text serves screen readers."""
    (number,) = add_numbered_papers(app, record(1, upvotes=3))
    with app.db.write() as session:
        first = session.exec(select(VoteCount)).one()
        first.at = AT
        fields = {"paper_id": number, "original_paper_id": number, "source_id": first.source_id}
        session.add(VoteCount(**fields, at=AT + timedelta(days=2), upvotes=140))
    words = "From 3 votes on 19 November 2026 to 140 on 21 November 2026."
    two_samples = vote_chart.vote_chart([VoteSample(AT, 3), VoteSample(AT + timedelta(days=2), 140)])
    assert two_samples == vote_chart.VoteChart((), words)  # too few for a curve
    with app.db.write() as session:
        for hours in (1, 2, 3):
            session.add(VoteCount(**fields, at=AT + timedelta(hours=hours), upvotes=10 * hours))
    page = client.get(f"/paper/{number}").text
    assert f'role="img" viewBox="-2 -3 246 66" aria-label="Votes. {words}"' in page
    assert f'<p class="hint">{words}</p>' in page
    assert "style=" not in page


def test_merged_paper_redirects_temporarily(app: Application, client: TestClient) -> None:
    """The merge may be undone, so browsers must not cache the redirect."""
    old, target = add_numbered_papers(app, record(1), record(2))
    with app.db.write() as session:
        session.get_one(Paper, old).merged_into_id = target
    answer = client.get(f"/paper/{old}", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (307, f"/paper/{target}")


def test_withdrawn_paper_shows_only_its_title(app: Application, client: TestClient) -> None:
    (number,) = add_numbered_papers(app, record(1, abstract="We were wrong."))
    with app.db.write() as session:
        session.get_one(Paper, number).withdrawn_at = AT
    answer = client.get(f"/paper/{number}")
    assert answer.status_code == 404
    assert "This paper was withdrawn" in answer.text
    assert "On the Number 1" in answer.text
    assert "We were wrong." not in answer.text


@pytest.mark.parametrize("number", ["7", "0", "-1", "x", "٣", "99999999999999999999", "1e3"])
def test_unknown_paper_is_not_found(client: TestClient, number: str) -> None:
    answer = client.get(f"/paper/{number}")
    assert answer.status_code == 404
    assert "No paper has this number." in answer.text


def test_cards_link_the_paper_page(app: Application, client: TestClient) -> None:
    """Check the front page, days, weeks and search results; external links come second."""
    (number,) = add_numbered_papers(app, record(1))
    for path in ("/", f"/day/{DAY}", "/week/2026-W47", "/search"):
        page = client.get(path).text
        assert f'<a href="/paper/{number}">On the Number 1</a>' in page
        assert f'id="p{number}"' in page
        outside = '<a href="https://arxiv.org/abs/2611.00001"'
        named = f'id="p{number}-abstract" aria-labelledby="p{number}-abstract p{number}"'
        assert f"{outside} {named}>Abstract</a>" in page


# --- the curve


def test_vote_chart_is_to_scale() -> None:
    """Time runs from left to right, votes from zero at the bottom to the maximum at the top."""
    hours = {0: 30, 6: 60, 12: 60, 18: 90, 24: 120}
    chart = vote_chart.vote_chart(
        [VoteSample(AT + timedelta(hours=hour), votes) for hour, votes in hours.items()]
    )
    assert chart
    assert chart.points == ((0, 45), (60, 30), (120, 30), (180, 15), (240, 0))
    assert chart.description == "From 30 votes on 19 November 2026 to 120 on 20 November 2026."


@pytest.mark.parametrize("votes", [[], [VoteSample(AT, 5)]])
def test_no_vote_chart_for_a_single_sample(votes: list[VoteSample]) -> None:
    assert vote_chart.vote_chart(votes) is None


def test_vote_chart_of_zero_votes() -> None:
    chart = vote_chart.vote_chart([VoteSample(AT + timedelta(hours=hour), 0) for hour in range(5)])
    assert chart
    assert chart.points == ((0, 60), (60, 60), (120, 60), (180, 60), (240, 60))


def test_vote_chart_svg_has_the_coordinates(app: Application) -> None:
    """The line passes through every sample, and the dot is at the last one."""
    chart = vote_chart.vote_chart([VoteSample(AT + timedelta(hours=hour), hour or 1) for hour in range(5)])
    module = templating.environment(app.settings).get_template("paper_macros.html").module
    markup = str(module.vote_chart(chart))  # type: ignore[attr-defined]
    assert '<polyline class="line" points="0.0,45.0 60.0,45.0 120.0,30.0 180.0,15.0 240.0,0.0"/>' in markup
    assert (
        '<polygon class="under" points="0,60 0.0,45.0 60.0,45.0 120.0,30.0 180.0,15.0 240.0,0.0 240,60"/>'
        in markup
    )
    assert '<circle cx="240.0" cy="0.0" r="3"/>' in markup
    assert 'aria-label="Votes. From 1 vote to 4 on 19 November 2026."' in markup


# --- search


def test_search_works_without_scripts(app: Application, client: TestClient) -> None:
    """The form is sent by GET and comes back filled in, above the results."""
    add_papers(app, record(1, title="Zebra stripes"), record(2, title="Lion manes"))
    page = client.get("/search", params={"q": "zebra -lion", "day": str(DAY), "source": "a source"}).text
    assert '<form class="finder" method="get" action="/search"' in page
    assert 'value="zebra -lion"' in page
    assert f'type="date" value="{DAY}"' in page
    assert '<option value="a source" selected>' in page
    assert "1 paper</h2>" in page
    assert "Zebra stripes</a>" in page
    assert "Lion manes" not in page


def test_search_uses_the_interest_syntax(app: Application, client: TestClient) -> None:
    """It supports phrases, exclusions, authors, organisations and categories."""
    add_papers(
        app,
        record(
            1, title="Zebra stripes", authors=("Ada Lovelace",), organization_names=("NVIDIA",),
            categories=("cs.CL",),
        ),
        record(2, title="Stripes of a zebra", authors=("Alan Turing",), categories=("cs.CV",)),
    )  # fmt: skip
    for typed in (
        "zebra org:nvidia",
        "NVIDIA",
        '"zebra stripes"',
        "zebra author:lovelace",
        "cat:cs.CL",
        "zebra -author:turing",
        "-cat:cs.CV stripes",
    ):
        page = client.get("/search", params={"q": typed}).text
        assert "Zebra stripes</a>" in page, typed
        assert "Stripes of a zebra" not in page, typed


def test_search_filter_for_papers_with_code(app: Application, client: TestClient) -> None:
    add_papers(app, record(1, title="With", code_url="https://example.org/code"), record(2, title="Without"))
    page = client.get("/search?code=1").text
    assert "With</a>" in page
    assert "Without</a>" not in page
    assert 'value="1" checked' in page


@pytest.mark.parametrize(
    ("query", "order"), [("author:turing", "newest first"), ("paper author:turing", "best matches first")]
)
def test_search_page_names_its_order(
    app: Application, client: TestClient, monkeypatch: pytest.MonkeyPatch, query: str, order: str
) -> None:
    """A search with nothing but filters has no better and worse matches."""
    monkeypatch.setattr(archive_search, "MAX_RESULTS", 1)
    add_papers(app, *(record(n, title=f"Paper {n}", authors=("Alan Turing",)) for n in (1, 2)))
    text = client.get("/search", params={"q": query}).text
    kind = "newest" if order == "newest first" else "best"
    assert f"<p>{order}; only the {kind} 1 are listed</p>" in text


def test_search_results_are_paginated(app: Application, client: TestClient) -> None:
    """Pages have twenty results, continuous numbering and links; a page out of range links back."""
    add_papers(app, *(record(number) for number in range(1, 46)))
    middle = client.get("/search?page=2").text
    assert "45 papers</h2>" in middle
    assert "newest first, page 2 of 3" in middle
    assert '<ol class="papers" start="21">' in middle
    assert middle.count("<article>") == 20
    assert 'rel="prev" href="/search?page=1"' in middle
    assert 'rel="next" href="/search?page=3"' in middle
    last = client.get("/search?page=3").text
    assert last.count("<article>") == 5
    assert 'rel="next"' not in last
    past_the_end = client.get("/search?page=9").text
    assert "There are only 3 pages." in past_the_end
    assert client.get("/search?page=x").text.count("<article>") == 20


def test_search_without_results_gives_advice(app: Application, client: TestClient) -> None:
    add_papers(app, record(1))
    answer = client.get("/search", params={"q": "qwertz", "code": "1"})
    assert answer.status_code == 200
    assert "No papers</h2>" in answer.text
    assert "Try fewer or different words, or remove the filters." in answer.text
    assert "No papers match these filters." in client.get("/search?code=1").text
    page = client.get("/search", params={"q": "cat:cs.CL org:nvidia"}).text
    assert "No papers match, because no paper in this archive has an organization or a category" in page


@pytest.mark.once
@pytest.mark.parametrize(
    ("typed", "offer"),
    [
        ("reinforcment lerning", 'Did you mean <a href="{}"><bdi>reinforcement learning</bdi></a>?'),
        ("künstliche Intelligenz", 'Did you mean <a href="{}"><bdi>artificial intelligence</bdi></a>?'),
        ("stripes NOT zebra", 'right before them: <a href="{}"><bdi>stripes -zebra</bdi></a>'),
        ("Lerrel Pinto", 'Looking for an author? <a href="{}"><bdi>Papers by Lerrel Pinto</bdi></a>'),
        ("pinto", 'Looking for an author? <a href="{}"><bdi>Papers by pinto</bdi></a>'),
    ],
)
def test_search_offers_what_may_be_meant(
    app: Application, client: TestClient, typed: str, offer: str
) -> None:
    """Filters stay as they are. The correction of an author's name is not offered."""
    add_papers(app, record(1, title="Zebra stripes", authors=("Lerrel Pinto", "Ada Stripes")))
    page = client.get("/search", params={"q": typed, "source": "a source"}).text
    [found] = re.findall('<p class="offer">(.*)</p>', page)
    path = re.findall('href="(.*?)"', found)[0]
    assert found.endswith(offer.format(path))
    assert "&amp;source=a+source" in path


@pytest.mark.once
@pytest.mark.parametrize("typed", ["zebra stripes", "stripes", "stripes - zebra"])
def test_search_offers_nothing_for_titles(app: Application, client: TestClient, typed: str) -> None:
    """In a title, a dash is not a negation."""
    add_papers(app, record(1, title="Zebra stripes", authors=("Lerrel Pinto", "Ada Stripes")))
    assert '<p class="offer">' not in client.get("/search", params={"q": typed}).text


@pytest.mark.parametrize("typed", ["reinforcment lerning", "Lerrel Pinto"])
def test_hints_are_computed_for_the_first_page_only(app: Application, client: TestClient, typed: str) -> None:
    add_papers(app, record(1, title="Zebra stripes", authors=("Lerrel Pinto",)))
    archive: ArchiveSearch = client.app.state.archive_search  # type: ignore[attr-defined]
    query = query_language.parse(typed)
    first, second = (archive.search(query, PaperFilter(), start, 20) for start in (0, 20))
    assert first.hint or first.by_author
    assert (second.hint, second.by_author) == (None, "")


def test_cards_and_feeds_have_what_the_community_said(app: Application, client: TestClient) -> None:
    """They name the submitter and count comments and stars."""
    fields = {"code_url": "https://github.com/a/b", "stars": 57, "upvotes": 1, "comments": 3}
    published = date(2026, 11, 18)
    noor = record(2, authors=("Alan Turing",), submitted_by="Noor", published_on=published)
    add_papers(app, record(1, authors=("Ada Lovelace",), submitted_by="Mei <b>", **fields), noor)
    byline = '<p class="byline"><bdi dir="ltr">Ada Lovelace</bdi> · submitted by <bdi>Mei &lt;b&gt;</bdi>'
    for path in ("/day/2026-11-19", "/search"):
        page = client.get(path).text
        assert byline in page
        assert ">Code ★ 57</a>" in page
    # After the day of publication, which would otherwise seem to be the day of the submission.
    page = client.get("/day/2026-11-19").text
    assert "Alan Turing</bdi> · 18 November 2026 · submitted by <bdi>Noor<" in page
    feed = unescape(client.get("/feed.atom").text)
    assert "<p>Ada Lovelace · submitted by Mei &lt;b&gt;</p>" in feed
    assert "1 vote · 3 comments</p>" in feed
    assert ">Code ★ 57</a>" in feed


def test_large_counts_are_short_in_lists(app: Application, client: TestClient) -> None:
    """As in emails. The paper's page has the exact numbers."""
    (number,) = add_numbered_papers(
        app, record(1, code_url="https://github.com/a/b", stars=123_456, upvotes=6150)
    )
    for path in ("/day/2026-11-19", "/search"):
        page = client.get(path).text
        assert "6.2k <small>votes</small>" in page
        assert ">Code ★ 123k</a>" in page
    assert ">Code ★ 123k</a>" in unescape(client.get("/feed.atom").text)
    page = client.get(f"/paper/{number}").text
    assert "6,150 votes" in page
    assert "123,456" in page


def test_cards_name_the_organization(app: Application, client: TestClient) -> None:
    """It comes before the authors, or alone."""
    names = ("Of <b>Birds</b>",)
    add_papers(
        app,
        record(1, authors=("Ada Lovelace",), organization_names=names),
        record(2, organization_names=names),
    )
    page = client.get("/day/2026-11-19").text
    assert (
        '<p class="byline"><bdi>Of &lt;b&gt;Birds&lt;/b&gt;</bdi> · <bdi dir="ltr">Ada Lovelace</bdi></p>'
        in page
    )
    assert '<p class="byline"><bdi>Of &lt;b&gt;Birds&lt;/b&gt;</bdi></p>' in page
    assert "<p>Ada Lovelace · Of &lt;b&gt;Birds&lt;/b&gt;</p>" in unescape(client.get("/feed.atom").text)


@pytest.mark.parametrize(
    "title",
    [
        "RM -RF: Reward Model for Unit Tests",
        'The 5" Disk, or "Size',
        "title:agents, and Others",
        "Cat: Cs.CL",
    ],
)
def test_title_that_reads_like_search_syntax_is_found(
    app: Application, client: TestClient, title: str
) -> None:
    """The query is invalid or finds nothing, so the visitor gets the paper with exactly this title."""
    [number] = add_numbered_papers(app, record(1, title=title, abstract="An abstract about something else."))
    found = client.get("/search", params={"q": title}, follow_redirects=False)
    assert (found.status_code, found.headers.get("location")) == (303, f"/paper/{number}")
    filtered = client.get("/search", params={"q": title, "code": "1"}, follow_redirects=False)
    assert filtered.status_code in {200, 422}


@pytest.mark.parametrize("named", ["{}", "arXiv:{}v2", "https://arxiv.org/abs/{}", "https://arxiv.org/pdf/{}",
    "10.48550/arXiv.{}", "https://huggingface.co/papers/{}?utm=x", "https://huggingface.co/papers/{}/",
])  # fmt: skip
def test_search_for_an_identifier_redirects_to_the_paper(
    app: Application, client: TestClient, named: str
) -> None:
    """An id or URL that is not in the archive is reported as missing, without a text search."""
    (number,) = add_numbered_papers(app, record(1))
    answer = client.get("/search", params={"q": f" {named.format('2611.00001')} "}, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/paper/{number}")
    query = named.format("2611.99999")
    answer = client.get("/search", params={"q": query})
    assert answer.status_code == 200
    assert f"There is no paper {query} in the archive." in answer.text
    assert "Follow new papers on this" not in answer.text


def test_search_accepts_dois_and_page_urls(app: Application, client: TestClient) -> None:
    """A plain number or several words are searched as text."""
    page = "https://openreview.net/forum?id=zebra"
    identifiers = [{"arxiv_id": "", "doi": "10.1145/3292500"}, {"arxiv_id": "", "url": page}]
    numbers = add_numbered_papers(
        app, *(record(each, **fields) for each, fields in enumerate(identifiers, start=1))
    )
    for number, name in zip(numbers, ["https://doi.org/10.1145/3292500", page], strict=True):
        answer = client.get("/search", params={"q": name}, follow_redirects=False)
        assert answer.headers["location"] == f"/paper/{number}"
    for words in ("1", "number 2611.00001", "cat:q-bio.PE"):
        assert client.get("/search", params={"q": words}, follow_redirects=False).status_code == 200


def test_search_accepts_links_to_its_own_pages(app: Application, client: TestClient) -> None:
    """Those of other services are not searched for by their numbers."""
    (number,) = add_numbered_papers(app, record(1))
    for link in (
        "https://paperboy.test/paper/{}",
        "http://Paperboy.TEST/paper/{}/?utm=x#votes",
        "paperboy.test/paper/{}",
    ):
        answer = client.get("/search", params={"q": link.format(number)}, follow_redirects=False)
        assert answer.headers["location"] == f"/paper/{number}"
    for other in ("https://paperboy.test/paper/99", f"https://paperboy.test.example/paper/{number}"):
        assert f"There is no paper {other} in the archive." in client.get("/search", params={"q": other}).text


def test_search_is_unavailable_while_the_index_is_built(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page has a Retry-After header."""
    monkeypatch.setattr(archive_search, "MAX_WAITING", 0)
    app = client.app.state.paperboy  # type: ignore[attr-defined]
    missing = Path(app.settings.search_dir) / "missing"
    client.app.state.archive_search = ArchiveSearch(app.db, app.models, missing, app.stopping)  # type: ignore[attr-defined]
    answer = client.get("/search?q=zebra")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "10")
    assert "The search is not ready yet" in answer.text
    assert client.get("/search").status_code == 200


def test_search_says_what_it_covers(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says how many papers are indexed so far, and how many of the matching ones are listed."""
    partial = SearchPage((), total=1234, listed=1000, searchable=2000)
    monkeypatch.setattr(ArchiveSearch, "search", lambda *arguments: partial)
    text = client.get("/search?q=zebra&page=2").text
    assert "1,234 papers" in text
    assert "only the best 1,000 are listed" in text
    assert "only the newest 2,000 papers were searched" in text
    monkeypatch.setattr(ArchiveSearch, "search", lambda *arguments: SearchPage((), total=3, listed=3))
    text = client.get("/search?q=zebra").text
    assert "are listed" not in text
    assert "were searched" not in text


def test_search_with_too_many_phrases(client: TestClient) -> None:
    """The form says so."""
    answer = client.get("/search", params={"q": " ".join(f'"of {word}"' for word in "abcdefghijk")})
    assert answer.status_code == 422
    assert "A search can have at most 10 phrases, exclusions and hyphenated words." in answer.text


def test_search_in_an_empty_archive(client: TestClient) -> None:
    for path in ("/search", "/search?q=zebra", "/search?q=2611.00001", "/search?code=1"):
        answer = client.get(path)
        assert answer.status_code == 200
        assert "There are no papers yet." in answer.text
        assert "Come back in a few minutes" in answer.text
        assert "There is no paper" not in answer.text


@pytest.mark.parametrize(
    ("typed", "error"),
    [
        ({"q": '"zebra'}, "A quotation mark is not closed."),
        ({"q": "-zebra"}, "A search needs at least one word or filter (author:, org: or cat:) to search for"),
        ({"q": "z " * 151}, "A search can have at most 300 characters"),
        ({"q": "z" * 101}, "A search can&#39;t have words of more than 100 characters"),
        ({"q": "zebra", "day": "yesterday"}, "Please write the day in the form 2026-11-20."),
        ({"q": "zebra", "source": "<i>"}, "There is no source with this name."),
    ],
)
def test_invalid_search_shows_an_error(client: TestClient, typed: dict[str, str], error: str) -> None:
    """The form keeps its text."""
    answer = client.get("/search", params=typed)
    assert answer.status_code == 422
    assert error in answer.text
    assert 'aria-invalid="true"' in answer.text
    assert f'value="{typed["q"]}"'.replace('""', '"&#34;') in answer.text


# --- weeks


def test_week_page_is_sorted_by_votes(app: Application, client: TestClient) -> None:
    """It links its days, Monday to Sunday, and the neighbouring weeks."""
    monday, sunday = date(2026, 11, 9), date(2026, 11, 15)
    add_papers(
        app,
        record(1, monday, upvotes=3),
        record(2, sunday, upvotes=90),
        record(3, monday - timedelta(days=1), upvotes=500),
        record(4, sunday + timedelta(days=9), upvotes=500),
    )
    page = client.get("/week/2026-W46").text
    assert "9 to 15 November 2026, 2 papers, most votes first" in page
    assert page.index("On the Number 2") < page.index("On the Number 1")
    assert "On the Number 3" not in page
    assert 'href="/day/2026-11-09">Monday</a>' in page
    assert 'rel="prev" href="/week/2026-W45"' in page
    assert 'rel="next" href="/week/2026-W48"' in page
    assert '<link rel="canonical" href="https://paperboy.test/week/2026-W46">' in page
    assert 'href="/week/2026-W46">Week 46</a>' in client.get("/day/2026-11-09").text


def test_dates_in_lists_are_in_their_period(app: Application, client: TestClient) -> None:
    """A paper that is listed again later has an earlier date on the page of an earlier week or day."""
    monday, next_monday = date(2026, 11, 9), date(2026, 11, 16)
    (number,) = add_numbered_papers(app, record(1, monday))
    with app.db.write() as session:
        paper = session.get_one(Paper, number)
        listing = {"paper_id": number, "original_paper_id": number, "source_id": 1}
        session.add_all(
            Listing(**listing, listed_on=day) for day in (monday + timedelta(days=1), next_monday)
        )
        session.flush()
        merging.update_listing_days(session, paper)
    expected = {
        "/week/2026-W46": "2026-11-10",
        "/week/2026-W47": "2026-11-16",
        "/search?q=number": "2026-11-16",
        "/search?q=number&day=2026-11-09": "2026-11-09",
    }
    days = {path: re.findall(r'<time datetime="([^"]*)">', client.get(path).text) for path in expected}
    assert days == {path: [day] for path, day in expected.items()}


def test_votes_of_several_sources_are_added(app: Application, client: TestClient) -> None:
    """A paper listed by two sources appears once."""
    first, second = add_numbered_papers(app, record(1, upvotes=60), record(2, upvotes=50))
    with app.db.write() as session:
        other = Source(name="another", kind="jsonl", created_at=clock.utcnow())
        session.add(other)
        session.flush()
        fields = {"paper_id": second, "original_paper_id": second, "source_id": other.id}
        session.add(Listing(**fields, listed_on=DAY))
        session.add(VoteCount(**fields, at=clock.utcnow(), upvotes=20))
    page = client.get("/week/2026-W47").text
    assert page.index(f"/paper/{second}") < page.index(f"/paper/{first}")
    assert "2 papers" in page


def test_links_to_the_newest_day_and_week(app: Application, client: TestClient) -> None:
    """Every page has them, also on a Sunday."""
    add_papers(app, record(1), record(2, DAY - timedelta(days=40)))
    page = client.get("/").text
    assert '<a href="/day"><span class="desk">Latest day</span>' in page
    assert '<a href="/week"><span class="desk">Latest week</span>' in page
    assert "aria-current" not in page
    for path, newest in (("/day", "/day/2026-11-19"), ("/week", "/week/2026-W47")):
        answer = client.get(path, follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (302, newest)
        assert f'<a href="{path}" aria-current="page">' in client.get(path).text


def test_lists_lead_to_topics_and_sign_up(app: Application, client: TestClient) -> None:
    """Topics of the day come first, then others of the week; a search is filled into the sign-up form."""
    titles = ["Sparse Attention Maps", "Sparse Attention Again", "World Models at Home", "World Models"]
    days = [DAY - timedelta(days=1)] * 2 + [DAY] * 2
    add_papers(app, *(record(n, day, title=t) for n, (t, day) in enumerate(zip(titles, days, strict=True))))
    for path in ("/", f"/day/{DAY}", "/week/2026-W47", "/search?q=zebras"):
        page = client.get(path).text
        first, second = page.index("World Models<"), page.index("Sparse Attention<")
        assert first < second or "/week/" in path
    assert '<a href="/search?q=World+Models">' in page
    assert 'name="interest" value="zebras"' in page
    assert '<a href="/?interest=zebras#join">get them by email</a>' in page


def test_days_with_only_withdrawn_papers_are_not_linked(app: Application, client: TestClient) -> None:
    monday = date(2026, 11, 16)
    days = [monday - timedelta(days=1), monday, monday + timedelta(days=1), DAY]
    before, _, between, after = add_numbered_papers(
        app, *(record(number, day) for number, day in enumerate(days, 1))
    )
    with app.db.write() as session:
        for number in (before, between, after):
            session.get_one(Paper, number).withdrawn_at = AT
    assert client.get("/day").url.path == f"/day/{monday}"
    assert client.get("/week").url.path == "/week/2026-W47"
    for path in (f"/day/{monday}", "/week/2026-W47"):
        page = client.get(path).text
        assert 'rel="prev"' not in page
        assert 'rel="next"' not in page
    assert 'href="/day/2026-11-17"' not in client.get("/week/2026-W47").text


def test_latest_day_without_papers(client: TestClient) -> None:
    """Every page's header links to it, so it must not be an error."""
    for path in ("/day", "/week"):
        answer = client.get(path)
        assert answer.status_code == 200
        assert "No papers yet</h1>" in answer.text
        assert "Come back in a few minutes" in answer.text
        assert "Page not found" not in answer.text


@pytest.mark.parametrize("name", ["2026-W60", "2026-W00", "0000-W01", "9999-W52", "2026-47", "x", "2026-W٣٣"])
def test_invalid_week_is_not_found(client: TestClient, name: str) -> None:
    answer = client.get(f"/week/{name}")
    assert answer.status_code == 404
    assert "This week does not exist." in answer.text


@pytest.mark.parametrize("name", ["2026-13-99", "20261120", "2026-W47-5", "x", "2026-11-٣٣"])
def test_invalid_day_is_not_found(client: TestClient, name: str) -> None:
    answer = client.get(f"/day/{name}")
    assert answer.status_code == 404
    assert "This day does not exist." in answer.text


def test_week_without_papers(client: TestClient) -> None:
    assert "No paper was listed in week 1 of 2026." in client.get("/week/2026-W01").text


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/day/{day}", "This day has not come yet."),
        ("/week/{week}", "This week has not begun yet."),
    ],
)
def test_future_day_and_week_have_not_come(client: TestClient, path: str, words: str) -> None:
    later = clock.utcnow().date() + timedelta(days=30)
    answer = client.get(path.format(day=later, week=f"{later:%G-W%V}"))
    assert answer.status_code == 404
    assert words in answer.text
    assert "weekends" not in answer.text


@pytest.mark.parametrize(("upvotes", "is_ranked"), [(0, False), (1, True)])
def test_votes_are_named_only_if_there_are_any(
    app: Application, client: TestClient, upvotes: int, is_ranked: bool
) -> None:
    add_papers(app, record(1, date(2026, 11, 13), upvotes=upvotes), record(2, date(2026, 11, 13), upvotes=0))
    for path in ("/day/2026-11-13", "/week/2026-W46"):
        page = client.get(path).text
        assert ("2 papers, most votes first" in page) == is_ranked
        assert ("The most upvoted research papers from" in page) == is_ranked
    feed = client.get("/day/2026-11-13/feed.atom").text
    assert ("most votes first" in feed) == is_ranked


def test_day_and_week_without_papers_link_to_others(app: Application, client: TestClient) -> None:
    """An address without typing errors does not advise to look for them."""
    add_papers(app, record(1, date(2026, 11, 13)), record(2, date(2026, 11, 23)))
    for path, before, after, words in (
        ("/day/2026-11-15", "/day/2026-11-13", "/day/2026-11-23", "No papers on this day</h1>"),
        ("/week/2026-W47", "/week/2026-W46", "/week/2026-W48", "No papers in this week</h1>"),
    ):
        answer = client.get(path)
        assert answer.status_code == 404
        assert words in answer.text
        assert "typing errors" not in answer.text
        assert f'rel="prev" href="{before}"' in answer.text
        assert f'rel="next" href="{after}"' in answer.text
        assert words in client.get(f"{path}?page=2").text


@pytest.mark.parametrize("path", ["/day/2026-11-15", "/week/2026-W47"])
def test_empty_day_or_week_is_looked_up_once(app: Application, client: TestClient, path: str) -> None:
    add_papers(app, record(1, date(2026, 11, 13)))
    statements = list[str]()
    event.listen(app.db.engine, "before_cursor_execute", lambda *args: statements.append(str(args[2:4])))
    assert client.get(path).status_code == 404
    assert statements
    assert len(statements) == len(set(statements))


def test_week_page_is_paginated(app: Application, client: TestClient) -> None:
    """Ranks continue on the next page."""
    add_papers(app, *(record(number, upvotes=number) for number in range(1, 53)))
    first, second = client.get("/week/2026-W47").text, client.get("/week/2026-W47?page=2").text
    assert "1 to 50 of 52 papers, most votes first" in first
    assert 'rel="next" href="/week/2026-W47?page=2"' in first
    assert re.findall(r"On the Number (\d+)<", second) == ["2", "1"]
    assert '<ol class="papers" start="51">' in second
    assert 'rel="prev" href="/week/2026-W47"' in second
    assert '<link rel="canonical" href="https://paperboy.test/week/2026-W47?page=2">' in second
    past_the_end = client.get("/week/2026-W47?page=3")
    assert past_the_end.status_code == 404
    assert "There are only 2 pages of week 47 of 2026." in past_the_end.text


@pytest.mark.parametrize("path", ["/week/2026-W47?page=3", f"/day/{DAY}?page=3"])
def test_pages_past_the_end_load_no_topics(
    app: Application, client: TestClient, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_papers(app, record(1))
    monkeypatch.setattr(archive_lists, "titles", lambda *arguments: pytest.fail("topics loaded"))
    answer = client.get(path)
    assert answer.status_code == 404
    assert "There is only one page of" in answer.text


def test_weeks_use_the_iso_year() -> None:
    """The last days of December may belong to week 1 of the next year."""
    assert str(paper_cards.week_of(date(2025, 12, 29))) == "2026-W01"
    assert Week(2026, 53).first == date(2026, 12, 28)
    assert Week(2026, 53).last == date(2027, 1, 3)
