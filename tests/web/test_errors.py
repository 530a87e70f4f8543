"""Test the answers to requests that no route can answer."""

import pytest
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from app.links import Purpose
from tests.web.conftest import Link


@pytest.mark.once
def test_address_of_a_response_to_a_form(client: TestClient, alice: int, link: Link) -> None:
    """A restored tab, a bookmark or the Enter key opens it. It leads to the nearest page above it."""
    path = link(Purpose.PREFERENCES, alice)
    routes = [route for route in client.app.routes if isinstance(route, APIRoute)]  # type: ignore[attr-defined]
    with_page = {route.path for route in routes if "GET" in route.methods}
    nearest = {"/preferences/{token}": path, "/": "/", "": "/"}
    for route in routes:
        if route.path in with_page or route.path.startswith("/admin"):
            continue
        answer = client.get(route.path.replace("/preferences/{token}", path), follow_redirects=False)
        assert answer.status_code == 303, route.path
        assert answer.headers["location"] == nearest[route.path.rpartition("/")[0]]
        assert answer.headers["cache-control"] == "no-store"


@pytest.mark.once
def test_address_of_a_response_to_an_admin_form(client: TestClient) -> None:
    answer = client.get("/admin/sending/pause", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/admin")


@pytest.mark.once
@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
def test_method_that_no_page_supports(client: TestClient, method: str) -> None:
    answer = client.request(method, "/subscribe")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
