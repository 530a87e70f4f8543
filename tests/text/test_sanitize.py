"""Test how texts of sources are cleaned for display."""

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.text import dates, identifiers, sanitize


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("a  b\n c\t", "a b c"),
        (r"gains 25\% over $\pi_0$", "gains 25% over π₀"),
        ("gains 25% and costs $5 to $10", "gains 25% and costs $5 to $10"),
        (r"256$\times$256", "256×256"),
        ("256$×$256", "256×256"),
        (r"see \href{https://a.test/x_y}{the code}, \texttt{pigeon}", "see the code, pigeon"),
        (r"Paulo Andr\'e", "Paulo André"),
        (r"a cost of \$5 and 3% of it", "a cost of $5 and 3% of it"),
        ("keep <think> and x < y", "keep <think> and x < y"),
        (
            "Schro\u0308dinger by Garci\u0301a",
            "Schrödinger by García",
        ),  # combining accents, as some keyboards write
        ("trans\u00adformers", "transformers"),  # a place for a line break
        (
            "Eﬃcient ﬁne-tuning of diﬀusion ﬂows",
            "Efficient fine-tuning of diffusion flows",
        ),  # from a PDF file
        ("$OneMillion-Bench is no mathematics", "$OneMillion-Bench is no mathematics"),
    ],
)
def test_only_latex_is_converted(raw: str, expected: str) -> None:
    """Money, markup and a lone backslash are not LaTeX."""
    assert sanitize.clean_text(raw) == expected


@given(st.text() | st.binary() | st.none() | st.integers() | st.floats() | st.lists(st.text()))
def test_any_value_gives_clean_text(value: object) -> None:
    """Any value gives clean text or an empty one."""
    for function in (
        sanitize.title,
        sanitize.clean_text,
        sanitize.url,
        identifiers.doi,
        dates.day,
        dates.utc_day,
        sanitize.non_negative_int,
    ):
        function(value)
    sanitize.names(value)
    sanitize.organization_names(value)
    identifiers.arxiv_id(value)
    assert "\x00" not in sanitize.title(value)


@given(st.text(alphabet="\\${}^_%&ab 1", max_size=60))
def test_any_latex_can_be_converted(text: str) -> None:
    """If the LaTeX parser fails, the text stays as it is."""
    sanitize.clean_text(text)


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ({"fullname": "AI at Meta", "name": "facebook"}, ("AI at Meta", "facebook")),
        ({"fullname": "ByteDance Seed", "name": "ByteDance-Seed"}, ("ByteDance Seed",)),
        ({"fullname": "  shanghai\u202e\n ailab ", "name": None}, ("shanghai ailab",)),
        ({"name": "allenai"}, ("allenai",)),
        ({"fullname": "🤗", "name": "…"}, ()),
        ({"fullname": ["Ai2"], "name": 2}, ()),
        ({"fullname": "x" * 1_000}, ("x" * sanitize.NAME_CHARS,)),
        ("MMLab@NTU", ("MMLab@NTU",)),
        (["NVIDIA"], ()),
        (None, ()),
    ],
)
def test_organization_names(value: object, names: tuple[str, ...]) -> None:
    """They are short clean lines with letters. A short name that repeats the full one is left out."""
    assert sanitize.organization_names(value) == names


@pytest.mark.parametrize(
    ("value", "arxiv_id", "version"),
    [
        ("2611.00001", "2611.00001", 0),
        ("2611.00001v12", "2611.00001", 12),
        ("1412.6980v9", "1412.6980", 9),
        ("https://arxiv.org/pdf/2611.00001v2.pdf", "2611.00001", 2),
        ("arXiv:2611.00001v1 [cs.AI]", "2611.00001", 1),
        ("http://arxiv.org/abs/astro-ph/0601001v1", "astro-ph/0601001", 1),
        ("math.GT/0309136", "math.GT/0309136", 0),
        ("https://birds.test/2611.00001", "", 0),
        ("version 2611.00001 of the plan", "", 0),
        ("12345", "", 0),
    ],
)
def test_arxiv_ids(value: str, arxiv_id: str, version: int) -> None:
    """They are found in ids and URLs of arXiv only."""
    assert identifiers.arxiv_id(value) == (arxiv_id, version)


@pytest.mark.parametrize(
    "value", ["javascript:alert(1)", "ftp://a.test", "https://a b", 'https://a"b', "https:///x", "//a.test"]
)
def test_unsafe_urls_are_dropped(value: str) -> None:
    """An email would show it as a link."""
    assert sanitize.url(value) == ""


@pytest.mark.parametrize("value", ["https://arxiv.org@a.test/abs/1", "HTTP://u:p@a.test", "//u@a.test/x"])
def test_urls_with_a_user_name_are_dropped(value: str) -> None:
    """They look as if they led to another host."""
    assert sanitize.url(value) == sanitize.url(value, "https://b.test/feed") == ""


@pytest.mark.parametrize("value", ["https://a.test", "https://a.test/@alice", "http://a.test:80?to=b@c.test"])
def test_urls_may_contain_an_at_sign_after_the_host(value: str) -> None:
    assert sanitize.url(value) == value


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("Pat O'Brien <o'brien@example.org>", "o'brien@example.org"),
        ("the user 'alice@example.org' is unknown", "alice@example.org"),
        ("to=alice@example.org", "alice@example.org"),
        ('"alice"@example.org', '"alice"@example.org'),
        ("'@example.org", ""),
    ],
)
def test_addresses_are_redacted(text: str, address: str) -> None:
    """An apostrophe belongs to an address, a quote before it does not."""
    assert sanitize.redact_addresses(text) == (text.replace(address, "…") if address else text)


def test_days() -> None:
    """Days that do not exist are rejected."""
    assert dates.day("2026-02-30") is None
    assert dates.day("2026-11-20T23:59:59.000Z") == date(2026, 11, 20)
    assert dates.utc_day("2026-11-20T23:59:59-05:00") == date(2026, 11, 21)
    assert dates.day_in("hf-2026-11-20-evening.json") == date(2026, 11, 20)
    assert dates.day_in("page-12026-11-200.json") is None


@pytest.mark.parametrize(
    ("value", "count"),
    [(3, 3), (3.0, 3), (True, None), (-1, None), ("3", None), (10**12, None), (None, None)],
)
def test_counts(value: object, count: int | None) -> None:
    """A count is an integer that fits the column."""
    assert sanitize.non_negative_int(value) == count


def test_nan_is_not_a_count() -> None:
    """Some producers of JSON write NaN and Infinity."""
    assert sanitize.non_negative_int(float("nan")) is None
    assert sanitize.non_negative_int(float("inf")) is None
