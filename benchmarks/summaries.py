"""Evaluate how well `app.text.summarizer` finds the most informative sentence, against simple baselines.

    python -m benchmarks.summaries ../shared

The reference is Hugging Face's summary of a paper (`ai_summary`), from the recorded days in that folder. Each
month is judged with points fitted on the other months; `shipped` are the rounded points in
`app.text.summarizer.POINTS`. The last point is not fitted, because summaries cannot show which sentences
refer to others. Instead, the script counts how many chosen sentences begin in the middle of a thought, by its
own list of openings. The rules were written while looking at only one half of the recorded abstracts.

ROUGE is F1 on lower-case words of letters and digits, without stemming
(Lin, 2004: "ROUGE: A Package for Automatic Evaluation of Summaries").
"""

import hashlib
import math
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from itertools import pairwise
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

from app.errors import SourceError
from app.papers.sources import files
from app.text import sentence_openings, summarizer

TODAY = date(2026, 11, 21)
Rouge = tuple[float, float, float]

# --- openings in the middle of a thought; not the lists of `app.text.sentence_openings`, which they test

_PAPER = r"(?:\S+ ){0,2}(?:paper|work|study|report|survey|review|article|letter|thesis|brief|note)\b"
_CONTINUES = re.compile(
    r"(?:however|moreover|furthermore|therefore|thus|hence|consequently|accordingly|additionally|specifically"
    r"|then|finally|next|also|meanwhile|instead|nevertheless|nonetheless|(?:first|second|third)(?:ly)?|overall"
    r"|here|but|and|so|yet|similarly|conversely|subsequently|together|alternatively|they|their|them|it|its"
    r"|both|we (?:also|then|further|therefore|thus|hence|additionally|finally|subsequently)"
    r"|as an? (?:result|consequence|remedy)|(?:in|to|for|by|as|on|at|with) (?:this|that|these|those|such"
    r"|addition|contrast|particular|response|turn|do so|doing so|the other hand))\b",
    re.IGNORECASE,
)
_DEMONSTRATIVE = re.compile(
    r"\b(?:this|these|those|such(?! as)|aforementioned|former|latter|it|its|they|their|them)\b"
    rf"(?! {_PAPER})",
    re.IGNORECASE,
)
_ABOUT_THE_PAPER = re.compile(rf"(?:in )?(?:this|the present|our) {_PAPER}", re.IGNORECASE)
LONGEST_OPENING = 12  # words before a comma; of a sentence without one, the first three words are the opening


@dataclass(frozen=True)
class Sample:
    """A paper, the sentences in its abstract, and how similar each is to the reference."""

    month: str
    title: str
    abstract: str
    reference: str
    parts: list[str]
    rows: np.ndarray  # the features, one row per sentence
    worth: np.ndarray  # the mean of ROUGE-1, -2 and -L for each sentence


