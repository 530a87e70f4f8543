"""PURE. Parse a typed interest into a query: words, phrases, exclusions and filters.

Filters select authors, organizations and categories.
"""

import itertools
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import NamedTuple

from app.errors import InvalidInterest
from app.text import acronyms, characters
from app.text.characters import remove_accents
from app.text.shortening import FUNCTION_WORDS
from app.text.tokenizer import WORD, folded_words, stem_all, without_stopwords
from app.text.word_forms import stem


class FilterField(StrEnum):
    """A field of papers that an interest can filter by: `author:name`."""

    AUTHOR = "author"
    ORGANIZATION = "org"
    CATEGORY = "cat"


FILTER_EXAMPLES = {
    FilterField.AUTHOR: "author:name",
    FilterField.ORGANIZATION: "org:NVIDIA",
    FilterField.CATEGORY: "cat:cs.CL",
}
# A regular expression with one group: the field. A field in capitals before a space and a word is an acronym,
# as in the title "CAT: Causal Attention Tuning".
_FIELDS = "|".join(FilterField)
_ACRONYMS = f"(?-i:{_FIELDS.upper()})"
FILTER_PATTERN = rf'(?!{_ACRONYMS}:(?:\s+[^\s"]|$))({_FIELDS}):'
FilterValues = Mapping[FilterField, tuple[str, ...]]  # in the order of `FilterField`, without empty values
_NO_VALUES: FilterValues = {}  # shared, because most queries have no filters, and many are cached

MAX_INTEREST_CHARS = 300
MAX_WORD_CHARS = 100  # no word is longer, except in a language without spaces
OPERATORS = frozenset(("AND", "OR", "NOT", "-"))  # of other search engines

# Words that occur in papers on any subject. Unlike stop words, they are searched for.
GENERAL_STEMS = frozenset(
    stem_all(
        "about above across after again against all also although among another any around because been "
        "before behind being below besides between beyond both but cannot could did do does doing down "
        "during each either else even ever every few further given had having he her here him his however "
        "if inside instead itself just less let many may me might more most much must my near neither "
        "never no nor not off often once one only onto other otherwise out outside over own per quite "
        "rather same shall she should since so some still such than them then they through throughout "
        "thus together too toward two under unless until up upon us very well whether whose why will "
        "within without would yet you your"
    )
)
# Words that do not count beside a phrase in quotes: `the best "world models"`. Numbers may: `few-shot`.
_FILLERS = GENERAL_STEMS.union(stem_all("best better good great interesting latest new newest novel recent"))
_FILLERS -= frozenset(stem_all("few one two"))
# Used by other search engines, where a value follows at once. In titles, the words before a colon are
# usually capitalized, or a space follows: "One Size Fits All: …", "Ti:sapphire".
_UNSUPPORTED_FILTER = re.compile(r"(title|ti|abstract|abs|au|affiliation|organi[sz]ation|all|tag)[:：](?=\S)")
_EMPTY_FILTER = re.compile(FILTER_PATTERN, re.IGNORECASE)
_HYPHENATED = re.compile(r"[^\W_][^\W_.]*(?:\.[^\W_]+)*(?:-[^\W_.]+(?:\.[^\W_]+)*)+")
_NAME_MARK = re.compile(r"[^\W\d_][A-Z]|\d")
_VALUE_PUNCTUATION = " ,;.()[]*"  # ignored around the value of a filter
# Words around a subject that do not describe it: "recent papers on …", "anything about …", "… methods".
# "from" and "by" need a name after them: "research by design" is a subject.
_REQUEST_BEFORE = re.compile(
    r"^(?:(?:(?:any|more|new|recent|latest)\s+)?(?:papers?|work|articles?|studies|research|news)"
    r"\s+(?:on|about|(?-i:(?:from|by)(?=\s+[A-Z])))"
    r"|(?:anything|everything|more)\s+(?:on|about))\s+(?=\S)",
    re.IGNORECASE,
)
_REQUEST_AFTER = re.compile(r"(?<=\S)\s+(?:papers?|methods?|techniques?|approaches)$", re.IGNORECASE)
_PART = re.compile(rf'(-)?(?:{FILTER_PATTERN}\s*)?(?:"([^"]*)"|(\S+))', re.IGNORECASE)
# U+FF1A, from an East Asian keyboard. After a field in capitals, which may be an acronym, it stays: no space
# follows it that would tell them apart.
_WIDE_COLON = re.compile(rf"(?<!\w)(?!{_ACRONYMS})({_FIELDS})：", re.IGNORECASE)
_TEX_QUOTES = re.compile("``|''")
_QUOTES = str.maketrans(dict.fromkeys("“”„‟«»\uff02", '"') | dict.fromkeys(characters.HYPHENS, "-"))


