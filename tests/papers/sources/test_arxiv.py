"""Test the parsers of arXiv's two interfaces."""

from datetime import UTC, date, datetime

import pytest

from app.errors import UnreadableResponse
from app.papers.sources import arxiv, calendar
from tests.papers.sources.responses import API_ERROR, api, api_entry, feed, feed_entry

DAY = date(2026, 11, 19)


def test_query_api_entry() -> None:
    """The version is removed from the id, TeX accents become Unicode, white space is collapsed."""
    [record] = arxiv.parse(api(api_entry()), DAY).records
    assert (record.arxiv_id, record.version, record.doi) == ("2611.00001", 2, "10.1234/pigeons.1")
    assert record.authors == ("Mei Tanaka", "André Adeyemi")
    assert record.abstract == "We teach pigeons to plan."
    assert record.categories == ("cs.AI", "cs.RO")
    assert (record.published_on, record.as_of) == (date(2026, 11, 17), date(2026, 11, 18))
    assert record.listed_on == DAY
    assert not record.withdrawn


def test_ids_before_2007() -> None:
    """These ids contain a slash."""
    [record] = arxiv.parse(api(api_entry("astro-ph/0601001v1"))).records
    assert (record.arxiv_id, record.listed_on) == ("astro-ph/0601001", None)


@pytest.mark.parametrize(
    ("comment", "withdrawn"),
    [
        ("This paper has been withdrawn by the authors", True),
        ("Withdrawn: an error in Lemma 2", True),
        ("12 pages, 5 figures Withdrawn: an error in the proof", True),
        ("v2: withdrawn, replaced by arXiv:2611.00009", True),
        ("The first author has withdrawn this paper", True),
        ("The previous version had an error; this paper has been withdrawn entirely.", True),
        ("This paper has been withdrawn from consideration for publication", True),
        ("arXiv admin note: this submission has been withdrawn by arXiv administrators", True),
        ("This paper (arXiv:2611.00001) is hereby withdrawn", True),
        ("12 pages, to appear at BIRDS 2026", False),
        ("BIRDS 2026 Withdrawn Submission; extended version", False),
        ("Submitted to BIRDS 2026 (withdrawn)", False),
        ("This paper was withdrawn from BIRDS 2026, to be extended", False),
        ("Replaces the withdrawn arXiv:2611.00009", False),
        ("arXiv:2611.00009 was withdrawn and merged into this paper", False),
        ("Supersedes arXiv:2611.00009, which has been withdrawn", False),
        ("Supersedes our earlier, withdrawn preprint", False),
        ("Earlier version withdrawn. This revision corrects Theorem 3.", False),
        ("12 pages. This paper has not been withdrawn", False),
    ],
)
def test_withdrawal_in_the_comment(comment: str, withdrawn: bool) -> None:
    """arXiv has no field for it."""
    [record] = arxiv.parse(api(api_entry(comment=comment))).records
    assert record.withdrawn is withdrawn


def test_empty_feed() -> None:
    """An id may be unknown, and weekends and holidays have no papers."""
    assert arxiv.parse(api()).rows == 0
    assert arxiv.parse_feed(feed()).rows == 0


def test_error_entry() -> None:
    """arXiv sends errors as an entry, often with status 200."""
    with pytest.raises(UnreadableResponse, match="incorrect id format for abc"):
        arxiv.parse(API_ERROR)
    with pytest.raises(UnreadableResponse, match="Feed error"):
        arxiv.parse_feed(feed(title="Feed error for query &quot;cs.XX&quot;"))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("<html><body>Please sign in</body></html>", "web page"),
        ("", "empty"),
        ("Rate exceeded.", "not an Atom feed"),
        ("<rss version='2.0'><channel/></rss>", "not an Atom feed"),
    ],
)
def test_response_that_is_not_a_feed(answer: str, message: str) -> None:
    """arXiv sometimes answers with plain text."""
    with pytest.raises(UnreadableResponse, match=message):
        arxiv.parse(answer)


