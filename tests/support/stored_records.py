"""Store parsed records in the transaction of a test. Without one, call `ingest.store_in_batches`."""

from datetime import datetime

from sqlmodel import Session

from app.papers import duplicate_candidates, ingest
from app.storage.models import Source
from app.types import IngestSummary, ParseResult


def store(session: Session, source: Source, parsed: ParseResult, now: datetime) -> IngestSummary:
    """Store records as `ingest.store_in_batches` does, but in the transaction of `session`."""
    summary = ingest._parser_rejections(parsed)
    for rows in ingest._batches(parsed):
        candidates = duplicate_candidates.find(session, rows)
        summary += ingest._store_batch(ingest._Batch(session, source, now, False, candidates), rows)
    return summary
