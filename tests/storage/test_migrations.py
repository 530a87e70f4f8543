"""Test that migrations create the tables of the models and can be reverted."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine, inspect

from app.storage.database import ROOT


def config_of(url: str) -> Config:
    config = Config()
    config.set_main_option("script_location", str(ROOT / "migrations"))
    config.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
    return config


def tables_of(url: str) -> set[str]:
    engine = create_engine(url)
    names = set(inspect(engine).get_table_names())
    engine.dispose()
    return names - {"alembic_version"}


@pytest.fixture
def database_url(new_database_url: Callable[[], str]) -> str:
    """Return the URL of a database that no other test uses, because these tests change its tables."""
    return new_database_url()


def test_models_and_migrations_agree(database_url: str) -> None:
    """`alembic check` finds no difference."""
    command.check(config_of(database_url))


def test_downgrade_and_upgrade(database_url: str) -> None:
    """Downgrading removes every table, and upgrading creates the same ones again."""
    before = tables_of(database_url)
    command.downgrade(config_of(database_url), "base")
    assert tables_of(database_url) == set()
    command.upgrade(config_of(database_url), "head")
    assert tables_of(database_url) == before


def test_concurrent_migrations(database_url: str, tmp_path: Path) -> None:
    """If a service and its workers start together, one migrates and the others wait."""
    before = tables_of(database_url)
    command.downgrade(config_of(database_url), "base")
    code = "import sys; from app.storage import schema; schema.migrate(sys.argv[1])"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    started = [
        subprocess.Popen([sys.executable, "-c", code, database_url], env=environment, cwd=tmp_path)  # noqa: S603
        for _ in range(3)
    ]
    assert [process.wait() for process in started] == [0, 0, 0]
    assert tables_of(database_url) == before
