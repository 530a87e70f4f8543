"""Test that a form which is submitted twice is carried out once."""

from __future__ import annotations

import asyncio

import pytest
from fastapi import Request, Response

from app.web.admin.double_clicks import Submissions

REQUEST = Request(
    {"type": "http", "method": "POST", "path": "/admin/keys", "headers": [], "server": ("a", 80)}
)


@pytest.mark.once
def test_second_submission_waits_for_the_first() -> None:
    """They arrive while the first is being carried out. If it fails, the next one is carried out."""
    outcomes = [OSError(), Response("done"), Response("twice")]

    async def handle(_request: Request) -> Response:
        await asyncio.sleep(0)
        outcome = outcomes.pop(0)
        if isinstance(outcome, OSError):
            raise outcome
        return outcome

    async def submit() -> list[Response | BaseException]:
        submissions = Submissions()
        sent = (submissions.respond(REQUEST, "cookie", b"form_id=1", handle) for _ in range(3))
        return await asyncio.gather(*sent, return_exceptions=True)

    first, *others = asyncio.run(submit())
    assert isinstance(first, OSError)
    assert [answer.body for answer in others if isinstance(answer, Response)] == [b"done", b"done"]
    assert len(outcomes) == 1
