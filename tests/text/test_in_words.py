"""Test counts and messages in words."""

from datetime import date
from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from app.settings import check_database_url
from app.text import in_words

pytestmark = pytest.mark.once


@pytest.mark.parametrize(
    ("number", "words"), [(0, "0 papers"), (1, "1 paper"), (2, "2 papers"), (12345, "12,345 papers")]
)
def test_count_of(number: int, words: str) -> None:
    assert in_words.count_of(number, "paper") == words


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "0"),
        (999, "999"),
        (1000, "1.0k"),
        (2207, "2.2k"),
        (9949, "9.9k"),
        (9950, "10k"),
        (99_999, "100k"),
        (123_456, "123k"),
        (999_499, "999k"),
        (999_500, "1.0M"),
        (12_345_678, "12M"),
    ],
)
def test_short_count(number: int, words: str) -> None:
    """It has at most four characters, and no unit has a number of four digits."""
    assert in_words.short_count(number) == words


@pytest.mark.parametrize(
    ("count", "considered", "trending", "words"),
    [
        (7, 40, 2, "7 of 40 recent papers (5 matching, 2 trending)"),
        (5, 40, 0, "5 of 40 recent papers"),
        (2, 40, 2, "2 of 40 recent papers (none matching, 2 trending)"),
        (3, 3, 1, "3 papers (2 matching, 1 trending)"),
        (1, 0, 0, "1 paper"),
    ],
)
def test_count_of_recent(count: int, considered: int, trending: int, words: str) -> None:
    """Trending papers, which match no interest, are counted separately."""
    assert in_words.count_of_recent(count, considered, trending) == words


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({"rows": 1, "papers_new": 1, "rejected": 0}, "1 row, 1 paper new"),
        ({"deliveries": 1, "cards_left_out": 1}, "1 delivery, 1 card left out"),
        ({"listings": 2, "deliveries": 1234, "sent": 1}, "2 listings, 1,234 deliveries, 1 sent"),
        ({"addresses": 1, "processes": 1}, "1 address, 1 process"),
        ({"unread_addresses": 2, "queries": 1}, "2 unread addresses, 1 query"),
        ({"address": 1, "process": 1}, "1 address, 1 process"),
        ({}, ""),
    ],
)
def test_format_counts(counts: dict[str, int], words: str) -> None:
    assert in_words.format_counts(counts) == words


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("the paper is not hidden", "The paper is not hidden."),
        ("Digests are paused.", "Digests are paused."),
        ("arXiv is being polled", "arXiv is being polled."),
        ("consent_at is in the future", "consent_at is in the future."),
        ("alice@example.org is suppressed", "alice@example.org is suppressed."),
        ("“x” is read from files, not polled", "“x” is read from files, not polled."),
    ],
)
def test_sentence(error: str, words: str) -> None:
    assert in_words.sentence(error) == words


class Example(BaseModel):
    """A model with the kinds of fields that requests and settings have."""

    model_config = ConfigDict(extra="forbid")

    count: int = Field(default=1, ge=1, le=23)
    share: float = Field(default=0.5, lt=1)
    active: bool = True
    text: str = Field(default="a", min_length=1, pattern="^a?$")
    names: list[str] = Field(default=["a"], min_length=1, max_length=2)
    day: date | None = None
    at: AwareDatetime | None = None
    nested: dict[str, int] | None = None
    unit: Literal["day", "week"] = "day"
    url: Annotated[str, AfterValidator(check_database_url)] = ""


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"count": "x"}, "this must be a whole number"),
        ({"count": 1.5}, "this must be a whole number"),
        ({"count": "9" * 5000}, "this has too many digits"),
        ({"count": 0}, "this must be at least 1"),
        ({"count": 24}, "this must be at most 23"),
        ({"share": "x"}, "this must be a number"),
        ({"share": 1}, "this must be less than 1"),
        ({"active": "x"}, "this must be true or false"),
        ({"text": 1}, "this must be text"),
        ({"text": ""}, "this must have at least 1 character"),
        ({"text": "b"}, "this must match the regular expression ^a?$"),
        ({"names": "a"}, "this must be a list"),
        ({"names": []}, "this has too few items: the minimum is 1"),
        ({"names": ["a", "b", "c"]}, "this has too many items: the maximum is 2"),
        ({"day": "2026-13-01"}, "this must be a day such as 2026-11-20"),
        ({"at": "x"}, "this must be a time such as 2026-11-20T08:00:00Z"),
        ({"at": "2026-11-20T08:00:00"}, "this must be a time such as 2026-11-20T08:00:00Z"),
        ({"nested": []}, "this must be an object"),
        ({"unit": "x"}, "this must be 'day' or 'week'"),
        ({"url": "x"}, "this must begin with sqlite:/// or postgresql+psycopg://"),
        ({"other": 1}, "this is not a known field"),
    ],
)
def test_describe_invalid(values: dict[str, Any], words: str) -> None:
    """Settings have no subject, because the name of the setting stands before the message."""
    with pytest.raises(ValidationError) as refused:
        Example(**values)
    [error] = refused.value.errors()
    assert in_words.describe_invalid(error, "this") == words
    assert in_words.describe_invalid(error) == words.removeprefix("this ")


def test_describe_invalid_leaves_sentences() -> None:
    error = {"type": "value_error", "msg": "Value error, “Input should rest” is not a name"}
    assert in_words.describe_invalid(error, "this") == "“Input should rest” is not a name"
