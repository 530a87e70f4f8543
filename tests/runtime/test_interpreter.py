"""Test the settings of garbage collection during imports. `tests/attacks/test_memory.py` tests the others."""

import gc
import sys
from types import ModuleType

import pytest

from app.runtime import interpreter


@pytest.mark.parametrize("is_enabled", [True, False])
def test_imports_restore_the_garbage_collector(is_enabled: bool) -> None:
    """It stays off if it was off before."""
    frozen = gc.get_freeze_count()
    try:
        if not is_enabled:
            gc.disable()
        with interpreter.importing():
            assert not gc.isenabled()
        assert gc.isenabled() == is_enabled
        assert gc.get_freeze_count() <= frozen  # nothing was imported
    finally:
        gc.enable()


def test_imported_modules_are_excluded_from_collections(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = list[str]()
    monkeypatch.setattr(gc, "freeze", lambda: calls.append("freeze"))
    with interpreter.importing():
        monkeypatch.setitem(sys.modules, "tests.runtime.new", ModuleType("new"))
    assert calls == ["freeze"]
