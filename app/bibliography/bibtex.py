"""PURE. BibTeX and BibLaTeX, of any exporter → records. What is between entries is read as typed lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from bibtexparser.middlewares.names import parse_single_name_into_parts, split_multiple_persons_names
from bibtexparser.model import Block, Entry, ImplicitComment, ParsingFailedBlock, String
from bibtexparser.splitter import Splitter

from app.bibliography import entry, lines
from app.bibliography.entry import SHOWN_CHARS, Item
from app.records import PaperRecord, Rejection
from app.sources import clean

MACRO_CHARS = 300

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
    """Everything in a text, in its order."""
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
            yield from lines.items(block.comment.splitlines(), row)
        elif found := _entry(block):
            yield _item(found, strings, row)
        elif isinstance(block, ParsingFailedBlock) and block.ignore_error_block is None:
            reason = "a BibTeX entry with a brace, quotation mark or comma too few"
            yield Rejection(reason, row, clean.line(block.raw, SHOWN_CHARS))


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
        title=_prose(": ".join(filter(None, titles)), clean.TITLE_CHARS),
        arxiv_id=arxiv_id,
        doi=doi,
        abstract=_prose(fields.get("abstract", ""), entry.ABSTRACT_CHARS),
        authors=_authors(fields.get("author", "")),
    )
    return entry.item(entry.Where("a BibTeX entry", row, found.key), record)


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
    shown = (_prose(_said(name[: clean.NAME_CHARS]), clean.NAME_CHARS) for name in names)
    return tuple(name for name in shown if name and name.lower() != "others")


def _said(name: str) -> str:
    """Not as `entry.names` has it: here the junior comes before the given name, and braces hide commas."""
    parts = dict(_NAME_PART.findall(name))
    if parts:
        return " ".join(filter(None, map(parts.get, ("given", "prefix", "family", "suffix"))))
    return str(parse_single_name_into_parts(name, strict=False).merge_first_name_first)
