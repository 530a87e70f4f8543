"""Test how the authors of a paper are shown."""

import pytest

from app.papers import bylines


@pytest.mark.parametrize(
    ("authors", "count", "short"),
    [
        ((), 0, ""),
        ((), 3, "3 authors"),
        (("Ana Lima",), 1, "Ana Lima"),
        (("Ana Lima", "Jonas Weber"), 2, "Ana Lima, Jonas Weber"),
        (("Ana Lima", "Jonas Weber"), 9, "Ana Lima +8"),
        (("Ana Lima", "Jonas Weber", "Wei Zhang"), 0, "Ana Lima +2"),
        (("נועה כהן",), 1, "נועה כהן"),
        (("נועה כהן",), 3, "נועה כהן \u200e+2"),
    ],
)
def test_short_byline(authors: tuple[str, ...], count: int, short: str) -> None:
    """Two authors are named. Of more, the first one is. The number stays behind right-to-left names."""
    assert bylines.short_byline(authors, count) == short


@pytest.mark.parametrize(
    ("authors", "count", "byline"),
    [
        (["Ada"], 1, "Ada"),
        (["Ada", "Grace"], 2, "Ada and Grace"),
        (["Ada", "Grace", "Alan"], 3, "Ada, Grace and Alan"),
        (["Ada", "Grace", "Alan", "Ken"], 664, "Ada, Grace, Alan and 661 more"),
        ([], 4, "4 authors"),
        ([], 0, ""),
    ],
)
def test_byline_has_three_names_and_a_count(authors: list[str], count: int, byline: str) -> None:
    assert bylines.byline(authors, count) == byline
