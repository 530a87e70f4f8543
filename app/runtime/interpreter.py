"""Change interpreter settings: garbage collection, thread switching, memory. No other module does so.

The settings affect the whole process, so overlapping threads must not each save and restore them.
"""

import ctypes
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock

COLLECT_AFTER = 500_000  # new objects, instead of 700: planning a batch creates 300,000
SWITCH_AFTER = 0.0005  # seconds, instead of 0.005
ARENAS = 2
_M_ARENA_MAX = -8  # from glibc's malloc.h

_lock = Lock()
_users = 0
_saved: tuple[tuple[int, int, int], float] = (0, 0, 0), 0.0  # valid while there are users


@contextmanager
def tuned_for_throughput() -> Iterator[None]:
    """Collect garbage less often and switch threads sooner, for a block that sends thousands of emails.

    Sending creates hardly any cyclic garbage, but collecting after every 700 objects took 1/12 of the time.
    While emails were claimed, connections spent as much time waiting for the interpreter lock. Blocks may
    overlap: the first one changes the settings, and the last one restores them.
    """
    global _users, _saved
    with _lock:
        _users += 1
        if _users == 1:
            _saved = gc.get_threshold(), sys.getswitchinterval()
            gc.set_threshold(COLLECT_AFTER, *_saved[0][1:])
            sys.setswitchinterval(SWITCH_AFTER)
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                gc.set_threshold(*_saved[0])
                sys.setswitchinterval(_saved[1])


@contextmanager
def importing() -> Iterator[None]:
    """Disable garbage collection in a block that imports modules.

    If it imports any, exclude all current objects from later collections: modules live until the process
    ends. Examining them took a third of a command's start.
    """
    was_enabled, modules = gc.isenabled(), len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > modules:
            gc.freeze()
        if was_enabled:
            gc.enable()


def limit_malloc_arenas() -> None:
    """Limit glibc to ARENAS memory arenas for all threads, instead of eight per core.

    An arena does not return its memory to the system. Sending a single email uses new threads, and each may
    allocate from any arena. Without this limit, memory would grow by a few megabytes per arena, although
    nothing leaks. MALLOC_ARENA_MAX in the environment takes precedence. Other C libraries have no such
    arenas.
    """
    if "MALLOC_ARENA_MAX" not in os.environ:
        with suppress(AttributeError, OSError):
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, ARENAS)


def return_free_memory() -> None:
    """Return free memory to the system, after a job that needed much for a short time.

    glibc returns only memory at the end of an arena by itself. This takes about ten milliseconds. Other C
    libraries do not have this function.
    """
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
