"""PURE. What a reader typed → a query: words, phrases, exclusions, authors and categories."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from app.errors import InvalidInterest
from app.text import characters
from app.text.tokenizer import WORD, fold_accents, running, telling, tokenise
from app.types import Interest

MAX_INTEREST_CHARS = 300
MAX_MUTED_CHARS = 100
MUTABLE = 8  # words of a paper that are offered

_INVISIBLE = re.compile("[\xad\u200b\u2060\ufeff]")  # copied from a page; nobody sees them
_FOREIGN = re.compile(r"(title|ti|abstract|abs|au|all|tag):", re.IGNORECASE)  # filters of other services
_MARKED = re.compile(r'"|(?:^|\s)-\S|\b(?:author|cat):', re.IGNORECASE)  # more than plain words
_NEIGHBOURS = re.compile(r"[^\W_]{3,}(?=([ -][^\W_]{3,}))")
_AROUND = " ,;.()[]*"  # what a filter's value may stand in
_FIELD = re.compile(r"(author|cat):\s*(.*)", re.IGNORECASE)
_PART = re.compile(r'(-)?(?:(author|cat):\s*)?(?:"([^"]*)"|(\S+))', re.IGNORECASE)
_QUOTES = str.maketrans(dict.fromkeys("“”„‟«»\uff02", '"') | dict.fromkeys("−–\u2010\u2011\uff0d", "-"))


@dataclass(frozen=True)
class Query:
    """An interest, understood. Words are stems; a phrase is a run of stems."""

    text: str
    words: tuple[str, ...] = ()
    phrases: tuple[tuple[str, ...], ...] = ()
    without: tuple[tuple[str, ...], ...] = ()  # one-word exclusions are phrases of one
    authors: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    without_authors: tuple[str, ...] = ()
    without_categories: tuple[str, ...] = ()

    @cached_property
    def terms(self) -> tuple[str, ...]:
        """Every stem that counts towards the score, once, in order."""
        return tuple(dict.fromkeys(telling([*self.words, *itertools.chain(*self.phrases)])))

    @property
    def runs(self) -> tuple[tuple[str, ...], ...]:
        """The telling stems that stand next to each other: the words, then each phrase."""
        return tuple(tuple(telling(run)) for run in (self.words, *self.phrases))

    @property
    def strict(self) -> bool:
        """Whether something must, or must not, stand in a paper."""
        wanted = (self.phrases, self.authors, self.categories)
        return any((*wanted, self.without, self.without_authors, self.without_categories))


def normalise(text: str) -> str:
    """The text of an interest as it is stored: one spelling of spaces and quotes."""
    cleaned = characters.composed(_INVISIBLE.sub("", text)).translate(_QUOTES)
    return " ".join(cleaned.split())


def parse(text: str) -> Query:
    """Understand an interest, or raise InvalidInterest with what to change.

    `"a phrase"` must occur, `-word` and `-"a phrase"` must not; `author:name` and `cat:cs.CL` are
    filters, and may be excluded with `-` too. Of several authors, or categories, any one will do.
    Everything else is words to look for.
    """
    text = normalise(text)
    if len(text) > MAX_INTEREST_CHARS:
        raise InvalidInterest(f"An interest has at most {MAX_INTEREST_CHARS} characters.", "interests")
    if not text.isprintable():
        raise InvalidInterest("An interest is plain text, without control characters.", "interests")
    parts: dict[str, list[object]] = defaultdict(list)
    for minus, field, quoted, bare in _PART.findall(text):
        _file_part(parts, bool(minus), field.lower(), quoted, bare)
    query = Query(text, **{name: tuple(values) for name, values in parts.items()})  # type: ignore[arg-type]
    if not (query.terms or query.authors or query.categories):
        example = ": what, and then what not, as in “agents -robot”" if query.strict else ""
        raise InvalidInterest(f"An interest needs at least one word to look for{example}.", "interests")
    return query


def muted(text: str) -> Query:
    """Understand what a reader never wants to see, or raise InvalidInterest with what to change.

    Several words are one phrase; `author:name` and `cat:cs.CL` mute whom, or where.
    """
    text = normalise(text)
    if len(text) > MAX_MUTED_CHARS or not text.isprintable():
        raise InvalidInterest(f"A muted word is plain text of at most {MAX_MUTED_CHARS} characters.", "muted")
    field, value = found.groups() if (found := _FIELD.fullmatch(text.lstrip("-"))) else ("", text)
    parts: dict[str, list[object]] = defaultdict(list)
    _file_part(parts, True, field.lower(), value.replace('"', " "), "")
    query = Query(text, **{name: tuple(values) for name, values in parts.items()})  # type: ignore[arg-type]
    if not (any(map(telling, query.without)) or query.without_authors or query.without_categories):
        raise InvalidInterest(f"“{text}” is no word that tells papers apart.", "muted")
    return query


def mute_suggestions(
    title: str, abstract: str, keywords: Iterable[str], wishes: Iterable[Interest]
) -> list[str]:
    """What a paper says that its reader may want to mute: keywords, neighbours in its title, single words.

    Neighbours are a term where the abstract has them, too. Words of one's own interests are not offered.
    """
    titled, told = (f" {' '.join(running(text))} " for text in (title, abstract))
    pairs = (match.group() + match[1] for match in _NEIGHBOURS.finditer(title))
    words = (match.group() for match in WORD.finditer(title) if len(match.group()) > 2)
    said = [
        *(text for text in keywords if _run(text) in titled or _run(text) in told),
        *(text for text in pairs if len(telling(running(text))) == 2 and _run(text) in told),
        *words,
    ]
    wanted = {stem for wish in wishes for stem in running(wish.text)}
    offered: dict[str, str] = {}
    for text in map(normalise, said):
        if not wanted.issuperset(telling(running(text))):
            offered.setdefault(_run(text), text)
    return [*offered.values()][:MUTABLE]


def _run(text: str) -> str:
    return f" {' '.join(running(text))} "


def query_for(field: str, value: str) -> str:
    """The interest in what has this author, or this category; empty where none can be written."""
    bare = " ".join(normalise(value).replace('"', " ").split())
    text = f'{field}:"{bare}"' if " " in bare else f"{field}:{bare}"
    try:
        query = parse(text)
    except InvalidInterest:
        return ""
    return text if query.authors or query.categories else ""


def split_suggestion(text: str) -> tuple[str, ...]:
    """What commas part in an interest of plain words, where it looks like several; else nothing."""
    text = normalise(text)
    if "," not in text or _MARKED.search(text):
        return ()
    parts = dict.fromkeys(part.strip() for part in text.split(",") if WORD.search(part))
    return tuple(parts) if len(parts) > 1 else ()


def _file_part(parts: dict[str, list[object]], minus: bool, field: str, quoted: str, bare: str) -> None:
    """Put one part of an interest where it belongs; one without any letter or digit says nothing."""
    if bare.startswith('"'):
        raise InvalidInterest("A quotation mark is not closed.", "interests")
    if field:
        value = " ".join((quoted or bare).casefold().split()).strip(_AROUND)
        name = ("without_" if minus else "") + {"author": "authors", "cat": "categories"}[field]
        if WORD.search(value):
            parts[name].append(fold_accents(value))
        return
    if foreign := _FOREIGN.match(bare):
        searched = "Titles and abstracts are always searched, and there are author: and cat:."
        raise InvalidInterest(
            f"There is no filter “{foreign.group()}”. {searched} In quotes it is looked for as it stands.",
            "interests",
        )
    stems = tuple(token.stem for token in tokenise(quoted or bare))
    if not stems or bare.casefold() in ("author:", "cat:"):
        return
    if minus:
        parts["without"].append(stems)
    elif quoted:
        parts["phrases"].append(stems)
    else:
        parts["words"].extend(stems)


def describe(text: str) -> str:
    """An interest as readers are told of it: one in authors alone, or in categories alone, without syntax."""
    parts = [part for part in _PART.findall(normalise(text)) if WORD.search(part[2] or part[3])]
    heads = {_HEADS.get(field.lower(), "") if not minus else "" for minus, field, _, _ in parts}
    if len(heads) != 1 or not (head := heads.pop()):
        return text
    *others, last = dict.fromkeys((quoted or bare).strip(_AROUND) for _, _, quoted, bare in parts)
    return f"{head} {', '.join(others)} or {last}" if others else f"{head} {last}"


_HEADS = {"author": "Papers by", "cat": "Papers in"}
