"""PURE. Correct interests with the archive's vocabulary, and suggest other topics.

A misspelled word is read as the word that it most likely means, and a term in another language as its English
equivalent. Quoted phrases, filters and exclusions are taken as typed.
"""

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

from app.relevance import arxiv_categories, query_language, query_rewriting, translations
from app.relevance.misspellings import SpellChecker
from app.relevance.model import RelevanceModel
from app.relevance.query_language import GENERAL_STEMS, FilterField
from app.text.characters import MARK, remove_accents
from app.text.tokenizer import WORD, content_stems, stem_all, without_stopwords

MIN_KNOWN = 2  # papers; a word that at least this many contain counts as English
MIN_JOINED = 3  # papers that must write two words as one
MIN_TOPIC_PAPERS = 2
MAX_TOPIC_WORDS = 3
MAX_TOPICS = 4  # in a hint
MAX_VARIED_TOPICS = 8
SHARE_OF_LONGER = 0.7  # a topic is left out if this share of its papers contain the same longer run
SHARED_LETTERS = 5  # at the beginning of words that are probably related, such as "protein" and "proteomics"
MAX_WORDS_TO_SHORTEN = 6
MAX_VALUE_WORDS = 4  # words after an unquoted value of a filter that may belong to it

_QUESTION_WORDS = frozenset(("can", "do", "does", "how", "what", "why"))
_QUESTION_VERBS = frozenset(stem_all("work make learn"))  # "how does … work?", "what makes …?"
_PUNCTUATION = ",;:?!"
_INNER_CAPITAL = re.compile(r"[^\W\d_](?=.*[A-Z])(?=.*[a-z])\w*[A-Z]")
_UNQUOTED_FILTER = re.compile(rf"(?<!\S)({'|'.join(FilterField)}):\s*([^\s\"]+)", re.IGNORECASE)
# As in `query_words.as_typed`, signs may end a name: "C++".
_NAME_PART = re.compile(rf"[^\W_](?:[^\W_]|{MARK})*+[+#]*")
_NAME = re.compile(rf"{_NAME_PART.pattern}(?:(?:[-.]|['’](?![sS]\b)){_NAME_PART.pattern})*")
# Two words. Words in capitals may be a name.
_HYPHENATED = re.compile(r"(?<![\w-])([A-Z][a-z]*|[a-z]+)-([a-z]+)(?![\w-])")
# Any punctuation but that within words.
_CONTENT_BREAK = re.compile(rf"(?!{MARK})[^\w\s'’-]|(?<!\w)['’]|['’](?!\w)")


@dataclass(frozen=True, slots=True)
class InterestHint:
    """A hint about an interest that may be misspelled, may mean something else, or matches nothing.

    Each suggested text is itself an interest that can replace the original.
    """

    interest: str
    did_you_mean: str = ""  # the corrected or translated interest; both are searched for
    parts: tuple[str, ...] = ()  # the separate interests, if the text looks like several
    with_exclusion: str = ""  # the interest with its negation (NOT, a dash, "not") written as an exclusion
    by_author: str = ""  # a query with the filter `author:`, if the interest names an author
    matching_authors: int = 0  # that a one-word filter `author:` matches, if they are many
    with_filters: str = ""  # the interest with its filters corrected: unknown categories, missing quotes
    missing_words: tuple[str, ...] = ()  # words that no recent paper contains, if nothing matches
    missing_categories: tuple[str, ...] = ()  # required categories that no recent paper is in
    categories: tuple[str, ...] = ()  # the most frequent categories, if a category is missing
    is_foreign: bool = False  # the interest is in letters that papers do not use
    shorter: str = ""  # a part of the interest that matches papers, if the whole does not
    topics: tuple[str, ...] = ()  # topics of recent papers, if nothing matches
    topics_are_near: bool = False  # True: each shares or nearly shares a word; False: the commonest

    def __bool__(self) -> bool:
        """Return True if the hint has any content."""
        return self != InterestHint(self.interest)

    def limited_to(self, max_parts: int) -> Self:
        """Return the hint, without its parts if there are more than `max_parts`."""
        return self if len(self.parts) <= max_parts else replace(self, parts=())


def hint_from_text(text: str, read_as: str, categories: Sequence[str] = ()) -> InterestHint:
    """Return a hint based on the text of an interest and on its correction or translation, if it has one.

    `categories` are those of papers in the archive.
    """
    parts = query_rewriting.split_suggestion(text)
    with_exclusion = query_rewriting.exclusion_suggestion(text) if not parts else ""
    corrected = with_closest_categories(read_as or text, categories)
    return InterestHint(text, read_as, parts, with_exclusion, with_filters=corrected)


