"""Measure how misspelled interests are read, and how often correct ones are changed.

    python -m benchmarks.typed ../shared [kept-back]

The model and the vocabulary know only the papers before 2026. Interests are made from the titles of later
papers: pairs of neighboring words as they are (should not change), words that no earlier paper contains, and
pairs in which one word has one or two random edits (should be corrected). Weights were chosen on one half of
the titles; with `kept-back`, the other half is used.
"""

import json
import lzma
import random
import re
import string
import sys
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from app.relevance import vocabulary
from app.relevance.model import RelevanceModel
from app.relevance.suggestions import InterestReader
from app.relevance.vocabulary import Vocabulary
from app.text.characters import fold_accents
from app.text.tokenizer import content_stems, distinct_words

FIRST_LATER_DAY = "2026-01-01"
SAMPLE = 3_000
_WORD = re.compile(r"[^\W\d_]{3,}")


def is_in_half(text: str, half: int) -> bool:
    return sha256(text.encode()).digest()[0] % 2 == half


def pairs_of(title: str) -> list[str]:
    """Return the pairs of neighboring content words in a title."""
    return [
        pair
        for first in _WORD.finditer(title)
        if (second := _WORD.match(title, first.end() + 1)) and title[first.end()] == " "
        if len(content_stems(pair := title[first.start() : second.end()])) == 2
    ]


def misspell(word: str, edits: int, rng: random.Random) -> str:
    """Return a word with random insertions, deletions, replacements or swaps of letters."""
    for _ in range(edits):
        at, letter = rng.randrange(len(word) - 1), rng.choice(string.ascii_lowercase)
        word = rng.choice(
            [
                word[:at] + letter + word[at:],
                word[:at] + word[at + 1 :],
                word[:at] + letter + word[at + 1 :],
                word[:at] + word[at + 1] + word[at] + word[at + 2 :],
            ]
        )
    return word


def print_changes(what: str, reader: InterestReader, texts: Iterable[str], known: set[str]) -> None:
    """Print how many texts are read as something else. `known` are the words of today's papers."""
    texts = list(texts)
    changed = [(text, read) for text in texts if (read := read_as(reader, text, known))]
    examples = "; ".join(f"{text} → {read}" for text, read in changed[:8])
    print(f"{what:48} {len(changed):5} of {len(texts):5}   {examples}")


def read_as(reader: InterestReader, text: str, known: set[str]) -> str:
    words = re.findall(r"[^\W_]+", text)
    return reader.read(text, [word for word in words if fold_accents(word) not in known])


def print_recall(reader: InterestReader, pairs: Sequence[str], edits: int, rng: random.Random) -> None:
    """Print how many misspelled pairs are read as the original, as something else, and as typed."""
    counts = {"right": 0, "wrong": 0, "missed": 0}
    for pair in pairs:
        words = pair.lower().split()
        place = max(range(2), key=lambda n: (len(words[n]) >= 5, rng.random()))
        original = list(words)
        words[place] = misspell(words[place], edits, rng)
        if content_stems(" ".join(words)) == content_stems(pair):
            continue  # the stems are the same, so it matches anyway
        read = read_as(reader, " ".join(words), set())
        right = content_stems(read) == content_stems(" ".join(original))
        counts["right" if right else "wrong" if read else "missed"] += 1
    total = sum(counts.values())
    shares = ", ".join(f"{name} {count / total:.3f}" for name, count in counts.items())
    print(f"{edits} random edit(s) in one of two words: {shares} of {total}")


def main() -> None:
    data, half = Path(sys.argv[1]) / "data", int("kept-back" in sys.argv)
    with lzma.open(data / "papers/hf_papers.jsonl.xz", "rt") as lines:
        papers: list[dict[str, Any]] = [json.loads(line) for line in lines]
    papers.sort(key=lambda paper: paper["listed_on"], reverse=True)
    earlier = [(p["title"], p["abstract"]) for p in papers if p["listed_on"] < FIRST_LATER_DAY]
    later = [paper for paper in papers if paper["listed_on"] >= FIRST_LATER_DAY]
    lines = (data / "arxiv_daily/2026-02-first-two-weeks.jsonl").read_text("utf-8").splitlines()
    titles = {p["title"] for p in [*later, *map(json.loads, lines)] if is_in_half(p["title"], half)}
    words = Vocabulary.count([distinct_words(f"{title} {abstract}") for title, abstract in earlier])
    vocabulary.bundled_vocabulary = lambda: words  # type: ignore[assignment]
    model = RelevanceModel.train(earlier)
    reader = InterestReader(RelevanceModel(model.statistics, model.abbreviations, None))

    rng = random.Random(half)  # noqa: S311
    pairs = sorted({pair for title in titles for pair in pairs_of(title)})
    rng.shuffle(pairs)
    topics = json.loads((data / "topics/interests.json").read_text("utf-8"))
    texts = [text for topic in topics for text in (topic["heading"], *topic["keywords"])]
    print_changes("headings and keywords of the 36 topics", reader, texts, set())
    print_changes("300 pairs from titles", reader, pairs[:300], set())
    print_changes(f"{SAMPLE} pairs from titles", reader, pairs[:SAMPLE], set())
    print_changes("the same in lower case", reader, map(str.lower, pairs[:SAMPLE]), set())
    stems = model.statistics.frequencies
    unseen = sorted(
        {
            word
            for title in titles
            for word in _WORD.findall(title)
            if stems.keys().isdisjoint(content_stems(word))
        }
    )
    print_changes("words of titles that no earlier paper contains", reader, unseen, set())
    names = sorted({author for paper in later for author in paper["authors"] if is_in_half(author, half)})
    rng.shuffle(names)
    print_changes("names of authors", reader, names[:SAMPLE], set())
    known = [
        pair for pair in pairs if all(words.papers.get(fold_accents(word), 0) >= 5 for word in pair.split())
    ]
    for edits in (1, 2):
        print_recall(reader, known[:SAMPLE], edits, rng)


if __name__ == "__main__":
    main()
