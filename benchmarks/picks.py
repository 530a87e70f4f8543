"""List the papers that interests would be sent from the last eight recorded days, with their titles.

    python -m benchmarks.picks ../shared "LLM reasoning" "reasoning LLM"

Each interest is matched alone, as typed and, if it is misspelled or foreign, as read. The model is trained
on the papers listed before 2026.
"""

import json
import lzma
import sys
from pathlib import Path

from app.relevance import query_language
from app.relevance.cut_offs import FLOOR
from app.relevance.matching import MatchIndex
from app.relevance.suggestions import InterestReader
from benchmarks.relevance import learn, view
from benchmarks.sent import BEFORE

DAYS = 8


def main() -> None:
    shared, *interests = sys.argv[1:]
    with lzma.open(Path(shared) / "data/papers/hf_papers.jsonl.xz", "rt") as lines:
        papers = sorted(map(json.loads, lines), key=lambda paper: paper["listed_on"], reverse=True)
    days = sorted({paper["listed_on"] for paper in papers})[-DAYS:]
    model = learn(tuple((p["title"], p["abstract"]) for p in papers if p["listed_on"] < BEFORE))
    candidates = [paper for paper in papers if paper["listed_on"] in days]
    index, reader = MatchIndex([view(*pair) for pair in enumerate(candidates)], model), InterestReader(model)
    print(f"{len(candidates)} papers from {days[0]} to {days[-1]}")
    for text in interests:
        query = query_language.parse(text)
        read = reader.read(text, index.missing_words(query))
        queries = [query, *map(query_language.parse, filter(None, [read]))]
        relevance: dict[int, float] = {}
        for matches in index.match(queries):
            relevance |= {n: max(value, relevance.get(n, 0)) for n, value in matches.items()}
        sent = sorted((n for n, value in relevance.items() if value >= FLOOR), key=lambda n: -relevance[n])
        print(f"\n{text}{f', read as {read}' if read else ''}: {len(sent)}")
        for n in sent:
            print(f"  {relevance[n]:.2f}  {candidates[n]['title']}", flush=True)


if __name__ == "__main__":
    main()
