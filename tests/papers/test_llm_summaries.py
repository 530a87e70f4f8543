"""Test summaries by a language model: they name the model, and errors delay no mail."""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler

import httpx
import pytest
from fastapi.testclient import TestClient
from sqlmodel import col, select

from app import main, pipeline
from app.application import Application
from app.errors import UnreadableResponse
from app.papers import editing, llm_summaries, paper_views
from app.papers.sources.http_client import HttpTransport
from app.storage import locks
from app.storage.models import Delivery, GeneratedSummary, JobRun, Paper
from app.subscribers import Preferences
from app.types import PaperRecord, PaperView, ParseResult, Rejection
from tests.support import factories, stored_records
from tests.support.http_server import FakeHttpServer
from tests.support.local_web_server import LocalWebServer, QuietHandler

URL, MODEL, KEY = "https://model.test/v1", "small-1", "sk-very-secret"
ABSTRACT = (
    "Readers lose the middle of long documents. We introduce Bookmark, which keeps an index of all pages."
)
GIST = "We introduce Bookmark, which keeps an index of all pages."
SENTENCE = "Bookmark lets a small reader keep an index of the pages it has seen."


def chat(text: object) -> httpx.Response:
    """Return a response of a chat API."""
    return httpx.Response(200, json={"choices": [{"message": {"role": "assistant", "content": text}}]})


class Endpoint(FakeHttpServer):
    """Return a sentence for every request, unless other responses are given."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        super().__init__(*(answers or [chat(SENTENCE)]))

    def on(self, app: Application) -> Application:
        """Return the application with this endpoint in its settings."""
        fields = {"summary_url": URL, "summary_model": MODEL, "summary_key": KEY}
        wire = HttpTransport(httpx.MockTransport(self))
        return replace(app, settings=app.settings.model_copy(update=fields), http=wire)

    @property
    def titles(self) -> list[str]:
        """The titles of the papers in the requests, in their order."""
        prompts = [json.loads(request.content)["messages"][1]["content"] for request in self.requests]
        return [text.split("\n")[0].removeprefix("Title: ") for text in prompts]


def add_papers(app: Application, now: datetime, *titles: str, **fields: object) -> list[int]:
    """Add papers that were listed today, with an abstract and without a summary. Return their ids."""
    with app.db.write() as session:
        source = session.exec(select(factories.Source)).first() or factories.add_source(session, now)
        usual = {"abstract": ABSTRACT, "listed_on": now.date()} | fields
        return [factories.add_paper(session, source, title, now=now, **usual) for title in titles]


def runs(app: Application) -> list[JobRun]:
    with app.db.read() as session:
        return list(
            session.exec(select(JobRun).where(JobRun.job == llm_summaries.JOB).order_by(col(JobRun.id)))
        )


def view(app: Application, paper_id: int) -> PaperView:
    with app.db.read() as session:
        return paper_views.by_ids(session, [paper_id])[0]


def test_no_endpoint(app: Application, now: datetime) -> None:
    """The job is off by default, and no run is recorded."""
    add_papers(app, now, "Bookmark")
    assert not pipeline.summarise(app, now)
    assert runs(app) == []


def test_summary_is_generated_and_stored(app: Application, now: datetime) -> None:
    """The request has title and abstract, and the summary is stored with the model's name."""
    [number] = add_papers(app, now, "Bookmark")
    endpoint = Endpoint()
    assert pipeline.summarise(endpoint.on(app), now) == {"written": 1, "rejected": 0}
    request, body = endpoint.requests[0], json.loads(endpoint.requests[0].content)
    assert str(request.url) == f"{URL}/chat/completions"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert body["model"] == MODEL
    assert body["messages"][1]["content"] == f"Title: Bookmark\n\nAbstract: {ABSTRACT}"
    assert (view(app, number).tldr, view(app, number).tldr_by) == (SENTENCE, MODEL)


def test_changed_abstract(app: Application, now: datetime) -> None:
    """Its summary is neither shown nor kept, and the model is asked again. Other changes keep it."""
    [number] = add_papers(app, now, "Bookmark")
    endpoint = Endpoint(chat(SENTENCE), chat(f"No longer: {SENTENCE}"))
    pipeline.summarise(endpoint.on(app), now)
    with app.db.write() as session:
        editing.edit(session, session.get_one(Paper, number), {"title": "The Bookmark"}, now)
    assert view(app, number).tldr == SENTENCE
    with app.db.write() as session:
        editing.edit(session, session.get_one(Paper, number), {"abstract": f"We correct: {ABSTRACT}"}, now)
    assert view(app, number).tldr == ""
    pipeline.summarise(endpoint.on(app), now)
    assert view(app, number).tldr == f"No longer: {SENTENCE}"


