"""Any RSS or Atom feed. Papers are recognized by the arXiv ids and DOIs in their links."""

import itertools
import re
from calendar import monthrange
from collections.abc import AsyncIterator, Iterator
from datetime import date, datetime
from functools import partial
from typing import Any

import feedparser

from app.errors import ParsingTooExpensive, SourceError, UnreadableResponse
from app.papers.sources import arxiv, deadlines, json_rows
from app.papers.sources.http_client import Client
from app.papers.sources.state import FetchedPage, SourceState
from app.runtime import sandbox
from app.text import characters, dates, identifiers, sanitize
from app.text.names import split_names
from app.types import PaperRecord, ParseResult, Rejection

NO_TITLE = "the entry has no title"
BROKEN_ENTRY = "the entry cannot be read"
SMALL = 4_000  # characters: larger feeds are parsed in a child process (30,000 hostile characters take 10 s)
# Attributes of HTML that need no value, including obsolete ones.
_FLAG = (
    r"(?:allowfullscreen|async|autofocus|autoplay|checked|compact|controls|declare|default|defer|disabled|"
    r"formnovalidate|hidden|inert|ismap|itemscope|loop|multiple|muted|nohref|nomodule|noresize|noshade|"
    r"novalidate|nowrap|open|playsinline|readonly|required|reversed|selected|data-[\w-]{1,100})"
)
# The elements of HTML, including obsolete ones, of MathML, and of JATS, which publishers use for abstracts.
# Names with a prefix and names of custom elements contain a colon or a hyphen.
_ELEMENT = (
    r"(?:a|abbr|acronym|address|applet|area|article|aside|audio|b|base|basefont|bd[io]|big|blink|blockquote|"
    r"body|br|button|canvas|caption|center|cite|code|col|colgroup|data|datalist|dd|del|details|dfn|dialog|dir|"
    r"div|dl|dt|em|embed|fieldset|figcaption|figure|font|footer|form|frame|frameset|h[1-6]|head|header|hgroup|"
    r"hr|html|i|iframe|img|input|ins|kbd|label|legend|li|link|main|map|mark|marquee|menu|meta|meter|nav|nobr|"
    r"noframes|noscript|object|ol|optgroup|option|output|p|param|picture|pre|progress|q|r[pt]|ruby|s|samp|"
    r"script|search|section|select|slot|small|source|span|strike|strong|style|sub|summary|sup|svg|table|tbody|"
    r"td|template|textarea|tfoot|th|thead|time|title|tr|track|tt|u|ul|var|video|wbr|"
    r"math|m[inos]|mtext|mspace|mrow|mfrac|msqrt|mroot|mstyle|merror|mpadded|mphantom|menclose|mfenced|"
    r"msub|msup|msubsup|munder|mover|munderover|mmultiscripts|mprescripts|mtable|mtr|mtd|semantics|annotation|"
    r"italic|bold|sc|sec|underline|overline|monospace|roman|xref|list|graphic|"
    r"[a-z]\w{0,50}[:-][\w:.-]{1,100})"
)
# A tag, a comment or a declaration. Other text in angle brackets is kept, such as “<think>”, which is no
# element, and that between “p < 0.05” and “d > 0.8”, or between “a<b” and “c>d”.
_TAG = re.compile(
    rf"</?(?:[a-z][\w:.-]{{0,100}}\s[^<>=]{{0,200}}=[^<>]{{0,2000}}|"
    rf"{_ELEMENT}(?:\s{{1,9}}{_FLAG}){{0,9}}\s{{0,9}}/?)>|<[!?][^<>]{{0,2000}}>",
    re.IGNORECASE,
)
_PERIOD = re.compile(r"\d{4}(?:[ /-](?:\d{2}|[A-Za-z]{3,9}))?")  # a year or a month
# The zero of Unix time in any time zone, and that of spreadsheets. Programs write it if they have no date.
_ZERO_DAYS = {date(1969, 12, 31), date(1970, 1, 1), date(1900, 1, 1)}
# Comments, quoted text and instructions, which cannot contain declarations. One that is not closed ends with
# the text, which keeps the search linear.
_VERBATIM = re.compile(r"<!--.*?(?:-->|\Z)|<!\[CDATA\[.*?(?:\]\]>|\Z)|<\?.*?(?:\?>|\Z)", re.DOTALL)
_DECLARATION = re.compile(r"\A\s*<\?xml\s[^<>]*>")
_FEED_END = re.compile(r"</(?:\w+:)?(?:feed|rss|rdf)\s*>\s*(?:<!--.*-->\s*)?$", re.IGNORECASE | re.DOTALL)
_LAST_ENTRY = re.compile(r".*</(?:\w+:)?(?:entry|item)\s*>", re.IGNORECASE | re.DOTALL)
_ENTRY = re.compile(r"<(?:\w+:)?(?:entry|item)\b", re.IGNORECASE)
_ROOT = re.compile(r"<(?:\w+:)?(?:feed|rss|rdf)\b", re.IGNORECASE)


