"""Test the detection of the kind and day of saved responses."""

import json
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import UnreadableResponse
from app.papers.sources import files
from app.types import SourceKind
from tests.papers.sources import responses

TODAY = date(2026, 11, 20)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (responses.hf(responses.hf_row()), SourceKind.HUGGINGFACE),
        (json.dumps([repr(responses.hf_row())]), SourceKind.HUGGINGFACE),
        (json.dumps(responses.hf_row()["paper"]), SourceKind.HUGGINGFACE),
        ('{"arxiv_id": "2611.00001", "title": "A", "upvotes": 3}\n', SourceKind.HUGGINGFACE),
        ('{"arxiv_id": "2611.00001", "title": "A", "upvotes": 3, "url": "https://a.test"}', SourceKind.JSONL),
        ('{"arxiv_id": "2611.00001", "title": "A", "publishedAt": "2026-11-18"}', SourceKind.JSONL),
        ('{"id": "2611.00001", "title": "A"}\n{"title": "B"}', SourceKind.JSONL),
        (responses.api(responses.api_entry()), SourceKind.ARXIV),
        (responses.feed(responses.feed_entry()), SourceKind.ARXIV_FEED),
        (responses.RSS, SourceKind.FEED),
        (responses.LAB_FEED, SourceKind.FEED),
        (responses.PAGE, SourceKind.PAGE),
        ("\ufeff" + responses.PAGE, SourceKind.PAGE),
        ("[]", SourceKind.JSONL),
    ],
)
def test_kind_from_content(text: str, kind: SourceKind) -> None:
    """Each kind has its own marks."""
    assert files.parse_file("saved", text.encode(), TODAY).kind is kind


@pytest.mark.parametrize("layout", ["[%s]", "%s", "%s\n%s"])
@pytest.mark.parametrize("ids", [{}, {"doi": "10.1000/birds"}, {"arxiv_id": "2611.00001"}])
def test_own_papers_may_have_votes(tmp_path: Path, layout: str, ids: dict[str, str]) -> None:
    """They are read like those without votes, and are not attributed to Hugging Face."""
    own = ids | {
        "title": "Pigeons", "date": "2026-11-18", "abstract": "They home.", "categories": ["q-bio.NC"],
        "url": "https://lab.test/p", "code_url": "https://lab.test/code", "published_on": "2026-11-01",
        "comments": 2, "stars": 5,
    }  # fmt: skip
    file = tmp_path / "papers.json"
    records = []
    for votes in ({}, {"upvotes": 3}):
        file.write_text(layout.replace("%s", json.dumps(own | votes)))
        [read] = files.read_file(file, TODAY)
        assert read.kind is SourceKind.JSONL
        records.append([replace(record, upvotes=None) for record in read.parsed.records])
    assert {record.upvotes for record in read.parsed.records} == {3}
    assert records[0] == records[1]
    assert records[0][0].stars == 5


def test_day_from_name() -> None:
    """A given day overrides the day in the name."""
    row = responses.hf_row()
    del row["paper"]["submittedOnDailyAt"]
    data = responses.hf(row).encode()
    named = files.parse_file("daily-2026-11-18.json", data, TODAY).parsed.records[0]
    overridden = files.parse_file(
        "daily-2026-11-18.json", data, TODAY, day=date(2026, 11, 17)
    ).parsed.records[0]
    assert (named.listed_on, overridden.listed_on) == (date(2026, 11, 18), date(2026, 11, 17))


def test_given_kind() -> None:
    """People call both kinds of files arxiv."""
    feed = responses.feed(responses.feed_entry()).encode()
    assert files.parse_file("a.xml", feed, TODAY, kind=SourceKind.ARXIV).kind is SourceKind.ARXIV_FEED
    assert files.parse_file("a.xml", feed, TODAY, kind=SourceKind.FEED).kind is SourceKind.FEED


@pytest.mark.parametrize("kind", [SourceKind.JSONL, SourceKind.HUGGINGFACE])
def test_given_kind_of_rows(kind: SourceKind) -> None:
    """Operators say whether rows with votes are their own or from an archive of Hugging Face's lists."""
    row = {"id": "2611.00001", "title": "A", "abstract": "B", "listed_on": "2026-11-18", "upvotes": 3}
    read = files.parse_file("a.jsonl", json.dumps(row).encode(), TODAY, kind=kind)
    [record] = read.parsed.records
    assert read.kind is kind
    assert (record.abstract, record.listed_on, record.upvotes) == ("B", date(2026, 11, 18), 3)