def samples(folder: Path) -> list[Sample]:
    """Return each paper from the recorded days that has an abstract and a summary."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        try:
            records = files.parse_file(path.name, path.read_bytes(), TODAY).parsed.records
        except SourceError:
            continue
        for record in records:
            if record.tldr and record.abstract:
                found.setdefault(record.arxiv_id, record)
    return [
        _sample(record.listed_on, record.title, record.abstract, record.tldr) for record in found.values()
    ]


def _sample(day: date, title: str, abstract: str, reference: str) -> Sample:
    parts = summarizer.sentences(abstract)
    worth = np.array([np.mean(rouge(sentence_openings.without_opening(part), reference)) for part in parts])
    month = f"{day:%Y-%m}" if day.year >= 2026 else "2025"  # there are only 28 papers from 2025
    return Sample(
        month, title, abstract, reference, parts, np.array(summarizer.features(title, parts), float), worth
    )


def rouge(text: str, reference: str) -> Rouge:
    """Return ROUGE-1, ROUGE-2 and ROUGE-L, each as F1."""
    one, two = (re.findall(r"[a-z0-9]+", each.lower()) for each in (text, reference))
    pairs = list(pairwise(one)), list(pairwise(two))
    return (
        _f1(_shared(one, two), len(one), len(two)),
        _f1(_shared(*pairs), *map(len, pairs)),
        _f1(_longest_common(one, two), len(one), len(two)),
    )


def _shared(one: Sequence[object], two: Sequence[object]) -> int:
    return (Counter(one) & Counter(two)).total()


def _f1(shared: int, one: int, two: int) -> float:
    return 2 * shared / (one + two) if shared else 0.0


def _longest_common(one: Sequence[str], two: Sequence[str]) -> int:
    """Return the length of the longest common subsequence."""
    row = [0] * (len(two) + 1)
    for word in one:
        before = 0
        for place, other in enumerate(two, 1):
            before, row[place] = row[place], before + 1 if word == other else max(row[place], row[place - 1])
    return row[-1]


def fit(chosen: Sequence[Sample]) -> np.ndarray:
    """Return the points that maximize the expected worth of a softmax draw, with a small L2 penalty."""
    rows, worth = np.vstack([s.rows for s in chosen]), np.concatenate([s.worth for s in chosen])
    sizes = [len(s.parts) for s in chosen]
    starts, owner = np.cumsum([0, *sizes[:-1]]), np.repeat(np.arange(len(sizes)), sizes)

    def loss(points: np.ndarray) -> tuple[float, np.ndarray]:
        z = rows @ points
        share = np.exp(z - np.maximum.reduceat(z, starts)[owner])
        share /= np.add.reduceat(share, starts)[owner]
        expected = np.add.reduceat(share * worth, starts)
        slope = rows.T @ (share * (worth - expected[owner])) / len(sizes)
        return -expected.mean() + 1e-4 * (points**2).sum(), -slope + 2e-4 * points

    return minimize(loss, np.zeros(rows.shape[1]), jac=True, method="L-BFGS-B").x


def first_sentences(sample: Sample) -> str:
    """Return as many of the abstract's first sentences as fit, which is what cards formerly showed."""
    text = ""
    for part in sample.parts:
        if len(text) + len(part) > summarizer.LIMIT:
            break
        text = f"{text} {part}".strip()
    return text or summarizer.shorten(sample.parts[0])


def most_central(sample: Sample) -> str:
    """Return the sentence that is most similar to all others (cosine of word counts): one-step LexRank."""
    bags = [Counter(re.findall(r"[a-z0-9]+", part.lower())) for part in sample.parts]
    return summarizer.shorten(
        max(zip(sample.parts, bags, strict=True), key=lambda p: _likeness(p[1], bags))[0]
    )


def _likeness(bag: Counter[str], bags: Sequence[Counter[str]]) -> float:
    norm = math.hypot(*bag.values())
    return sum(
        sum(n * other[word] for word, n in bag.items()) / norm / math.hypot(*other.values()) for other in bags
    )


def first_introducing(sample: Sample) -> str:
    """Return the first sentence that introduces something, or the first sentence if none does."""
    return summarizer.shorten(sample.parts[next((n for n, row in enumerate(sample.rows) if row[0]), 0)])


def cross_validate(all_samples: Sequence[Sample]) -> dict[int, str]:
    """Return the summary of each sample with points fitted on the other months, by `id(sample)`."""
    found = {}
    for month in sorted({s.month for s in all_samples}):
        points = [*fit([s for s in all_samples if s.month != month])[:-1], summarizer.POINTS[-1]]
        print(f"points without {month}:", np.round(points, 1))
        for s in (s for s in all_samples if s.month == month):
            found[id(s)] = summarizer.extract(
                s.parts, summarizer.best_sentence(s.parts, s.rows, tuple(points))
            )
    return found


def begins_mid_thought(sentence: str) -> bool:
    """Return whether a sentence begins with words that continue, or refer to, a sentence before it."""
    if _ABOUT_THE_PAPER.match(sentence):
        return False
    opening, comma, _ = sentence.partition(", ")
    words = opening.split()
    if not comma or len(words) > LONGEST_OPENING:
        opening = " ".join(words[:3])
    return bool(_CONTINUES.match(sentence) or _DEMONSTRATIVE.search(opening))


