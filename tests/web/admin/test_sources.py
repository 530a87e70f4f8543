"""Test the form that adds a source: it shows each error at its field, and keeps what was typed."""

import re
from collections.abc import Callable

import pytest

from app import clock
from app.application import Application
from app.papers import source_registry
from app.types import SourceKind
from tests.web.admin.conftest import Desk


@pytest.mark.parametrize(
    ("name", "kind", "address", "field", "problem"),
    [
        ("Our lab", "feed", "www.example.org/papers", "address", "A feed needs a URL that begins with http"),
        ("Our lab", "arxiv_feed", "", "address", "A source of this kind needs 1 to 50 arXiv categories"),
        ("", "feed", "https://example.org/papers", "name", "A source needs a name of 1 to 100"),
        ("Our lab", "nonsense", "https://example.org/papers", "kind", "Choose the kind of the source."),
    ],
)
def test_errors_are_shown_at_their_fields(
    sign_in: Callable[..., Desk], name: str, kind: str, address: str, field: str, problem: str
) -> None:
    """It is in the form, and not at the top of the page, above all sources."""
    page = sign_in().post("/admin/sources", name=name, kind=kind, address=address)
    assert page.status_code == 422
    form = page.text.partition('action="/admin/sources"')[2].partition("</form>")[0]
    assert re.search(
        f'name="{field}"[^>]* autofocus aria-invalid="true" aria-describedby="problem-{field}"', form
    )
    assert f'<p class="problem" id="problem-{field}" role="alert">{problem}' in form
    assert page.text.count('role="alert"') == 1
    assert f'value="{address}"' in form


def test_name_that_is_taken(app: Application, sign_in: Callable[..., Desk]) -> None:
    """This error is at the field, too."""
    with app.db.write() as session:
        source_registry.add(session, "lab", SourceKind.FEED, {"url": "https://a.test/"}, clock.utcnow())
    page = sign_in().post("/admin/sources", name="lab", kind="feed", address="https://b.test/")
    assert (
        '<p class="problem" id="problem-name" role="alert">A source named “lab” already exists' in page.text
    )


def test_second_source_of_hugging_face(app: Application, sign_in: Callable[..., Desk]) -> None:
    """Another name would not help, so the error is at the kind."""
    with app.db.write() as session:
        source_registry.add(session, "daily", SourceKind.HUGGINGFACE, {}, clock.utcnow())
    page = sign_in().post("/admin/sources", name="other", kind="huggingface")
    assert '<p class="problem" id="problem-kind" role="alert">This source already exists as' in page.text


def test_second_source_of_a_feed(app: Application, sign_in: Callable[..., Desk]) -> None:
    """The error is at the address, and names the source that reads it."""
    with app.db.write() as session:
        source_registry.add(session, "lab", SourceKind.FEED, {"url": "https://a.test/rss"}, clock.utcnow())
    page = sign_in().post("/admin/sources", name="other", kind="feed", address="http://A.test/rss/")
    problem = '<p class="problem" id="problem-address" role="alert">This source already exists as “lab”'
    assert problem in page.text
