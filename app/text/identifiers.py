"""PURE. Find the arXiv id, DOI or page of a paper in an untrusted value. Recognize arXiv categories."""

import re
from urllib.parse import unquote

from app.text.sanitize import one_line

_MONTH = r"(?:0[1-9]|1[0-2])"
# Since April 2007: four digits up to 2014, then five.
_ARXIV_NEW = rf"(?:(?:0[7-9]|1[0-4]){_MONTH}\.\d{{4}}|(?:1[5-9]|[2-9]\d){_MONTH}\.\d{{5}})"
_ARXIV_ARCHIVES = (
    r"(?:acc-phys|adap-org|alg-geom|ao-sci|astro-ph|atom-ph|bayes-an|chao-dyn|chem-ph|cmp-lg|comp-gas|cond-mat|"
    r"cs|dg-ga|funct-an|gr-qc|hep-(?:ex|lat|ph|th)|math|math-ph|mtrl-th|nlin|nucl-(?:ex|th)|patt-sol|physics|"
    r"plasm-ph|q-alg|q-bio|quant-ph|solv-int|supr-con)"
)
_ARXIV_OLD = rf"{_ARXIV_ARCHIVES}(?:\.[A-Za-z]{{2}})?/(?:9[1-9]|0[0-7]){_MONTH}\d{{3}}"
_ARXIV_ID = re.compile(rf"(?:^|[/:.\s])({_ARXIV_NEW}|{_ARXIV_OLD})(?:v(\d{{1,3}}))?(?=$|[\s?#.,;)]|\.pdf)")
_BARE_ARXIV_ID = re.compile(rf"({_ARXIV_NEW}|{_ARXIV_OLD})(?:v(\d{{1,3}}))?")
_ARXIV_PLACE = re.compile(r"arxiv", re.IGNORECASE)
# Many old DOIs contain a page in brackets and end with a fixed form (a SICI, ANSI/NISO Z39.56). URLs may
# encode the brackets. Outside a SICI, "<" begins markup. The limits keep the search linear in long texts.
_PAGE = r"(?:(?:<|%3C)[^\s\"<>]{0,100}?(?:>|%3E)|(?:\[|%5B)[^\s\"\[\]]{0,100}?(?:\]|%5D))"
SICI_DOI = rf"\b10\.\d{{4,9}}/[^\s\"<>?#,;\[\]]{{1,100}}{_PAGE}\d\.\d\.[A-Z]{{2}}(?:;|%3B)\d(?:-[\dA-Z#])?"
_DOI = re.compile(rf"({SICI_DOI}|\b10\.\d{{4,9}}/[^\s\"<>?#]+)", re.IGNORECASE)
# Suffixes that publishers append to a DOI in the addresses of their pages.
_URL_SUFFIX = re.compile(r"(?:[./](?:full|abstract|e?pdf|html?|full-?text|meta))+$")
_NEXT_PARAMETER = re.compile(r"&[a-z_]+=.*")  # follows a DOI that is a parameter of a URL
# bioRxiv and medRxiv append the version to the DOI in addresses. All versions of a preprint have one DOI.
_PREPRINT_VERSION = re.compile(r"(10\.(?:1101|64898)/[\d.]*\d)v\d.*")
_WORDS = "[a-z]+(?:-[a-z]+)*"
ARXIV_CATEGORY = re.compile(rf"{_WORDS}(?:\.(?:[A-Za-z]{{2}}|{_WORDS}))?")  # stat.ML, hep-th, physics.bio-ph
# The public page of a paper on a Paperboy service, or that for operators. The scheme may be missing. Such
# addresses begin only where a word begins, and the limits keep the search linear in long texts.
_PAPER_PAGE = re.compile(
    r"(?<![\w./-])(?:https?://)?[\w.-]{1,253}(?::\d{1,5})?(?:/[\w.~-]{1,60}){0,5}?"
    r"/(?:paper|admin/papers)/[0-9]{1,9}(?!/?[\w-])",
    re.IGNORECASE,
)
_ARXIV_DOI = re.compile(r"10\.48550/arxiv\.(.+)", re.IGNORECASE)


def arxiv_id(value: object) -> tuple[str, int]:
    """Return the arXiv id in a text or a URL, and its version (0 if none is given), or else ("", 0)."""
    text = one_line(value, 300)
    match = _BARE_ARXIV_ID.fullmatch(text)
    if match is None and _ARXIV_PLACE.search(text):
        match = _ARXIV_ID.search(text)
    return (match.group(1), int(match.group(2) or 0)) if match else ("", 0)


def doi(value: object) -> str:
    """Return the DOI in a text or a URL, in lower case, or "".

    The address of a publisher's page may contain more than the DOI, such as the version of a preprint.
    """
    text = one_line(unquote(one_line(value, 300)), 300)
    match = _DOI.search(text)
    if match is None:
        return ""
    prefix = text[: match.start()].lower()
    doi_text = _NEXT_PARAMETER.sub("", match.group(1).lower())
    open_brackets = doi_text.count("(") - doi_text.count(")")
    while doi_text.endswith((".", ",", ";", "/")) or (doi_text.endswith(")") and open_brackets < 0):
        open_brackets += doi_text.endswith(")")
        doi_text = doi_text[:-1]
    if prefix.endswith("/") and "doi.org/" not in prefix:
        doi_text = _URL_SUFFIX.sub("", doi_text)
    return _PREPRINT_VERSION.sub(r"\1", doi_text) if "/" in doi_text else ""


def arxiv_id_of_doi(value: str) -> str:
    """Return the arXiv id in a DOI assigned by arXiv, or ""."""
    match = _ARXIV_DOI.fullmatch(value)
    return arxiv_id(match.group(1))[0] if match else ""


def paper_page(text: str) -> str:
    """Return the address of a paper's page in a text, on any Paperboy service, or "" if there is none."""
    match = _PAPER_PAGE.search(text)
    return match.group() if match else ""


def id_of_paper_page(address: str, base_url: str) -> int:
    """Return the paper's id from the address of its page below `base_url`, or 0 for other addresses."""
    page, place = paper_page(address), base_url.partition("://")[2].casefold()
    start, _, number = page.rpartition("/")
    is_ours = start.casefold().rpartition("://")[2] in (f"{place}/paper", f"{place}/admin/papers")
    return int(number) if is_ours else 0
