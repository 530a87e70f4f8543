"""Test the operator's pages of papers, the trial of a source, and a source's page."""

import html
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import date

import httpx
import pytest
from sqlmodel import col, select

from app import clock, pipeline
from app.application import Application
from app.papers import poll_history, withdrawals
from app.papers.sources.http_client import HttpTransport
from app.storage.api_keys import Scope
from app.storage.models import AuditEntry, Paper, Source
from app.types import IngestSummary, PaperRecord, Rejection, SourceKind
from tests.papers.sources import responses
from tests.support import factories
from tests.web.admin.conftest import Desk

AGENTS, VIDEO = "Language Agents that Plan", "Video Diffusion in Real Time"
FIELDS = ("abstract", "tldr", "authors", "published_on", "url", "pdf_url", "code_url", "project_url")


@pytest.fixture
def papers(app: Application) -> list[int]:
    """Add two papers of today, one of them on arXiv, and Alice, who is sent the first."""
    now = clock.utcnow()
    with app.db.write() as session:
        source = factories.add_source(session, now)
        factories.add_subscriber(session, "alice@example.org", ["language agents"], now)
        return [
            factories.add_paper(
                session, source, title, now.date(), now, abstract=f"{title}, at last.", arxiv_id=arxiv_id
            )
            for title, arxiv_id in ((AGENTS, "2611.00001"), (VIDEO, None))
        ]


def changes(app: Application) -> list[str]:
    with app.db.read() as session:
        return list(session.exec(select(AuditEntry.action).order_by(col(AuditEntry.id))))


def test_search(app: Application, sign_in: Callable[..., Desk], papers: list[int]) -> None:
    """By words or id, also hidden papers, which are marked."""
    desk = sign_in()
    desk.post(f"/admin/papers/{papers[0]}/hide", reason="spam")
    page = desk.get("/admin/papers?q=plan+agents").text
    assert (AGENTS in page, VIDEO in page, "<strong>hidden</strong>" in page) == (True, False, True)
    assert VIDEO not in desk.get("/admin/papers?state=hidden").text
    assert "No papers match." in desk.get("/admin/papers?state=pinned").text
    for reference in ("2611.00001", "https://arxiv.org/abs/2611.00001v2"):
        answer = desk.get(f"/admin/papers?q={reference}")
        assert answer.headers["location"] == f"/admin/papers/{papers[0]}"
    assert "There is no paper 2611.00009" in desk.get("/admin/papers?q=2611.00009").text


def test_page_lists_digests_with_the_paper(
    app: Application, sign_in: Callable[..., Desk], papers: list[int]
) -> None:
    """They may not have been sent yet, so the page does not say that their subscribers received it."""
    pipeline.plan(app, clock.utcnow())
    page = html.unescape(sign_in().get(f"/admin/papers/{papers[0]}").text)
    assert "Digests with this paper</h2>" in page
    assert "<p>1 pending.</p>" in page
    assert f'/admin/subscribers/1?paper={papers[0]}#explain">alice@example.org: explain</a>' in page
    assert "2611.00001" in page
    assert "This paper has not been in any digest." in sign_in().get(f"/admin/papers/{papers[1]}").text
    assert sign_in().get("/admin/papers/99").status_code == 404


@pytest.mark.parametrize(
    ("authors", "count", "line"),
    [
        ([], 0, "–"),
        ([], 3, "3 authors"),
        (["Mei", "Bo"], 2, "Mei, Bo"),
        (["Mei", "Bo"], 5, "Mei, Bo and 3 more"),
        (["Mei"] * 30, 30, ", ".join(["Mei"] * 20) + " and 10 more"),
    ],
)
def test_page_counts_unnamed_authors(
    app: Application,
    sign_in: Callable[..., Desk],
    papers: list[int],
    authors: list[str],
    count: int,
    line: str,
) -> None:
    with app.db.write() as session:
        row = session.get_one(Paper, papers[0])
        row.authors, row.author_count = authors, count
    page = sign_in().get(f"/admin/papers/{papers[0]}").text
    assert f"<dt>Authors</dt><dd>{line}</dd>" in re.sub("</?bdi>", "", page)