def test_new_version_of_a_paper(app: Application, now: datetime) -> None:
    """A poll that changes the abstract deletes its summary."""
    [number] = add_papers(app, now, "Bookmark", arxiv_id="2611.00001")
    pipeline.summarise(Endpoint().on(app), now)
    record = PaperRecord("Bookmark", "2611.00001", abstract="We retract.", version=2, as_of=now.date())
    with app.db.write() as session:
        source = session.exec(select(factories.Source)).one()
        stored_records.store(session, source, ParseResult(1, (record,)), now)
    assert (view(app, number).abstract, view(app, number).tldr) == ("We retract.", "")


def test_abstract_changes_during_the_request(app: Application, now: datetime) -> None:
    """The summary is of the old abstract, so it is not stored."""
    [number] = add_papers(app, now, "Bookmark")

    def change_abstract(_request: httpx.Request) -> httpx.Response:
        with app.db.write() as session:
            session.get_one(Paper, number).abstract = f"We correct: {ABSTRACT}"
        return chat(SENTENCE)

    live = replace(Endpoint().on(app), http=HttpTransport(httpx.MockTransport(change_abstract)))
    assert pipeline.summarise(live, now)["written"] == 0
    assert view(app, number).tldr == ""
    with app.db.read() as session:
        assert len(llm_summaries.papers_to_summarize(session, now, 7)) == 1


def test_card_names_the_model(app: Application, now: datetime) -> None:
    """The model is named in both parts of the email and on the page of the day."""
    add_papers(app, now, "Bookmark")
    pipeline.summarise(Endpoint().on(app), now)
    mail = pipeline.render_digest(app, pipeline.preview(app, Preferences(), now)[0], "alice@example.org", now)
    assert f"{SENTENCE} (Summary by {MODEL})" in " ".join(mail.text.split())
    assert f"Summary by {MODEL}" in mail.html
    with TestClient(main.create_app(app), base_url="https://paperboy.test") as visitor:
        assert f"Summary by {MODEL}" in visitor.get(f"/day/{now.date()}").text


def test_each_paper_is_summarized_once(app: Application, now: datetime) -> None:
    """Runs without work are not recorded."""
    add_papers(app, now, "Bookmark")
    endpoint = Endpoint()
    for minutes in (0, 15, 600):
        pipeline.summarise(endpoint.on(app), now + timedelta(minutes=minutes))
    assert len(endpoint.requests) == len(runs(app)) == 1


def test_papers_to_summarize(app: Application, now: datetime) -> None:
    """Papers without an abstract, with a summary, too old, withdrawn or merged are skipped."""
    add_papers(app, now, "No abstract", abstract="")
    add_papers(app, now, "Has one", tldr="Its source's own.")
    add_papers(app, now, "Old", listed_on=now.date() - timedelta(days=app.settings.candidate_days))
    add_papers(app, now, "Withdrawn", withdrawn_at=now)
    [usable] = add_papers(app, now, "Usable")
    add_papers(app, now, "Merged", merged_into_id=usable)
    endpoint = Endpoint()
    pipeline.summarise(endpoint.on(app), now)
    assert endpoint.titles == ["Usable"]


