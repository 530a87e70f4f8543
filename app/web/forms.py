"""Form values as typed, so that a form with an error can be shown again unchanged."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from enum import StrEnum
from functools import lru_cache
from itertools import groupby, islice, zip_longest
from typing import Annotated, Any, TypeVar
from zoneinfo import ZoneInfo

from fastapi import Form, Request
from pydantic import AfterValidator

from app import subscribers
from app.errors import InvalidInput, InvalidInterest
from app.relevance import muted_texts, query_language, query_rewriting
from app.relevance.query_language import MAX_INTEREST_CHARS
from app.storage.models import Subscriber
from app.subscribers import ABSOLUTE_MAX_INTERESTS, MAX_MUTED, Preferences
from app.subscribers.event_labels import PREFERENCES
from app.text import dates
from app.types import DEFAULT_MAX_PAPERS, DEFAULT_MIN_PAPERS, Cadence, EmptyDigestPolicy, Interest
from app.web import form_versions
from app.web.site_state import application

SPARE_ROWS = 3
AMOUNT_OPTIONS = [(f"{weight:g}", name) for weight, name in subscribers.AMOUNTS.items()]  # as in the form
MAX_LINES, MAX_LINE_CHARS = 100, 1000  # per field; the limits of validation are lower
# The names of the preferences, keyed by the fields of PreferencesForm.
LABELS = {"rows" if name == "interests" else name: label for name, label in PREFERENCES.items()}
_NUMBERS = ("weekday", "hour", "min_papers", "max_papers", "max_trending")
_CONTENT_FIELDS = ("min_papers", "max_papers", "when_empty", "max_trending", "muted")
MAX_DATE_CHARS = 20  # of an invalid date when it is shown again
_INVALID_NUMBER = -1  # outside every allowed range, so `subscribers.problems` reports the field
Choice = TypeVar("Choice", bound=StrEnum)


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which cannot be encoded as UTF-8."""
    return text.encode("utf-8", "replace").decode()


Text = Annotated[str, Form(), AfterValidator(replace_surrogates)]
Texts = Annotated[list[Annotated[str, AfterValidator(replace_surrogates)]], Form()]


@dataclass(frozen=True, slots=True)
class InterestInput:
    """A row of the interests table, as typed."""

    text: str = ""
    weight: str = "1"
    quota: str = ""

    def to_interest(self) -> Interest:
        quota = None if not self.quota.strip() else _number(self.quota)
        try:
            return Interest(self.text, float(self.weight), quota)
        except ValueError:
            return Interest(self.text, _INVALID_NUMBER, quota)


@dataclass(frozen=True)
class PreferencesForm:
    """A preferences or sign-up form as typed, with its errors keyed by field name."""

    email: str = ""
    rows: tuple[InterestInput, ...] = ()
    cadence: str = Cadence.DAILY
    weekday: str = "0"
    hour: str = "8"
    zone: str = "UTC"
    min_papers: str = str(DEFAULT_MIN_PAPERS)
    max_papers: str = str(DEFAULT_MAX_PAPERS)
    when_empty: str = EmptyDigestPolicy.SKIP
    max_trending: str = "0"
    muted: str = ""  # one per line
    paper_updates: bool = True
    liked: str = ""  # pasted papers
    confirmed_email: str = ""  # looks mistyped, but the visitor was asked and submitted it again
    original_texts: tuple[str, ...] = ()  # interests and muted words when the form was opened
    versions: dict[str, str] = field(default_factory=dict)  # of the values when it was opened
    problems: dict[str, str] = field(default_factory=dict)
    conflict: str = ""  # says which preferences were changed both here and elsewhere
    max_interests: int = ABSOLUTE_MAX_INTERESTS

    @property
    def suggested_email(self) -> str:
        """Return the correction of an address that looks mistyped and was not confirmed, or ""."""
        is_confirmed = self.email.strip() == self.confirmed_email.strip()
        return "" if is_confirmed else subscribers.suggest_correction(self.email)

    @property
    def is_refused(self) -> bool:
        return bool(self.problems or self.conflict)

    @property
    def values(self) -> dict[str, str]:
        """Return the value of each preference as one text, for comparing it with its version."""
        return {name: str(getattr(self, name)) for name in LABELS}

    @property
    def rows_with_spare(self) -> tuple[InterestInput, ...]:
        """Return the rows, followed by a few empty rows for further interests."""
        spare = min(SPARE_ROWS, self.max_interests - len(self.rows))
        return self.rows + (InterestInput(),) * max(spare, 0)

    @property
    def valid_preferences(self) -> Preferences:
        """Return the cadence, and the valid interests and content preferences, of a validated form."""
        preferences = self.to_preferences()
        interests = tuple(
            interest
            for place, interest in enumerate(preferences.interests)
            if f"interests.{place}" not in self.problems
        )
        content = {name: getattr(preferences, name) for name in _CONTENT_FIELDS if name not in self.problems}
        if "muted" not in content:  # leave out only the invalid lines
            valid = []
            for text in preferences.muted[:MAX_MUTED]:
                with suppress(InvalidInterest):
                    muted_texts.parse_muted(text)
                    valid.append(text)
            content["muted"] = tuple(valid)
        return Preferences(interests=interests, cadence=preferences.cadence, **content)

    def to_preferences(self) -> Preferences:
        """Convert to preferences. Unreadable numbers become values that `subscribers.problems` reports."""
        numbers: dict[str, Any] = {name: _number(getattr(self, name)) for name in _NUMBERS}
        return Preferences(
            cadence=_choice(Cadence, self.cadence),
            zone=self.zone,
            when_empty=_choice(EmptyDigestPolicy, self.when_empty),
            muted=tuple(self.muted.splitlines()),
            paper_updates=self.paper_updates,
            interests=tuple(row.to_interest() for row in self.rows),
            **numbers,
        )