def test_edit_changes_only_what_was_changed(
    app: Application, sign_in: Callable[..., Desk], papers: list[int]
) -> None:
    """A form with a problem keeps what was typed."""
    desk, at = sign_in(), f"/admin/papers/{papers[0]}"
    with app.db.read() as session:
        row = session.get_one(Paper, papers[0])
    form = {
        **dict.fromkeys(FIELDS, ""),
        "abstract": row.abstract,
        "title": "Agents",
        "authors": "Mei\r\n\r\nBo ",
    }
    form |= {"url": "https://arxiv.org/abs/2611.00001", "pdf_url": "https://arxiv.org/pdf/2611.00001"}
    assert desk.post(at, **form).headers["location"] == f"{at}?done=edited"
    with app.db.read() as session:
        row = session.get_one(Paper, papers[0])
    assert (row.title, row.authors, sorted(row.sourced or {})) == (
        "Agents",
        ["Mei", "Bo"],
        ["author_count", "authors", "title"],
    )
    refused = desk.post(at, **{**form, "title": "Typed", "code_url": "ftp://example.org"})
    assert refused.status_code == 422
    assert 'value="Typed"' in refused.text
    desk.post(at, **form, reset="title")
    with app.db.read() as session:
        assert session.get_one(Paper, papers[0]).title == AGENTS
    assert changes(app) == ["paper.edit", "paper.edit"]


@pytest.mark.once
def test_file_in_place_of_a_text(app: Application, sign_in: Callable[..., Desk], papers: list[int]) -> None:
    desk = sign_in()
    form, files = {"form_token": desk.form_token}, {"title": ("title.txt", b"Agents")}
    assert desk.browser.post(f"/admin/papers/{papers[0]}", data=form, files=files).status_code == 422
    with app.db.read() as session:
        assert session.get_one(Paper, papers[0]).title == AGENTS


def test_field_that_a_poll_changed_is_not_edited(
    app: Application, sign_in: Callable[..., Desk], papers: list[int]
) -> None:
    """The page showed the old abstract, and the operator changed only the title, at the second attempt."""
    desk, at = sign_in(), f"/admin/papers/{papers[0]}"
    shown = desk.get(at).text
    form = {
        **dict.fromkeys(FIELDS, ""),
        "title": "Agents",
        "abstract": f"{AGENTS}, at last.",
        "url": "https://arxiv.org/abs/2611.00001",
        "pdf_url": "https://arxiv.org/pdf/2611.00001",
    }
    with app.db.write() as session:
        row = session.get_one(Paper, papers[0])
        form["authors"] = "\r\n".join(row.authors)
        form["published_on"] = str(row.published_on or "")
        row.abstract = "A newer abstract."
    for code_url, status in (("ftp://example.org", 422), ("", 303)):
        (seen,) = re.findall('name="seen" value="([^"]*)"', shown)
        assert len(seen.split()) == len(FIELDS) + 1
        data = {"form_token": desk.form_token, **form, "code_url": code_url, "seen": seen}
        answer = desk.browser.post(at, data=data, follow_redirects=False)
        assert answer.status_code == status
        shown = answer.text
    with app.db.read() as session:
        row = session.get_one(Paper, papers[0])
    assert (row.title, row.abstract, [*(row.sourced or {})]) == ("Agents", "A newer abstract.", ["title"])


def test_field_that_another_operator_edited(
    app: Application, sign_in: Callable[..., Desk], papers: list[int]
) -> None:
    """It is overwritten only if the form is saved again."""
    desk, at = sign_in(), f"/admin/papers/{papers[0]}"
    seen = re.findall('name="seen" value="([^"]*)"', desk.get(at).text)
    with app.db.read() as session:
        row = session.get_one(Paper, papers[0])
    form = {
        **dict.fromkeys(FIELDS, ""), "title": row.title, "abstract": row.abstract, "url": row.url,
        "pdf_url": row.pdf_url, "authors": "\n".join(row.authors),
        "published_on": str(row.published_on or ""),
    }  # fmt: skip
    assert desk.post(at, **form | {"title": "Theirs"}, seen=seen).status_code == 303
    refused = desk.post(at, **form | {"title": "Ours"}, seen=seen)
    assert (refused.status_code, 'value="Ours"' in refused.text) == (422, True)
    assert "since the page was shown: title." in refused.text
    with app.db.read() as session:
        assert session.get_one(Paper, papers[0]).title == "Theirs"
    seen = re.findall('name="seen" value="([^"]*)"', refused.text)
    assert desk.post(at, **form | {"title": "Ours"}, seen=seen).status_code == 303


