"""A scripted HTTP peer for `httpx.MockTransport`: a source, or the endpoint of a language model."""

import asyncio

import httpx


class FakeHttpServer:
    """Return or raise the given answers in order, repeat the last one, and record the requests."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []
        self.active = self.most_active = 0

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        self.active += 1
        self.most_active = max(self.most_active, self.active)
        await asyncio.sleep(0)
        self.active -= 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer
