"""Write app/relevance/frequencies.json: the word frequencies in papers, for archives without a model.

python -m benchmarks.make_frequencies ../shared
"""

from __future__ import annotations

import json
import lzma
import sys
from pathlib import Path

from app.relevance import model

MIN_PAPERS = {"stem": 6, "pair": 25}


def main() -> None:
    with lzma.open(Path(sys.argv[1]) / "data/papers/hf_papers.jsonl.xz", "rt") as lines:
        papers = [json.loads(line) for line in lines]
    trained = model.RelevanceModel.train([(paper["title"], paper["abstract"]) for paper in papers])
    statistics, abbreviations = trained.statistics, trained.abbreviations
    frequent = {
        term: n
        for term, n in sorted(statistics.frequencies.items())
        if n >= MIN_PAPERS["pair" if " " in term else "stem"]
    }
    document = {
        "papers": statistics.papers,
        "frequencies": frequent,
        "title_length": round(statistics.title_length, 2),
        "abstract_length": round(statistics.abstract_length, 2),
        "compounds": {" ".join(run): joined for run, joined in abbreviations.compounds.items()},
        "shorts": {" ".join(run): short for run, short in abbreviations.shorts.items()},
        "apart": sorted(abbreviations.split_compounds),
    }
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    model.BUNDLED_FREQUENCIES.write_text(text + "\n", encoding="utf-8")
    print(f"{len(frequent)} terms of {statistics.papers} papers, {len(text) / 1000:.0f} kB")


if __name__ == "__main__":
    main()
