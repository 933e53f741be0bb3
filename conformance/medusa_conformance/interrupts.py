"""SIGTERM ends a run as Ctrl-C does: in good order, with all that it has started."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer
from typing import Any

AGAIN = 0.05
"""Seconds after which a lost interrupt is asked for again: the place that loses it is left."""


class Terminated(KeyboardInterrupt):
    """What SIGTERM raises."""


@contextmanager
def heeded() -> Iterator[None]:
    """Raise `Terminated` on SIGTERM, and let no interrupt be lost; for the main thread."""
    before = signal.signal(signal.SIGTERM, _terminate)
    hook, sys.unraisablehook = sys.unraisablehook, _repeat
    try:
        yield
    finally:
        sys.unraisablehook = hook
        signal.signal(signal.SIGTERM, before)


def _terminate(*_: object) -> None:
    raise Terminated


def _repeat(lost: Any) -> None:
    """An interrupt that falls into a callback of the collector, or a destructor, is dropped there.

    Hypothesis has such a callback, so that this is no rare place.
    """
    error = lost.exc_value
    if not isinstance(error, KeyboardInterrupt):
        sys.__unraisablehook__(lost)
        return
    number = signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT
    again = Timer(AGAIN, os.kill, (os.getpid(), number))
    again.daemon = True
    again.start()