@dataclass(frozen=True)
class Query:
    """A parsed interest. Words are stems; a phrase or a name is a sequence of words.

    The words of phrases and names are as typed, but in lower case and without accents. `filters` also accepts
    their other forms, but no other words with the same stem. Words in capitals, which
    may be acronyms, are in lower case as well: see `acronyms.find_typed`.
    """

    text: str
    words: tuple[str, ...] = ()
    names: tuple[tuple[str, ...], ...] = ()  # the words of possible names with hyphens, such as "SWE-bench"
    phrases: tuple[tuple[str, ...], ...] = ()
    excluded_phrases: tuple[tuple[str, ...], ...] = ()  # an excluded word is a phrase of one word
    capitals: frozenset[str] = frozenset()  # the words typed in capitals, also those within phrases
    excluded_capitals: frozenset[str] = frozenset()  # the same, of the excluded phrases
    required: FilterValues = field(default_factory=lambda: _NO_VALUES)  # papers need one value of each field
    excluded: FilterValues = field(default_factory=lambda: _NO_VALUES)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:  # of the fields that differ most, and cached, because queries are cache keys
        return hash((self.text, self.words, self.excluded_phrases, *self.excluded.values()))

    @property
    def stems(self) -> tuple[str, ...]:
        """Return the stems of the words and of the phrases, including stop words."""
        return (*self.words, *map(stem, itertools.chain(*self.phrases)))

    @cached_property
    def terms(self) -> tuple[str, ...]:
        """Return the stems that count toward the score, in order, without duplicates or stop words."""
        return tuple(dict.fromkeys(without_stopwords(self.stems)))

    @property
    def runs(self) -> tuple[tuple[str, ...], ...]:
        """Return the runs of content stems in which neighbors form pairs: the words, then each phrase."""
        phrases = (map(stem, phrase) for phrase in self.phrases)
        return tuple(tuple(without_stopwords(run)) for run in (self.words, *phrases))

    @property
    def joined_names(self) -> dict[tuple[str, ...], str]:
        """Map names with one content word to the stem if written as one word: ("on", "line") to "onlin"."""
        names = (name for name in self.names if has_one_content_word([*map(stem, name)]))
        return {name: stem("".join(name)) for name in names}

    @property
    def has_filters(self) -> bool:
        """Return True if the query has requirements or exclusions that apply regardless of the score."""
        return any((self.names, self.phrases, self.required, self.excluded_phrases, self.excluded))


class TextPart(NamedTuple):
    """A part of a text: a word, a phrase or a filter. With a minus sign, it is an exclusion."""

    start: int  # its position in the text
    source: str  # as it is written in the text
    minus: str
    field: str  # of a filter, in any letter case
    quoted: str
    bare: str

    @property
    def end(self) -> int:
        return self.start + len(self.source)

    @property
    def text(self) -> str:
        return self.quoted or self.bare

    @property
    def typed_value(self) -> str:
        """Return the value of a filter as typed, without punctuation around it."""
        return self.text.strip(_VALUE_PUNCTUATION)

    @property
    def value(self) -> str:
        """Return the value of a filter as it is in a `Query`."""
        return normalize_filter_value(self.text)


