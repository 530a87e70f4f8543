"""Synthetic digests as a service sends them in a morning, and ledgers with them; the same in each run.

60 papers and 40 interests. A reader has three interests and gets five papers for each, so that a mail has 15
cards of 400. A card is a paper with the reason why it fits an interest. Scores differ between readers, as in
a real service. A short digest has five papers for one interest. Addresses are spread over 50 domains, because
the product limits connections per domain.
"""

from __future__ import annotations

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
from app.storage import database
from app.storage.models import Subscriber, SubscriberState
from app.types import Digest, DigestItem, MailKind, MailRequest, Section

NOW = datetime(2026, 11, 20, 8, tzinfo=UTC)
EARLIER = NOW - timedelta(hours=1)  # when the mails are due that a sender warms up with
WARMING = 400  # mails: shared by two senders, every card is still in several of each one's
PAPERS, INTERESTS, FOR_EACH, DOMAINS = 60, 40, 10, 50

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
_WAYS = ("sparse", "hierarchical", "self-supervised", "few-shot")
_AIMS = ("long contexts", "small devices", "noisy labels", "unseen domains", "low-resource languages")
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
    subject, way, aim = draw.choice(_SUBJECTS), draw.choice(_WAYS), draw.choice(_AIMS)
    told = {"subject": subject, "way": way, "aim": aim, "gain": draw.randint(1, 9), "count": number}
    authors = [f"{draw.choice(_NAMES)} {draw.choice(_SURNAMES)}" for _ in range(3)]
    url = f"https://papers.example/abs/2611.{number:05}"
    return DigestItem(
        paper_id=number,
        title=f"{way.capitalize()} {subject.title()} for {aim.title()}: What the Last Layer Knows",
        authors=f"{', '.join(authors)} and {draw.randint(1, 9)} more",
        summary=" ".join(draw.sample(_SENTENCES, 2)).format(**told),
        reason="",
        trend=f"{number} → {number + draw.randint(5, 200)} votes since yesterday",
        url=url,
        pdf_url=url.replace("/abs/", "/pdf/"),
        code_url=f"https://code.example/lab/{way}-{number}" if number % 3 else "",
        published_on=f"2026-11-{1 + number % 19:02}",
        comments=number % 7,
    )


@cache
def _fitting(interest: int) -> tuple[DigestItem, ...]:
    """The papers that fit an interest, with the reason for it."""
    draw = random.Random(1000 + interest)  # noqa: S311 - no secret
    words = _words(interest)
    chosen = draw.sample(papers(), FOR_EACH)
    return tuple(replace(pick, reason=f"“{words}” is in its abstract") for pick in chosen)


def _words(interest: int) -> str:
    return f"{_WAYS[interest % len(_WAYS)]} {_SUBJECTS[interest // len(_WAYS)]}"


def digest(reader: int, sections: int = 3) -> Digest:
    """Five papers for each of so many interests, none of them twice."""
    draw = random.Random(2000 + reader)  # noqa: S311 - no secret
    had: set[int] = set()
    made = []
    for interest in draw.sample(range(INTERESTS), sections):
        new = [pick for pick in _fitting(interest) if pick.paper_id not in had]
        chosen = tuple(
            replace(pick, score=round(draw.random(), 4)) for pick in draw.sample(new, min(5, len(new)))
        )
        had.update(pick.paper_id for pick in chosen)
        made.append(Section(_words(interest), chosen))
    return Digest(NOW.date().isoformat(), tuple(made), considered=PAPERS)


def letter(reader: int, sections: int = 3) -> MailRequest:
    """The digest of a reader as it comes out of a ledger."""
    made = digest(reader, sections)
    return MailRequest(
        delivery_id=reader + 1,
        kind=MailKind.DIGEST,
        edition=made.edition,
        subscriber_id=reader + 1,
        email=address(reader),
        link_epoch=0,
        issued_at=EARLIER,
        digest=made,
    )


def address(reader: int) -> str:
    return f"reader.{reader}@uni-{reader % DOMAINS}.example"


def settings(folder: Path, **more: Any) -> Settings:
    """Those of a service as it comes, whose database and journals lie in the folder."""
    return Settings(
        _env_file=None,
        database_url=f"sqlite:///{folder / 'paperboy.db'}",
        journal_dir=str(folder / "journal"),
        secret_keys=("0123456789abcdef" * 2,),
        base_url="https://paperboy.example",
        from_address="digest@paperboy.example",
        postal_address="1 Example Street, Springfield",
        smtp_security="none",
        scheduler=False,
        **more,
    )


def fill(folder: Path, mails: int, sections: int = 3) -> None:
    """A ledger with so many mails that are due now, and before them those that senders warm up with."""
    wanted = settings(folder)
    database.migrate(wanted.database_url)
    app = main.build(wanted)
    try:
        for start in range(0, WARMING + mails, 500):
            with app.db.write() as session:
                _enter(session, range(start, min(start + 500, WARMING + mails)), sections)
    finally:
        app.db.dispose()


def _enter(session: Session, numbers: range, sections: int) -> None:
    active = {"state": SubscriberState.ACTIVE, "created_at": EARLIER, "confirmed_at": EARLIER}
    readers = [{"id": number + 1, "email": address(number), **active} for number in numbers]
    session.execute(insert(Subscriber), readers)
    due = [EARLIER if number < WARMING else NOW for number in numbers]
    entries = [
        ledger.Entry(number + 1, NOW.date().isoformat(), at, digest(number, sections))
        for number, at in zip(numbers, due, strict=True)
    ]
    ledger.add_entries(session, entries, EARLIER)


def warming_ids(sender: int, senders: int) -> range:
    """The mails that one of so many senders warms up with; they count from 0."""
    return range(sender + 1, WARMING + 1, senders)


def make_key(file: Path) -> Path:
    """Write a new RSA key of 2048 bits."""
    key = rsa.generate_private_key(65537, 2048)
    kinds = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    file.write_bytes(key.private_bytes(*kinds))
    return file


def build(folder: Path, **more: object) -> Application:
    return main.build(settings(folder, **more))
