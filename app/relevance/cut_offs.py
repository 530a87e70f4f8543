"""PURE. Convert agreement (z, see `scoring`) to relevance, relative to the cut-off for sending a paper.

Interests differ in how many papers are about them, so each has its own cut-off: the z that a paper needs to
be sent. The number of papers in a sample of the archive that are about the interest is estimated as the
geometric mean of three counts: the papers with a high z, those that contain all words of the interest, and
those that use all of them prominently. The cut-off is a weighted mean of FLOOR_Z and the z that this many
papers reach. Relevance rises with the distance of z from the cut-off in the same way for all interests, and
is FLOOR at the cut-off.
"""

import math

import numpy as np

from app.relevance.bm25 import Matrix

# Measured by `benchmarks/relevance.py`; docs/benchmarks.md lists the alternatives that were tried.
FLOOR = 0.33  # the relevance that a paper needs for a digest
# With z' = z − cut-off + FLOOR_Z, evidence is softplus(z' − EVIDENCE_OFFSET) minus its value at
# z' = MIN_AGREEMENT, divided by EVIDENCE_SCALE. It is almost 0 if this difference is negative or z is at most
# MIN_AGREEMENT. Relevance is 1 − exp(−evidence), so combining relevances as 1 − Π (1 − r) adds up their
# evidence.
EVIDENCE_OFFSET, EVIDENCE_SCALE, MIN_AGREEMENT = 2.0, 8.0, 1.0
WEAK_EVIDENCE = 0.001  # per unit of z: enough to order weak matches, but too little to add up
# The z at which relevance is FLOOR for an interest whose cut-off is not known.
FLOOR_Z = EVIDENCE_OFFSET + math.log(
    math.expm1(math.log1p(math.exp(MIN_AGREEMENT - EVIDENCE_OFFSET)) - EVIDENCE_SCALE * math.log1p(-FLOOR))
)
CUT_OFF_WEIGHT = 0.7  # of the interest's own cut-off, against FLOOR_Z
MIN_COUNT = 1e-3  # share of the sample, added to each count because small counts vary by chance


def evidence_from(agreement: Matrix, cut_offs: Matrix) -> Matrix:
    """Return the evidence that papers are relevant: a matrix of the shape of `agreement`.

    Relevance is 1 − exp(−evidence).
    """
    evidence = (WEAK_EVIDENCE * np.maximum(agreement, 0)).astype(np.float64)
    is_strong = agreement > MIN_AGREEMENT  # few papers; only these need logarithms
    z = agreement[is_strong] + (FLOOR_Z - cut_offs)[is_strong.nonzero()[0]]
    strong = np.logaddexp(0, z - EVIDENCE_OFFSET) - np.logaddexp(0, MIN_AGREEMENT - EVIDENCE_OFFSET)
    evidence[is_strong] = np.maximum(evidence[is_strong], strong / EVIDENCE_SCALE)
    return evidence


def estimate_cut_offs(agreement: Matrix, all_words: Matrix, prominent: Matrix) -> Matrix:
    """Return each interest's cut-off. The arrays have the shape (interests, papers of the sample)."""
    size = agreement.shape[1]
    counts = np.stack([mask.sum(1) for mask in (agreement >= FLOOR_Z, all_words, prominent)])
    expected = np.exp(np.log(counts + MIN_COUNT * size).mean(0))
    positions = size - np.clip(np.rint(expected).astype(int), 1, size)  # of the cut-offs, by ascending z
    # Partitioning is much faster than sorting the whole rows.
    reached = [np.partition(row, n)[n] for row, n in zip(agreement, positions.tolist(), strict=True)]
    return np.asarray(CUT_OFF_WEIGHT * np.array(reached, np.float64) + (1 - CUT_OFF_WEIGHT) * FLOOR_Z)
