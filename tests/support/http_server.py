"""Whoever answers us over HTTP: a source, or a language model's endpoint."""

from __future__ import annotations

import asyncio

import httpx


class Peer:
    """Answers as it is told, the last answer again and again, and remembers what it was asked."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[httpx.Request] = []
        self.at_once = self.most_at_once = 0

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer
