"""Create digests like those that a service sends in the morning, and ledgers of them, the same in each run.

There are 60 papers and 40 interests. A reader has three interests and gets five papers for each, so an email
has 15 of 400 possible cards. A card is a paper with the reason why it matches an interest. Scores differ
between readers, as in a real service. A short digest has five papers for one interest. Addresses are spread
over 50 domains, because Paperboy limits connections per domain.
"""

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from sqlmodel import Session, insert

from app import main
from app.application import Application
from app.delivery import ledger
from app.settings import Settings
from app.storage import schema
from app.storage.models import Subscriber, SubscriberState
from app.types import Digest, DigestItem, MailKind, MailRequest, Section

NOW = datetime(2026, 11, 20, 8, tzinfo=UTC)
EARLIER = NOW - timedelta(hours=1)  # when the warm-up emails are due
WARM_UP_MAILS = 400  # enough that each of two senders encodes every card
PAPERS, INTERESTS, PAPERS_PER_INTEREST, DOMAINS = 60, 40, 10, 50

_SUBJECTS = (
    "diffusion models",
    "retrieval",
    "speculative decoding",
    "world models",
    "protein folding",
    "graph networks",
    "robot manipulation",
    "speech recognition",
    "code generation",
    "reward models",
)
_METHODS = ("sparse", "hierarchical", "self-supervised", "few-shot")
_GOALS = ("long contexts", "small devices", "noisy labels", "unseen domains", "low-resource languages")
_NAMES = ("Ada", "Grace", "Alan", "Edsger", "Barbara", "Katherine", "Jürgen", "Zoë", "Li", "Noor")
_SURNAMES = ("Lovelace", "Hopper", "Turing", "Liskov", "Müller", "García", "Nakamura", "Okafor", "Zhang")
_SENTENCES = (
    "We study how {subject} behave when they meet {aim}, and find that most is lost in a single step.",
    "To address this, we propose a {way} method that needs no labels beyond those which are there already.",
    "On eleven benchmarks it gains {gain} points over the best earlier system, at a third of its cost.",
    "An ablation shows that the gain comes from the {way} objective rather than from the larger model.",
    "We release code, weights and the {count},000 examples that were annotated for this work.",
)


@cache
def papers() -> tuple[DigestItem, ...]:
    return tuple(_paper(number) for number in range(1, PAPERS + 1))


def _paper(number: int) -> DigestItem:
    draw = random.Random(number)  # noqa: S311 - no secret
    subject, way, aim = draw.choice(_SUBJECTS), draw.choice(_METHODS), draw.choice(_GOALS)
    values = {"subject": subject, "way": way, "aim": aim, "gain": draw.randint(1, 9), "count": number}
    authors = [f"{draw.choice(_NAMES)} {draw.choice(_SURNAMES)}" for _ in range(3)]
    url = f"https://papers.example/abs/2611.{number:05}"
    return DigestItem(
        paper_id=number,
        title=f"{way.capitalize()} {subject.title()} for {aim.title()}: What the Last Layer Knows",
        authors=f"{', '.join(authors)} and {draw.randint(1, 9)} more",
        summary=" ".join(draw.sample(_SENTENCES, 2)).format(**values),
        reason="",
        trend=f"{number} → {number + draw.randint(5, 200)} votes since yesterday",
        url=url,
        pdf_url=url.replace("/abs/", "/pdf/"),
        code_url=f"https://code.example/lab/{way}-{number}" if number % 3 else "",
        published_on=f"2026-11-{1 + number % 19:02}",
        comments=number % 7,
        short_authors=f"{authors[0]} +{2 + number % 9}",
        votes=number + 5,
        trend_note=f"+{5 + number % 90} since yesterday",
        stars=number * 37,
    )


@cache
def _matching_papers(interest: int) -> tuple[DigestItem, ...]:
    """Return the papers that match an interest, each with the reason."""
    draw = random.Random(1000 + interest)  # noqa: S311 - no secret
    text = _interest_text(interest)
    chosen = draw.sample(papers(), PAPERS_PER_INTEREST)
    return tuple(replace(pick, reason=f"“{text}” is in its abstract") for pick in chosen)


