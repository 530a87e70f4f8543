"""PURE. Learn which words long forms can leave out: "diffusion language models" are diffusion models.

"Process reward models" are not "process models": the papers on them do not say so.
"""

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

LongForm = tuple[str, ...]  # its stems
Readings = Set[tuple[LongForm, LongForm]]  # a long form, and the same without some of its words

# Papers with the short form that must contain the two words that a reading puts side by side. One paper may
# mean something else.
MIN_PAPERS = 2
MIN_SHARE = 0.03  # of the papers with the short form, which must contain these words
# More papers must contain them than by chance: "generative models" are so common that three of 22 papers on
# "generative reward models" mention them.
_STANDARD_DEVIATIONS = 2


def learn(
    shorts: Mapping[LongForm, str],
    hyphenated_pairs: Set[str],
    papers: Iterable[tuple[Iterable[str], Iterable[Sequence[str]]]],
) -> Readings:
    """Return the shorter readings of long forms that consist of a word and another long form.

    A reading leaves out leading words of the other long form, but does not separate hyphenated pairs:
    "vision-language models" are not "vision models". Enough papers with the short form must also contain the
    two words that become neighbors. Each paper has its folded terms, and its texts as stems.
    """
    candidates = [*_candidates(shorts, hyphenated_pairs)]
    all_pairs = {pair for _, _, pair in candidates}
    short_forms = {shorts[long] for long, _, _ in candidates}
    total, counts = 0, Counter[str | tuple[str, ...]]()
    for terms, texts in papers:
        pairs = all_pairs & {pair for text in texts for pair in itertools.pairwise(text)}
        own = short_forms & {*terms}
        total += 1
        counts.update(pairs)
        counts.update(own)
        counts.update((short, *pair) for short in own for pair in pairs)

    def is_confirmed(short: str, pair: tuple[str, str]) -> bool:
        both, with_short = counts[short, *pair], counts[short]
        others = (counts[pair] - both) / max(1, total - with_short)  # the share of other papers
        expected = others * with_short
        by_chance = expected + _STANDARD_DEVIATIONS * math.sqrt(expected)
        return both >= max(MIN_PAPERS, MIN_SHARE * with_short, by_chance)

    return frozenset(
        (long, reading) for long, reading, pair in candidates if is_confirmed(shorts[long], pair)
    )


def _candidates(
    shorts: Mapping[LongForm, str], hyphenated_pairs: Set[str]
) -> Iterator[tuple[LongForm, LongForm, tuple[str, str]]]:
    """Yield each long form, a possible reading, and the two words that become neighbors."""
    for long in sorted(shorts):
        if long[1:] not in shorts:
            continue
        gaps = [at for at in range(1, len(long)) if f"{long[at - 1]} {long[at]}" not in hyphenated_pairs]
        if 1 in gaps:
            yield from ((long, (long[0], *long[at:]), (long[0], long[at])) for at in gaps if at > 1)