@dataclass(frozen=True, slots=True)
class PauseForm:
    """The end date of a pause as typed, its error, and the first and last date allowed."""

    first: date
    last: date
    typed: str = ""
    problem: str = ""

    @property
    def input_type(self) -> str:
        """Return `text` for an invalid date, because date fields do not show it. Otherwise, return `date`."""
        try:
            is_date = not self.typed or date.fromisoformat(self.typed).isoformat() == self.typed
        except ValueError:
            is_date = False
        return "date" if is_date else "text"


def pause_form(subscriber: Subscriber, now: datetime, typed: str = "", problem: str = "") -> PauseForm:
    """Return the form that pauses a subscription, with an end date as typed and its error."""
    first, last = subscribers.pause_date_range(ZoneInfo(subscriber.zone), now)
    return PauseForm(first, last, typed.strip()[:MAX_DATE_CHARS], problem)


def preferences_form(
    request: Request,
    interest: Texts = [],  # noqa: B006 - FastAPI copies it
    weight: Texts = [],  # noqa: B006
    quota: Texts = [],  # noqa: B006
    cadence: Text = "",
    weekday: Text = "0",
    hour: Text = "",
    zone: Text = "",
    min_papers: Text = "",
    max_papers: Text = "",
    when_empty: Text = "",
    max_trending: Text = "",
    muted: Text = "",
    paper_updates: Texts = [],  # noqa: B006
    had: Texts = [],  # noqa: B006
    seen: Texts = [],  # noqa: B006
) -> PreferencesForm:
    """Return a submitted preferences form."""
    rows, muted = interest_rows(interest, weight, quota), non_empty_lines(muted)
    chosen = (cadence, weekday, hour, zone, min_papers, max_papers, when_empty, max_trending, muted)
    # A box that is not checked sends nothing, so a hidden field before it says "no".
    wants_updates = paper_updates[-1:] != ["no"]
    return PreferencesForm(
        "", rows, *chosen, paper_updates=wants_updates, original_texts=tuple(had),
        versions=form_versions.parse(seen), max_interests=application(request).settings.max_interests,
    )  # fmt: skip


def filled_form(chosen: Preferences, max_interests: int) -> PreferencesForm:
    """Return the form that shows stored preferences.

    The form has room for more than `max_interests` if an operator gave the subscriber more.
    """
    rows = (
        InterestInput(interest.text, f"{interest.weight:g}", str(interest.quota or ""))
        for interest in chosen.interests
    )
    numbers: dict[str, Any] = {name: str(getattr(chosen, name)) for name in _NUMBERS}
    form = PreferencesForm(
        rows=tuple(rows),
        cadence=chosen.cadence,
        zone=chosen.zone,
        when_empty=chosen.when_empty,
        muted="\n".join(chosen.muted),
        paper_updates=chosen.paper_updates,
        original_texts=(*(interest.text for interest in chosen.interests), *chosen.muted),
        max_interests=max(max_interests, len(chosen.interests)),
        **numbers,
    )
    return replace(form, versions=form_versions.versions_of(form.values))