def test_hide_pin_merge_and_split(app: Application, sign_in: Callable[..., Desk], papers: list[int]) -> None:
    """A refusal is explained on the paper's page."""
    desk, one, two = sign_in(), *(f"/admin/papers/{number}" for number in papers)
    for path, done in (("pin", "pinned"), ("unpin", "unpinned"), ("hide", "hidden"), ("show", "shown")):
        assert desk.post(f"{two}/{path}").headers["location"] == f"{two}?done={done}"
    refused = desk.post(f"{two}/show")
    assert (refused.status_code, "The paper is not hidden." in refused.text) == (409, True)
    assert "The paper with an arXiv ID keeps its ID" in desk.get(two).text
    assert "is not the ID" in html.unescape(desk.post(f"{two}/merge", other="nothing").text)
    assert desk.post(f"{two}/merge", other="2611.00001").headers["location"] == f"{one}?done=merged"
    assert "Split off" in desk.get(one).text
    assert desk.post(f"{one}/split", row_id=str(papers[1])).headers["location"] == f"{two}?done=split"
    assert desk.post(f"{one}/split").status_code == 409
    assert changes(app) == [f"paper.{name}" for name in ("pin", "unpin", "hide", "show", "merge", "split")]


def test_withdrawn_paper_is_reinstated(
    app: Application, sign_in: Callable[..., Desk], papers: list[int]
) -> None:
    """The button is shown only for a withdrawn paper. A later poll does not withdraw the paper again."""
    desk, at = sign_in(), f"/admin/papers/{papers[0]}"
    assert "/reinstate" not in desk.get(at).text
    assert desk.post(f"{at}/reinstate").status_code == 409
    with app.db.write() as session:
        session.get_one(Paper, papers[0]).withdrawn_at = clock.utcnow()
    assert f'action="{at}/reinstate"' in desk.get(at).text
    assert "<strong>withdrawn</strong>" in desk.get("/admin/papers").text
    assert desk.post(f"{at}/reinstate").headers["location"] == f"{at}?done=reinstated"
    assert changes(app) == ["paper.reinstate"]
    with app.db.write() as session:
        row = session.get_one(Paper, papers[0])
        assert row.withdrawn_at is None
        stated = PaperRecord(row.title, arxiv_id=row.arxiv_id or "", withdrawn=True, as_of=date(2027, 1, 1))
        assert not withdrawals.update(row, stated, SourceKind.ARXIV, clock.utcnow())
        assert row.withdrawn_at is None


def test_merge_is_previewed(app: Application, sign_in: Callable[..., Desk], papers: list[int]) -> None:
    """The page compares both papers and says which one is kept. Nothing changes before it is confirmed."""
    desk, one, two = sign_in(), *(f"/admin/papers/{number}" for number in papers)
    assert f'action="{two}/merge"' in desk.get(two).text
    shown = desk.get(f"{two}/merge?other=2611.00001").text
    assert f"Paper {papers[0]} is kept. Paper {papers[1]} becomes part of it." in shown
    assert shown.index(AGENTS) < shown.index(VIDEO)
    assert shown.count(">Hugging Face Daily Papers<") == 2
    assert (f'action="{one}/merge"' in shown, "will be hidden" in shown) == (True, False)
    assert changes(app) == []
    assert desk.post(f"{one}/merge", other=str(papers[1])).headers["location"] == f"{one}?done=merged"
    assert "<button" not in sign_in(Scope.READ).get(f"{two}/merge?other=1").text.partition("<main")[2]


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ("nothing", "“nothing” is not the ID, arXiv ID, DOI or URL of a paper"),
        ("99", "There is no paper 99"),
        ("2611.00009", "There is no paper 2611.00009 in the archive"),
        ("https://arxiv.org/abs/2611.00001", "both are already the same paper"),
    ],
)
def test_no_preview_without_another_paper(
    sign_in: Callable[..., Desk], papers: list[int], other: str, reason: str
) -> None:
    """The page of the paper explains the refusal, and its form keeps the identifier."""
    refused = sign_in().get(f"/admin/papers/{papers[0]}/merge?other={other}")
    assert (refused.status_code, reason in html.unescape(refused.text)) == (409, True)
    assert f'name="other" value="{other}"' in refused.text


