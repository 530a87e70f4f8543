"""What people type into forms: kept as typed, so that a form with a mistake comes back as it was."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date
from enum import StrEnum
from functools import lru_cache
from importlib.resources import files
from itertools import groupby, islice, zip_longest
from typing import Annotated, TypeVar

from fastapi import Form
from pydantic import AfterValidator

from app import subscribers
from app.errors import InvalidAddress, InvalidInput, InvalidInterest
from app.papers import bibliography
from app.relevance import query_language
from app.relevance.query_language import MAX_INTEREST_CHARS
from app.subscribers import MAX_INTERESTS, MAX_MUTED, Preferences, schedule
from app.types import Cadence, EmptyDigestPolicy, Interest

SPARE_ROWS = 3
MOST_LINES, LINE_CHARS = 100, 1000  # of a field that takes so many: what is cut off could not be used either
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_OF_CONTENT = ("min_papers", "max_papers", "when_empty", "beyond", "muted")
_UNUSABLE = -1  # no number that anybody may choose: `subscribers.problems` says which ones they may
Choice = TypeVar("Choice", bound=StrEnum)


def _sayable(text: str) -> str:
    """Without half letters, which some character sets can spell and no page can say."""
    return text.encode("utf-8", "replace").decode()


Text = Annotated[str, Form(), AfterValidator(_sayable)]
Texts = Annotated[list[Annotated[str, AfterValidator(_sayable)]], Form()]


@dataclass(frozen=True, slots=True)
class Row:
    """One interest, as typed."""

    text: str = ""
    weight: str = "1"
    quota: str = ""

    def wish(self) -> Interest:
        quota = None if not self.quota.strip() else _number(self.quota)
        return Interest(self.text, _weight(self.weight), quota)


@dataclass(frozen=True)
class PreferencesForm:
    """A form of preferences as it stands on the page, with what is wrong with it."""

    email: str = ""
    rows: tuple[Row, ...] = ()
    cadence: str = Cadence.DAILY
    weekday: str = "0"
    hour: str = "8"
    zone: str = "UTC"
    min_papers: str = "1"
    max_papers: str = "10"
    when_empty: str = EmptyDigestPolicy.SKIP
    beyond: str = "0"
    muted: str = ""  # one a line
    liked: str = ""  # pasted papers
    had: tuple[str, ...] = ()  # interests and muted words as they were when the form was opened
    problems: dict[str, str] = field(default_factory=dict)

    @property
    def lines(self) -> tuple[Row, ...]:
        """The rows, and some empty ones to go on with."""
        spare = min(SPARE_ROWS, MAX_INTERESTS - len(self.rows))
        return self.rows + (Row(),) * max(spare, 0)

    @property
    def usable(self) -> Preferences:
        """What a digest is to hold, as far as it can be done, of a form that was looked over."""
        wanted = self.wanted()
        wishes = enumerate(wanted.interests)
        fine = {name: getattr(wanted, name) for name in _OF_CONTENT if name not in self.problems}
        chosen = Preferences(
            interests=tuple(wish for place, wish in wishes if f"interests.{place}" not in self.problems),
            **fine,
        )
        return chosen if "muted" in fine else replace(chosen, muted=_understood(wanted.muted))

    def wanted(self) -> Preferences:
        """What was chosen; what cannot be read at all is given as something that `problems` refuses."""
        return Preferences(
            cadence=_choice(Cadence, self.cadence),
            weekday=_number(self.weekday),
            hour=_number(self.hour),
            zone=self.zone,
            min_papers=_number(self.min_papers),
            max_papers=_number(self.max_papers),
            when_empty=_choice(EmptyDigestPolicy, self.when_empty),
            beyond=_number(self.beyond),
            muted=tuple(self.muted.splitlines()),
            interests=tuple(row.wish() for row in self.rows),
        )


@dataclass(frozen=True, slots=True)
class PauseForm:
    """The day on which a pause is to end, as typed: what is wrong with it, and which there are to choose."""

    first: date
    last: date
    typed: str = ""
    problem: str = ""

    @property
    def kind(self) -> str:
        """A browser shows nothing at all in a field for days that holds no day."""
        return "text" if self.typed and not _DAY.fullmatch(self.typed) else "date"


def filled(chosen: Preferences) -> PreferencesForm:
    """The form as it stands for preferences that are stored."""
    rows = (Row(wish.text, f"{wish.weight:g}", str(wish.quota or "")) for wish in chosen.interests)
    return PreferencesForm(
        rows=tuple(rows),
        cadence=chosen.cadence,
        weekday=str(chosen.weekday),
        hour=str(chosen.hour),
        zone=chosen.zone,
        min_papers=str(chosen.min_papers),
        max_papers=str(chosen.max_papers),
        when_empty=chosen.when_empty,
        beyond=str(chosen.beyond),
        muted="\n".join(chosen.muted),
        had=(*(wish.text for wish in chosen.interests), *chosen.muted),
    )


def sign_up_fields(form: PreferencesForm) -> list[tuple[str, str]]:
    """Return the fields of a sign-up form by name, as typed, to be sent once more."""
    rows = [("interest", row.text) for row in form.rows]
    single = ("email", "cadence", "weekday", "hour", "zone", "liked")
    return [*rows, *((name, getattr(form, name)) for name in single)]


def merge_concurrent_changes(form: PreferencesForm, stored: Preferences) -> Preferences:
    """What was chosen, and what came since the form was opened: by a mail's links, or in another window."""
    wanted = form.wanted()
    if not form.had:  # nothing is known of when it was opened
        return wanted
    known = {*form.had, *(wish.text for wish in wanted.interests), *wanted.muted}
    return replace(
        wanted,
        interests=(*wanted.interests, *(wish for wish in stored.interests if wish.text not in known)),
        muted=(*wanted.muted, *(text for text in stored.muted if text not in known)),
    )


