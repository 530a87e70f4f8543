"""Test the parser of Hugging Face Daily Papers with all known row formats."""

import json
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import UnreadableResponse
from app.papers.sources import huggingface
from app.text import sanitize
from tests.papers.sources.responses import hf, hf_row

DAY = date(2026, 11, 19)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def test_row_fields() -> None:
    """Votes come from the inner object, comments from the outer, and the day is that of the listing."""
    [record] = huggingface.parse(hf(hf_row())).records
    assert record.arxiv_id == "2611.00001"
    assert (record.upvotes, record.comments, record.stars) == (7, 2, 40)
    assert record.listed_on == date(2026, 11, 19)
    assert record.published_on == date(2026, 11, 17)
    assert record.submitted_by == "mei"
    assert record.rank == 1
    assert record.abstract == "We teach pigeons to plan. They gain 25% with π₀ and keep the <think> tag."


def test_hidden_authors() -> None:
    """They are counted but not named."""
    [record] = huggingface.parse(hf(hf_row())).records
    assert record.authors == ("Mei Tanaka", "Olu Adeyemi")
    assert record.author_count == 3


def test_organization() -> None:
    """Its full name comes before its short one. Some archives have it only in the outer object."""
    row = hf_row()
    assert huggingface.parse(hf(row)).records[0].organization_names == ("Kyoto Bird Lab", "kyoto-birds")
    row["organization"] = row["paper"].pop("organization")
    assert huggingface.parse(hf(row)).records[0].organization_names == ("Kyoto Bird Lab", "kyoto-birds")
    row["paper"]["organization"] = ["x"]
    assert huggingface.parse(hf(row)).records[0].organization_names == ("Kyoto Bird Lab", "kyoto-birds")


def test_midnight_is_a_day_in_no_time_zone() -> None:
    """A conversion to New York time would give the day before."""
    [record] = huggingface.parse(hf(hf_row(submittedOnDailyAt="2026-11-19T00:00:00.000Z"))).records
    assert record.listed_on == DAY


def test_old_rows_use_the_requested_day() -> None:
    """The oldest answers have no day of the listing."""
    row = hf_row()
    del row["paper"]["submittedOnDailyAt"]
    assert huggingface.parse(hf(row), DAY).records[0].listed_on == DAY
    assert huggingface.parse(hf(row)).records[0].listed_on is None


def test_flat_rows() -> None:
    """Search results are flat, and archives of figures have four fields."""
    flat = hf_row()["paper"]
    bare = {"date": "2026-11-18", "arxiv_id": "2611.00003", "title": "Owls", "upvotes": 0, "comments": None}
    first, second = huggingface.parse(json.dumps([flat, bare])).records
    assert (first.arxiv_id, first.upvotes) == ("2611.00001", 7)
    assert (second.arxiv_id, second.upvotes, second.listed_on) == ("2611.00003", 0, date(2026, 11, 18))


def test_rows_as_python_literals() -> None:
    """Some archives stored each row as a Python literal, one of them within an object. No code is run."""
    rows = [repr(hf_row("2611.00001")), repr(hf_row("2611.00002"))]
    wrapped = json.dumps({"status": "success", "date": "2026-11-19", "count": 2, "data": rows})
    assert [r.arxiv_id for r in huggingface.parse(json.dumps(rows)).records] == ["2611.00001", "2611.00002"]
    assert len(huggingface.parse(wrapped).records) == 2


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (None, "the row is not an object"),
        (17, "the row is not an object"),
        ("{'paper': __import__('os').getcwd()}", "the row is not an object"),
        ("{" * 5000, "the row is not an object"),
        ([], "the row is not an object"),
        ({}, "the row has no arXiv ID"),
        ({"paper": {"id": 2611.00001, "title": "A number for an id"}}, "the row has no arXiv ID"),
        ({"paper": {"id": "2611.00009", "title": "  \n"}}, "the row has no title"),
        ({"paper": {"id": "2611.00009", "title": ["a", "list"]}}, "the row has no title"),
    ],
)
def test_invalid_row_is_rejected(row: Any, reason: str) -> None:
    """The rejection has its number; the rows around it are read."""
    parsed = huggingface.parse(hf(hf_row("2611.00001"), row, hf_row("2611.00002")))
    assert [record.arxiv_id for record in parsed.records] == ["2611.00001", "2611.00002"]
    assert [(rejection.reason, rejection.row) for rejection in parsed.rejections] == [(reason, 2)]
    assert parsed.rows == 3


