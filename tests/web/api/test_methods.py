"""Test that a method that a path does not have is refused as such, and not taken for another path's."""

import pytest

from app.storage.api_keys import Scope
from tests.web.api.conftest import Call


@pytest.mark.once
@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
@pytest.mark.parametrize("path", ["/sources/trial", "/subscribers/import", "/subscribers/export"])
def test_named_paths_are_not_ids(method: str, path: str, call: Call) -> None:
    """`PATCH /sources/trial` was refused because “trial” is no number, with 422."""
    assert call(method, path, json={}, scope=Scope.WRITE).status_code == 405
