"""Reuse the fixtures of the admin API."""

from tests.web.api.conftest import alice, call, client, create_key, site

__all__ = ["alice", "call", "client", "create_key", "site"]
