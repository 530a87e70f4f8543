"""PURE. Convert a bibliography entry in any format to a record, or to a rejection with the reason."""

import re
from collections.abc import Iterable

from app.papers.bibliography.limits import MAX_AUTHORS
from app.text import characters, identifiers, sanitize
from app.text.names import given_name_first
from app.types import PaperRecord, Rejection

ABSTRACT_CHARS = 2_000  # arXiv allows 1,920. A limit is needed because converting LaTeX is slow.
SHOWN_CHARS = 80  # length of the quotation from an entry that could not be read

_LINK = re.compile(r"https?://\S+", re.IGNORECASE)
# With INLINE_TAG, the markup that reference managers keep in titles and abstracts. Other tags may be text.
_BLOCK = re.compile(r"</?(?:p|jats:[a-z-]{1,20})(?:\s[^<>]{0,80})?>", re.IGNORECASE)

Item = PaperRecord | Rejection


def to_item(
    kind: str,
    row: int | None,
    name: str,
    *,
    title: str,
    abstract: str,
    authors: tuple[str, ...],
    doi: str,
    id_texts: Iterable[str],
) -> Item:
    """Return the record of an entry, or a rejection if it has no title, arXiv id, DOI or paper's page.

    `id_texts` are the fields other than `doi` in which exporters put ids, most likely first. `kind`, `row`
    and `name` identify the entry in a rejection.
    """
    texts = [text for text in id_texts if text]
    doi = identifiers.doi(doi.replace("\\", "")) or next(filter(None, map(identifiers.doi, texts)), "")
    of_arxiv = identifiers.arxiv_id_of_doi(doi) or next(filter(None, map(arxiv_id, texts)), "")
    page = next(filter(None, map(identifiers.paper_page, texts)), "")
    if not (title or of_arxiv or doi or page):
        reason = f"{kind} without title, DOI or arXiv ID"
        return Rejection(reason, row, sanitize.one_line(name, SHOWN_CHARS))
    return PaperRecord(title, arxiv_id=of_arxiv, doi=doi, abstract=abstract, authors=authors, url=page)


def prose(value: object, limit: int) -> str:
    """Return a title or an abstract without the markup of reference managers."""
    if not isinstance(value, str):
        return ""
    return sanitize.clean_text(
        characters.unescape_html(_BLOCK.sub(" ", characters.INLINE_TAG.sub("", value[: limit * 4]))), limit
    )


def names(values: Iterable[str]) -> tuple[str, ...]:
    """Return names with the given name first: “Knuth, Donald E.” becomes “Donald E. Knuth”."""
    first = [*values][:MAX_AUTHORS]
    authors = (sanitize.one_line(given_name_first(value[: sanitize.NAME_CHARS])) for value in first)
    return tuple(filter(None, authors))


def arxiv_id(text: str) -> str:
    """Return the arXiv id in a text, or at the end of a link such as huggingface.co/papers/2603.25746."""
    if (named := identifiers.arxiv_id(text)[0]) or not _LINK.match(text):
        return named
    return identifiers.arxiv_id(re.split(r"[?#]", text)[0].rstrip("/").rpartition("/")[2])[0]


def is_link(text: str) -> bool:
    """Return whether a text begins with a web address."""
    return bool(_LINK.match(text))


def arxiv_note(note: str) -> str:
    """Return `note` if it begins with "arXiv:", otherwise "".

    Ids in other notes may belong to other papers.
    """
    return note if note.lower().startswith("arxiv:") else ""