def rows(texts: Sequence[str], weights: Sequence[str] = (), quotas: Sequence[str] = ()) -> tuple[Row, ...]:
    """The interests that were typed; an empty line is none."""
    lines = zip_longest(texts, weights[: len(texts)], quotas[: len(texts)])
    typed = islice((line for line in lines if line[0].strip()), MOST_LINES)
    return tuple(Row(text[:LINE_CHARS], weight or "1", quota or "") for text, weight, quota in typed)


def lines(text: str) -> str:
    """What was typed one a line; an empty line is none."""
    said = (line.strip()[:LINE_CHARS] for line in text.splitlines() if line.strip())
    return "\n".join(islice(said, MOST_LINES))


def split_interest(form: PreferencesForm, text: str) -> PreferencesForm:
    """The form with an interest that looked like several parted into them, where there is room."""
    text = query_language.normalise(text[:MAX_INTEREST_CHARS])
    pieces = query_language.split_suggestion(text)
    lines = [query_language.normalise(row.text) for row in form.rows[:MAX_INTERESTS]]
    if not pieces or text not in lines or len(form.rows) - 1 + len(pieces) > MAX_INTERESTS:
        return form
    at = lines.index(text)
    parted = (replace(form.rows[at], text=piece) for piece in pieces)
    return replace(form, rows=(*form.rows[:at], *parted, *form.rows[at + 1 :]))


def validated(form: PreferencesForm, split: str = "") -> PreferencesForm:
    """The form as its preview shows it: an interest parted where asked, and what is wrong in its content."""
    form = split_interest(form, split) if split else form
    problems = subscribers.problems(form.wanted())
    shown = ("interests", *_OF_CONTENT)
    return replace(form, problems={at: said for at, said in problems.items() if at.startswith(shown)})


def problems_of_paste(liked: str) -> dict[str, str]:
    try:
        bibliography.check_size(liked)
    except InvalidInput as error:
        return {"liked": str(error)}
    return {}


def problems_of_address(email: str) -> dict[str, str]:
    try:
        subscribers.normalise_address(email)
    except InvalidAddress as error:
        return {"email": str(error)}
    return {}


@lru_cache(maxsize=1)
def zones() -> list[tuple[str, list[str]]]:
    """The zones that a reader may live in, by region: each under the one name that is used today."""
    table = files("tzdata").joinpath("zoneinfo/zone.tab").read_text("ascii")
    listed = (line.split("\t")[2] for line in table.splitlines() if not line.startswith("#"))
    regions = groupby(sorted(filter(schedule.valid_zone, listed)), lambda name: name.split("/")[0])
    return [(region, list(names)) for region, names in regions]


def _choice(kind: type[Choice], text: str) -> Choice:
    """What was chosen; the first of all for what the form does not offer."""
    return kind(text) if text in list(kind) else next(iter(kind))


def _understood(muted: Sequence[str]) -> tuple[str, ...]:
    """The muted words that can be used: they keep papers out, whatever else stands in their field."""
    fine = []
    for text in muted[:MAX_MUTED]:
        with suppress(InvalidInterest):
            query_language.parse_muted(text)
            fine.append(text)
    return tuple(fine)


def _number(text: str) -> int:
    return int(text) if text.strip().isascii() and text.strip().isdigit() and len(text) < 5 else _UNUSABLE


def _weight(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return _UNUSABLE
