"""PURE. Decide whether the words in which two similar titles differ indicate two different papers.

Different papers may have titles that differ in a single word: "Editing" and "Pruning Everything Everywhere",
"Qwen3" and "Qwen3-VL Technical Report", "supervised" and "unsupervised". Therefore every word in which two
titles differ must be explained: by spacing, inflection, a typing error, a function word, a known
abbreviation, or a cut-off end. An unexplained content word means that the titles belong to two papers.
"""

from collections.abc import Iterator, Sequence, Set

from rapidfuzz.distance import OSA, Levenshtein

from app.text.characters import remove_accents
from app.text.word_forms import stem

# Many pairs of words in titles differ by one letter, such as "formal" and "format". Few such words are long.
MIN_OMISSION = 3  # minimum length of a word that lacks one letter
MIN_SUBSTITUTION = 6  # minimum length of a word with one wrong letter
MIN_NEGATED = 6  # minimum length of a word whose meaning a prefixed "a" reverses

# Copies of a title may replace words with others in the same group, or omit them. All other words, such as
# "not", "without", "beyond" and "towards", change what a title says.
_FUNCTION_WORDS = ("a an the and", "of for in on at", "with by via using through", "to into from as")
_GROUPS = {word: number for number, group in enumerate(_FUNCTION_WORDS) for word in group.split()}


def differ_harmlessly(a: str, b: str, names: Set[str] = frozenset()) -> bool:
    """Return whether two normalized titles differ only in ways that occur between copies of one title.

    Both are lower-case words without punctuation and with abbreviations written out. `names` are words of
    either title, such as "mllm", in which a different letter makes a different name.
    """
    words, others = (title.split() for title in sorted((a, b)))
    return all(_is_harmless(left, right, names) for left, right in _different_runs(words, others))


def _different_runs(a: Sequence[str], b: Sequence[str]) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    """Yield the words of both titles in each stretch where the titles differ."""
    start_a = start_b = 0
    for block in Levenshtein.editops(a, b).as_matching_blocks():
        if start_a < block.a or start_b < block.b:
            yield a[start_a : block.a], b[start_b : block.b]
        start_a, start_b = block.a + block.size, block.b + block.size


def _is_harmless(left: Sequence[str], right: Sequence[str], names: Set[str]) -> bool:
    if _is_variant(left, right, names):
        return True
    groups = [{_GROUPS[word] for word in words if word in _GROUPS} for words in (left, right)]
    if all(groups) and not groups[0] & groups[1]:
        return False
    content, other = ([word for word in words if word not in _GROUPS] for words in (left, right))
    return _is_variant(content, other, names)


def _is_variant(left: Sequence[str], right: Sequence[str], names: Set[str]) -> bool:
    """Return whether the words are the same except for spaces, endings and one typing error per word."""
    if "".join(left) == "".join(right):
        return True
    return len(left) == len(right) and all(
        stem(remove_accents(a)) == stem(remove_accents(b)) or (not {a, b} & names and _is_typing_error(a, b))
        for a, b in zip(left, right, strict=True)
    )


def _is_typing_error(a: str, b: str) -> bool:
    """Return True for a missing letter, for two swapped letters, and for a wrong letter in a long word.

    Return False for words that are not ASCII, because in other scripts one character may be a word.
    """
    shorter, longer = sorted((a, b), key=len)
    if not (a + b).isascii() or OSA.distance(shorter, longer, score_cutoff=1) > 1:
        return False
    if len(shorter) == len(longer):
        return sorted(shorter) == sorted(longer) or len(shorter) >= MIN_SUBSTITUTION
    if longer == f"a{shorter}" and len(shorter) >= MIN_NEGATED:  # "symmetric" and "asymmetric"
        return False
    return len(shorter) >= (MIN_OMISSION - 1 if longer in _GROUPS else MIN_OMISSION)
