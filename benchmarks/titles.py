"""Measure which titles are taken for the same paper, on recorded titles and on titles made from them.

    python -m benchmarks.titles ../shared [--examples]

Different papers: all pairs of recorded papers with similar titles, and each title with the title of a sequel
that is made from it (a version, a negation, another noun, ...). The same paper: each title with a copy as
other sources write it (a typing error, LaTeX, a dropped name, ...). Each is shown for two halves of the
papers, which are separated by a hash of their ids: tune on the first, decide on the second. `--examples`
prints the wrong judgments on the first half.
"""

import json
import lzma
import random
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path

import numpy as np
from rapidfuzz import fuzz, process

from app.papers import dedupe
from app.papers.title_normalization import Title, title_key

NEAR_TITLE = 76  # ratio of rapidfuzz from which two recorded titles are similar
NEAR_SUBTITLE = 82
MIN_SUBTITLE = 20  # characters
BATCH = 1_000  # titles compared with all others at once
RULES: dict[str, Callable[[str, str], bool]] = {
    "same letters and digits": lambda a, b: title_key(a) == title_key(b),
    "same_title": lambda a, b: dedupe.same_title(Title(a), Title(b)),
}
FUNCTION_WORDS = re.compile(
    "a|an|the|and|or|of|for|in|on|at|with|by|via|using|through|to|into|from|as|is|are", re.IGNORECASE
)
RENAMED = ("LUMOS", "Orion", "CLARA", "NOVA", "Prisma")

Pair = tuple[str, str, str]  # kind, and two titles
Change = Callable[[str, random.Random, Sequence[str]], str | None]


def main() -> None:
    data, examples = Path(sys.argv[1]) / "data", "--examples" in sys.argv
    papers = recorded_papers(data)
    titles = {arxiv_id: paper.title for arxiv_id, paper in papers.items()}
    vocabulary = content_words(titles.values())
    near = near_pairs(titles)
    similar = [[("similar", titles[a], titles[b]) for a, b in near if half_of(a) == half] for half in (0, 1)]
    show("different papers: recorded, similar titles", similar, examples, same=False)
    for half in (0, 1):
        pairs = [(papers[a], papers[b]) for a, b in near if half_of(a) == half]
        wrong = sum(bool(dedupe.same_paper_reason(*pair)) for pair in pairs)
        print(f"taken for the same paper with authors and abstracts: {wrong} of {len(pairs)}")
    for name, changes in (("different papers: sequels", SEQUELS), ("same paper: copies", COPIES)):
        changed = [list(changed_titles(titles, half, changes, vocabulary)) for half in (0, 1)]
        show(name, changed, examples, same=changes is COPIES)


def recorded_papers(data: Path) -> dict[str, dedupe.PaperIdentity]:
    """Return recorded papers by arXiv id, in this order. The records themselves have no id."""
    with lzma.open(data / "papers/hf_papers.jsonl.xz", "rt") as lines:
        rows = [json.loads(line) for line in lines]
    for file in sorted((data / "arxiv_daily").glob("*.jsonl")):
        rows += map(json.loads, file.read_text().splitlines())
    papers: dict[str, dedupe.PaperIdentity] = {}
    for row in rows:
        title, authors = " ".join(row["title"].split()), tuple(row["authors"])
        arxiv_id = re.sub(r"v\d+$", "", row["id"].rpartition("/")[2])
        papers.setdefault(
            arxiv_id, dedupe.PaperIdentity(title, abstract=row["abstract"] or "", authors=authors)
        )
    return dict(sorted(papers.items()))


def half_of(arxiv_id: str) -> int:
    """Return the half, 0 or 1, that a paper belongs to."""
    return sha256(arxiv_id.encode()).digest()[0] % 2


def content_words(titles: Iterable[str]) -> list[str]:
    """Return the words of at least four letters that stand in three titles or more."""
    counts = Counter(word for title in titles for word in set(re.findall(r"\b[A-Za-z]{4,}\b", title)))
    return sorted(word for word, n in counts.items() if n >= 3 and not FUNCTION_WORDS.fullmatch(word))