def test_entities_are_refused() -> None:
    """A feed must not declare entities (billion laughs)."""
    bomb = '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]>' + api(api_entry(title="&b;"))
    with pytest.raises(UnreadableResponse, match="entities"):
        arxiv.parse(bomb)


def test_announcement_types() -> None:
    """A replaced paper was announced before."""
    kinds = ("new", "cross", "replace", "replace-cross")
    entries = [feed_entry(f"2611.0000{n}v1", announced=kind) for n, kind in enumerate(kinds)]
    records = arxiv.parse_feed(feed(*entries)).records
    assert [record.listed_on for record in records] == [DAY, DAY, None, None]
    assert [record.published_on for record in records] == [DAY, None, None, None]
    assert {record.as_of for record in records} == {DAY}


def test_daily_feed_entry() -> None:
    """The announcement's first line is not part of the abstract; the authors are one string."""
    [record] = arxiv.parse_feed(feed(feed_entry("2611.00001v3"))).records
    assert (record.arxiv_id, record.version) == ("2611.00001", 3)
    assert record.abstract == "We teach pigeons to plan."
    assert record.authors == ("Mei Tanaka", "André Adeyemi")


@pytest.mark.parametrize("missing_bytes", [10, 120, 400])
def test_truncated_feed(missing_bytes: int) -> None:
    """The position of the cut does not matter."""
    text = feed(feed_entry("2611.00001v1"), feed_entry("2611.00002v1"), feed_entry("2611.00003v1"))
    parsed = arxiv.parse_feed(text[: -missing_bytes - len("\n</feed>\n")])
    assert [record.arxiv_id for record in parsed.records] == ["2611.00001", "2611.00002"]
    [rejection] = parsed.rejections
    assert (rejection.reason, rejection.row) == ("the response was cut off", None)
    assert rejection.detail.startswith("2 complete entries were read")


def test_invalid_markup() -> None:
    """One unescaped character in a title must not lose the whole feed."""
    parsed = arxiv.parse_feed(feed(feed_entry("2611.00001v1"), feed_entry(title="R & D < 3")))
    assert [record.arxiv_id for record in parsed.records] == ["2611.00001"]
    assert [rejection.reason for rejection in parsed.rejections] == [
        "the feed is not well-formed from here on"
    ]


def test_entry_without_id_or_title() -> None:
    """The other entries are read."""
    text = api(api_entry(), api_entry("nonsense"), api_entry("2611.00003v1", title=" "))
    parsed = arxiv.parse(text)
    assert parsed.rows == 3
    assert [(r.reason, r.row) for r in parsed.rejections] == [
        ("the entry has no arXiv ID", 2),
        ("the entry has no title", 3),
    ]


def test_control_characters() -> None:
    """XML forbids them, but authors paste them."""
    assert len(arxiv.parse(api(api_entry(title="Pi\x0bgeons"), api_entry("2611.00002v1"))).records) == 2


@pytest.mark.parametrize(
    ("day", "since", "until"),
    [
        # Wednesday's list: Monday 14:00 to Tuesday 14:00 in New York, 18:00 UTC in summer.
        (date(2026, 8, 19), datetime(2026, 8, 17, 18, tzinfo=UTC), datetime(2026, 8, 18, 18, tzinfo=UTC)),
        # Monday's: Thursday to Friday, 19:00 UTC in winter. Tuesday's includes the weekend.
        (date(2026, 11, 16), datetime(2026, 11, 12, 19, tzinfo=UTC), datetime(2026, 11, 13, 19, tzinfo=UTC)),
        (date(2026, 11, 17), datetime(2026, 11, 13, 19, tzinfo=UTC), datetime(2026, 11, 16, 19, tzinfo=UTC)),
        # After Thanksgiving: two days' papers.
        (date(2026, 11, 30), datetime(2026, 11, 25, 19, tzinfo=UTC), datetime(2026, 11, 27, 19, tzinfo=UTC)),
    ],
)
def test_submission_window_of_an_announcement(day: date, since: datetime, until: datetime) -> None:
    """A missed announcement can be requested later without gap or overlap."""
    assert calendar.submission_window(day) == (since, until)
