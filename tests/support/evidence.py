"""Fill a matrix of evidence by paper, for tests of ranking and selection."""

from collections.abc import Mapping

import numpy as np

from app.digests.ranking import EvidenceMatrix


def add_interest(
    matrix: EvidenceMatrix,
    text: str,
    relevance: Mapping[int, float],
    excluded: frozenset[int] = frozenset(),
    strength: Mapping[int, float] | None = None,
) -> None:
    """Add an interest with its relevance and strength by paper. By default, the strength is the relevance."""
    strength = relevance if strength is None else strength
    columns = np.array([matrix.columns[number] for number in sorted(relevance)], np.intp)
    values, strengths = (np.array([own[n] for n in sorted(relevance)]) for own in (relevance, strength))
    matrix.add_columns(text, columns, values, strengths, excluded)
