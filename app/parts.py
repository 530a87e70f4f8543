"""What the pipeline works with, made once by `main.build` and handed to whoever needs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from threading import Event, Lock

from app import clock, deliver, letters, match, render
from app.corpus import Corpus
from app.db import Database
from app.lexicon import Lexicon
from app.records import PaperView
from app.settings import Settings
from app.sources import client
from app.tokens import Signer

INDICES = 3  # of today's candidates, of the last weeks', and of one day that somebody looks at


class Indices:
    """The indices that were asked for last: while papers and model stay, only the first visitor waits."""

    def __init__(self) -> None:
        self._kept: list[tuple[Corpus, list[object], match.Index]] = []
        self._making = Lock()

    def of(self, papers: Sequence[PaperView], corpus: Corpus) -> match.Index:
        """The index of these papers, made where it is not there."""
        read: list[object] = [(p.id, p.title, p.abstract, p.authors, p.categories) for p in papers]
        with self._making:
            known = (index for by, of, index in self._kept if by is corpus and of == read)
            index = next(known, None) or match.Index(papers, corpus)
            others = [kept for kept in self._kept if kept[2] is not index and kept[0] is corpus]
            self._kept = [(corpus, read, index), *others][:INDICES]
        return index


@dataclass(frozen=True)
class App:
    """The parts of one running Paperboy. The web app, jobs, the command line and tests share them."""

    settings: Settings
    db: Database
    signer: Signer
    renderer: render.Renderer
    composer: letters.Composer
    cards: deliver.Cards = field(default_factory=deliver.Cards)
    lexicon: Lexicon = field(default_factory=Lexicon)
    indices: Indices = field(default_factory=Indices)
    wire: client.Wire = field(default_factory=client.Wire)  # how sources are reached
    sending: Lock = field(default_factory=Lock)  # held while the schedule's `send` runs in this process
    more_to_send: Event = field(
        default_factory=Event
    )  # set when mails were planned that it may not have seen
    when_planned: list[Callable[[], None]] = field(default_factory=list)  # called after each shard
    stopping: Event = field(default_factory=Event)  # set when the process is to end: nothing new is begun

    def timeline(self, now: datetime) -> clock.Timeline:
        """Return the clock of a run that begins at `now`: see `clock.Timeline`."""
        return clock.Timeline(now, self.db.skew)
