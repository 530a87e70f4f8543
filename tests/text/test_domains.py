"""Test showing addresses to their owners."""

import pytest

from app.text import domains


@pytest.mark.parametrize(
    ("address", "readable"),
    [
        ("alice@example.org", "alice@example.org"),
        ("новый@xn--r8jz45g.jp", "новый@例え.jp"),
        ("н…@xn--r8jz45g.jp", "н…@例え.jp"),
        ("xn--a@example.org", "xn--a@example.org"),
        ("bob@xn--a.example.org", "bob@xn--a.example.org"),
        ("bob@xn--mgbn2ecje63gr19l.org", "bob@xn--mgbn2ecje63gr19l.org"),  # has an invisible character
        ("erased-1@erased.invalid", "erased-1@erased.invalid"),
    ],
)
def test_readable_address(address: str, readable: str) -> None:
    """A domain is in Unicode, as its owner typed it. One that is invalid or unsafe stays as it is."""
    assert domains.readable_address(address) == readable
