"""Show what short, common interests match: papers that only mention them, and papers about them.

    python -m benchmarks.short ../shared

This reads eight recorded weeks as one pool, with earlier papers as the archive. There are no labels, so judge
the printed titles by eye. The samples are drawn with a fixed seed.
"""

import random
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from app.relevance import cut_offs, matching, muted_texts, query_language
from app.relevance.filters import Filters
from app.relevance.model import RelevanceModel
from app.types import PaperView
from benchmarks.relevance import view

INTERESTS = ("agents", "quantization", "world models", "alignment", "diffusion", "memory")
WEEKS = 8
SHOWN = 10


def main() -> None:
    shared = Path(sys.argv[1])
    sys.path.insert(0, str(shared / "eval"))
    import relevance as evaluation  # type: ignore[import-not-found]

    papers = evaluation.load_papers(shared / "data")
    days = sorted({paper["listed_on"] for paper in papers})
    since = days[-7 * WEEKS]
    older = [paper for paper in papers if paper["listed_on"] < since]
    corpus = RelevanceModel.train([(paper["title"], paper["abstract"]) for paper in reversed(older)])
    pool = {n: view(n, paper) for n, paper in enumerate(papers) if paper["listed_on"] >= since}
    index = matching.MatchIndex(pool.values(), corpus)
    print(f"{len(pool)} papers listed from {since} on; an archive of {len(older)}")
    for text in INTERESTS:
        show(text, pool, index, corpus)


def show(text: str, pool: dict[int, PaperView], index: matching.MatchIndex, corpus: RelevanceModel) -> None:
    query = query_language.parse(text)
    muted = muted_texts.parse_muted(text)
    mentions = Filters([*pool.values()], corpus.abbreviations).excluded_mask(muted)
    mentioned = {n for n, is_mentioned in zip(pool, mentions.tolist(), strict=True) if is_mentioned}
    hits = index.match([query])[0]
    sent = {n for n, relevance in hits.items() if relevance >= cut_offs.FLOOR}
    others = len(sent - mentioned)
    print(f"\n{text}: named by {len(mentioned)}, sent {len(sent)}, of these {others} that do not name it")
    best = sorted(sent, key=lambda n: -hits[n])[:SHOWN]
    for kind, numbers in (
        ("the best", best),
        ("sent", draw_sample(sent & mentioned)),
        ("sent, not named", draw_sample(sent - mentioned)),
        ("named, not sent", draw_sample(mentioned - sent)),
    ):
        print(f"  {kind}:")
        for n in numbers:
            print(f"    {hits.get(n, 0.0):.2f} {pool[n].title[:100]}")


def draw_sample(numbers: Collection[int]) -> Sequence[int]:
    """Return a random sample that is the same in each run."""
    return sorted(random.Random(0).sample(sorted(numbers), min(SHOWN, len(numbers))))  # noqa: S311


if __name__ == "__main__":
    main()