def test_budget_prefers_papers_with_most_votes(
    app: Application, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run has the others; the number of concurrent requests is limited."""
    monkeypatch.setattr(llm_summaries, "PAPERS_PER_RUN", 6)
    for votes in range(9):
        add_papers(app, now, f"With {votes}", upvotes=votes)
    endpoint = Endpoint()
    assert pipeline.summarise(endpoint.on(app), now) == {"written": 6, "rejected": 0}
    assert endpoint.titles == [f"With {votes}" for votes in (8, 7, 6, 5, 4, 3)]
    assert 1 < endpoint.most_active <= llm_summaries.CONCURRENT_REQUESTS
    assert pipeline.summarise(endpoint.on(app), now + timedelta(minutes=15)) == {"written": 3, "rejected": 0}


def test_summary_of_the_source_takes_precedence(app: Application, now: datetime) -> None:
    """The generated summary stays if later records have none."""
    [number] = add_papers(app, now, "Bookmark", arxiv_id="2611.00001")
    pipeline.summarise(Endpoint().on(app), now)

    def again(tldr: str) -> PaperView:
        with app.db.write() as session:
            source = session.exec(select(factories.Source)).one()
            record = PaperRecord("Bookmark", "2611.00001", abstract=ABSTRACT, tldr=tldr, listed_on=now.date())
            stored_records.store(session, source, ParseResult(1, (record,)), now)
        return view(app, number)

    assert (again("").tldr, again("").tldr_by) == (SENTENCE, MODEL)
    assert (again("From the source.").tldr, view(app, number).tldr_by) == ("From the source.", "")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("", llm_summaries.WRONG_LENGTH),
        (None, llm_summaries.WRONG_LENGTH),
        ("Sorry.", llm_summaries.WRONG_LENGTH),
        ("It reads and reads. " * 40, llm_summaries.WRONG_LENGTH),
        ("<p>Bookmark lets a small reader keep an index.</p>", llm_summaries.NOT_PLAIN),
        ("Bookmark keeps an index: read more at https://evil.test/win", llm_summaries.NOT_PLAIN),
        ("[Bookmark keeps an index of all pages](//evil.test)", llm_summaries.NOT_PLAIN),
    ],
)
def test_unusable_response(app: Application, now: datetime, answer: object, reason: str) -> None:
    """The run has a rejection, the paper shows a sentence of its abstract, and is retried later."""
    [number] = add_papers(app, now, "Bookmark")
    endpoint = Endpoint(chat(answer))
    connected = endpoint.on(app)
    assert pipeline.summarise(connected, now) == {"written": 0, "rejected": 1}
    [run] = runs(app)
    assert [(rejection["reason"], rejection["origin"]) for rejection in run.rejections] == [
        (reason, "Bookmark")
    ]
    assert run.error == ""
    assert pipeline.preview(app, Preferences(), now)[0].picks[0].summary == GIST
    assert view(app, number).tldr_by == ""
    waits = [timedelta(minutes=59), timedelta(minutes=60), timedelta(minutes=299), timedelta(minutes=300)]
    requests = []
    for wait in waits:
        pipeline.summarise(connected, now + wait)
        requests.append(len(endpoint.requests))
    assert requests == [1, 2, 2, 3]


@pytest.mark.parametrize(
    "fault",
    [
        httpx.Response(429, headers={"retry-after": "60"}),
        httpx.Response(500, text=f"oops, your key was {KEY}"),
        httpx.Response(401, json={"error": {"message": "no such key"}}),
        httpx.Response(307, headers={"location": "https://evil.test/v1"}),
        httpx.Response(200, text="<html>please log in</html>"),
        httpx.Response(200, text="[" * 100_000),
        httpx.Response(200, json={"choices": []}),
        httpx.Response(200, json=["nonsense"]),
        httpx.ConnectError("nobody there"),
        httpx.ReadTimeout("too slow"),
    ],
)
def test_endpoint_error_stops_the_run(
    app: Application, now: datetime, fault: httpx.Response | Exception
) -> None:
    """The run has the error without the key; the other papers wait, and no mail does."""
    add_papers(app, now, *(f"Paper {n}" for n in range(12)))
    endpoint = Endpoint(fault)
    pipeline.summarise(endpoint.on(app), now)
    assert len(endpoint.requests) <= llm_summaries.CONCURRENT_REQUESTS
    [run] = runs(app)
    assert run.error.startswith("the endpoint: ")
    assert KEY not in run.error
    assert len(pipeline.preview(app, Preferences(), now)[0].picks) == 10


def test_mail_is_sent_while_the_endpoint_is_down(app: Application, now: datetime) -> None:
    """It shows a sentence of the abstract."""
    add_papers(app, now, "Bookmark")
    pipeline.summarise(Endpoint(httpx.ConnectError("nobody there")).on(app), now)
    with app.db.write() as session:
        factories.add_subscriber(session, "alice@example.org", ["bookmark"], now)
    pipeline.plan_and_send(app, now)
    with app.db.read() as session:
        (pick,) = factories.load_digest(app, session.exec(select(Delivery)).one()).picks
    assert (pick.summary, pick.summary_by) == (GIST, "")


def test_endpoint_backoff(app: Application, now: datetime) -> None:
    """The waits are 15, 30, 60 and at most 120 minutes, until a run succeeds."""
    add_papers(app, now, *(f"Paper {n}" for n in range(40)))
    endpoint = Endpoint(httpx.Response(500))
    began = []
    for minutes in range(0, 400, 15):
        before = len(endpoint.requests)
        pipeline.summarise(endpoint.on(app), now + timedelta(minutes=minutes))
        began += [minutes] if len(endpoint.requests) > before else []
    assert began == [0, 15, 45, 105, 225, 345]
    endpoint.answers = [chat(SENTENCE)]
    assert pipeline.summarise(endpoint.on(app), now + timedelta(minutes=465))["written"] > 0
    assert not runs(app)[-1].error


def test_failing_paper_is_backed_off(app: Application, now: datetime) -> None:
    """It is backed off, too, so that the next run begins with others."""
    add_papers(app, now, "Poison", upvotes=99)
    add_papers(app, now, *(f"Paper {n}" for n in range(3)))
    endpoint = Endpoint(httpx.Response(500), chat(SENTENCE))
    pipeline.summarise(endpoint.on(app), now)
    pipeline.summarise(endpoint.on(app), now + timedelta(minutes=15))
    assert endpoint.titles.count("Poison") == 1
    with app.db.read() as session:
        waiting = select(Paper.title).join(GeneratedSummary).where(GeneratedSummary.text == "")
        assert session.exec(waiting).all() == ["Poison"]


def test_endless_response_times_out(app: Application, now: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    """The timeout is for the whole response."""
    monkeypatch.setattr(llm_summaries, "REQUEST_TIMEOUT", timedelta(milliseconds=20))

    async def never(_request: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    add_papers(app, now, "Bookmark")
    pipeline.summarise(replace(Endpoint().on(app), http=HttpTransport(httpx.MockTransport(never))), now)
    assert runs(app)[0].error == "the endpoint: no response in time"


def test_one_process_at_a_time(app: Application, now: datetime) -> None:
    """Requests cost money."""
    add_papers(app, now, "Bookmark")
    endpoint = Endpoint()
    with locks.hold(app.db, llm_summaries.JOB, now, timedelta(minutes=5)):
        assert not pipeline.summarise(endpoint.on(app), now)
    assert endpoint.requests == []


@pytest.mark.parametrize(
    "answer",
    [
        SENTENCE,
        f'  "{SENTENCE}"\n',
        f"TL;DR: {SENTENCE}",
        f"**{SENTENCE}**",
        f"**TL;DR:** {SENTENCE}",
        f"“Summary: {SENTENCE}”",
        f"_{SENTENCE}_",
        f"Here is a one-sentence summary of the paper: {SENTENCE}",
        f"Sure! Here’s the summary:\n\n{SENTENCE}",
        f"Certainly. {SENTENCE}",
        f"A short, one-sentence summary: {SENTENCE}".replace(", ", " "),
        f"<think>\nThe reader wants <b>one</b> sentence.\n</think>\n\n{SENTENCE}",
        SENTENCE.replace(" keep", "\u200b\nkeep"),
    ],
)
def test_wrapping_text_is_removed(answer: str) -> None:
    """Quotes, reasoning, headings and asterisks are removed."""
    assert llm_summaries.summary_in(chat(answer).content) == SENTENCE


@pytest.mark.parametrize(
    "sentence",
    [
        "Bookmark lets a small reader answer the question “what stood there?”",
        '"Bookmark" lets a small reader keep an index of "pages"',
        "`Bookmark` lets a small reader keep an index of `pages`",
    ],
)
def test_quotes_within_a_sentence_are_kept(sentence: str) -> None:
    """Quotes are only removed if they enclose the whole sentence and there are none within."""
    assert llm_summaries.summary_in(chat(sentence).content) == sentence


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("I'm sorry, but I cannot help with that request.", llm_summaries.NOT_A_SUMMARY),
        ("I cannot summarize this because it is too long.", llm_summaries.NOT_A_SUMMARY),
        ("As an AI, it is not possible to read this paper.", llm_summaries.NOT_A_SUMMARY),
        ("Please provide the abstract of the paper.", llm_summaries.NOT_A_SUMMARY),
        ("There is nothing to sum up, because no abstract was given.", llm_summaries.NOT_A_SUMMARY),
        (f"Thinking Process: 1. Analyze the text. {SENTENCE}", llm_summaries.NOT_A_SUMMARY),
        (f"<|channel|>analysis<|message|>{SENTENCE}", llm_summaries.NOT_PLAIN),
        (f"[INST] {SENTENCE}", llm_summaries.NOT_PLAIN),
        (f"# {SENTENCE}", llm_summaries.NOT_PLAIN),
        (f"- {SENTENCE}", llm_summaries.NOT_PLAIN),
        (f"Read more at evil-site.com/login now. {SENTENCE}", llm_summaries.NOT_PLAIN),
        (f"{SENTENCE} See evil-site.com", llm_summaries.NOT_PLAIN),
        (f"{SENTENCE} See ftp://evil", llm_summaries.NOT_PLAIN),
        (f"{SENTENCE} Write to a@evil.com", llm_summaries.NOT_PLAIN),
    ],
)
def test_text_that_is_no_plain_summary_is_rejected(answer: str, reason: str) -> None:
    rejection = llm_summaries.summary_in(chat(answer).content)
    assert isinstance(rejection, Rejection), rejection
    assert rejection.reason == reason


@pytest.mark.parametrize(
    "sentence",
    [
        "It lowers the rate of type I errors in phase I trials, by 3.5% and 0.5B tokens.",
        "GPT-4.1 and Qwen2.5-VL fail, e.g. on A* search and f* or g* in U.S. data, vs. none in pass@1.",
        "A benchmark of summaries: it asks models for a summary, an answer and the reasoning.",
        "Titled “Attention Is All You Need”, it shows that, unfortunately, models are sorry too often.",
    ],
)
def test_summaries_with_unusual_words_are_accepted(sentence: str) -> None:
    assert llm_summaries.summary_in(chat(sentence).content) == sentence


@pytest.mark.parametrize("finish_reason", ["length", "content_filter", "tool_calls"])
def test_truncated_response_is_rejected(finish_reason: str) -> None:
    """An endpoint with a low token limit or a filter stops in the middle and says so."""
    choice = {"message": {"content": "Bookmark lets a small reader keep an"}, "finish_reason": finish_reason}
    rejection = llm_summaries.summary_in(httpx.Response(200, json={"choices": [choice]}).content)
    assert isinstance(rejection, Rejection)
    assert rejection.reason == f"{llm_summaries.INCOMPLETE}: {finish_reason}"


def test_formulas() -> None:
    """LaTeX becomes Unicode, and less-than signs are not markup."""
    response = chat(r"It proves that $\alpha < \beta$ holds for all n < 9 and m > 3 in every case.").content
    assert (
        llm_summaries.summary_in(response)
        == "It proves that α < β holds for all n < 9 and m > 3 in every case."
    )


def test_response_of_another_api() -> None:
    """The endpoint is not a chat API."""
    with pytest.raises(UnreadableResponse):
        llm_summaries.summary_in(b"\xff\xfe")
    assert isinstance(llm_summaries.summary_in(chat(["a", "list"]).content), Rejection)


@contextmanager
def model_server(answer: Callable[[dict[str, object]], bytes]) -> Iterator[str]:
    """Run a real HTTP server on this machine. Yields its URL."""

    class Handler(QuietHandler, BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            body = answer(request)
            self.send_response(200 if self.path == "/v1/chat/completions" else 404)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with LocalWebServer(Handler) as server:
        yield f"{server.url}/v1"


def test_real_http_connection(app: Application, now: datetime) -> None:
    """The result is the same, and no key is sent if none is set."""
    numbers = add_papers(app, now, *(f"Paper {n}" for n in range(6)))

    def answer(request: dict[str, object]) -> bytes:
        title = str(request["messages"][1]["content"]).split("\n")[0]  # type: ignore[index]
        return chat(f"One sentence that was written about “{title}”.").content

    with model_server(answer) as url:
        new_settings = app.settings.model_copy(update={"summary_url": url, "summary_model": MODEL})
        assert pipeline.summarise(replace(app, settings=new_settings), now) == {"written": 6, "rejected": 0}
    assert view(app, numbers[3]).tldr == "One sentence that was written about “Title: Paper 3”."
