"""Fixtures of the admin API, for attacks on it."""

from tests.web.api.conftest import alice, call, client, key_of, site

__all__ = ["alice", "call", "client", "key_of", "site"]
