"""Measure which papers an organization's name brings as an interest, and which words are taken for names.

    python -m benchmarks.organizations ../shared

The candidates are the papers of the last ten recorded days of Hugging Face, the archive is those before. The
baseline is the same matching without the organizations of the papers.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

from app.papers.sources import huggingface
from app.relevance import cut_offs, matching, query_language
from app.relevance.model import RelevanceModel
from app.relevance.typed_organizations import OrganizationNames
from app.text.tokenizer import content_stems
from app.types import PaperView

DAYS = 10
ORGANIZATIONS = 10  # those with the most papers
MIN_PAPERS = 3  # that write a word in lower case


def main() -> None:
    files = sorted((Path(sys.argv[1]) / "data" / "hf_daily").glob("*.json"))
    by_day = [list(read_papers(file)) for file in files]
    older = [paper for papers in by_day[:-DAYS] for paper in papers]
    known = {paper.id for paper in older}
    pool = list(
        {paper.id: paper for day in by_day[-DAYS:] for paper in day if paper.id not in known}.values()
    )
    model = RelevanceModel.train([(paper.title, paper.abstract) for paper in reversed(older)])
    named = sum(bool(paper.organization) for paper in pool)
    print(
        f"{len(pool)} papers since {files[-DAYS].stem}, {named} with an organization; "
        f"an archive of {len(older)}"
    )
    show_names(pool, model)
    show_words(pool, older, model)


def read_papers(file: Path) -> Iterator[PaperView]:
    """Yield the papers of a day. Their ids are derived from their arXiv ids."""
    for record in huggingface.parse(file.read_bytes(), date.fromisoformat(file.stem)).records:
        number = int(re.sub(r"\D", "", record.arxiv_id))
        names = record.organization_names
        yield PaperView(number, record.title, record.abstract, record.authors, organization_names=names)


def show_names(pool: Sequence[PaperView], model: RelevanceModel) -> None:
    """Print the papers that each organization's name brings, without and with organizations."""
    anonymous = [replace(paper, organization_names=()) for paper in pool]
    indexes = [matching.MatchIndex(papers, model) for papers in (anonymous, pool)]
    counts = Counter(paper.organization for paper in pool if paper.organization)
    total = Counter[str]()
    print("\norganization: papers, brought before and after, papers from others before and after")
    for name, papers in counts.most_common(ORGANIZATIONS):
        own = {paper.id for paper in pool if paper.organization == name}
        query = query_language.parse(name)
        hits = [index.match([query])[0] for index in indexes]
        before, after = ({n for n, found in each.items() if found >= cut_offs.FLOOR} for each in hits)
        row = {
            "papers": papers, "before": len(before & own), "after": len(after & own),
            "others before": len(before - own), "others after": len(after - own),
        }  # fmt: skip
        total.update(row)
        print(f"  {name:36}", *row.values())
    print(f"  {'sum':36}", *total.values())


def show_words(pool: Sequence[PaperView], older: Sequence[PaperView], model: RelevanceModel) -> None:
    """Print which ordinary words, those that papers write in lower case, are taken for names."""
    texts = (f"{paper.title} {paper.abstract}" for paper in older)
    papers = Counter(word for text in texts for word in set(re.findall(r"(?<![\w./-])[a-z]{3,}\b", text)))
    ordinary = [word for word, count in papers.items() if count >= MIN_PAPERS and content_stems(word)]
    names = OrganizationNames(pool, model.abbreviations, model.statistics.idf)
    taken = {word: len(names.rows_named_by(query_language.parse(word))) for word in sorted(ordinary)}
    wrong = ", ".join(f"{word} ({count})" for word, count in taken.items() if count)
    print(f"\nof {len(ordinary)} ordinary words, taken for names (papers): {wrong or 'none'}")


if __name__ == "__main__":
    main()
