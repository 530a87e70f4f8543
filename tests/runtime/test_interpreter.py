"""Test garbage collection during imports, and free memory. `tests/attacks/test_memory.py` tests the rest."""

import gc
import os
import platform
import sys
from pathlib import Path
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


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has malloc_trim")
def test_free_memory_is_returned_to_the_system() -> None:
    """glibc itself returns nothing that is below memory in use."""

    def resident_pages() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1])

    size, count = 100_000, 1_000  # too small for glibc to map them separately
    blocks = [b"x" * (size + number) for number in range(count)]
    in_use = blocks[::100]
    del blocks
    before = resident_pages()
    interpreter.return_free_memory()
    returned = (before - resident_pages()) * os.sysconf("SC_PAGE_SIZE")
    assert len(in_use) == 10
    assert returned > size * count / 2
