"""Process-wide settings: garbage collection, turns of threads, memory arenas. Nothing else changes them.

They belong to the whole process, so overlapping threads must not each save and restore them.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock

COLLECT_AFTER = 50_000  # new objects
SWITCH_AFTER = 0.0005  # seconds
ARENAS = 2
_M_ARENA_MAX = -8  # of glibc's malloc.h

_lock = Lock()
_users = 0
_usual: tuple[tuple[int, int, int], float] = (0, 0, 0), 0.0  # while there are users


@contextmanager
def tuned_for_throughput() -> Iterator[None]:
    """Collect garbage less often and switch threads sooner, for a block that sends thousands of mails.

    Hardly any of what mails leave is in cycles, and a search after every 700 objects took a twelfth of the
    time. A relay that waits for its turn behind a claim has nothing to do meanwhile: that took as much.
    Blocks may overlap: the first one changes the settings, and the last one restores them.
    """
    _tune()
    try:
        yield
    finally:
        _restore()


def _tune() -> None:
    global _users, _usual
    with _lock:
        _users += 1
        if _users == 1:
            _usual = gc.get_threshold(), sys.getswitchinterval()
            gc.set_threshold(COLLECT_AFTER, *_usual[0][1:])
            sys.setswitchinterval(SWITCH_AFTER)


def _restore() -> None:
    global _users
    with _lock:
        _users -= 1
        if _users == 0:
            gc.set_threshold(*_usual[0])
            sys.setswitchinterval(_usual[1])


def freeze_live_objects() -> None:
    """Collect all garbage, then exempt the objects that are left from later collections.

    For data that stays for hours, such as the search index: looking through it takes a while. Frozen objects
    that become garbage in cycles are collected by the next call.
    """
    with _lock:
        gc.unfreeze()
        gc.collect()
        gc.freeze()


def limit_malloc_arenas() -> None:
    """Have glibc serve all threads from ARENAS memory arenas, instead of eight for each core.

    Each arena keeps what it once held, and a single mail runs in new threads, which take any arena. Memory
    grew by some megabytes an arena, though nothing leaked. MALLOC_ARENA_MAX in the environment has
    precedence. Other C libraries have no such arenas.
    """
    if "MALLOC_ARENA_MAX" not in os.environ:
        with suppress(AttributeError, OSError):
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, ARENAS)
