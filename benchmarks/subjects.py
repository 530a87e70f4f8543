"""Count how many subjects of digests are cut, and how many are cut after a function word, on recorded titles.

    python -m benchmarks.subjects ../shared

The titles of each recorded file become digests of ten papers, in the order of the file. The former rule named
only the first paper, by the beginning of its title.
"""

import sys
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path

from app.errors import SourceError
from app.mail import subject_and_preview
from app.papers.sources import files
from app.text.shortening import FUNCTION_WORDS

TODAY = date(2026, 11, 21)
PAPERS = 10  # in a digest
Titles = Sequence[str]


def digests(folder: Path) -> list[Titles]:
    """Return the titles of each digest. Files that cannot be read are left out."""
    result = []
    for path in sorted(folder.glob("*.json*")):
        try:
            records = files.parse_file(path.name, path.read_bytes(), TODAY).parsed.records
        except SourceError:
            continue
        titles = list(dict.fromkeys(record.title for record in records))
        result += [titles[start : start + PAPERS] for start in range(0, len(titles), PAPERS)]
    return result


def former_subject(titles: Titles) -> str:
    """Return the subject by the former rule."""
    title, others = titles[0], len(titles) - 1
    limit = 57 if others else 70
    if len(title) > limit:
        at = title.rfind(" ", 0, limit)
        title = (title[:at] if at > limit * 0.6 else title[: limit - 1]).rstrip(" ,;:.–—-") + "…"
    return f"{title}, and {others} more" if others else title


def ends_in_function_word(subject: str) -> bool:
    """Return whether a subject is cut after a function word."""
    before, cut, _ = subject.partition("…")
    return bool(cut) and before.split()[-1].lower() in FUNCTION_WORDS


def main() -> None:
    rules: dict[str, Callable[[Titles], str]] = {
        "the former rule": former_subject,
        "subject_and_preview": lambda titles: subject_and_preview.write(titles, len(titles)).text,
    }
    for name in ("hf_daily", "arxiv_daily"):
        every = digests(Path(sys.argv[1]) / "data" / name)
        for size in (PAPERS, 1):
            # With a size of 1, each paper is a digest by itself.
            chosen = [titles for titles in every if len(titles) == size]
            chosen = [[title] for titles in every for title in titles] if size == 1 else chosen
            print(f"\n{name}: {len(chosen)} digests of {size}")
            for rule, write in rules.items():
                subjects = [write(titles) for titles in chosen]
                cut = sum("…" in subject for subject in subjects) / len(subjects)
                dangling = sum(map(ends_in_function_word, subjects)) / len(subjects)
                length = sum(map(len, subjects)) / len(subjects)
                print(
                    f"  {rule:16} cut {cut:6.1%}  after a function word {dangling:6.1%}  {length:.0f} chars"
                )
            print(*(f"    {subject}" for subject in subjects[:: max(1, len(subjects) // 12)]), sep="\n")


if __name__ == "__main__":
    main()
