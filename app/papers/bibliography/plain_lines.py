"""PURE. Convert typed lines to records. A line contains one title, or the ids of one or more papers."""

import re
from collections.abc import Iterable, Iterator

from app.papers.bibliography.entry import SHOWN_CHARS, Item, arxiv_id, is_link
from app.text import identifiers, sanitize
from app.types import PaperRecord, Rejection

_BULLET = re.compile(r"^(?:[-*•–]|[\[(]?\d{1,3}[\].)])\s+")
# The separators between ids occur in SICI DOIs too, so `split` also returns each of these DOIs, or None.
_BETWEEN_IDS = re.compile(rf"({identifiers.SICI_DOI})|[\s,;<>\[\]]+", re.IGNORECASE)
_REMARKS = ("%", "#")
# Lines that cannot be titles: overlong ASCII words and malformed DOIs.
_NO_TITLE = re.compile(r"[!-~]{41,}|(?:doi:\s*)?10\.\d*/\S*", re.IGNORECASE)


def parse(lines: Iterable[str], first: int) -> Iterator[Item]:
    """Yield a record for each id, and each link to a paper's page, in a line. Read other lines as titles.

    A line with one such link may also contain a title. The page may be that of any Paperboy service.
    `match_references` checks whether it is this one.
    Yield a rejection for a line that can be neither. Skip empty lines, and comments that begin with % or #.
    `first` is the number of the first line.
    """
    for row, typed in enumerate(lines, first):
        line = _BULLET.sub("", sanitize.one_line(typed, len(typed)))
        if not line or line.startswith(_REMARKS):
            continue
        has_ids, pages, rest = False, list[str](), line
        for word in filter(None, _BETWEEN_IDS.split(line)):
            doi = identifiers.doi(word)
            of_arxiv = identifiers.arxiv_id_of_doi(doi) or arxiv_id(word)
            if of_arxiv or doi:
                has_ids = True
                yield PaperRecord(title="", arxiv_id=of_arxiv, doi=doi)
            elif page := identifiers.paper_page(word):
                pages.append(page)
                rest = rest.replace(word, "")
        title = _title(rest.strip(" []<>,;")) if not has_ids and len(pages) < 2 else ""
        yield from (PaperRecord(title=title, url=page) for page in pages)
        if has_ids or pages:
            continue
        if is_link(line.lstrip("<([")):
            yield Rejection("a link without a valid arXiv ID or DOI", row, line[:SHOWN_CHARS])
        elif title:
            yield PaperRecord(title=title)
        else:
            yield Rejection("neither a title nor a link or ID", row, line[:SHOWN_CHARS])


def _title(line: str) -> str:
    """Return the title in a line, or "" if the line cannot be one."""
    title = sanitize.title(line)
    return title if sum(map(str.isalpha, title)) >= 2 and not _NO_TITLE.fullmatch(line) else ""
