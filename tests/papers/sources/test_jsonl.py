"""Test papers in files of JSON lines or arrays."""

import json
from datetime import date

from app.papers.sources import jsonl

ROW = {
    "date": "2026-11-19",
    "id": "2611.00001",
    "title": "Pigeons That Plan",
    "abstract": "We teach pigeons\n  to plan.",
    "authors": ["Mei Tanaka"],
    "categories": ["cs.AI"],
    "comment": None,
}


def test_invalid_lines_are_rejected_with_their_number() -> None:
    """One line is broken, one is not an object, one has no title."""
    lines = [json.dumps(ROW), '{"id": "2611.0', "17", json.dumps(ROW | {"title": None}), json.dumps(ROW)]
    parsed = jsonl.parse("\n".join(lines))
    assert [record.arxiv_id for record in parsed.records] == ["2611.00001", "2611.00001"]
    assert [(r.reason, r.row) for r in parsed.rejections] == [
        ("the row is not JSON", 2),
        ("the row is not an object", 3),
        ("the row has no title", 4),
    ]
    assert parsed.rows == 5


def test_given_names_come_first() -> None:
    [record] = jsonl.parse(
        json.dumps(ROW | {"authors": ["Müller, Anna", "Mei Tanaka", "OpenAI, Inc."]})
    ).records
    assert record.authors == ("Anna Müller", "Mei Tanaka", "OpenAI Inc.")


def test_containers() -> None:
    """All containers give the same records."""
    for text in (json.dumps([ROW]), json.dumps({"papers": [ROW]}), json.dumps(ROW), json.dumps(ROW) + "\n"):
        [record] = jsonl.parse(text).records
        assert (record.abstract, record.listed_on) == ("We teach pigeons to plan.", date(2026, 11, 19))


def test_ids_in_any_field() -> None:
    """Ids are found in any of the fields."""
    rows = [
        {"title": "A", "doi": "https://doi.org/10.1234/AB.c"},
        {"title": "B", "doi": "10.48550/arXiv.2611.00004"},
        {"title": "C", "arxiv_id": "https://arxiv.org/abs/2611.00005v2"},
    ]
    assert [(r.arxiv_id, r.doi) for r in jsonl.parse(json.dumps(rows)).records] == [
        ("", "10.1234/ab.c"),
        ("2611.00004", ""),
        ("2611.00005", ""),
    ]


def test_organization() -> None:
    """It is a name, or an object as Hugging Face writes it."""
    values = ["NVIDIA", {"fullname": "AI at Meta", "name": "facebook"}, 7, None]
    rows = [{"title": "A", "organization": value} for value in values]
    assert [record.organization_names for record in jsonl.parse(json.dumps(rows)).records] == [
        ("NVIDIA",),
        ("AI at Meta", "facebook"),
        (),
        (),
    ]


def test_row_without_a_date() -> None:
    """The given day may be that of the file."""
    day = date(2026, 11, 1)
    assert jsonl.parse(json.dumps({"title": "A"}), day).records[0].listed_on == day


def test_withdrawal_in_the_comment() -> None:
    """The words are those of arXiv."""
    row = ROW | {"comment": "This submission has been withdrawn by arXiv administrators"}
    assert jsonl.parse(json.dumps(row)).records[0].withdrawn