@pytest.mark.parametrize(
    "field", [name for name in hf_row()["paper"] if name not in ("id", "title")] + ["summary", "discussionId"]
)
@pytest.mark.parametrize("value", [None, 3.5, "x", ["x"], {"x": 1}, True, -1, 10**30])
def test_invalid_field_is_ignored(field: str, value: Any) -> None:
    """The paper is still listed."""
    parsed = huggingface.parse(hf(hf_row(**{field: value})), DAY)
    assert [record.title for record in parsed.records] == ["Pigeons That Plan"]


@given(ANYTHING, st.sampled_from([*hf_row()["paper"], *hf_row()]))
def test_any_row_is_a_record_or_a_rejection(value: Any, field: str) -> None:
    """Each row is a record or a rejection, with any value in any place."""
    outer = hf_row()
    outer[field] = value
    parsed = huggingface.parse(json.dumps([outer, hf_row(**{field: value}), value]), DAY)
    assert parsed.rows == len(parsed.records) + len(parsed.rejections) == 3


def test_empty_day() -> None:
    """Weekends are empty lists."""
    assert huggingface.parse("[]", DAY).rows == 0


def test_truncated_response() -> None:
    """The rows before the cut are read, and a rejection names the cut."""
    text = hf(hf_row("2611.00001"), hf_row("2611.00002"), hf_row("2611.00003"))
    parsed = huggingface.parse(text[:-200], DAY)
    assert [record.arxiv_id for record in parsed.records] == ["2611.00001", "2611.00002"]
    [rejection] = parsed.rejections
    assert (rejection.reason, rejection.row) == ("the response was cut off", None)


@pytest.mark.parametrize(
    "before",
    ['"meta": {"tags": [{"id": "2611.00009", "title": "A tag"}]}', '"errors": []', '"items": []'],
)
def test_rows_of_truncated_object(before: str) -> None:
    """Other lists are not read as papers. The list is that of the complete response."""
    text = f'{{{before}, "data": {hf(hf_row("2611.00001"), hf_row("2611.00002"))}}}'
    complete, parsed = huggingface.parse(text, DAY), huggingface.parse(text[:-200], DAY)
    assert [record.arxiv_id for record in complete.records] == ["2611.00001", "2611.00002"]
    assert [record.arxiv_id for record in parsed.records] == ["2611.00001"]
    assert [rejection.reason for rejection in parsed.rejections] == ["the response was cut off"]


def test_object_that_is_truncated_before_its_rows() -> None:
    text = '{"meta": {"tags": [{"id": "2611.00009", "title": "A tag"}]}, "da'
    with pytest.raises(UnreadableResponse, match="not JSON"):
        huggingface.parse(text, DAY)


def test_invalid_json_in_the_middle() -> None:
    """The rejection differs from that of a truncated answer."""
    text = hf(hf_row("2611.00001"), hf_row("2611.00002")).replace('"2611.00002"', "2611.000.02")
    parsed = huggingface.parse(text, DAY)
    assert [record.arxiv_id for record in parsed.records] == ["2611.00001"]
    assert [rejection.reason for rejection in parsed.rejections] == ["the response is broken from here on"]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("<!DOCTYPE html><html><title>Sign in</title></html>", "web page"),
        ("", "empty"),
        ("Bad gateway", "not JSON"),
        ('[{"paper": {"id"', "not JSON"),
        ('"just a text"', "single str"),
        ('{"error": "Invalid date"}', "Invalid date"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_response_that_is_not_json(answer: str, message: str) -> None:
    """A login page is not taken for an empty day."""
    with pytest.raises(UnreadableResponse, match=message):
        huggingface.parse(answer, DAY)


def test_huge_abstract_is_truncated() -> None:
    """Neither an email nor the database should contain it."""
    [record] = huggingface.parse(hf(hf_row(summary="pigeon " * 1_500_000)), DAY).records
    assert len(record.abstract) <= sanitize.ABSTRACT_CHARS


def test_control_characters_and_surrogates_are_removed() -> None:
    """PostgreSQL rejects NUL, and UTF-8 has no lone surrogates."""
    [record] = huggingface.parse(hf(hf_row(title="Pi\x00ge\ud800ons\x07\r\nfly")), DAY).records
    assert record.title == "Pigeons fly"


def test_ranks_are_per_day() -> None:
    """In a file of many days the ranks of each day begin at one."""
    other = {"submittedOnDailyAt": "2026-11-20T03:00:00.000Z"}
    parsed = huggingface.parse(hf(hf_row("2611.00001"), hf_row("2611.00002", **other), hf_row("2611.00003")))
    assert [record.rank for record in parsed.records] == [1, 1, 2]
