"""Test that every kind of source is listed wherever kinds are."""

import re
from datetime import date

import pytest

from app.papers import field_precedence
from app.papers.sources import files, source_types
from app.types import PaperRecord, SourceKind
from app.web.api.sources import NewSource
from tests.papers.sources import responses


def test_every_kind_is_described() -> None:
    assert {*source_types.SOURCE_TYPES} == {*SourceKind}


@pytest.mark.parametrize("kind", SourceKind)
def test_every_kind_has_a_rank(kind: SourceKind) -> None:
    """Records of any kind can be combined with others."""
    assert field_precedence.from_record(PaperRecord("Pigeons"), kind).versions["title"]


def test_api_names_the_options_of_every_polled_kind() -> None:
    description: str = NewSource.model_json_schema()["properties"]["config"]["description"]
    options = dict(re.findall(r"(\w+): ([^.]+)\.", description))
    for kind, polled in source_types.POLLED.items():
        assert set(polled.options) <= set(re.findall(r"\w+", options[kind]))


def test_files_of_any_kind_are_detected() -> None:
    """Saved responses of every kind are recognised."""
    texts = (
        responses.hf(responses.hf_row()),
        responses.api(responses.api_entry()),
        responses.feed(responses.feed_entry()),
        responses.oai_page(responses.oai_record()),
        responses.RSS,
        responses.PAGE,
        "[]",
    )
    today = date(2026, 11, 20)
    assert {files.parse_file("a", text.encode(), today).kind for text in texts} == {*SourceKind}