def near_pairs(titles: dict[str, str]) -> list[tuple[str, str]]:
    """Return the ids of papers with similar titles or subtitles."""
    ids = [*titles]
    whole = [Title(title).normalized for title in titles.values()]
    subtitles = [Title(title.partition(": ")[2]).normalized for title in titles.values()]
    similar = set[tuple[int, int]]()
    for queries, others, ratio in (
        (whole, whole, NEAR_TITLE),
        (subtitles, whole, NEAR_SUBTITLE),
        (subtitles, subtitles, NEAR_SUBTITLE),
    ):
        rows = [n for n, text in enumerate(queries) if len(text) >= MIN_SUBTITLE or queries is whole]
        for start in range(0, len(rows), BATCH):
            batch = rows[start : start + BATCH]
            texts = [queries[n] for n in batch]
            ratios = process.cdist(texts, others, scorer=fuzz.ratio, score_cutoff=ratio, dtype=np.uint8)
            found = zip(*(axis.tolist() for axis in np.nonzero(ratios)), strict=True)
            similar |= {(min(batch[row], n), max(batch[row], n)) for row, n in found if batch[row] != n}
    return [(ids[a], ids[b]) for a, b in sorted(similar)]


def changed_titles(
    titles: dict[str, str], half: int, changes: dict[str, Change], vocabulary: Sequence[str]
) -> Iterator[Pair]:
    """Yield each title of this half with a changed one. The change is drawn by the id."""
    for arxiv_id, title in titles.items():
        if half_of(arxiv_id) == half:
            chance = random.Random(arxiv_id)  # noqa: S311  not for security
            kind = chance.choice([*changes])
            changed = changes[kind](title, chance, vocabulary)
            if changed and changed.casefold() != (title if changed.isupper() else title.casefold()):
                yield kind, title, changed


def show(name: str, halves: Sequence[Sequence[Pair]], examples: bool, same: bool) -> None:
    """Print for each kind how many pairs are taken for the same paper, by rule, in each half."""
    print(f"\n{name}\n{'taken for the same paper':26} " + " ".join(f"{rule:>30}" for rule in RULES))
    rows = defaultdict[str, list[list[bool]]](list)
    for half, pairs in enumerate(halves):
        for kind, a, b in pairs:
            judged = [rule(a, b) for rule in RULES.values()]
            rows[kind, half].append(judged)
            rows["all", half].append(judged)
            if examples and half == 0 and judged[-1] != same:
                print(f"    {kind}: {a}  |  {b}")
    for kind in sorted({kind for kind, _ in rows}, key=lambda kind: (kind == "all", kind)):
        cells = []
        for n in range(len(RULES)):
            for half in (0, 1):
                judged = [row[n] for row in rows[kind, half]]
                cells.append(f"{np.mean(judged):7.4f} of {len(judged):4}" if judged else " " * 15)
        print(f"{kind:26} " + " ".join(cells))


def content_positions(words: Sequence[str]) -> list[int]:
    """Return the positions of words of at least four letters, except function words and the first word."""
    plain = [re.sub(r"\W", "", word) for word in words]
    return [n for n, word in enumerate(plain) if n and len(word) >= 4 and not FUNCTION_WORDS.fullmatch(word)]


def edit_word(edit: Callable[[str, random.Random, Sequence[str]], str]) -> Change:
    """Return a change of one content word of a title."""

    def change(title: str, chance: random.Random, vocabulary: Sequence[str]) -> str | None:
        words = title.split()
        if not (positions := content_positions(words)):
            return None
        n = chance.choice(positions)
        words[n] = edit(words[n], chance, vocabulary)
        return " ".join(words)

    return change


def edit_letter(edit: Callable[[str, int, random.Random], str]) -> Change:
    """Return a change of one letter of a content word."""
    return edit_word(lambda word, chance, _: edit(word, chance.randrange(1, len(word) - 1), chance))


def swap_function_word(title: str, chance: random.Random, _: Sequence[str]) -> str | None:
    words = title.split()
    positions = [n for n, word in enumerate(words) if word in ("for", "in", "with", "via", "using")]
    if not positions:
        return None
    n = chance.choice(positions)
    words[n] = {"for": "in", "in": "for", "with": "using", "via": "by", "using": "with"}[words[n]]
    return " ".join(words)


