"""What the pipeline works with, made once by `main.build` and handed to whoever needs it."""

from __future__ import annotations

from dataclasses import dataclass, field

from app import render
from app.db import Database
from app.lexicon import Lexicon
from app.settings import Settings
from app.sources import client
from app.tokens import Signer


@dataclass(frozen=True)
class App:
    """The parts of one running Paperboy. The web app, jobs, the command line and tests share them."""

    settings: Settings
    db: Database
    signer: Signer
    renderer: render.Renderer
    lexicon: Lexicon = field(default_factory=Lexicon)
    wire: client.Wire = field(default_factory=client.Wire)  # how sources are reached
