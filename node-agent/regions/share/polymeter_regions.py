"""Regions of a Python program for Polymeter.

    from polymeter_regions import region

    with region("epoch"):
        train()

    @region("load")
    def load(path): ...

Without the library libpolymeter_regions.so, and outside of a job, nothing is counted.
POLYMETER_REGIONS_LIBRARY names the library where the loader does not find it.
"""

import contextlib
import ctypes
import os

__all__ = ["flush", "region"]


def _load():
    path = os.environ.get("POLYMETER_REGIONS_LIBRARY", "libpolymeter_regions.so.1")
    try:
        # PyDLL keeps the interpreter's lock: a call takes less time than to release it.
        library = ctypes.PyDLL(path)
        waiting = ctypes.CDLL(path)
    except OSError:
        return None, None, None
    begin, end = library.polymeter_region_begin, library.polymeter_region_end
    for function in (begin, end):
        function.argtypes, function.restype = [ctypes.c_char_p], None
    waiting.polymeter_regions_flush.restype = ctypes.c_int
    return begin, end, waiting.polymeter_regions_flush


_begin, _end, _flush = _load()


class region(contextlib.ContextDecorator):
    """A region, for the statement `with` or as the decorator of a function."""

    def __init__(self, name):
        self._name = str(name).encode("utf-8", "replace")

    def __enter__(self):
        if _begin is not None:
            _begin(self._name)
        return self

    def __exit__(self, *_):
        if _end is not None:
            _end(self._name)
        return False


def flush():
    """Sends what was counted, and waits for it at most a second. Returns False if the agent has not accepted it.

    This happens at exit by itself, and is needed where a process ends by os._exit, as those of multiprocessing do.
    """
    return _flush is None or _flush() == 0
