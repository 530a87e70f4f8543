"""Fuzz the API with Schemathesis: every operation must follow the OpenAPI document for any input.

For a long run, `pytest tests/web/api/test_schema.py` with PAPERBOY_EXAMPLES=300.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import httpx
import pytest
import schemathesis
from fastapi import FastAPI
from schemathesis import BaseSchema
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import from_schema
from schemathesis.engine.events import FatalError, NonFatalError, ScenarioFinished

from app import main, pipeline
from app.application import Application
from app.papers.sources.http_client import HttpTransport
from app.storage import api_keys
from app.storage.api_keys import Scope
from app.web import rate_limits
from tests.conftest import NOW
from tests.support import factories, running_app

FEW = 1  # examples per operation, as many as the suite has time for
EXAMPLES = int(os.environ.get("PAPERBOY_EXAMPLES", FEW))
_CURSOR = "a cursor is opaque: only one that the list gave is accepted"
_PREFERENCES = "interests have words, numbers have bounds, and zones exist"
_ADDRESS = "an address is one that email can be sent to"
_VERSION = "If-Match names the current version"
_URL = "a webhook has a URL that begins with https://"
_CONFIG = "each kind of source has its own configuration"
# Operations that refuse valid requests with 422, each with the rule that the schema cannot express.
DELIBERATE = {
    "DELETE /v1/sources/{source_id}": _VERSION,
    "DELETE /v1/subscribers/{subscriber_id}": _VERSION,
    "DELETE /v1/webhooks/{webhook_id}": _VERSION,
    "GET /v1/audit-log": _CURSOR,
    "GET /v1/deliveries": _CURSOR,
    "GET /v1/editions": _CURSOR,
    "GET /v1/interests": _CURSOR,
    "GET /v1/interests/hint": "an interest has a word, and its quotes are closed",
    "GET /v1/merges": _CURSOR,
    "GET /v1/papers": _CURSOR,
    "GET /v1/report": "a day lies between 1970 and today",
    "GET /v1/runs": _CURSOR,
    "GET /v1/subscribers": _CURSOR,
    "GET /v1/subscribers/{subscriber_id}/explain/{paper}": "a day lies between 1991 and 2199",
    "GET /v1/suppressions": _CURSOR,
    "GET /v1/webhooks/{webhook_id}/messages": _CURSOR,
    "PATCH /v1/papers/{paper_id}": "a title is not empty, and links lead to web pages",
    "PATCH /v1/sources/{source_id}": _CONFIG,
    "PATCH /v1/subscribers/{subscriber_id}": _PREFERENCES,
    "PATCH /v1/webhooks/{webhook_id}": _URL,
    "POST /v1/backtests": _PREFERENCES,
    "POST /v1/editions/{edition}/cancel": _VERSION,
    "POST /v1/editions/{edition}/resume": _VERSION,
    "POST /v1/papers/{paper_id}/split": "exactly one part is split off",
    "POST /v1/previews": _PREFERENCES,
    "POST /v1/sources": _CONFIG,
    "POST /v1/sources/trial": _CONFIG,
    "POST /v1/subscribers": _PREFERENCES,
    "POST /v1/subscribers/import": "a file names its columns",
    "POST /v1/subscribers/{subscriber_id}/pause": "a pause ends within a year from now",
    "POST /v1/subscribers/{subscriber_id}/test-send": _ADDRESS,
    "POST /v1/suppressions": _ADDRESS,
    "POST /v1/suppressions/lift": _ADDRESS,
    "POST /v1/webhooks": _URL,
}
ACCEPTED = ["2xx", "3xx", "401", "403", "404", "409", "412", "422", "429"]


@pytest.fixture
def site(app: Application, monkeypatch: pytest.MonkeyPatch) -> FastAPI:
    """Return the application without rate limits. It has one paper and the subscriber alice."""
    monkeypatch.setattr(rate_limits, "WRONG_KEYS_A_MINUTE", 10**9)
    endless = dict.fromkeys(("api_requests_per_minute", "invitations_per_hour", "test_sends_per_hour"), 10**9)
    monkeypatch.setattr(pipeline, "refresh", lambda *_, **__: None)  # no source is polled
    upstream = httpx.MockTransport(lambda _request: httpx.Response(404))  # for trials of sources
    app = replace(app, http=HttpTransport(upstream))
    with app.db.write() as session:
        source = factories.add_source(session, NOW)
        factories.add_paper(
            session, source, "Language Agents that Plan", NOW.date(), NOW, abstract="At last."
        )
        factories.add_subscriber(session, "alice@example.org", ["language agents"], NOW)
    return main.create_app(replace(app, settings=app.settings.model_copy(update=endless)))


@pytest.fixture
def full_key(app: Application) -> str:
    """Create a key with every scope."""
    with app.db.write() as session:
        return api_keys.create(session, "everything", list(Scope), NOW, days=None)[1]


@contextmanager
def load_schema(site: FastAPI, headers: dict[str, str]) -> Iterator[BaseSchema]:
    """Serve the application and yield its configured schema."""
    deliberate = {"positive_data_acceptance": {"expected-statuses": ACCEPTED}}
    config = {
        "headers": headers,
        "generation": {"max-examples": EXAMPLES, "deterministic": True},
        "phases": {"coverage": {"enabled": EXAMPLES > FEW}, "stateful": {"enabled": EXAMPLES > FEW}},
        # An Idempotency-Key that was used for another request is refused, which the schema cannot express.
        "operations": [
            *({"include-name": name, "checks": deliberate} for name in DELIBERATE),
            {"include-method": "POST", "checks": deliberate},
        ],
    }
    bound = running_app.bind_free_port()
    url = f"http://127.0.0.1:{bound.getsockname()[1]}/api/openapi.json"
    with running_app.serve(site, bound):
        yield schemathesis.openapi.from_url(url, config=SchemathesisConfig.from_dict(config))


def find_failures(schema: BaseSchema) -> list[str]:
    """Run all checks on all operations. Return the failures with commands to reproduce them."""
    results = []
    for event in from_schema(schema).execute():
        if isinstance(event, ScenarioFinished):
            for nodes in event.recorder.checks.values():
                results += [
                    f"{info.failure.message} {info.code_sample}"
                    for node in nodes
                    if (info := node.failure_info)
                ]
        elif isinstance(event, (NonFatalError, FatalError)):
            results.append(str(event))
    return results


def test_responses_to_a_full_key_are_documented(site: FastAPI, full_key: str) -> None:
    """No server errors, no undocumented responses, and nothing accepted that the schema forbids."""
    with load_schema(site, {"Authorization": f"Bearer {full_key}"}) as schema:
        assert find_failures(schema) == []


@pytest.mark.once
def test_all_operations_refuse_requests_without_a_key(site: FastAPI) -> None:
    """Each response is documented."""
    with load_schema(site, {}) as schema:
        assert find_failures(schema) == []
