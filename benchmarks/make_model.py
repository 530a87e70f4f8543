"""Write app/relevance/bundled_model.npz, for archives that are too small to train a model of their own.

python -m benchmarks.make_model ../shared

It contains only what was counted and computed: numbers, stems and hashes of titles, but no text of a paper.
It is trained on the papers before `BEFORE`. Later ones are held back, so that benchmarks can measure it.
"""

import json
import lzma
import sys
from dataclasses import replace
from pathlib import Path

from app.relevance import model
from app.relevance.vocabulary import Vocabulary

BEFORE = "2026-01-01"
MIN_FREQUENCY = 3  # papers; half of all terms occur in only two
MAX_EXAMPLES = 5_000


def main() -> None:
    with lzma.open(Path(sys.argv[1]) / "data/papers/hf_papers.jsonl.xz", "rt") as lines:
        papers = [paper for paper in map(json.loads, lines) if paper["listed_on"] < BEFORE]
    papers.sort(key=lambda paper: paper["listed_on"], reverse=True)
    trained = model.RelevanceModel.train(
        [(paper["title"], paper["abstract"]) for paper in papers], MIN_FREQUENCY, MAX_EXAMPLES
    )
    data = replace(trained, vocabulary=Vocabulary()).encode()  # bundled as `vocabulary.txt`
    model.BUNDLED_MODEL.write_bytes(data)
    print(f"{len(trained.statistics.frequencies)} terms of {len(papers)} papers, {len(data) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