@dataclass(slots=True)
class _QueryBuilder:
    """The fields of a `Query`, to which parts of a text are added."""

    fillers: Collection[str] = ()  # stems that are ignored unless joined to other words
    words: list[str] = field(default_factory=list)
    names: list[tuple[str, ...]] = field(default_factory=list)
    phrases: list[tuple[str, ...]] = field(default_factory=list)
    excluded_phrases: list[tuple[str, ...]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)  # of words, names and phrases
    excluded_texts: list[str] = field(default_factory=list)
    required: dict[FilterField, list[str]] = field(default_factory=lambda: defaultdict(list))
    excluded: dict[FilterField, list[str]] = field(default_factory=lambda: defaultdict(list))

    def add(self, part: TextPart) -> None:
        """Add a part to its field, ignoring punctuation."""
        if part.field:
            if WORD.search(part.value):
                values = self.excluded if part.minus else self.required
                values[FilterField(part.field.lower())].append(part.value)
            return
        words = tuple(folded_words(part.text))
        if not words or _EMPTY_FILTER.fullmatch(part.bare):
            return
        (self.excluded_texts if part.minus else self.texts).append(part.text)
        if part.minus:
            self.excluded_phrases.append(words)
        elif part.quoted:
            self.phrases.append(words)
        else:
            stems = [*map(stem, words)]
            self.words.extend(stems if len(stems) > 1 or stems[0] not in self.fillers else ())
            if _is_like_a_name(part.bare):
                self.names.append(words)

    def build(self, text: str) -> Query:
        required, excluded = (
            {name: tuple(values[name]) for name in FilterField if name in values} or _NO_VALUES
            for values in (self.required, self.excluded)
        )
        has_emphasis = acronyms.is_emphasis(" ".join(self.texts))
        capitals, excluded_capitals = (
            frozenset[str]() if has_emphasis else acronyms.find_typed(texts)
            for texts in (self.texts, self.excluded_texts)
        )
        return Query(
            text,
            tuple(self.words),
            tuple(self.names),
            tuple(self.phrases),
            tuple(self.excluded_phrases),
            capitals,
            excluded_capitals,
            required,
            excluded,
        )


def normalize(text: str) -> str:
    """Return the text of an interest as it is stored, with uniform spaces, quotes and hyphens."""
    cleaned = characters.normalize(characters.remove_copied_marks(text)).translate(_QUOTES)
    cleaned = _WIDE_COLON.sub(r"\1:", _TEX_QUOTES.sub('"', cleaned))
    return " ".join(cleaned.split())


@lru_cache(maxsize=12_000)
def comparison_key(text: str) -> tuple[str, frozenset[str]]:
    """Return a key that is equal for texts that differ only in notation and letter case.

    Words in capitals are part of the key, because they may be acronyms, except those in filters and those
    that are only emphasis.
    """
    text = normalize(text)
    texts = [part.text for part in split_into_parts(text) if not part.field]
    has_emphasis = acronyms.is_emphasis(" ".join(texts))
    return text.casefold(), frozenset() if has_emphasis else acronyms.find_typed(texts)


def parse_typed(text: str, noun: str = "An interest") -> Query:
    """Parse an interest that is about to be stored, or a search. Raise InvalidInterest like `parse`.

    Also reject overlong words. `parse` accepts them, because stored interests may contain them.
    `noun` names the text in errors.
    """
    query = parse(text, noun)
    if any(len(match.group()) > MAX_WORD_CHARS for match in WORD.finditer(query.text)):
        raise InvalidInterest(
            f"{noun} can't have words of more than {MAX_WORD_CHARS} characters. Check for missing spaces.",
            "interests",
        )
    return query


