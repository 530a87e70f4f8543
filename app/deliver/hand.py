"""The sender's hand: the one part of the ledger that commits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Any

from app.db import Database
from app.deliver.claims import Shard, claim, commit
from app.deliver.outcomes import record
from app.models import DeliveryState as State
from app.records import Answer, Outgoing
from app.settings import UncertainPolicy


class Ledger:
    """What a sender's many connections write at the same time goes into one transaction, and is durable
    when the call returns."""

    def __init__(
        self, database: Database, owner: str, policy: UncertainPolicy, clock: Callable[[], datetime]
    ) -> None:
        self._database, self._owner, self._policy, self._clock = database, owner, policy, clock
        self._waiting: list[tuple[Outgoing | tuple[int, Answer], asyncio.Future[Any]]] = []
        self._writer: asyncio.Task[None] | None = None

    async def claim(self, ids: Collection[int] | None) -> Shard:
        """Take the next shard."""
        return await asyncio.to_thread(self._claim, ids)

    async def commit(self, mail: Outgoing) -> bool:
        """May this mail be sent? When True, the ledger knows that it is in flight."""
        return bool(await self._write_soon(mail))

    async def record(self, delivery_id: int, answer: Answer) -> State | None:
        """The state that follows from an answer; None when another sender has taken the row over."""
        state: State | None = await self._write_soon((delivery_id, answer))
        return state

    def _claim(self, ids: Collection[int] | None) -> Shard:
        with self._database.write() as session:
            return claim(session, owner=self._owner, now=self._clock(), ids=ids)

    async def _write_soon(self, entry: Outgoing | tuple[int, Answer]) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((entry, future))
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write_all())
        return await future

    async def _write_all(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                results = await asyncio.to_thread(self._write, [entry for entry, _ in batch])
            except Exception as error:
                for _, future in batch:
                    future.set_exception(error)
            else:
                for (_, future), result in zip(batch, results, strict=True):
                    future.set_result(result)

    def _write(self, entries: Sequence[Outgoing | tuple[int, Answer]]) -> list[bool | State | None]:
        mails = [entry for entry in entries if isinstance(entry, Outgoing)]
        answers = [entry for entry in entries if not isinstance(entry, Outgoing)]
        now = self._clock()
        with self._database.write() as session:
            allowed = commit(session, mails, owner=self._owner, now=now) if mails else set()
            states = (
                record(session, answers, owner=self._owner, now=now, policy=self._policy) if answers else {}
            )
        return [
            entry.delivery_id in allowed if isinstance(entry, Outgoing) else states.get(entry[0])
            for entry in entries
        ]
