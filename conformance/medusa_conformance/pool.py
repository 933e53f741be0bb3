"""Worker processes that are gone when their run is over, however it ends."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any, TypeVar

from medusa_conformance.child import go

Given = TypeVar("Given")


@contextmanager
def pool(workers: int, begin: Callable[[Given], None], given: Given) -> Iterator[Executor]:
    """An executor of processes, in each of which `begin(given)` is called first.

    Where the run is interrupted, or this process dies, they end at once, and with each of them the
    processes that it has started.
    """
    # Spawned, not forked: nothing of this process, such as a child's pipes or torch's threads, is
    # in the workers.
    context = get_context("spawn")
    # Nothing is ever sent. The workers see the end of it when this process closes it, or dies.
    rope, leash = context.Pipe(duplex=False)
    executor = ProcessPoolExecutor(
        workers, context, initializer=_begin, initargs=(rope, begin, given)
    )
    try:
        yield _Deaf(executor)
    except BaseException:
        leash.close()
        executor.shutdown(wait=False, cancel_futures=True)
        raise
    else:
        executor.shutdown()
    finally:
        leash.close()
        rope.close()


class _Deaf(Executor):
    """Starts its workers deaf to Ctrl-C: the interrupt is their parent's, who ends them."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def submit(self, task: Callable[..., Any], /, *given: Any, **more: Any) -> Any:
        # A process begins with the mask of who starts it, and this is where they are started.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return self._executor.submit(task, *given, **more)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(rope: Connection, begin: Callable[[Any], None], given: Any) -> None:
    # Handlers of their own, and not `SIG_IGN`, which an engine's process would inherit.
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: Thread(target=go, daemon=True).start())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    Thread(target=_follow, args=(rope,), daemon=True).start()
    begin(given)


def _follow(rope: Connection) -> None:
    rope.poll(None)
    go()