def test_archive_of_hugging_face_lists(tmp_path: Path) -> None:
    """All fields of an operator's own rows are read, in parts, if they are said to be from Hugging Face."""
    row = {
        "arxiv_id": "2611.00001", "title": "A", "abstract": "B", "categories": ["cs.CL"], "keywords": ["x"],
        "code_url": "https://lab.test/code", "project_url": "https://lab.test/a", "stars": 9, "upvotes": 3,
        "published_on": "2026-11-01", "date": "2026-11-18",
    }  # fmt: skip
    file = tmp_path / "archive.jsonl"
    file.write_text(f"{json.dumps(row)}\n" * (files.ROWS_PER_PART + 1))
    own = list(files.read_file(file, TODAY))
    archive = list(files.read_file(file, TODAY, kind=SourceKind.HUGGINGFACE))
    assert [part.kind for part in archive] == [SourceKind.HUGGINGFACE] * 2
    assert [part.parsed for part in archive] == [part.parsed for part in own]
    whole = files.parse_file("a.json", json.dumps([row]).encode(), TODAY, kind=SourceKind.HUGGINGFACE)
    assert whole.parsed.records == own[1].parsed.records
    assert (whole.kind, own[1].parsed.records[0].stars) == (SourceKind.HUGGINGFACE, 9)


def test_search_result_with_many_authors() -> None:
    """The fields that show where it comes from may follow a long list."""
    paper = responses.hf_row()["paper"]
    paper = {"authors": paper["authors"] * 1_000, **{k: v for k, v in paper.items() if k != "authors"}}
    for text in (json.dumps(paper), json.dumps([paper]), json.dumps({"papers": [paper]}), repr(paper)):
        data = text if text.startswith(("[", '{"')) else json.dumps([text])
        assert files.parse_file("a.json", data.encode(), TODAY).kind is SourceKind.HUGGINGFACE


def test_json_lines_in_utf16(tmp_path: Path) -> None:
    """Redirected output of Windows PowerShell has this encoding."""
    file = tmp_path / "papers.jsonl"
    file.write_text('{"id": "2611.00001", "title": "A"}\n{"id": "2611.00002", "title": "B"}\n', "utf-16")
    [read] = files.read_file(file, TODAY)
    assert [record.title for record in read.parsed.records] == ["A", "B"]


@pytest.mark.parametrize("first", ["# exported 2026-11-20", "null", "7", '0001", "title": "A"}', "{broken"])
@pytest.mark.parametrize(
    "row", ['{"id": "2611.00001", "title": "A"}', '{"id": "2611.00001", "title": "A", "upvotes": 3}']
)
def test_broken_first_line(tmp_path: Path, first: str, row: str) -> None:
    """It is a broken row like any other, also if the file is not read in parts."""
    file = tmp_path / "papers.jsonl"
    for count in (1, 2):
        file.write_text("\n".join([first, *[row] * count]))
        [read] = files.read_file(file, TODAY)
        assert len(read.parsed.records) == count
        assert [rejection.row for rejection in read.parsed.rejections] == [1]


def test_recorded_response() -> None:
    """The body is parsed; an error's reason is part of the message."""
    good = {"url": "https://export.arxiv.org/api/query", "status_code": 200, "body": responses.api()}
    bad = good | {"status_code": 400, "body": responses.API_ERROR}
    assert files.parse_file("a.json", json.dumps(good).encode(), TODAY).kind is SourceKind.ARXIV
    with pytest.raises(UnreadableResponse, match=r"HTTP 400.*incorrect id format"):
        files.parse_file("a.json", json.dumps(bad).encode(), TODAY)


@pytest.mark.parametrize("data", [b"", b"\x89PNG\r\n\x1a\n\x00\x00", b"Dear all,\n\nsee below", b"<svg/>"])
def test_unknown_kind(data: bytes) -> None:
    with pytest.raises(UnreadableResponse, match="this kind of file"):
        files.parse_file("file", data, TODAY)


def test_page_saved_as_html() -> None:
    """Only its text can be read."""
    with pytest.raises(UnreadableResponse, match=r"is a web page .* search results copied as text"):
        files.parse_file("page.html", b"<!DOCTYPE html><html><body>Daily Papers</body></html>", TODAY)


@given(
    st.sampled_from(
        [
            responses.hf(responses.hf_row(), responses.hf_row("2611.00002")),
            responses.api(responses.api_entry(), responses.api_entry("2611.00002v1")),
            responses.feed(responses.feed_entry(), responses.feed_entry("2611.00002v1")),
            responses.RSS,
            responses.PAGE,
            '{"id": "2611.00001", "title": "A"}\n{"title": "B"}',
        ]
    ),
    st.integers(0, 3000),
    st.integers(0, 60),
    st.text(max_size=10),
    st.sampled_from([None, *SourceKind]),
)
def test_damaged_files(text: str, place: int, length: int, instead: str, kind: SourceKind | None) -> None:
    """If a part is lost or replaced, or the kind is wrong, the file is read or is unreadable."""
    damaged = (text[:place] + instead + text[place + length :]).encode("utf-8", "surrogatepass")
    try:
        parsed = files.parse_file("saved.txt", damaged, TODAY, kind=kind).parsed
    except UnreadableResponse:
        return
    numbered = [rejection for rejection in parsed.rejections if rejection.row is not None]
    assert parsed.rows == len(parsed.records) + len(numbered)
