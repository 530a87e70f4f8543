"""What a reader may wish for. Nothing here touches the database."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from email_validator import EmailNotValidError, validate_email

from app.errors import InvalidAddress, InvalidInterest, InvalidPreference
from app.relevance import query_language
from app.subscribers import schedule
from app.types import Cadence, EmptyDigestPolicy, Interest

MAX_INTERESTS = 20
MAX_PAPERS = 30  # more would pass the 100 kB at which mailbox providers clip a mail
MAX_WEIGHT = 3.0
MAX_MUTED = 50
_GMAIL = ("gmail.com", "googlemail.com")


@dataclass(frozen=True, slots=True)
class Preferences:
    """When a reader wants their digest, and what in it. `problems` says whether it can be done."""

    cadence: Cadence = Cadence.DAILY
    weekday: int = 0  # of the weekly digest: Monday is 0
    hour: int = 8  # local
    zone: str = "UTC"
    min_papers: int = 1
    max_papers: int = 10
    when_empty: EmptyDigestPolicy = EmptyDigestPolicy.SKIP
    beyond: int = 0  # at most so many papers a digest that trend beyond the interests
    muted: tuple[str, ...] = ()  # words, phrases, author: and cat: that keep a paper out of every section
    interests: tuple[Interest, ...] = ()


def problems(wanted: Preferences) -> dict[str, str]:
    """What to change, by field; `interests.0` is the first interest. Empty when all is well."""
    found = (_problems_of_time, _problems_of_size, _problems_of_interests, _problems_of_muted)
    return dict(itertools.chain.from_iterable(look(wanted) for look in found))


def check(wanted: Preferences) -> Preferences:
    """The same preferences with interests and muted words spelled as they are stored and doubles folded.

    Raises InvalidPreference, naming the first field that cannot be used.
    """
    for field, problem in problems(wanted).items():
        raise InvalidPreference(problem, field)
    muted: dict[str, str] = {}
    for text in map(query_language.normalise, wanted.muted):
        muted.setdefault(text.casefold(), text)
    return replace(wanted, interests=deduplicate(wanted.interests), muted=tuple(muted.values()))


def deduplicate(wishes: Iterable[Interest]) -> tuple[Interest, ...]:
    """Interests spelled as they are stored; of doubles the first."""
    folded: dict[str, Interest] = {}
    for wish in wishes:
        text = query_language.normalise(wish.text)
        folded.setdefault(text.casefold(), replace(wish, text=text))
    return tuple(folded.values())


def normalise_address(text: str) -> str:
    """The one spelling of an address, or InvalidAddress.

    Lower case throughout: no provider tells Alice@ from alice@, and she must not be two readers.
    """
    if not text.strip():
        raise InvalidAddress("Please give your address.", "email")
    try:
        found = validate_email(text.strip(" "), check_deliverability=False)
    except EmailNotValidError as error:
        raise InvalidAddress(f"This is not an address that mail can be sent to. {error}", "email") from None
    return f"{found.local_part}@{found.ascii_domain}".lower()


def fold_address(email: str) -> str:
    """Return the mailbox that a normalised address most likely leads to, for limits only.

    Drops a `+tag`; for Gmail the dots, too. Two readers may share a mailbox, so this is no identity.
    """
    local, _, domain = email.rpartition("@")
    local = local.partition("+")[0] or local
    if domain in _GMAIL:
        return f"{local.replace('.', '')}@{_GMAIL[0]}"
    return f"{local}@{domain}"


def _problems_of_time(wanted: Preferences) -> Iterator[tuple[str, str]]:
    if not 0 <= wanted.weekday <= 6:
        yield "weekday", "Choose a day of the week."
    if not 0 <= wanted.hour <= 23:
        yield "hour", "Choose an hour from 0 to 23."
    if not schedule.valid_zone(wanted.zone):
        yield "zone", f"“{wanted.zone[:64]}” is not a time zone that we know. Choose one from the list."


def _problems_of_size(wanted: Preferences) -> Iterator[tuple[str, str]]:
    if not 1 <= wanted.max_papers <= MAX_PAPERS:
        yield "max_papers", f"Choose a number from 1 to {MAX_PAPERS}."
    if not 1 <= wanted.min_papers <= MAX_PAPERS:
        yield "min_papers", f"Choose a number from 1 to {MAX_PAPERS}."
    elif wanted.min_papers > wanted.max_papers >= 1:
        yield "min_papers", "The least cannot be more than the most."
    if not 0 <= wanted.beyond <= MAX_PAPERS:
        yield "beyond", f"Choose a number from 0, for none, to {MAX_PAPERS}."


def _problems_of_interests(wanted: Preferences) -> Iterator[tuple[str, str]]:
    if len(wanted.interests) > MAX_INTERESTS:
        yield "interests", f"At most {MAX_INTERESTS} interests, please: fewer and sharper ones work better."
    if not wanted.interests and wanted.when_empty is EmptyDigestPolicy.SKIP:
        yield "interests", "Name at least one interest, or choose to get what is trending."
    for place, wish in enumerate(wanted.interests):
        problem = _problem_of_wish(wish)
        if problem:
            yield f"interests.{place}", problem


def _problems_of_muted(wanted: Preferences) -> Iterator[tuple[str, str]]:
    """The first that cannot be used: they are typed into one field."""
    if len(wanted.muted) > MAX_MUTED:
        yield "muted", f"At most {MAX_MUTED} muted words, please."
        return
    for text in wanted.muted:
        try:
            query_language.parse_muted(text)
        except InvalidInterest as error:
            yield "muted", str(error)
            return


def _problem_of_wish(wish: Interest) -> str:
    try:
        query_language.parse(wish.text)
    except InvalidInterest as error:
        return str(error)
    if not 0 < wish.weight <= MAX_WEIGHT:
        return f"A weight is above 0 and at most {MAX_WEIGHT:g}."
    if wish.quota is not None and not 1 <= wish.quota <= MAX_PAPERS:
        return f"Choose at most 1 to {MAX_PAPERS} papers, or leave it empty."
    return ""