def with_closest_categories(text: str, archive: Sequence[str]) -> str:
    """Return an interest with each unknown category replaced by the closest one, or "" if there is none.

    An interest that is itself a category without `cat:`, such as "cs.RO", is returned as a filter.
    """
    text = query_language.normalize(text)
    if arxiv_categories.is_like_a_category(text):
        return query_rewriting.query_for("cat", arxiv_categories.closest(text.casefold(), archive))
    typed = query_rewriting.typed_values(text, FilterField.CATEGORY)
    closest = {value: arxiv_categories.closest(value, archive) for value in typed}
    unknown = {value: name for value, name in closest.items() if name.casefold() not in ("", value)}
    corrected = query_rewriting.replace_values(text, FilterField.CATEGORY, unknown) if unknown else ""
    return corrected if len(corrected) <= query_language.MAX_INTEREST_CHARS else ""


def filter_suggestions(text: str) -> list[str]:
    """Return versions of an interest in which the value of its first filter includes the words after it.

    The version with the most words comes first: `author:Yann LeCun` may mean `author:"Yann LeCun"`. The names
    of categories have no spaces. If the value is a list, such as `cat:cs.CL, cs.AI`, also return the version
    with one filter for each.
    """
    text = query_language.normalize(text)
    if not (match := _UNQUOTED_FILTER.search(text)):
        return []
    name, value, past = *match.groups(), match.end()
    following = next(
        (text[start:end] for start, end in query_rewriting.plain_runs(text) if start == past + 1), ""
    )
    words = [*itertools.takewhile(lambda word: word not in query_language.OPERATORS, following.split())]
    sizes = range(min(len(words), MAX_VALUE_WORDS), 0, -1) if name.lower() != FilterField.CATEGORY else ()
    longer = [" ".join([value, *words[:size]]) for size in sizes]
    versions = [(query_rewriting.query_for(name, each), past + len(each) - len(value)) for each in longer]
    listed = value
    for word in words:
        if listed.endswith(","):
            listed += f" {word}"
    values = [*filter(None, map(str.strip, listed.split(",")))]
    if len(values) > 1 and not any(each.startswith("-") for each in values):
        one_each = " ".join(query_rewriting.query_for(name, each) for each in values)
        versions.append((one_each, past + len(listed) - len(value)))
    texts = [f"{text[: match.start()]}{version}{text[end:]}" for version, end in versions if version]
    return [each for each in texts if len(each) <= query_language.MAX_INTEREST_CHARS]


class InterestReader:
    """A corrector of interests, based on the vocabulary of the model's archive."""

    def __init__(self, model: RelevanceModel) -> None:
        self._model = model

    @cached_property
    def _spelling(self) -> SpellChecker:
        return SpellChecker(self._model.all_words, self._model.statistics.frequencies)

    def may_need_correction(self, text: str) -> bool:
        """Return True if the text has a word that few papers contain, or a hyphen that they leave out."""
        return not all(map(self._is_english, WORD.findall(text))) or self._joined(text) != text

    def read(self, text: str, missing_words: Collection[str] = ()) -> str:
        """Return an interest with its words corrected, joined or translated.

        Return "" if it seems correct, or if the result would be too long or have no word to search for.
        `missing_words` are those words of the text that occur in no paper of the index.
        """
        text = query_language.normalize(text)
        parts, past = list[str](), 0
        for start, end in query_rewriting.plain_runs(text):
            run = self._joined(text[start:end])
            parts += [text[past:start], translations.translate(run, self._is_english)]
            parts[-1] = parts[-1] or self._respelled(run, missing_words)
            past = end
        read = "".join([*parts, text[past:]])
        if content_stems(read) in (content_stems(text), []):
            return ""
        return read if len(read) <= query_language.MAX_INTEREST_CHARS else ""

    def hint(self, text: str) -> InterestHint:
        """Return a hint for an interest, based on the model only and not on today's papers."""
        words = WORD.findall(text)
        return hint_from_text(text, self.read(text, words) if self.may_need_correction(text) else "")

    def _is_english(self, word: str) -> bool:
        """Return True for a word that papers contain as it is spelled, and for names such as "LaTeX".

        A word with accents is not English, even if it is an English word without them ("génération").
        """
        is_name_or_stopword = _INNER_CAPITAL.match(word) or not content_stems(word)
        return word.isascii() and (
            bool(is_name_or_stopword) or self._spelling.is_known(word.lower(), MIN_KNOWN)
        )

    def _joined(self, text: str) -> str:
        """Return a text without the hyphens of words that papers write as one: "online" for "on-line"."""
        return _HYPHENATED.sub(lambda match: self._joined_pair(*match.groups()), text)

    def _joined_pair(self, first: str, second: str) -> str:
        """Join two words if several papers write them as one, and fewer papers as two."""
        typed, joined = f"{first}-{second}", f"{first}{second}"
        papers = self._spelling.papers(remove_accents(joined))
        if papers < MIN_JOINED:  # most pairs; the following takes four times as long
            return typed
        fold, stems = self._model.abbreviations.fold, content_stems(typed)
        apart = self._model.statistics.frequencies.get(" ".join(stems), 0) if len(stems) == 2 else 0
        is_same = fold(stems) == fold(content_stems(joined))
        return joined if papers > apart and not is_same else typed

    def _respelled(self, text: str, missing_words: Collection[str]) -> str:
        """Return a text with its misspelled words corrected.

        Each word is checked twice, because a corrected neighbor provides more evidence.
        """
        words = [match for match in WORD.finditer(text) if without_stopwords(stem_all(match.group()))]
        folded = [remove_accents(word.group()) for word in words]
        corrections = dict[int, str]()
        for position, word in [*enumerate(words)] * 2:
            typed = word.group()
            # A capital within a word indicates a name or an abbreviation.
            if position in corrections or any(letter.isupper() for letter in typed[1:]):
                continue
            papers = max(self._spelling.papers(folded[position]), typed not in missing_words)
            if spelling := self._spelling.correct(folded, position, papers):
                folded[position] = remove_accents(spelling)
                corrections[position] = spelling[0].upper() + spelling[1:] if typed[0].isupper() else spelling
        parts, past = list[str](), 0
        for position in sorted(corrections):
            start, end = words[position].span()
            parts += [text[past:start], corrections[position]]
            past = end
        return "".join([*parts, text[past:]])


