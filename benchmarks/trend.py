"""Evaluate votes as a ranking of each day's papers, and find a fair score for papers without votes.

    python -m benchmarks.trend ../shared

1. Rank each day by the votes in the morning, and judge by the final votes (nDCG@10, gain log(1 + votes)).
   Compare this with other data that is available in the morning.
2. Hide the votes of some papers on each day, because papers from arXiv have none. Find the score for them
   that gives the best first ten, and check whether they get their share of the places. Do this for the trend
   alone, and for the trend times the relevance to real interests (reading lists, weeks), as ranking does.
3. Check the wording of trends, on mornings and on the mornings after.
"""

import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from app.digests import ranking
from app.errors import SourceError
from app.papers.sources import files
from app.relevance import trending
from app.types import PaperView, VoteSample
from benchmarks.relevance import matching

FIRST_DAY = "2025-04-01"  # before this day, the recorded morning and final votes are identical
MIN_PAPERS = 15
DRAWS = 5
SCORES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
Paper = dict[str, Any]


def view(paper: Paper, *, hidden: bool = False) -> PaperView:
    """Return a paper as of the morning of its day. If `hidden`, it looks as if its source had no votes."""
    day = date.fromisoformat(paper["listed_on"])
    point = VoteSample(datetime.combine(day, time(9), UTC), paper["upvotes"])
    return PaperView(
        int(paper["id"].replace(".", "")),
        paper["title"],
        first_listed_on=day,
        upvotes=0 if hidden else paper["upvotes"],
        votes=() if hidden else (point,),
    )


def scores(papers: Sequence[Paper], hidden: np.ndarray, unvoted: float) -> np.ndarray:
    """Return Paperboy's trend scores, with `unvoted` as the score of hidden papers."""
    views = [view(paper, hidden=bool(is_hidden)) for paper, is_hidden in zip(papers, hidden, strict=True)]
    trends = trending.trends(views, datetime(2026, 11, 21, tzinfo=UTC))
    return np.where(hidden, unvoted, [trends[view.id].score for view in views])


def ndcg(gains: np.ndarray, ranked_by: np.ndarray, random: np.random.Generator) -> float:
    """Return nDCG@10 (Järvelin and Kekäläinen, 2002). Ties are broken at random."""
    order = first_ten(ranked_by, random)
    discount = 1 / np.log2(np.arange(2, len(order) + 2))
    return float(gains[order] @ discount / (np.sort(gains)[::-1][: len(order)] @ discount))


def first_ten(ranked_by: np.ndarray, random: np.random.Generator) -> np.ndarray:
    return np.lexsort((random.random(len(ranked_by)), -ranked_by))[:10]


def interval(values: Sequence[float]) -> str:
    """Format the mean with a 95 % bootstrap interval."""
    sample = np.asarray(values)
    means = sample[np.random.default_rng(7).integers(0, len(sample), (2000, len(sample)))].mean(1)
    low, high = np.percentile(means, [2.5, 97.5])
    return f"{sample.mean():.3f} [{low:.3f}, {high:.3f}]"


def final(papers: Sequence[Paper]) -> np.ndarray:
    return np.log1p([paper["upvotes_final"] for paper in papers])


def rank_days(days: Sequence[list[Paper]]) -> None:
    """Measure part 1: rankings of each day."""
    random = np.random.default_rng(1)
    none = {len(day): np.zeros(len(day), bool) for day in days}
    methods: dict[str, Callable[[list[Paper]], np.ndarray]] = {
        "by lot": lambda day: np.zeros(len(day)),
        "newest arXiv number first": lambda day: np.array([float(paper["id"]) for paper in day]),
        "comments of the morning": lambda day: np.array([paper["comments"] for paper in day]),
        "votes of the morning (trend)": lambda day: scores(day, none[len(day)], 0),
        "votes, and comments where they tie": lambda day: np.array(
            [paper["upvotes"] + paper["comments"] / 1000 for paper in day]
        ),
    }
    print(f"1. {len(days)} days, {sum(map(len, days))} papers: nDCG@10 by the votes in the end")
    for name, method in methods.items():
        print(f"   {name:36} {interval([ndcg(final(day), method(day), random) for day in days])}")


def few_votes(days: Sequence[list[Paper]]) -> None:
    """Measure part 1: the final percentile of papers with few votes in the morning."""
    ends = defaultdict(list)
    for day in days:
        votes = sorted(paper["upvotes_final"] for paper in day)
        for paper in day:
            ends[paper["upvotes"]].append(trending.percentile(paper["upvotes_final"], votes))
    summary = ", ".join(
        f"{votes}: {np.mean(ends[votes]):.2f} ({len(ends[votes])} papers)" for votes in range(4)
    )
    print(f"   percentile in the end by votes in the morning: {summary}")


def hide(days: Sequence[list[Paper]], share: float) -> None:
    """Measure part 2 for the trend alone."""
    print(f"\n2. {share:.0%} of each day without votes, trend alone:")
    print("   nDCG@10, places in the first ten / those by the votes in the end")
    random = np.random.default_rng(2)
    draws = [(day, random.permutation(len(day)) < share * len(day)) for day in days for _ in range(DRAWS)]
    for unvoted in SCORES:
        quality, places, due = [], 0, 0
        for day, hidden in draws:
            ranked = scores(day, hidden, unvoted)
            quality.append(ndcg(final(day), ranked, random))
            places += int(hidden[first_ten(ranked, random)].sum())
            due += int(hidden[first_ten(final(day), random)].sum())
        print(f"   {unvoted:.1f}  {np.mean(quality):.3f}  {places / due:.2f}")