@lru_cache(maxsize=12_000)  # many subscribers share interests; a query takes about a kilobyte
def parse(text: str, noun: str = "An interest") -> Query:
    """Parse an interest. If it cannot be searched for, raise InvalidInterest, which says what to change.

    `"a phrase"` must occur; `-word` and `-"a phrase"` must not. Filters are written as in FILTER_EXAMPLES;
    with a `-` before them, they exclude papers. If there are several authors, a paper must have at least one
    of them; the same applies to the other fields. All other words are searched for.
    """
    text = normalize(text)
    if len(text) > MAX_INTEREST_CHARS:
        raise InvalidInterest(f"{noun} can have at most {MAX_INTEREST_CHARS} characters.", "interests")
    if characters.has_controls(text):
        raise InvalidInterest(f"{noun} must be plain text, without control characters.", "interests")
    subject = without_request(text)
    parts = split_into_parts(subject)
    if all(part.minus for part in parts):  # "-survey methods": the last word is all that there is to look for
        parts = split_into_parts(_REQUEST_BEFORE.sub("", text))
    phrases = (part.quoted for part in parts if not (part.minus or part.field))
    has_phrase = any(without_stopwords(stem_all(phrase)) for phrase in phrases)
    builder = _QueryBuilder(_FILLERS if has_phrase else ())
    for part in parts:
        require_well_formed(part, "interests", "search for")
        builder.add(part)
    query = builder.build(text)
    if not (query.terms or query.required):
        has_exclusions = query.excluded_phrases or query.excluded
        example = ", not only exclusions: for example “agents -robot”" if has_exclusions else ""
        raise InvalidInterest(
            f"{noun} needs at least one word or filter ({filter_names('or')}) to search for{example}.",
            "interests",
        )
    return query


def without_request(text: str) -> str:
    """Return a normalized text without words such as "papers on" before the subject and "methods" after."""
    return _REQUEST_AFTER.sub("", _REQUEST_BEFORE.sub("", text))


def normalize_filter_value(text: str) -> str:
    """Return the value of a filter in lower case, without accents and punctuation around it."""
    return remove_accents(" ".join(text.split()).strip(_VALUE_PUNCTUATION))


def split_into_parts(text: str) -> list[TextPart]:
    """Split a normalized text into its words, phrases and filters."""
    return [TextPart(match.start(), match.group(), *match.groups("")) for match in _PART.finditer(text)]


def require_well_formed(part: TextPart, form_field: str, verb: str) -> None:
    """Raise InvalidInterest if a part has an unclosed quotation mark or an unsupported filter."""
    if part.bare.startswith('"'):
        raise InvalidInterest("A quotation mark is not closed.", form_field)
    if not part.field and (unsupported := _UNSUPPORTED_FILTER.match(part.bare)):
        raise InvalidInterest(
            f"There is no filter “{unsupported.group()}”. Titles and abstracts are always searched; "
            f"the filters are {filter_names('and')}. To {verb} the text itself, put it in quotes.",
            form_field,
        )


def _is_like_a_name(text: str) -> bool:
    """Return True for words joined by hyphens if one has a digit or an inner capital and none is a stop word.

    "SWE-bench" and "GPT-5" look like names, "Long-Context" and "text-to-3D" do not. Also return True if only
    one distinct content word is left, as in "on-policy" and "end-to-end": alone, that word means something
    else. The stop words of "computer-use" and "tool-use" are not function words, so these are no names.
    """
    name = text.strip(_VALUE_PUNCTUATION)
    if not _HYPHENATED.fullmatch(name):
        return False
    stems = stem_all(name)
    content = without_stopwords(stems)
    if len({*name.lower().split("-")} - FUNCTION_WORDS) == 1 and has_one_content_word(stems):
        return True
    return content == stems and bool(_NAME_MARK.search(name))


def has_one_content_word(stems: Sequence[str]) -> bool:
    """Return True for two or more stems with one distinct content word: "on-policy", "end-to-end"."""
    return len({*without_stopwords(stems)}) == 1 < len(stems)


def name_as_typed(query: Query, name: Sequence[str]) -> str:
    """Return one of `query.names` as it is typed: "SWE-bench" for ("swe", "bench")."""
    parts = (part for part in split_into_parts(query.text) if part.bare)
    return next(part.typed_value for part in parts if (*folded_words(part.text),) == name)


def filter_names(conjunction: str) -> str:
    """Return the names of all filters, such as "author:, org: or cat:"."""
    return list_texts([f"{name}:" for name in FilterField], conjunction)


def list_texts(texts: Iterable[str], conjunction: str) -> str:
    """Return texts as a list in a sentence, such as "a, b or c"."""
    *others, last = texts
    return f"{', '.join(others)} {conjunction} {last}" if others else last
