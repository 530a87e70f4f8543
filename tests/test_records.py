"""What the ledger keeps of a digest is all of it."""

from __future__ import annotations

from dataclasses import asdict

from app.records import Digest, Pick, Section

PICK = Pick(7, "Robots", "Ada Lovelace", "They walk.", "“robots” in the title", "", "https://paper.test/7")


def test_a_stored_digest_is_rebuilt_whole() -> None:
    """Headings of sections without an interest, too."""
    sections = (Section("robots", (PICK,)), Section("", (PICK,), "Close to what you liked"))
    digest = Digest("2026-11-21", sections, "A note.", considered=3)
    assert Digest.from_dict(asdict(digest)) == digest