def hide_with_relevance(papers: Sequence[Paper], shared: Path, share: float) -> None:
    """Measure part 2 with the relevance to real interests, over the papers from each week."""
    pools = list(_pools(papers, shared))
    print(f"\n   with relevance, {len(pools)} weeks of interests: nDCG@10 by reading list,")
    print("   mean percentile of votes in the first ten, places in it / those by relevance alone")
    for unvoted in (None, *SCORES):
        random = np.random.default_rng(3)
        rows = []
        for week, relevance, wanted in pools:
            hidden = random.random(len(week)) < share
            known = 0 if unvoted is None else scores(week, hidden, unvoted)
            ranked = relevance * (1 + ranking.TREND * known)
            percentiles = np.argsort(np.argsort(final(week))) / (len(week) - 1)
            ten, plain = first_ten(ranked, random), first_ten(relevance, random)
            rows.append(
                (
                    ndcg(wanted, ranked, random),
                    percentiles[ten].mean(),
                    hidden[ten].sum(),
                    hidden[plain].sum(),
                )
            )
        quality, votes, places, due = np.array(rows, float).T
        name = "relevance alone" if unvoted is None else f"{unvoted:.1f}"
        print(f"   {name:16} {quality.mean():.4f}  {votes.mean():.3f}  {places.sum() / due.sum():.2f}")


def _pools(papers: Sequence[Paper], shared: Path) -> Any:
    """Yield (papers, relevance, 1.0 if on the reading list) for each week and interest with such papers."""
    interests = json.loads((shared / "data/topics/interests.json").read_text())
    history = [paper for paper in papers if paper["listed_on"] < FIRST_DAY]
    ranker = matching(history)
    weeks = defaultdict(list)
    for paper in papers:
        if paper["listed_on"] >= FIRST_DAY:
            weeks[date.fromisoformat(paper["listed_on"]).isocalendar()[:2]].append(paper)
    for week in weeks.values():
        for interest in interests:
            wanted = np.array([paper["id"] in interest["relevant"] for paper in week], float)
            if wanted.any() and len(week) > 10:
                yield week, np.array(ranker.score(interest["keywords"], week, [])), wanted


def momentum(shared: Path) -> None:
    """Measure part 3: the wording of trends on the morning after."""
    later = {}
    for line in (shared / "data/hf_daily_next_morning/2026q1.jsonl").read_text().splitlines():
        row = json.loads(line)
        later[row["arxiv_id"]] = row["upvotes"]
    counts: Counter[str] = Counter()
    examples, wrong = [], 0
    for path in sorted((shared / "data/hf_daily").glob("2026-*.json")):
        day = date.fromisoformat(path.stem)
        try:
            records = files.parse_file(path.name, path.read_bytes(), day).parsed.records
        except SourceError:
            continue
        morning, after = (datetime.combine(day + timedelta(days=n), time(8), UTC) for n in (0, 1))
        views = []
        for number, record in enumerate(records):
            if record.upvotes is not None and record.arxiv_id in later:
                now = max(record.upvotes, later[record.arxiv_id])  # votes only grow, as in ingest
                points = [VoteSample(morning, record.upvotes)]
                points += [VoteSample(after, now)] if now > record.upvotes else []
                views.append(
                    PaperView(number, record.title, first_listed_on=day, upvotes=now, votes=tuple(points))
                )
        for number, trended in trending.trends(views, after).items():
            paper = next(view for view in views if view.id == number)
            gained = re.match(r"(\d+) → (\d+) votes since yesterday", trended.words)
            counts["momentum" if gained else "votes" if trended.words else "nothing"] += 1
            counts["top"] += "top 10%" in trended.words
            wrong += bool(gained) and (int(gained[1]), int(gained[2])) != (
                paper.votes[0].upvotes,
                paper.upvotes,
            )
            examples += [trended.words] if gained else []
    print(
        f"\n3. {sum(counts.values()) - counts['top']} mornings after: {dict(counts)}; {wrong} figures untrue"
    )
    print("  ", "; ".join(examples[:: max(1, len(examples) // 5)]))


def main() -> None:
    shared = Path(sys.argv[1])
    sys.path.insert(0, str(shared / "eval"))
    import relevance as evaluation  # type: ignore[import-not-found]

    papers = evaluation.load_papers(shared / "data")
    by_day = defaultdict(list)
    for paper in papers:
        if paper["listed_on"] >= FIRST_DAY:
            by_day[paper["listed_on"]].append(paper)
    days = [
        day
        for day in by_day.values()
        if len(day) >= MIN_PAPERS and any(paper["upvotes_final"] > paper["upvotes"] for paper in day)
    ]
    rank_days(days)
    few_votes(days)
    for share in (1 / 2, 1 / 3):
        hide(days, share)
        hide_with_relevance(papers, shared, share)
    momentum(shared)


if __name__ == "__main__":
    main()
