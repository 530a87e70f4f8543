"""Test that a form which is submitted twice is carried out once."""

import asyncio
from datetime import timedelta

import pytest
from fastapi import Request, Response

from app.web.admin import double_clicks
from app.web.admin.double_clicks import Submissions

REQUEST = Request(
    {"type": "http", "method": "POST", "path": "/admin/keys", "headers": [], "server": ("a", 80)}
)


@pytest.mark.once
def test_second_submission_waits_for_the_first() -> None:
    """They arrive while the first is being carried out. If it fails, the next one is carried out."""
    outcomes = [OSError(), Response("done"), Response("twice")]

    async def handle(request: Request) -> Response:
        request.state.operator = "signed in"
        await asyncio.sleep(0)
        outcome = outcomes.pop(0)
        if isinstance(outcome, OSError):
            raise outcome
        return outcome

    async def submit() -> list[Response | BaseException]:
        submissions = Submissions(lambda _request: True)
        sent = (submissions.respond(REQUEST, "cookie", b"form_id=1", handle) for _ in range(3))
        return await asyncio.gather(*sent, return_exceptions=True)

    first, *others = asyncio.run(submit())
    assert isinstance(first, OSError)
    assert [answer.body for answer in others if isinstance(answer, Response)] == [b"done", b"done"]
    assert len(outcomes) == 1


@pytest.mark.once
def test_submission_that_arrives_after_a_failure_waits_for_the_second() -> None:
    handled = []

    async def handle(request: Request) -> Response:
        request.state.operator = "signed in"
        handled.append(1)
        if len(handled) == 1:
            raise OSError
        second_started.set()
        await third_arrived.wait()
        return Response(f"done {len(handled)}")

    async def submit() -> list[Response | BaseException]:
        submissions = Submissions(lambda _request: True)

        async def third() -> Response:
            await second_started.wait()
            third_arrived.set()
            return await submissions.respond(REQUEST, "cookie", b"form_id=1", handle)

        sent = [submissions.respond(REQUEST, "cookie", b"form_id=1", handle) for _ in range(2)]
        return await asyncio.gather(*sent, third(), return_exceptions=True)

    second_started, third_arrived = asyncio.Event(), asyncio.Event()
    _, *others = asyncio.run(submit())
    assert [answer.body for answer in others if isinstance(answer, Response)] == [b"done 2"] * 2


@pytest.mark.once
def test_responses_are_deleted_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may contain keys. No other form is needed to delete them."""
    monkeypatch.setattr(double_clicks, "LIFETIME", timedelta(milliseconds=1))

    async def handle(request: Request) -> Response:
        request.state.operator = "signed in"
        return Response("a key")

    async def submit() -> None:
        submissions = Submissions(lambda _request: True)
        await submissions.respond(REQUEST, "cookie", b"form_id=1", handle)
        await asyncio.sleep(0.05)
        assert submissions._last == {}

    asyncio.run(submit())


@pytest.mark.once
def test_responses_to_strangers_are_not_kept() -> None:
    """They could fill the memory with forms that only lead to the sign-in page."""
    handled = []

    async def handle(_request: Request) -> Response:
        handled.append(1)
        return Response(status_code=303)

    async def submit() -> None:
        submissions, request = Submissions(lambda _request: True), Request(dict(REQUEST.scope, state={}))
        for _ in range(2):
            await submissions.respond(request, "no session", b"form_id=1", handle)

    asyncio.run(submit())
    assert len(handled) == 2
