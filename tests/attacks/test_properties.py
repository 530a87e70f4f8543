"""Fuzz the parsers: each returns, or raises its documented error, within a second of CPU time.

`PAPERBOY_ATTACKS=10` tries ten times as many inputs, and repeated tokens of up to 200 kB.
"""

import gc
import itertools
import json
import logging
import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date

import pytest

from app.bounces import PROVIDERS, InvalidPayload, parse_mail, parse_webhook
from app.errors import InvalidInput, UnreadableResponse
from app.papers import bibliography
from app.papers.sources import arxiv, feed, files, huggingface, huggingface_pages, jsonl, oai
from app.relevance import muted_texts, query_language
from app.text import abbreviations, sanitize, summarizer, tokenizer
from app.types import SourceKind
from tests.bounces import mails
from tests.papers.sources import responses
from tests.support.mutations import distort, mutate, repeat_token

pytestmark = [pytest.mark.once, pytest.mark.timeout(3_000)]

TIMES = int(os.environ.get("PAPERBOY_ATTACKS", "1"))
MUTATIONS, PUMPED = 560 * TIMES, 56 * TIMES  # for each of the 20 parsers
SIZES = (8_000, 20_000, 29_000) if TIMES == 1 else (20_000, 29_000, 60_000, 200_000)
DAY = date(2026, 11, 20)
US = "bounce+1-abcdefgh12@paperboy.test"

BIBTEX = rb"""% a remark
@string{jacm = "Journal of the ACM"}
@article{knuth, author = {Donald E. Knuth and Lamport, Leslie}, title = {Literate {P}rogramming $O(n^{2})$},
  journal = jacm, doi = "10.1093/comjnl/27.2.97", abstract = {We \emph{read} \frac{1}{2} of it.}, }
A title that somebody typed in between
@inproceedings(vaswani, title = {Attention Is "All" You Need}, eprint = {1706.03762}, archiveprefix = {arXiv})
https://arxiv.org/abs/2611.00001
"""
RIS = (
    b"TY  - JOUR\nTI  - Pigeons That Plan\nAU  - Lovelace, Ada\nDO  - 10.1000/xyz\n"
    b"AB  - We teach\n them.\nER  - \n"
)
PERSON = {"family": "Lovelace", "given": "Ada"}
CSL = json.dumps([{"id": "a", "title": "Pigeons", "DOI": "10.1000/x", "author": [PERSON]}])
CSV = (
    b'"Key","Title","Author","DOI","Abstract Note"\n'
    b'"A","Pigeons","Lovelace, Ada; Turing, Alan","10.1000/x","They\nplan"\n'
)
PROSE = (
    rb"We show $\mathbb{R}^{n\times n}$, $\frac{1}{2}$, \sqrt[3]{x_{max}} and \emph{more} of Andr\'e. "
    + "We propose LongVideo (LV), e.g. for 1. cats; 2. dogs. However, et al. don't! https://a.test/x…".encode()
)
HOOKS = {
    "generic": {"kind": "bounce", "recipient": "a@x.test", "return_path": US, "diagnostic": "550 no user"},
    "ses": {"notificationType": "Bounce", "mail": {"source": US}, "bounce": {"bounceType": "Permanent",
            "bouncedRecipients": [{"emailAddress": "a@x.test", "status": "5.1.1"}]}},
    "postmark": {"RecordType": "Bounce", "Type": "HardBounce", "Email": "a@x.test", "Content": "To: b\n\nx"},
    "sendgrid": [{"event": "bounce", "email": "a@x.test", "reason": "550 user unknown", "smtp-id": "<a@b>"}],
    "mailgun": {"event-data": {"event": "failed", "severity": "permanent", "recipient": "a@x.test",
                "delivery-status": {"code": 550, "message": "no such user"}}},
}  # fmt: skip
XML = (
    b"<item>",
    b"<entry>",
    b"<entry><title>",
    b"<a b='",
    b"<!--",
    b"<![CDATA[",
    b"&amp;",
    b"&#",
    b"<a:b ",
    b"]]>",
)
JSON = (b"[", b"{", b'{"a":', b'["', b"\\u", b"1e", b'{"title":"x"},', b"\n", b"9", b"'a' ", b"-")
BIB = (
    b"@a{",
    b"@a{b,",
    b"@a{b,c={",
    b"@string{a=",
    b"@comment(",
    b"\n@a(",
    b'"',
    b" and ",
    b"{\\",
    b"10.1/",
    b"TY  - ",
)
TEX = (
    b"\\sqrt[",
    b"\\frac{",
    b"$x_{",
    b"\\H{",
    b"\\cite[",
    b"\\begin{",
    b"^",
    b"http://a",
    b"``a",
    b"{A ",
    b"\\left(",
)
MIME = (b"a\n", b"--b\n", b"<a@b.c>\n", b"=?utf-8?q?", b"550 user ", b"<style>", b"&#9",
        b"Content-Type: message/rfc822\n\n", b"Final-Recipient: rfc822; a@b.c\nAction: failed\n\n",
        )  # fmt: skip
MARKS = "\u0316\u0301".encode()


@dataclass(frozen=True)
class Parser:
    """A parser, a valid input, the tokens of its format, and the errors that it documents."""

    read: Callable[[bytes], object]
    seed: bytes
    tokens: tuple[bytes, ...]
    errors: tuple[type[Exception], ...] = ()