def _interest_text(interest: int) -> str:
    return f"{_METHODS[interest % len(_METHODS)]} {_SUBJECTS[interest // len(_METHODS)]}"


def digest(reader: int, sections: int = 3) -> Digest:
    """Return a digest of five papers for each of `sections` interests, without duplicates."""
    draw = random.Random(2000 + reader)  # noqa: S311 - no secret
    used: set[int] = set()
    filled = []
    for interest in draw.sample(range(INTERESTS), sections):
        new = [pick for pick in _matching_papers(interest) if pick.paper_id not in used]
        chosen = tuple(draw.sample(new, min(5, len(new))))
        scores = tuple(round(draw.random(), 4) for _ in chosen)
        used.update(pick.paper_id for pick in chosen)
        filled.append(Section(_interest_text(interest), chosen, scores=scores))
    return Digest(NOW.date().isoformat(), tuple(filled), considered=PAPERS)


def mail_request(reader: int, sections: int = 3) -> MailRequest:
    """Return the request for a reader's digest, as a ledger would return it."""
    content = digest(reader, sections)
    return MailRequest(
        delivery_id=reader + 1,
        kind=MailKind.DIGEST,
        edition=content.edition,
        subscriber_id=reader + 1,
        email=address(reader),
        link_epoch=0,
        issued_at=EARLIER,
        digest=content,
    )


def address(reader: int) -> str:
    return f"reader.{reader}@uni-{reader % DOMAINS}.example"


def settings(folder: Path, **overrides: Any) -> Settings:
    """Return default settings, with the database and the journals in the folder."""
    return Settings(
        _env_file=None,
        database_url=f"sqlite:///{folder / 'paperboy.db'}",
        journal_dir=str(folder / "journal"),
        search_dir=str(folder / "search"),
        secret_keys=("0123456789abcdef" * 2,),
        base_url="https://paperboy.example",
        from_address="digest@paperboy.example",
        postal_address="1 Example Street, Springfield",
        smtp_security="none",
        scheduler=False,
        **overrides,
    )


def fill_ledger(folder: Path, mails: int, sections: int = 3) -> None:
    """Create a ledger with WARM_UP_MAILS emails that are due EARLIER, and `mails` that are due NOW."""
    configured = settings(folder)
    schema.migrate(configured.database_url)
    app = main.build(configured)
    try:
        for start in range(0, WARM_UP_MAILS + mails, 500):
            with app.db.write() as session:
                _insert_batch(session, range(start, min(start + 500, WARM_UP_MAILS + mails)), sections)
    finally:
        app.db.dispose()


def _insert_batch(session: Session, numbers: range, sections: int) -> None:
    active = {"state": SubscriberState.ACTIVE, "created_at": EARLIER, "confirmed_at": EARLIER}
    readers = [{"id": number + 1, "email": address(number), **active} for number in numbers]
    session.execute(insert(Subscriber), readers)
    due = [EARLIER if number < WARM_UP_MAILS else NOW for number in numbers]
    entries = [
        ledger.Entry(number + 1, NOW.date().isoformat(), at, digest(number, sections))
        for number, at in zip(numbers, due, strict=True)
    ]
    ledger.add_entries(session, entries, EARLIER)


def warm_up_ids(sender: int, senders: int) -> range:
    """Return the ids of a sender's warm-up emails. Senders are numbered from 0."""
    return range(sender + 1, WARM_UP_MAILS + 1, senders)


def make_key(file: Path) -> Path:
    """Write a new 2048-bit RSA key to `file` and return `file`."""
    key = rsa.generate_private_key(65537, 2048)
    kinds = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    file.write_bytes(key.private_bytes(*kinds))
    return file


def build(folder: Path, **overrides: object) -> Application:
    return main.build(settings(folder, **overrides))