def parse(
    data: bytes | str, day: date | None = None, content_type: str = "", base_url: str = ""
) -> ParseResult:
    """Return the papers in a feed. An entry without a date counts as listed on `day`.

    `content_type` is the header of the response. It may name the encoding. `base_url` is the address of the
    feed. Relative links are resolved against it; without it, they are omitted.

    feedparser takes time quadratic in the number of attributes of a tag, and it can fail in many ways.
    Therefore large feeds are parsed in a child process with limited time and memory. Raise UnreadableResponse
    if the feed cannot be parsed.
    """
    text = json_rows.text_of(data, content_type)
    try:
        is_small = len(text) <= SMALL
        return _parse(text, day, base_url) if is_small else sandbox.run(_parse, text, day, base_url)
    except SourceError:
        raise
    except ParsingTooExpensive:
        raise UnreadableResponse("Reading this feed takes more time or memory than allowed.") from None
    except Exception as error:
        raise UnreadableResponse(f"The feed cannot be read ({type(error).__name__}).") from error


def _parse(text: str, day: date | None, base_url: str) -> ParseResult:
    json_rows.refuse_markup(text, "a feed")
    if _declares_entities(text) or not _ROOT.search(text[:5_000]):
        raise UnreadableResponse("The response is not a valid RSS or Atom feed.")
    rejections: list[Rejection] = []
    cut_off = not _FEED_END.search(text[-2_000:])
    if cut_off:
        complete = _LAST_ENTRY.match(text)
        text = complete.group(0) if complete else "<rss/>"
    entries = _entries(text)
    if cut_off:
        detail = f"{len(entries)} complete entries were read"
        rejections.append(Rejection(json_rows.CUT_OFF, None, detail))
    if len(entries) > json_rows.MAX_ENTRIES:
        rejections.append(json_rows.too_many(len(entries)))
    numbered = enumerate(entries[: json_rows.MAX_ENTRIES], 1)
    records = (_record(number, entry, day, base_url) for number, entry in numbered)
    return json_rows.collect(records, rejections)


def _declares_entities(text: str) -> bool:
    """Return whether a feed may declare entities. A DOCTYPE may disguise a declaration as verbatim text."""
    if "<!ENTITY" not in text:
        return False
    markup = _VERBATIM.sub(" ", text)
    return "<!ENTITY" in markup or "<!DOCTYPE" in markup


def _entries(text: str) -> list[Any]:
    """Return the entries of a feed. If parsing fails, parse each entry by itself.

    An entry that still cannot be parsed becomes None.
    """
    try:
        return _parse_entries(text)
    except Exception:  # usually a single entry makes feedparser fail
        starts = [
            match.start() for match in itertools.islice(_ENTRY.finditer(text), json_rows.MAX_ENTRIES + 1)
        ]
        if not starts:
            raise
        head, ends = text[: starts[0]], [*starts[1:], len(text)]
        entries: list[Any] = []
        for start, end in zip(starts, ends, strict=True):
            try:
                entries += _parse_entries(head + text[start:end])[:1] or [None]
            except Exception:
                entries.append(None)
        return entries


def _parse_entries(text: str) -> list[Any]:
    # feedparser's sanitizing is slow on hostile markup, and `_plain_text` removes all markup anyway.
    data = _DECLARATION.sub("", text, count=1).encode()  # it may name another encoding
    parsed = feedparser.parse(data, sanitize_html=False, resolve_relative_uris=False)
    return list(parsed.entries)


def _names(entry: Any) -> list[str]:
    """Return the authors' names. A single element may be one name, "Tanaka, Mei", or several names."""
    people = entry.get("authors", ())
    names = [name for person in people if (name := _plain_text(person.get("name") or ""))]
    return split_names(names[0]) if len(names) == 1 else names