def sign_up_fields(form: PreferencesForm) -> list[tuple[str, str]]:
    """Return the names and typed values of a sign-up form's fields, for submitting the form again."""
    rows = [("interest", row.text) for row in form.rows]
    single = ("email", "confirmed_email", "cadence", "weekday", "hour", "zone", "liked")
    return [*rows, *((name, getattr(form, name)) for name in single)]


def interest_rows(
    texts: Sequence[str], weights: Sequence[str] = (), quotas: Sequence[str] = ()
) -> tuple[InterestInput, ...]:
    """Combine the columns of the interests table into rows, and leave out empty rows."""
    lines = zip_longest(texts, weights[: len(texts)], quotas[: len(texts)])
    typed = islice((line for line in lines if line[0].strip()), MAX_LINES)
    return tuple(
        InterestInput(text[:MAX_LINE_CHARS], weight or "1", quota or "") for text, weight, quota in typed
    )


def non_empty_lines(text: str) -> str:
    """Remove empty lines. Truncate the text to MAX_LINES lines of at most MAX_LINE_CHARS."""
    non_empty = (line.strip()[:MAX_LINE_CHARS] for line in text.splitlines() if line.strip())
    return "\n".join(islice(non_empty, MAX_LINES))


def add_interest(form: PreferencesForm, text: str) -> PreferencesForm:
    """Add an interest to a form, unless the form already contains it or is full."""
    rows = interest_rows([text])
    if len(form.rows) >= form.max_interests or any(row.text == text for row in form.rows):
        return form
    return replace(form, rows=(*form.rows, *rows))


def split_interest(form: PreferencesForm, text: str) -> PreferencesForm:
    """Split an interest that looks like several, if the form has room for the parts."""
    text = query_language.normalize(text[:MAX_INTEREST_CHARS])
    pieces = query_rewriting.split_suggestion(text)
    lines = [query_language.normalize(row.text) for row in form.rows[: form.max_interests]]
    if not pieces or text not in lines or len(form.rows) - 1 + len(pieces) > form.max_interests:
        return form
    at = lines.index(text)
    parts = (replace(form.rows[at], text=piece) for piece in pieces)
    return replace(form, rows=(*form.rows[:at], *parts, *form.rows[at + 1 :]))


def replace_interest(form: PreferencesForm, change: str) -> PreferencesForm:
    """Replace an interest with a suggestion. `change` is the old and the new text, separated by a tab."""
    old, _, new = (query_language.normalize(text) for text in change[:MAX_LINE_CHARS].partition("\t"))
    rows = tuple(
        replace(row, text=new) if new and query_language.normalize(row.text) == old else row
        for row in form.rows
    )
    return replace(form, rows=rows)


def validated(form: PreferencesForm) -> PreferencesForm:
    """Return a form with the errors in the fields that determine its preview."""
    problems = subscribers.problems(form.to_preferences(), form.max_interests, form.original_texts)
    previewed = ("interests", *_CONTENT_FIELDS)
    return replace(
        form, problems={name: text for name, text in problems.items() if name.startswith(previewed)}
    )


def problems_of(field: str, check: Callable[[str], object], text: str) -> dict[str, str]:
    """Return the error that `check` raises for a field's text, keyed by field name."""
    try:
        check(text)
    except InvalidInput as error:
        return {field: str(error)}
    return {}


def email_problems(form: PreferencesForm) -> dict[str, str]:
    """Return the error in a form's address, or the question whether it is mistyped, keyed by field name."""
    if form.suggested_email:
        return {"email": f"Did you mean {form.suggested_email}? If not, send the form again."}
    return problems_of("email", subscribers.normalize_address, form.email)


@lru_cache(maxsize=1)
def zones() -> list[tuple[str, list[str]]]:
    """Return the current names of the available time zones, grouped by region."""
    regions = groupby(dates.current_zones(), lambda name: name.split("/")[0])
    return [(region, list(names)) for region, names in regions]


def _choice(kind: type[Choice], text: str) -> Choice:
    """Return the member whose value is the text, or the first member if there is none."""
    return kind(text) if text in list(kind) else next(iter(kind))


def _number(text: str) -> int:
    return (
        int(text) if text.strip().isascii() and text.strip().isdigit() and len(text) < 5 else _INVALID_NUMBER
    )
