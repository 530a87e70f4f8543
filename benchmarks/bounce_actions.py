"""Measure how often the action for a recorded bounce or complaint is right, by the software that sent it.

    python -m benchmarks.bounce_actions ../shared [--wrong]

Leaves one source out at a time: phrases that match only emails of that source are switched off while its
emails are read. The baseline suppresses hard bounces only, as before there were actions. `--wrong` lists the
emails that are not read as labeled.
"""

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar
from unittest.mock import patch

from app.bounces import Kind, Notice, parse_mail
from app.delivery.smtp import responses
from app.delivery.smtp.responses import Action, diagnosis, phrase_matching
from app.delivery.smtp.responses.phases import PHASES
from app.delivery.smtp.responses.reason_phrases import PHRASES_BY_REASON, WORDS_BY_REASON

Key = TypeVar("Key")
MAILS = "data/bounces"


def main() -> None:
    folder = Path(sys.argv[1]) / MAILS
    labels = read_labels(folder / "actions.tsv")
    texts = texts_by_source(folder, labels)
    blocks = (*PHRASES_BY_REASON.values(), *WORDS_BY_REASON.values(), *PHASES.values())
    every_phrase = (phrase for block in blocks for phrase in phrase_matching.phrases_in(block))
    support = {phrase: sources_of(phrase, texts) for phrase in every_phrase}
    by_source: dict[str, Counter[str]] = defaultdict(Counter)
    wrong = []
    for source in sorted(texts):
        lonely = {phrase for phrase, sources in support.items() if sources == {source}}
        with without_phrases(lonely):
            for file in (file for file in labels if source_of(file) == source):
                notice = parse_mail((folder / file).read_bytes())[0]
                counts, label = by_source[source], labels[file]
                counts["mails"] += 1
                counts["phrases"] = len(lonely)
                for name, action in (("action", notice.action), ("baseline", baseline(notice))):
                    counts[name] += action == label
                    counts[f"{name} suppressed"] += action == Action.SUPPRESS != label
                if notice.action != label:
                    reading = f"{notice.action}, not {label} ({notice.reason}, {notice.status})"
                    wrong.append(f"{file}: {reading}: {notice.diagnostic:.120}")
    show(by_source)
    unmatched = sum(not sources for sources in support.values())
    single = sum(len(sources) == 1 for sources in support.values())
    print(f"{len(support)} phrases: {unmatched} match no email, {single} match one source only")
    if "--wrong" in sys.argv:
        print(*wrong, sep="\n")


def read_labels(path: Path) -> dict[str, Action]:
    lines = (line.split("\t") for line in path.read_text().splitlines() if not line.startswith("#"))
    return {file: Action(action) for file, action in lines}


def source_of(file: str) -> str:
    """Return the software or the service that sent an email, from the file's name."""
    return re.sub(r"-\d+\.eml$", "", Path(file).name)


def baseline(notice: Notice) -> Action:
    """Return the action for the classes before actions: hard, about the sender, or neither."""
    if notice.kind in (Kind.COMPLAINT, Kind.OPT_OUT):
        return Action.COMPLAINT
    if notice.kind not in (Kind.BOUNCE, Kind.DELAYED):
        return Action.IGNORE
    if notice.hard:
        return Action.SUPPRESS
    return Action.OURS if notice.reason in responses.NOT_ABOUT_RECIPIENT else Action.COUNT


def texts_by_source(folder: Path, files: Mapping[str, Action]) -> dict[str, set[str]]:
    """Return the texts in which phrases are looked for, by the source of their email."""
    texts: dict[str, set[str]] = defaultdict(set)
    for file in files:
        seen = texts[source_of(file)]

        def reason_in(text: str, seen: set[str] = seen) -> object:
            seen.add(phrase_matching.DOT_INSIDE.sub("·", text.lower()))
            return phrase_matching.reason_in(text)

        def phase_in(text: str, seen: set[str] = seen) -> object:
            seen.add(text.lower())
            return phrase_matching.phase_in(text)

        with patch.multiple(diagnosis, reason_in=reason_in, phase_in=phase_in):
            parse_mail((folder / file).read_bytes())
    return texts


def sources_of(phrase: str, texts: Mapping[str, set[str]]) -> set[str]:
    """Return the sources with a text that contains the phrase."""
    expression = phrase_matching.compile_phrase(phrase)
    return {source for source, its_texts in texts.items() if any(map(expression.search, its_texts))}


def without_phrases(switched_off: set[str]) -> AbstractContextManager[object]:
    """Switch phrases off within a `with` block."""

    def remaining(blocks: Mapping[Key, str]) -> dict[Key, list[str]]:
        return {
            key: [phrase for phrase in phrase_matching.phrases_in(block) if phrase not in switched_off]
            for key, block in blocks.items()
        }

    return patch.multiple(
        phrase_matching,
        _PHRASES=phrase_matching.compile_reasons(remaining(PHRASES_BY_REASON)),
        _WORDS=phrase_matching.compile_reasons(remaining(WORDS_BY_REASON)),
        _PHASE=phrase_matching.compile_phases(remaining(PHASES)),
    )


def show(by_source: Mapping[str, Counter[str]]) -> None:
    """Print a row for each source, and the totals as shares."""
    columns = ("mails", "phrases", "action", "baseline", "action suppressed", "baseline suppressed")
    titles = ("mails", "phrases off", "right", "baseline", "wrongly suppressed", "baseline")
    print("source".ljust(24), *titles, sep="  ")
    for source, counts in by_source.items():
        cells = (str(counts[column]).rjust(len(title)) for column, title in zip(columns, titles, strict=True))
        print(source.ljust(24), *cells, sep="  ")
    total: Counter[str] = sum(by_source.values(), Counter())
    for column, title in zip(columns[2:], titles[2:], strict=True):
        print(
            f"{title} ({column}): {total[column]} of {total['mails']}, {total[column] / total['mails']:.3f}"
        )


if __name__ == "__main__":
    main()
