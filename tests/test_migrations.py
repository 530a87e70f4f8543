"""Migrations make exactly the tables that the models describe, and can be taken back."""

from __future__ import annotations

from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine, inspect

from app.db import ROOT


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


def test_models_and_migrations_agree(database_url: str) -> None:
    """`alembic check` finds nothing that a new revision would have to change."""
    command.check(config_of(database_url))


def test_down_and_up_again(database_url: str) -> None:
    """Downgrading removes every table; upgrading makes the same ones again."""
    before = tables_of(database_url)
    command.downgrade(config_of(database_url), "base")
    assert tables_of(database_url) == set()
    command.upgrade(config_of(database_url), "head")
    assert tables_of(database_url) == before
