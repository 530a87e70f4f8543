"""Write app/relevance/vocabulary.txt: the words of papers, to recognize misspelled interests.

python -m benchmarks.make_vocabulary ../shared
"""

import json
import lzma
import sys
from pathlib import Path

from app.relevance import vocabulary
from app.relevance.vocabulary import Vocabulary
from app.text.tokenizer import distinct_words


def main() -> None:
    data = Path(sys.argv[1]) / "data"
    lines = (data / "arxiv_daily/2026-02-first-two-weeks.jsonl").read_text("utf-8").splitlines()
    with lzma.open(data / "papers/hf_papers.jsonl.xz", "rt") as recorded:
        lines += recorded.readlines()
    papers = {paper["id"]: paper for paper in map(json.loads, lines)}
    distinct = [distinct_words(f"{paper['title']} {paper['abstract']}") for paper in papers.values()]
    words = Vocabulary.count(distinct).to_lines()
    text = "\n".join(words) + "\n"
    vocabulary.BUNDLED_WORDS.write_text(text, encoding="utf-8")
    print(f"{len(words)} words of {len(papers)} papers, {len(text) / 1000:.0f} kB")


if __name__ == "__main__":
    main()
