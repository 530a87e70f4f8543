"""PURE. Convert BibTeX and BibLaTeX to records. Text between entries is read as plain lines."""

import itertools
import re
from collections.abc import Iterator, Mapping

from bibtexparser.middlewares.names import parse_single_name_into_parts, split_multiple_persons_names
from bibtexparser.model import Block, Entry, ImplicitComment, ParsingFailedBlock, String
from bibtexparser.splitter import Splitter

from app.papers.bibliography import entry, limits, plain_lines
from app.papers.bibliography.entry import SHOWN_CHARS, Item
from app.text import sanitize
from app.types import Rejection

MACRO_CHARS = 300
MAX_STRINGS = 1_000  # parts of a text that are searched for macro definitions
MAX_ON_LINE = 100  # blocks in one part of a text

_BLOCK = re.compile(r"@\w*[ \t]*(?=[{(])")
_FIRST_ON_LINE = re.compile(rf"^[^\S\n]*+{_BLOCK.pattern}", re.MULTILINE)
_STRING = re.compile(r"@string[ \t]*[{(]", re.IGNORECASE)

_UNBRACED = str.maketrans({"{": None, "}": None, "~": " "})
# Zotero writes these signs as macros, which would otherwise be dropped.
_SIGNS = (("{\\textless}", "<"), ("{\\textgreater}", ">"))
# Fields that may contain an id: links, `journal` in Google Scholar and `volume` in DBLP (`abs/…`). The `note`
# that Zotero exports may also contain one, but needs a check (see `entry.arxiv_note`).
_ID_FIELDS = ("url", "journal", "journaltitle", "volume", "number", "howpublished")
_EPRINT_KIND_FIELDS = ("eprinttype", "archiveprefix")
_FIELDS = {
    *("title", "subtitle", "abstract", "author", "doi", "eprint", "note"), *_ID_FIELDS, *_EPRINT_KIND_FIELDS,
}  # fmt: skip
# Better BibTeX writes a name with a particle as: family=Berg, given=Anna, prefix=van der
_NAME_PART = re.compile(r"(?:^|,)\s*(given|prefix|family|suffix)\s*=\s*([^,=]*)")


def parse(text: str) -> Iterator[Item]:
    """Yield the records and rejections from a text in order. Each part is parsed when it is needed."""
    strings: dict[str, str] = {}  # macro values by name
    definitions = (piece for _, piece in _pieces(text) if _STRING.search(piece))
    for piece in itertools.islice(definitions, MAX_STRINGS):
        for block in _blocks(piece) or ():
            if isinstance(block, String):
                # Truncate values, because otherwise a small text could expand to any size.
                strings.setdefault(block.key.lower(), block.value[:MACRO_CHARS])
    for row, piece in _pieces(text):
        if _BLOCK.search(piece):
            yield from _parse_piece(piece, row, strings)
        else:
            yield from plain_lines.parse(piece.splitlines(), row)


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    """Yield the parts of a text that can be parsed separately, each with the number of its first line.

    The parser closes all open blocks at a line that begins with a block, so the text is split there. A part
    with more than MAX_ON_LINE blocks is split before each block.
    """
    row = 1
    for part in _split(text, _FIRST_ON_LINE):
        many = len(_BLOCK.findall(part)) > MAX_ON_LINE
        for piece in _split(part, _BLOCK) if many else (part,):
            yield row, piece
            row += piece.count("\n")


def _split(text: str, before: re.Pattern[str]) -> Iterator[str]:
    end = 0
    for match in before.finditer(text):
        if match.start() > end:
            yield text[end : match.start()]
        end = match.start()
    yield text[end:]


def _blocks(piece: str) -> list[Block] | None:
    try:
        return list(Splitter(piece).split().blocks)
    except Exception:  # bibtexparser documents that it may fail on unexpected input
        return None


def _parse_piece(piece: str, first: int, strings: Mapping[str, str]) -> Iterator[Item]:
    blocks = _blocks(piece)
    if blocks is None:
        yield Rejection("BibTeX that cannot be read", first, sanitize.one_line(piece, SHOWN_CHARS))
        return
    for block in blocks:
        row = first + (block.start_line or 0)
        # Accept duplicate keys and fields. The parser puts such an entry into a failed block.
        content = block.ignore_error_block if isinstance(block, ParsingFailedBlock) else block
        if isinstance(block, ImplicitComment):
            yield from plain_lines.parse(block.comment.splitlines(), row)
        elif isinstance(content, Entry):
            yield _item(content, strings, row)
        elif content is None:
            reason = "a BibTeX entry that lacks a brace, quotation mark or comma"
            yield Rejection(reason, row, sanitize.one_line(block.raw, SHOWN_CHARS))


def _item(parsed: Entry, strings: Mapping[str, str], row: int) -> Item:
    fields: dict[str, str] = {}
    for field in parsed.fields:
        if (name := field.key.lower()) in _FIELDS:
            value = strings.get(field.value.lower(), field.value)
            unquoted = value[1:-1] if value[:1] + value[-1:] in ("{}", '""') else value
            fields.setdefault(name, unquoted)
    texts = {name: value.translate(_UNBRACED).strip() for name, value in fields.items()}
    kind = next((texts[name] for name in _EPRINT_KIND_FIELDS if name in texts), "arxiv")
    eprint = texts.get("eprint", "").partition(" ")[0] if kind.lower() == "arxiv" else ""
    others = (texts.get(name, "").removeprefix("abs/") for name in _ID_FIELDS)
    # Put the given name first. `entry.names` cannot do this because, in BibTeX, "Jr." precedes the given name
    # and commas within braces do not separate the parts of a name.
    authors = []
    listed = split_multiple_persons_names(" ".join(fields.get("author", "").split()))
    for person in listed[: limits.MAX_AUTHORS]:
        name = person[: sanitize.NAME_CHARS]
        if parts := dict(_NAME_PART.findall(name)):
            name = " ".join(filter(None, map(parts.get, ("given", "prefix", "family", "suffix"))))
        else:
            name = parse_single_name_into_parts(name, strict=False).merge_first_name_first
        authors.append(_prose(name, sanitize.NAME_CHARS))
    titles = filter(None, (fields.get("title"), fields.get("subtitle")))
    return entry.to_item(
        "a BibTeX entry",
        row,
        parsed.key,
        title=_prose(": ".join(titles), sanitize.TITLE_CHARS),
        abstract=_prose(fields.get("abstract", ""), entry.ABSTRACT_CHARS),
        authors=tuple(name for name in authors if name and name.lower() != "others"),
        doi=fields.get("doi", ""),
        id_texts=[eprint, *others, entry.arxiv_note(texts.get("note", ""))],
    )


def _prose(value: str, limit: int) -> str:
    for macro, sign in _SIGNS:
        value = value.replace(macro, sign)
    return entry.prose(value, limit).translate(_UNBRACED).strip()
