"""Invert the names of all recorded authors, and put the given names first again."""

from datetime import date
from pathlib import Path

import pytest

from app.papers.sources.files import parse_file
from app.text.names import given_name_first
from tests.conftest import SHARED_DATA

FOLDERS = ("hf_daily", "hf_daily_next_morning", "arxiv_daily")


def recorded_authors() -> set[str]:
    paths: list[Path] = [path for folder in FOLDERS for path in sorted((SHARED_DATA / folder).iterdir())]
    files = [parse_file(path.name, path.read_bytes(), date(2026, 11, 20)) for path in paths]
    return {name for file in files for record in file.parsed.records for name in record.authors}


@pytest.mark.realdata
def test_inverted_names() -> None:
    """No part of a recorded name is taken for the suffix of a company."""
    authors = recorded_authors()
    assert len(authors) > 10_000
    for name in authors:
        assert given_name_first(name) == name
        given, _, family = name.rpartition(" ")
        assert given_name_first(f"{family}, {given}") == name