def whole_names(text: str, words: Sequence[str]) -> list[str]:
    """Return words of a text as parts of their names: "X-ray" for "ray", and "Phi-3.5" for "Phi".

    Words and numbers joined by hyphens, points or apostrophes are parts of a name, except the s of "women's".
    """
    names: dict[str, str] = {}
    for match in _NAME.finditer(text):
        for part in _NAME_PART.findall(match.group()):
            names.setdefault(part, match.group())
    return [*dict.fromkeys(names.get(word, word) for word in words)]


def subject_parts(text: str) -> list[str]:
    """Return the subject of a text of plain words, and its parts that may be interests by themselves.

    The longest part comes first. The subject begins and ends with a word that describes it: not with "papers
    on" or "how does", nor with the verb of a question. Its words form groups, between punctuation marks and
    words such as "of". A part consists of whole groups, or of several terms of one group. A single word of a
    group such as "dark matter" would have another meaning.

    Return [] for texts with NOT or other syntax, or if more than MAX_WORDS_TO_SHORTEN words describe the
    subject.
    """
    text = query_language.normalize(text)
    words = query_language.without_request(text).split()
    if query_rewriting.plain_runs(text) != [(0, len(text))] or "NOT" in words:
        return []
    words = [word for word in words if word not in query_language.OPERATORS]
    is_question = words and words[0].lower() in _QUESTION_WORDS
    ignored = GENERAL_STEMS | _QUESTION_VERBS if is_question else GENERAL_STEMS
    places = [place for place, word in enumerate(words) if {*content_stems(word)} - ignored]
    if len(places) > MAX_WORDS_TO_SHORTEN:
        return []
    typed = [word.rstrip(_PUNCTUATION) for word in words]  # not at the left: ":-a" is not an exclusion
    groups = {0, len(places)}  # the places at which a group begins, and the end
    for number, (place, following) in enumerate(itertools.pairwise(places), 1):
        if following > place + 1 or words[place][-1] in _PUNCTUATION:
            groups.add(number)
    parts = list[str]()
    for size in range(len(places), 0, -1):
        for start in range(len(places) - size + 1):
            part = " ".join(typed[places[start] : places[start + size - 1] + 1])
            is_in_one_group = groups.isdisjoint(range(start + 1, start + size))
            if groups >= {start, start + size} or (is_in_one_group and len(content_stems(part)) > 1):
                parts.append(part)
    return [*dict.fromkeys(parts)]


