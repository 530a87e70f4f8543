"""Test compressed JSON: read back unchanged, and never different bytes for what is stored already."""

import json
from typing import Any

import pytest

from app.storage import compressed_json


@pytest.mark.parametrize(
    "value",
    [{}, [], "bees", None, {"sections": [{"interest": "naïve “Bees”", "why": [0, 1]}]}, "\ud800", 0.1],
)
def test_a_value_is_read_back(value: Any) -> None:
    """Compressed, and as the plain JSON of earlier releases."""
    assert compressed_json.load(compressed_json.dump(value)) == value
    assert compressed_json.load(json.dumps(value).encode()) == value


def test_stored_bytes_remain_readable() -> None:
    """They were written by the first release with compression: a changed dictionary would break them."""
    stored = bytes.fromhex("01236443522ad0b768b6189ad40200")
    assert compressed_json.load(stored) == {"edition": "2026-11-20", "note": "bees", "considered": 214}


def test_a_digest_takes_a_third() -> None:
    """Most of its JSON is names of columns and the usual words of reasons."""
    columns = {"cards": [4, 7], "papers": [94, 97], "why": [0, 1], "marks": ["", ""], "scores": [0.82, 0.61]}
    reasons = ["“bees” in the title; no “ants”, but related words: “hives”", "“bees” in the abstract"]
    sections = [{"interest": "bees and ants", "heading": "", **columns, "reasons": reasons}] * 2
    digest = {"edition": "2026-11-20", "note": "", "considered": 214, "sections": sections}
    assert len(compressed_json.dump(digest)) < len(compressed_json.dump_text(digest)) / 3