def text_of(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def parse_prose(data: bytes) -> object:
    """Call every function that reads a cleaned abstract."""
    text = sanitize.clean_text(text_of(data))
    return tokenizer.tokenize(text), summarizer.summarize("Pigeons", text), abbreviations.learn([text], {})


def parse_interest(data: bytes) -> object:
    return query_language.parse(text_of(data)[:2_000]), muted_texts.parse_muted(text_of(data)[:100])


def parse_page(data: bytes) -> object:
    return huggingface_pages.parse(data, today=DAY)


def parse_file(data: bytes) -> object:
    return files.parse_file("2026-11-20.json", data, DAY)


SOURCE = (UnreadableResponse,)
LINES = b'{"title": "Pigeons", "id": "2611.00001", "authors": ["Ada"]}\n' * 2
PARAGRAPHS = (b"\n\n", b"\n", b"Nov 3 ", b"4 authors ", b" \n")
WISH = b'"world models" -robot author:"Ada" cat:cs.CL'


def webhook_parser(relay: str) -> Parser:
    """Return the parser of a relay's events."""
    return Parser(
        lambda data: parse_webhook(relay, data), json.dumps(HOOKS[relay]).encode(), JSON, (InvalidPayload,)
    )


PARSERS = {
    "arxiv": Parser(arxiv.parse, responses.api(responses.api_entry()).encode(), XML, SOURCE),
    "arxiv_feed": Parser(arxiv.parse_feed, responses.feed(responses.feed_entry()).encode(), XML, SOURCE),
    "arxiv_oai": Parser(oai.parse, responses.oai_page(responses.oai_record()).encode(), XML, SOURCE),
    "feed": Parser(feed.parse, responses.RSS.encode(), XML, SOURCE),
    "huggingface": Parser(huggingface.parse, responses.hf(responses.hf_row()).encode(), JSON, SOURCE),
    "jsonl": Parser(jsonl.parse, LINES, JSON, SOURCE),
    "page": Parser(parse_page, responses.PAGE.encode(), PARAGRAPHS, SOURCE),
    "any": Parser(parse_file, responses.RSS.encode(), XML + JSON, SOURCE),
    "bibtex": Parser(bibliography.parse_file, BIBTEX, BIB + TEX, (InvalidInput,)),
    "ris": Parser(bibliography.parse_file, RIS, (b"TY  - ", b"AU  - a\n", b"\n", b" "), (InvalidInput,)),
    "csl": Parser(bibliography.parse_file, CSL.encode(), JSON, (InvalidInput,)),
    "csv": Parser(bibliography.parse_file, CSV, (b'"', b'","', b"\n", b'""', b"; "), (InvalidInput,)),
    "prose": Parser(parse_prose, PROSE, (*TEX, MARKS, b"e.g. ", b"(LV) ", b"A. ", b"!? ", b"a b ")),
    "interest": Parser(parse_interest, WISH, (b'"', b"-", b"author:", MARKS, b" "), (InvalidInput,)),
    "bounces": Parser(parse_mail, mails.dsn(US), MIME),
    **{f"webhook-{relay}": webhook_parser(relay) for relay in HOOKS},
}


@pytest.fixture(autouse=True)
def silence_libraries() -> Iterator[None]:
    """Silence libraries whose logging would dominate the time."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def check(parser: Parser, inputs: Iterator[bytes]) -> None:
    """Check the errors and the time of a parser, without what earlier tests left: garbage, and threads."""
    for data in inputs:
        gc.disable()
        began = time.thread_time()
        try:
            parser.read(data)
        except parser.errors:
            pass
        except Exception as error:
            raise AssertionError(f"{len(data)} bytes, {data[:200]!r} …") from error
        finally:
            took = time.thread_time() - began
            gc.enable()
        assert took < 1, f"{took:.1f} s for {len(data)} bytes, {data[:200]!r} …"


def test_every_parser_is_attacked() -> None:
    """A new kind of source or a new relay needs an input here."""
    assert PARSERS.keys() >= set(SourceKind)
    assert HOOKS.keys() == PROVIDERS.keys()


@pytest.mark.parametrize("name", PARSERS)
def test_mutated_inputs(name: str) -> None:
    """Bytes are removed, repeated, mixed or random."""
    parser, rng = PARSERS[name], random.Random(name)  # noqa: S311
    others = [other.seed for other in PARSERS.values()]
    check(parser, (mutate(parser.seed, rng.choice(others), rng) for _ in range(MUTATIONS)))


@pytest.mark.parametrize("name", ["huggingface", "jsonl", "csl", *(f"webhook-{relay}" for relay in HOOKS)])
def test_json_values_of_other_types(name: str) -> None:
    """The input is valid JSON with unexpected values."""
    parser, rng = PARSERS[name], random.Random(name)  # noqa: S311
    whole = json.loads(parser.seed.splitlines()[0] if name == "jsonl" else parser.seed)
    check(parser, (json.dumps(distort(whole, rng)).encode() for _ in range(MUTATIONS)))


@pytest.mark.parametrize("name", PARSERS)
def test_repeated_tokens(name: str) -> None:
    """A token of the format is repeated thousands of times, nested or left open."""
    parser, rng = PARSERS[name], random.Random(name)  # noqa: S311
    tokens = itertools.islice(itertools.cycle(parser.tokens), PUMPED)
    check(parser, (repeat_token(parser.seed, token, rng.choice(SIZES), rng) for token in tokens))