class TopicIndex:
    """The topics of papers: runs of up to MAX_TOPIC_WORDS words that several titles share."""

    def __init__(self, titles: Iterable[str]) -> None:
        papers, spellings = Counter[tuple[str, ...]](), dict[tuple[str, ...], Counter[str]]()
        for title in titles:
            in_title = dict(_title_runs(title))
            papers.update(in_title.keys())
            for stems, spelling in in_title.items():
                spellings.setdefault(stems, Counter())[spelling] += 1
        continued: dict[tuple[str, ...], int] = defaultdict(int)
        for stems, count in papers.items():
            for part in (stems[:-1], stems[1:]):
                continued[part] = max(continued[part], count)
        self._topics = [
            (stems, spellings[stems].most_common(1)[0][0])
            for stems, count in sorted(papers.items(), key=lambda item: (-item[1], item[0]))
            if count >= MIN_TOPIC_PAPERS and continued[stems] < SHARE_OF_LONGER * count
        ]

    def nearest(self, text: str) -> list[str]:
        """Return up to MAX_TOPICS topics with a word of the text or a related word, most papers first."""
        words = content_stems(text)
        near = (
            spelling
            for stems, spelling in self._topics
            if any(_are_related(word, stem) for word in words for stem in stems)
        )
        return [*itertools.islice(near, MAX_TOPICS)]

    def commonest(self) -> list[str]:
        """Return the MAX_TOPICS topics with the most papers."""
        return [spelling for _, spelling in self._topics[:MAX_TOPICS]]

    def varied(self, titles: Iterable[str]) -> list[str]:
        """Return topics that share no word with each other: those of `titles` first, then the commonest."""
        runs = {stems for title in titles for stems, _ in _title_runs(title)}
        chosen, words = list[str](), set[str]()
        for stems, spelling in sorted(self._topics, key=lambda topic: topic[0] not in runs):
            if words.isdisjoint(stems):
                chosen.append(spelling)
                words.update(stems)
        return chosen[:MAX_VARIED_TOPICS]


def _title_runs(title: str) -> Iterable[tuple[tuple[str, ...], str]]:
    """Yield the stems and the spelling of each run of at least two words that are not stop words.

    Leave out runs with a number, and single compounds, such as “Large-Scale”, which describe the next word.
    """
    for clause in _CONTENT_BREAK.split(title):
        words = [*WORD.finditer(clause)]
        stems = stem_all(clause)
        for size in range(2, MAX_TOPIC_WORDS + 1):
            for start in range(len(words) - size + 1):
                run = stems[start : start + size]
                spelling = clause[words[start].start() : words[start + size - 1].end()]
                has_number = any(map(str.isdigit, run))
                if len(without_stopwords(run)) == size and " " in spelling and not has_number:
                    yield tuple(run), spelling


def _are_related(first: str, second: str) -> bool:
    return first == second or (
        min(len(first), len(second)) >= SHARED_LETTERS and first[:SHARED_LETTERS] == second[:SHARED_LETTERS]
    )


def sentences(hint: InterestHint) -> list[str]:
    """Return the sentences of a hint, for the command line and the API."""
    texts = []
    if hint.did_you_mean:
        texts.append(f"Did you mean “{hint.did_you_mean}”? We search for both.")
    if hint.parts:
        texts.append(f"This looks like {len(hint.parts)} interests: {_quoted(hint.parts)}.")
    if hint.with_exclusion:
        texts.append(f"To exclude words, put a hyphen right before them: “{hint.with_exclusion}”.")
    if hint.by_author:
        texts.append(f"Looking for an author? Use “{hint.by_author}”.")
    if hint.matching_authors:
        texts.append(
            f"This name matches {hint.matching_authors} authors of recent papers, as a family or given name. "
            'To match only one of them, write the full name in quotes, such as author:"Jane Doe".'
        )
    if hint.is_foreign:
        texts.append("Titles and abstracts are in English. Please write the interest in English.")
    elif hint.missing_words:
        texts.append(f"No recent paper mentions {_quoted(hint.missing_words)}.")
    texts += category_sentences(hint)
    if hint.shorter:
        texts.append(f"“{hint.shorter}” matches papers.")
    if hint.topics:
        beginning = "Related topics" if hint.topics_are_near else "The most frequent topics"
        texts.append(f"{beginning}: {_quoted(hint.topics)}.")
    return texts


def category_sentences(hint: InterestHint) -> list[str]:
    """Return the sentences of a hint about categories that no recent paper is in, or that are unknown."""
    texts = []
    if hint.missing_categories:
        frequent = (
            "" if hint.with_filters else f" The most frequent categories: {', '.join(hint.categories)}."
        )
        texts.append(f"No recent paper is in the category {_quoted(hint.missing_categories)}.{frequent}")
    if hint.with_filters:
        texts.append(f"Did you mean “{hint.with_filters}”?")
    return texts


def _quoted(texts: Sequence[str]) -> str:
    return ", ".join(f"“{text}”" for text in texts)