def former_sentence(title: str, abstract: str) -> str:
    """Return the sentence that was chosen when it was shown unchanged, wherever it began."""
    parts = summarizer.sentences(abstract)
    points = (*summarizer.POINTS[:-1], 0.0)
    return parts[summarizer.best_sentence(parts, summarizer.features(title, parts), points)]


def _half(arxiv_id: str) -> str:
    digest = hashlib.sha1(arxiv_id.encode(), usedforsecurity=False).digest()
    return "held back" if digest[0] % 2 else "looked at"


def compare_openings(folder: Path) -> None:
    """Print the share of chosen sentences that begin in the middle of a thought, before and now."""
    for name in ("hf_daily", "arxiv_daily"):
        found = {}
        for path in sorted((folder / name).glob("*.json*")):
            with suppress(SourceError):
                for record in files.parse_file(path.name, path.read_bytes(), TODAY).parsed.records:
                    if record.abstract:
                        found.setdefault(record.arxiv_id, record)
        for half in ("looked at", "held back"):
            chosen = [r for key, r in found.items() if _half(key) == half]
            before = np.mean([begins_mid_thought(former_sentence(r.title, r.abstract)) for r in chosen])
            now = np.mean([begins_mid_thought(summarizer.summarize(r.title, r.abstract)) for r in chosen])
            print(f"{name}, half {half}: {len(chosen)} abstracts, mid-thought {before:.1%} -> {now:.1%}")


def main() -> None:
    data = Path(sys.argv[1]) / "data"
    compare_openings(data)
    everything = samples(data / "hf_daily")
    print(f"{len(everything)} papers with a summary:", dict(Counter(s.month for s in everything)))
    held_out = cross_validate(everything)
    print("points of all months: ", fit(everything).round(1), "shipped:", summarizer.POINTS)
    draw = random.Random(1)  # noqa: S311
    methods: dict[str, Callable[[Sample], str]] = {
        "a random sentence": lambda s: summarizer.shorten(draw.choice(s.parts)),
        "the last sentence": lambda s: summarizer.shorten(s.parts[-1]),
        "the first sentence": lambda s: summarizer.shorten(s.parts[0]),
        "the beginning, to 320 characters": first_sentences,
        "the most central sentence": most_central,
        "the first that introduces something": first_introducing,
        "summarizer, points of other months": lambda s: held_out[id(s)],
        "summarizer, as shipped": lambda s: summarizer.summarize(s.title, s.abstract),
        "the best single sentence (oracle)": lambda s: summarizer.extract(s.parts, int(np.argmax(s.worth))),
    }
    results = {}
    for name, method in methods.items():
        texts = [method(s) for s in everything]
        results[name] = np.array(
            [rouge(text, s.reference) for text, s in zip(texts, everything, strict=True)]
        )
        length = np.mean([len(text) for text in texts])
        print(
            f"{name:36}", *(f"{figure:.3f}" for figure in results[name].mean(axis=0)), f"{length:6.0f} chars"
        )
    ours, before = (
        results["summarizer, points of other months"],
        results["the first that introduces something"],
    )
    gained = (ours - before).mean(axis=1)
    means = [
        gained[np.random.default_rng(n).integers(0, len(gained), len(gained))].mean() for n in range(1000)
    ]
    low, high = np.percentile(means, [2.5, 97.5])
    print(f"gain over the best baseline, mean of the three: {gained.mean():.4f} [{low:.4f}, {high:.4f}]")
    _show(random.Random(40).sample(everything, 40))  # noqa: S311


def _show(chosen: Sequence[Sample]) -> None:
    """Print summaries and their references, to be judged by eye."""
    for s in chosen:
        print(f"\n# {s.title}\n  told: {summarizer.summarize(s.title, s.abstract)}\n  ref:  {s.reference}")


if __name__ == "__main__":
    main()
