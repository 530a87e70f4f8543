"""PURE. What somebody pasted to say which papers they like → records: links, ids, DOIs, titles or BibTeX.

A line that is no BibTeX names one paper by its title, or several by their ids. What cannot be understood
costs itself alone, and is told with its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from bibtexparser.middlewares.names import parse_single_name_into_parts, split_multiple_persons_names
from bibtexparser.model import Block, Entry, ImplicitComment, ParsingFailedBlock, String
from bibtexparser.splitter import Splitter

from app.errors import InvalidInput
from app.records import PaperRecord, Parsed, Rejection
from app.sources import clean

MOST_PAPERS = 200
MOST_BYTES = 200_000
ABSTRACT_CHARS = 5_000  # the longest real ones have about 4,000
AUTHORS_READ = 30
MACRO_CHARS = 300
SHOWN_CHARS = 80  # of a line that was not understood

_BULLET = re.compile(r"^(?:[-*•–]|[\[(]?\d{1,3}[\].)])\s+")
_BETWEEN_IDS = re.compile(r"[\s,;<>\[\]]+")
_LINK = re.compile(r"https?://\S+", re.IGNORECASE)
_REMARKS = ("%", "#")
_UNBRACED = str.maketrans({"{": None, "}": None, "~": " "})
_OF_ARXIV = ("eprint", "url", "journal", "volume", "howpublished")
_FIELDS = {"title", "abstract", "author", "doi", *_OF_ARXIV}

Item = PaperRecord | Rejection


def check_size(text: str) -> None:
    """InvalidInput for more than can be read at once."""
    if len(text.encode("utf-8", "replace")) > MOST_BYTES:
        raise InvalidInput(f"That is more than {MOST_BYTES // 1000} kB: please paste less at once.", "liked")


def parse(text: str) -> Parsed:
    """The papers that a text names, at most MOST_PAPERS; InvalidInput when it is too long.

    A record has a title, an arXiv id or a DOI, or several of them.
    """
    check_size(text)
    records: list[PaperRecord] = []
    rejections: list[Rejection] = []
    for item in _items(text):
        if isinstance(item, Rejection):
            rejections.append(item)
        elif len(records) < MOST_PAPERS:
            records.append(item)
        else:
            rejections.append(Rejection(f"only {MOST_PAPERS} papers are read at once: the rest is left out"))
            break
    return Parsed(len(records) + len(rejections), tuple(records), tuple(rejections))


def _items(text: str) -> Iterator[Item]:
    """Everything in a text, in its order. What is between the BibTeX blocks is read line by line."""
    try:
        blocks = Splitter(text).split().blocks
    except Exception:  # it says itself that an unforeseen text may trip it
        yield Rejection("BibTeX that cannot be read")
        return
    # Cut: a few letters would otherwise stand for a whole book, as often as somebody likes.
    strings = {block.key.lower(): block.value[:MACRO_CHARS] for block in blocks if isinstance(block, String)}
    for block in blocks:
        row = (block.start_line or 0) + 1
        if isinstance(block, ImplicitComment):
            yield from _of_lines(block.comment.splitlines(), row)
        elif entry := _entry(block):
            yield _of_entry(entry, strings, row)
        elif isinstance(block, ParsingFailedBlock) and block.ignore_error_block is None:
            reason = "a BibTeX entry with a brace, quotation mark or comma too few"
            yield Rejection(reason, row, clean.line(block.raw, SHOWN_CHARS))


# --- BibTeX


def _entry(block: Block) -> Entry | None:
    """The entry in a block. A key or a field that is there twice is no harm here."""
    found = block.ignore_error_block if isinstance(block, ParsingFailedBlock) else block
    return found if isinstance(found, Entry) else None


def _of_entry(entry: Entry, strings: Mapping[str, str], row: int) -> Item:
    read = [field for field in entry.fields if field.key.lower() in _FIELDS]
    fields = {field.key.lower(): _value(field.value, strings) for field in reversed(read)}
    doi = clean.doi(fields.get("doi")) or clean.doi(fields.get("url"))
    record = PaperRecord(
        title=_prose(fields.get("title"), clean.TITLE_CHARS),
        arxiv_id=_arxiv_id(fields, doi),
        doi=doi,
        abstract=_prose(fields.get("abstract"), ABSTRACT_CHARS),
        authors=_authors(fields.get("author", "")),
    )
    if not (record.title or record.arxiv_id or record.doi):
        return Rejection(
            "a BibTeX entry without title, DOI or arXiv id", row, clean.line(entry.key, SHOWN_CHARS)
        )
    return record


def _value(raw: str, strings: Mapping[str, str]) -> str:
    value = strings.get(raw.lower(), raw)
    return value[1:-1] if value[:1] + value[-1:] in ("{}", '""') else value


def _prose(value: object, limit: int) -> str:
    return clean.prose(value, limit).translate(_UNBRACED).strip()


def _arxiv_id(fields: Mapping[str, str], doi: str) -> str:
    """Wherever exporters put it: eprint, link, Google Scholar's journal, DBLP's volume `abs/…`."""
    places = (fields.get(name, "").removeprefix("abs/") for name in _OF_ARXIV)
    found = (clean.arxiv_id(place)[0] for place in places)
    return clean.arxiv_id_of_doi(doi) or next(filter(None, found), "")


def _authors(value: str) -> tuple[str, ...]:
    """The names as people say them: “Knuth, Donald E.” is Donald E. Knuth."""
    names = split_multiple_persons_names(" ".join(value.split()))[:AUTHORS_READ]
    parts = (parse_single_name_into_parts(name[: clean.NAME_CHARS], strict=False) for name in names)
    shown = (_prose(part.merge_first_name_first, clean.NAME_CHARS) for part in parts)
    return tuple(name for name in shown if name and name.lower() != "others")


# --- lines


def _of_lines(lines: Iterable[str], first: int) -> Iterator[Item]:
    for row, typed in enumerate(lines, first):
        line = _BULLET.sub("", clean.line(typed, MOST_BYTES))
        if line and not line.startswith(_REMARKS):
            yield from _of_line(line, row)


def _of_line(line: str, row: int) -> Iterator[Item]:
    """The ids in a line, or else its words as a title."""
    named = [record for word in _BETWEEN_IDS.split(line) if (record := _by_id(word))]
    if named:
        yield from named
    elif _LINK.match(line.lstrip("<([")):
        yield Rejection("a link in which no arXiv id or DOI stands", row, line[:SHOWN_CHARS])
    elif sum(map(str.isalpha, title := clean.title(line))) >= 2:
        yield PaperRecord(title=title)
    else:
        yield Rejection("neither a title nor a link or id", row, line[:SHOWN_CHARS])


def _by_id(word: str) -> PaperRecord | None:
    doi = clean.doi(word)
    arxiv_id = clean.arxiv_id_of_doi(doi) or clean.arxiv_id(word)[0]
    if not arxiv_id and _LINK.match(word):  # other sites name papers by their arXiv ids, too
        arxiv_id = clean.arxiv_id(re.split(r"[?#]", word)[0].rstrip("/").rpartition("/")[2])[0]
    return PaperRecord(title="", arxiv_id=arxiv_id, doi=doi) if arxiv_id or doi else None