def test_preview_of_a_merge_with_a_hidden_paper(sign_in: Callable[..., Desk], papers: list[int]) -> None:
    desk = sign_in()
    desk.post(f"/admin/papers/{papers[1]}/hide")
    shown = desk.get(f"/admin/papers/{papers[0]}/merge?other={papers[1]}").text
    assert "One of the papers is hidden, so the merged paper will be hidden." in shown
    assert desk.get("/admin/papers/99/merge?other=1").status_code == 404


def test_changes_need_the_scope_and_the_form(
    app: Application, sign_in: Callable[..., Desk], papers: list[int]
) -> None:
    reader, writer = sign_in(Scope.READ), sign_in()
    for path in ("", "/hide", "/show", "/reinstate", "/pin", "/unpin", "/merge", "/split"):
        assert reader.post(f"/admin/papers/{papers[0]}{path}", title="x").status_code == 403
        assert writer.post(f"/admin/papers/{papers[0]}{path}", form_token="x").status_code == 403
    page = reader.get(f"/admin/papers/{papers[0]}").text
    assert "<button" not in page[page.index("<main") :]
    assert changes(app) == []


async def _resolve(host: str, port: int) -> list[str]:
    return ["93.184.215.14"]


async def _no_sleep(_seconds: float) -> None:
    """Return immediately instead of sleeping."""


def test_source_can_be_tried(app: Application, sign_in: Callable[..., Desk]) -> None:
    """The form keeps its values, and nothing is stored."""
    desk = sign_in()
    upstream = httpx.MockTransport(lambda _request: httpx.Response(200, text=responses.RSS))
    desk.browser.app.state.paperboy = replace(app, http=HttpTransport(upstream, _no_sleep, _resolve))  # type: ignore[attr-defined]
    form = {"name": "Lab", "kind": "feed", "address": "https://lab.example/feed.xml"}
    page = html.unescape(desk.post("/admin/sources", **form, action="try").text)
    assert "2 new papers, 0 already in the archive, 1 row skipped. Nothing was stored." in page
    assert "Pigeons That Plan" in page
    assert "the entry has no title" in page
    assert 'value="Lab"' in page
    assert 'value="https://lab.example/feed.xml"' in page
    refused = desk.post("/admin/sources", **{**form, "address": "file:///etc/passwd"}, action="try")
    assert refused.status_code == 422
    assert sign_in(Scope.READ).post("/admin/sources", **form, action="try").status_code == 403
    with app.db.read() as session:
        assert session.exec(select(Source.id)).first() is None
        assert session.exec(select(Paper.id)).first() is None
    assert changes(app) == []


def test_page_of_a_source_shows_its_polls(
    app: Application, sign_in: Callable[..., Desk], papers: list[int]
) -> None:
    """Counts, the first skipped row, and errors."""
    now = clock.utcnow()
    with app.db.write() as session:
        source = session.exec(select(Source)).one()
        rejected = IngestSummary(rows=3, papers_new=2, rejections=(Rejection("no title", 3, "a row"),))
        poll_history.record(session, source, now, now, rejected, "")
        poll_history.record(session, source, now, now, IngestSummary(), "HTTP 503")
    page = sign_in().get(f"/admin/sources/{source.id}").text
    assert "3 rows, 2 papers new, 1 rejected" in page
    assert "no title: a row" in page
    assert "HTTP 503" in page
    assert sign_in().get("/admin/sources/99").status_code == 404