def _record(number: int, entry: Any, day: date | None, base_url: str) -> PaperRecord | Rejection:
    if entry is None:
        return Rejection(BROKEN_ENTRY, number)
    try:
        title = sanitize.title(_plain_text(entry.get("title", "")))
        if not title:
            return Rejection(NO_TITLE, number, sanitize.one_line(entry.get("link")))
        ids = map(identifiers.arxiv_id, _links(entry))
        arxiv_id, version = next((named for named in ids if named[0]), ("", 0))
        doi = next(filter(None, map(identifiers.doi, _links(entry))), "")
        id_of_doi = identifiers.arxiv_id_of_doi(doi)
        arxiv_id = arxiv_id or id_of_doi
        people = sanitize.authors(_names(entry))
        day = _listing_day(entry, day)
        announce_type = sanitize.one_line(entry.get("arxiv_announce_type")) or "new"
        return PaperRecord(
            title=title,
            arxiv_id=arxiv_id,
            version=version,
            doi="" if id_of_doi else doi,
            abstract=sanitize.clean_text(arxiv.feed_abstract(_plain_text(entry.get("summary", "")))),
            authors=people[: sanitize.AUTHORS_KEPT],
            author_count=len(people),
            categories=sanitize.words([tag.get("term") for tag in entry.get("tags", ())]) if arxiv_id else (),
            url=_url(entry, base_url),
            listed_on=day if announce_type in arxiv.LISTED_TYPES else None,
            as_of=day,
        )
    except Exception as error:  # feedparser gave a field an unexpected type
        return Rejection(BROKEN_ENTRY, number, type(error).__name__)


def _listing_day(entry: Any, day: date | None) -> date | None:
    """Return the day that an entry names, or else `day`.

    If it names only a month or a year, return the last day of that period, but no later than `day` or the day
    of its update.
    """
    latest_days = list[date]()  # the last days of the periods that the entry names
    for name in ("published", "updated"):
        # dict.get avoids feedparser's lookup, which replaces a missing date with the other date and warns.
        text, moment = str(dict.get(entry, name)).strip(), dict.get(entry, f"{name}_parsed")
        if moment is None or text.startswith("-"):  # PHP's zero time is in the year -1
            moment = (0, 0, 0)  # no valid date
        parsed_day = dates.utc_day("{:04}-{:02}-{:02}".format(*moment[:3]))
        stated_day = dates.utc_day(text) or parsed_day
        if parsed_day and _PERIOD.fullmatch(text):
            month = parsed_day.month if len(text) > len("2026") else 12
            latest_days.append(parsed_day.replace(month=month, day=monthrange(parsed_day.year, month)[1]))
        elif stated_day and stated_day not in _ZERO_DAYS:
            return min([*latest_days, stated_day])
    return min([*latest_days, *([day] if day else [])], default=None)


def _plain_text(markup: str) -> str:
    text = markup[: sanitize.ABSTRACT_CHARS * 4]
    text = _TAG.sub(" ", characters.INLINE_TAG.sub("", text))
    return sanitize.one_line(characters.unescape_html(text), sanitize.ABSTRACT_CHARS * 2)


def _links(entry: Any) -> Iterator[str]:
    """Yield the fields of an entry that may contain ids: first those made for ids, then addresses."""
    for name in ("prism_doi", "dc_identifier", "arxiv_doi", "link", "id"):
        yield str(entry.get(name) or "").removeprefix("oai:")
    for link in entry.get("links", ()):
        yield str(link.get("href") or "")


def _url(entry: Any, base_url: str) -> str:
    """Return the link of an entry. Resolve a relative link, unless it is only a DOI.

    Without `<link>`, feedparser returns the id of the entry, which is an absolute link or none.
    """
    link = str(entry.get("link") or "").strip()
    if link.lower().startswith("www."):
        return sanitize.url(f"https://{link}")
    is_link = any(link == other.get("href") for other in entry.get("links", ()))
    is_doi = identifiers.doi(link) == link.lower()
    return sanitize.url(link, base_url if is_link and not is_doi else "")


async def fetch(client: Client, state: SourceState, now: datetime) -> AsyncIterator[FetchedPage]:
    """Yield the current feed as one page, which is empty if the feed has not changed.

    Entries that the feed has dropped since the previous poll are lost. If the response was cut off, the next
    poll requests it again, even if the feed has not changed.
    """
    response = await client.get(
        str(state.config.get("url", "")), etag=state.etag, last_modified=state.last_modified, public_only=True
    )
    # In a thread, parsing does not block other sources, and the service can stop without waiting for it.
    content_type = response.headers.get("content-type", "")
    parse_response = partial(parse, response.body, now.date(), content_type, response.base_url)
    parsed = await deadlines.in_thread(parse_response) if response.changed else ParseResult()
    if any(rejection.reason == json_rows.CUT_OFF for rejection in parsed.rejections):
        yield FetchedPage(parsed, now.date())
    else:
        yield FetchedPage(parsed, now.date(), response.etag, response.last_modified)