def shorten(title: str, chance: random.Random, _: Sequence[str]) -> str | None:
    """Return the title without a content word before the last: a title without the last may be a copy."""
    words = title.split()
    if not (positions := content_positions(words[:-1])):
        return None
    del words[chance.choice(positions)]
    return " ".join(words)


def survey_of(title: str, chance: random.Random, _: Sequence[str]) -> str | None:
    prefix = chance.choice(("A Survey of ", "Benchmarking ", "Towards ", "Rethinking ", "Comment on "))
    return prefix + title if ": " not in title else None


def version_of(title: str, chance: random.Random, _: Sequence[str]) -> str | None:
    name, colon, rest = title.partition(": ")
    if not colon:
        return f"{title}{chance.choice((' II', ', Part 2', ' 2.0', ' v2', ', Part III'))}"
    return f"{name}{chance.choice(('2', '-V2', ' 2.0', '++', ' II', '-1.5'))}: {rest}"


def negation_of(title: str, chance: random.Random, _: Sequence[str]) -> str | None:
    words = title.split()
    if not (positions := content_positions(words)):
        return None
    words.insert(chance.choice(positions), chance.choice(("Not", "Without", "Non", "Beyond", "No")))
    return " ".join(words)


def rename(title: str, chance: random.Random, _: Sequence[str]) -> str | None:
    name, colon, rest = title.partition(": ")
    if not colon or len(name.split()) > 1 or len(rest) < 45 or re.search(r"\d|\+", name):
        return None
    return f"{chance.choice(RENAMED)}: {rest}"


def drop_name(title: str, chance: random.Random, _: Sequence[str]) -> str | None:
    name, colon, rest = title.partition(": ")
    return rest if colon and len(name.split()) == 1 and len(rest) >= 30 else None


def write_out(title: str, chance: random.Random, _: Sequence[str]) -> str | None:
    long = re.sub(r"(?i)large language model", "LLM", title)
    return long if long != title else re.sub(r"\bLLM(?=s?\b)", "Large Language Model", title)


def cut(title: str, chance: random.Random, _: Sequence[str]) -> str | None:
    return title.rpartition(" ")[0] if len(title.split()) >= 8 else None


SEQUELS: dict[str, Change] = {
    "another word": edit_word(lambda word, chance, vocabulary: chance.choice(vocabulary)),
    "one more word": edit_word(lambda word, chance, vocabulary: f"{chance.choice(vocabulary)} {word}"),
    "one word less": shorten,
    "version": version_of,
    "negation": negation_of,
    "prefix": edit_word(
        lambda word, chance, _: chance.choice(("Un", "Semi-", "Non-", "Multi-", "Meta", "Sub")) + word.lower()
    ),
    "survey": survey_of,
}
COPIES: dict[str, Change] = {
    "letter omitted": edit_letter(lambda word, n, _: word[:n] + word[n + 1 :]),
    "letter doubled": edit_letter(lambda word, n, _: word[:n] + word[n] + word[n:]),
    "letters swapped": edit_letter(lambda word, n, _: word[:n] + word[n + 1] + word[n] + word[n + 2 :]),
    "letter wrong": edit_letter(lambda word, n, chance: word[:n] + chance.choice("aeinorst") + word[n + 1 :]),
    "space omitted": lambda title, chance, _: title.replace(" ", "", 1),
    "hyphens": lambda title, chance, _: title.replace("-", " "),
    "no articles": lambda title, chance, _: re.sub(r"(?i)\b(the|an?) ", "", title),
    "other preposition": swap_function_word,
    "LaTeX": edit_word(
        lambda word, chance, _: chance.choice(("\\textbf{%s}", "$\\mathbf{%s}$", "{%s}", "\\emph{%s}")) % word
    ),
    "upper case": lambda title, chance, _: title.upper(),
    "line break": lambda title, chance, _: title.replace(" ", "\n  ", 3),
    "name dropped": drop_name,
    "other name": rename,
    "LLM written out": write_out,
    "last word cut": cut,
}


if __name__ == "__main__":
    main()
