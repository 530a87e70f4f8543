"""PURE. BibTeX and BibLaTeX, of any exporter → records. What is between entries is read as typed lines."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping

from bibtexparser.middlewares.names import parse_single_name_into_parts, split_multiple_persons_names
from bibtexparser.model import Block, Entry, ImplicitComment, ParsingFailedBlock, String
from bibtexparser.splitter import Splitter

from app.papers.bibliography import entry, plain_lines
from app.papers.bibliography.entry import SHOWN_CHARS, Item
from app.text import sanitize
from app.types import PaperRecord, Rejection

MACRO_CHARS = 300
MOST_STRINGS = 1_000  # parts of a text in which macros are looked for
MOST_ON_LINE = 100  # blocks

_BLOCK = re.compile(r"@\w*[ \t]*(?=[{(])")
_FIRST_ON_LINE = re.compile(rf"^[^\S\n]*+{_BLOCK.pattern}", re.MULTILINE)
_STRING = re.compile(r"@string[ \t]*[{(]", re.IGNORECASE)

_UNBRACED = str.maketrans({"{": None, "}": None, "~": " "})
# As Zotero writes them: else they would be dropped.
_SIGNS = (("{\\textless}", "<"), ("{\\textgreater}", ">"))
_OF_IDS = ("url", "journal", "journaltitle", "volume", "number", "howpublished")
_KINDS_OF_EPRINT = ("eprinttype", "archiveprefix")
_FIELDS = {
    *("title", "subtitle", "abstract", "author", "doi", "eprint", "note"), *_OF_IDS, *_KINDS_OF_EPRINT,
}  # fmt: skip
# What Better BibTeX writes for a name with a particle: family=Berg, given=Anna, prefix=van der
_NAME_PART = re.compile(r"(?:^|,)\s*(given|prefix|family|suffix)\s*=\s*([^,=]*)")


def items(text: str) -> Iterator[Item]:
    """Yield the records and rejections of a text, in its order. Whoever has enough stops the reading."""
    strings = _strings(text)
    for row, piece in _pieces(text):
        if _BLOCK.search(piece):
            yield from _of_piece(piece, row, strings)
        else:
            yield from plain_lines.items(piece.splitlines(), row)


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    """Yield the parts of a text that can be parsed by themselves, each with the number of its first line.

    The parser ends whatever is open where a block begins a line, so a text is split there. A part with more
    blocks than anybody writes on one line is split before each of them.
    """
    row = 1
    for part in _split(text, _FIRST_ON_LINE):
        many = len(_BLOCK.findall(part)) > MOST_ON_LINE
        for piece in _split(part, _BLOCK) if many else (part,):
            yield row, piece
            row += piece.count("\n")


def _split(text: str, before: re.Pattern[str]) -> Iterator[str]:
    past = 0
    for found in before.finditer(text):
        if found.start() > past:
            yield text[past : found.start()]
        past = found.start()
    yield text[past:]


def _strings(text: str) -> dict[str, str]:
    """Return the values of the first MOST_STRINGS macros that a text defines, by name."""
    defining = (piece for _, piece in _pieces(text) if _STRING.search(piece))
    strings: dict[str, str] = {}
    for piece in itertools.islice(defining, MOST_STRINGS):
        for block in _blocks(piece) or ():
            if isinstance(block, String):
                # Cut: a few letters would otherwise stand for a whole book, as often as somebody likes.
                strings.setdefault(block.key.lower(), block.value[:MACRO_CHARS])
    return strings


def _blocks(piece: str) -> list[Block] | None:
    try:
        return list(Splitter(piece).split().blocks)
    except Exception:  # it says itself that an unforeseen text may trip it
        return None


def _of_piece(piece: str, first: int, strings: Mapping[str, str]) -> Iterator[Item]:
    blocks = _blocks(piece)
    if blocks is None:
        yield Rejection("BibTeX that cannot be read", first, sanitize.one_line(piece, SHOWN_CHARS))
        return
    for block in blocks:
        row = first + (block.start_line or 0)
        if isinstance(block, ImplicitComment):
            yield from plain_lines.items(block.comment.splitlines(), row)
        elif found := _entry(block):
            yield _item(found, strings, row)
        elif isinstance(block, ParsingFailedBlock) and block.ignore_error_block is None:
            reason = "a BibTeX entry with a brace, quotation mark or comma too few"
            yield Rejection(reason, row, sanitize.one_line(block.raw, SHOWN_CHARS))


def _entry(block: Block) -> Entry | None:
    """The entry in a block. A key or a field that is there twice is no harm here."""
    found = block.ignore_error_block if isinstance(block, ParsingFailedBlock) else block
    return found if isinstance(found, Entry) else None


def _item(found: Entry, strings: Mapping[str, str], row: int) -> Item:
    read = [field for field in found.fields if field.key.lower() in _FIELDS]
    fields = {field.key.lower(): _value(field.value, strings) for field in reversed(read)}
    arxiv_id, doi = entry.ids(fields.get("doi", ""), _places(fields))
    titles = (fields.get("title"), fields.get("subtitle"))
    record = PaperRecord(
        title=_prose(": ".join(filter(None, titles)), sanitize.TITLE_CHARS),
        arxiv_id=arxiv_id,
        doi=doi,
        abstract=_prose(fields.get("abstract", ""), entry.ABSTRACT_CHARS),
        authors=_authors(fields.get("author", "")),
    )
    return entry.item(entry.EntryLocation("a BibTeX entry", row, found.key), record)


def _value(raw: str, strings: Mapping[str, str]) -> str:
    value = strings.get(raw.lower(), raw)
    return value[1:-1] if value[:1] + value[-1:] in ("{}", '""') else value


def _prose(value: str, limit: int) -> str:
    for spelled, sign in _SIGNS:
        value = value.replace(spelled, sign)
    return entry.prose(value, limit).translate(_UNBRACED).strip()


def _places(fields: Mapping[str, str]) -> list[str]:
    """Where ids may be: an eprint, a link, Google Scholar's journal, DBLP's volume `abs/…`, Zotero's note."""
    said = {name: value.translate(_UNBRACED).strip() for name, value in fields.items()}
    kind = next((said[name] for name in _KINDS_OF_EPRINT if name in said), "arxiv")
    eprint = said.get("eprint", "").partition(" ")[0] if kind.lower() == "arxiv" else ""
    others = (said.get(name, "").removeprefix("abs/") for name in _OF_IDS)
    return [eprint, *others, entry.of_arxiv(said.get("note", ""))]


def _authors(value: str) -> tuple[str, ...]:
    """The names as people say them: “Knuth, Donald E.” is Donald E. Knuth."""
    names = split_multiple_persons_names(" ".join(value.split()))[: entry.AUTHORS_READ]
    shown = (_prose(_said(name[: sanitize.NAME_CHARS]), sanitize.NAME_CHARS) for name in names)
    return tuple(name for name in shown if name and name.lower() != "others")


def _said(name: str) -> str:
    """Not as `entry.names` has it: here the junior comes before the given name, and braces hide commas."""
    parts = dict(_NAME_PART.findall(name))
    if parts:
        return " ".join(filter(None, map(parts.get, ("given", "prefix", "family", "suffix"))))
    return str(parse_single_name_into_parts(name, strict=False).merge_first_name_first)
