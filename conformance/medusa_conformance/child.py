"""A child process that answers one line with one line, and whatever else it may do instead."""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import subprocess
import time
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import NoReturn

from medusa_conformance.incident import Incident
from medusa_spec.errors import InputError
from medusa_spec.wire_array import LINE_LIMIT

CHUNK = 1024 * 1024
"""Bytes read at once at most; a pipe usually holds less."""

PIPE = 1024 * 1024
"""Bytes that a pipe holds where the system lets it, so that a large array goes in one step."""

SLICE = 0.05
"""Seconds between two looks at whether the process lives: its heirs may hold its pipes open."""

GRACE = 1.0
"""Seconds that a process gets to end after its output has ended, or after it was asked to."""

TAIL = 4096
"""Bytes kept of what the process says on its standard error."""

LAST_WORDS = 3
"""Lines of them that are told where none names an error."""

ERROR = re.compile(r"(\w+\.)*\w*(Error|Exception|error)\b[^:]*:")
"""How a line begins that names one: behind it may stand frames, values and the version."""

_births = Lock()
_living: set[int] = set()


class Child:
    """One process, in a group of its own so that all of it can be ended.

    `InputError` where it cannot be started. It is gone after any `Incident`.
    """

    def __init__(
        self, argv: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        try:
            # Known as soon as it lives: another thread may `go`.
            with _births:
                process = subprocess.Popen(
                    argv,
                    cwd=folder,
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    bufsize=0,
                    start_new_session=True,
                )
                _living.add(process.pid)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            # The folder may be what is missing.
            missing = getattr(error, "filename", None) or argv[0]
            raise InputError(str(missing), "", f"cannot be started: {reason}") from None
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        # Also where nobody calls `end`: at the latest when the interpreter does.
        self._end = weakref.finalize(self, _end, process)
        self._stdin = process.stdin.fileno()
        self._stdout = process.stdout.fileno()
        self._stderr = process.stderr.fileno()
        self._poll = select.poll()
        for descriptor in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(descriptor, False)
            with suppress(OSError, AttributeError):
                fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, PIPE)
        self._poll.register(self._stdout, select.POLLIN)
        self._poll.register(self._stderr, select.POLLIN)
        self._buffer = bytearray()
        self._scanned = 0
        self._said = b""

    @property
    def alive(self) -> bool:
        """Whether it may still be asked."""
        return self._end.alive

    def end(self) -> None:
        """End the process and its group at once; nothing of the group is left behind."""
        self._end()

    def leave(self, request: bytes) -> None:
        """Ask it to go, and end what has not gone soon after."""
        if self.alive:
            with suppress(OSError):
                os.write(self._stdin, request)
            assert self._process.stdin is not None
            self._process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE)
        self.end()

    def exchange(self, request: bytes, seconds: float, stage: str) -> bytes:
        """The line, without its break, that answers a request; `stage` names it in incidents."""
        try:
            return self._exchange(memoryview(request), seconds, stage)
        except BaseException:
            # A reply that comes after all would be taken for that to the next request.
            self.end()
            raise

    def _exchange(self, request: memoryview, seconds: float, stage: str) -> bytes:
        deadline = time.monotonic() + seconds
        request = self._write(request)
        if request:
            self._poll.register(self._stdin, select.POLLOUT)
        while True:
            line = None if request else self._line()
            if line is not None:
                return line
            if len(self._buffer) > LINE_LIMIT:
                raise Incident("endless", stage, f"a line of more than {LINE_LIMIT:,} bytes")
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                what = "its request was not read" if request else "no reply"
                raise Incident("hang", stage, f"{what} within {seconds:g} s")
            ready = {descriptor for descriptor, _ in self._poll.poll(min(remaining, SLICE) * 1000)}
            if self._stdin in ready:
                request = self._write(request)
                if not request:
                    self._poll.unregister(self._stdin)
            if self._stderr in ready and not self._listen():
                self._poll.unregister(self._stderr)
            # A process that has ended may have answered first, so its output is looked at again.
            over = self._stdout in ready or self._process.poll() is not None
            if over and not self._read():
                raise Incident("exit", stage, self._epitaph())

    def _write(self, request: memoryview) -> memoryview:
        """What of the request is still to be written."""
        try:
            return request[os.write(self._stdin, request) :]
        except BlockingIOError:
            return request
        except BrokenPipeError:
            # It reads no more, and may still say something, or end.
            return request[:0]

    def _read(self) -> bool:
        """Whether there was any output to read."""
        try:
            chunk = os.read(self._stdout, CHUNK)
        except BlockingIOError:
            return False
        self._buffer += chunk
        return bool(chunk)

    def _line(self) -> bytes | None:
        end = self._buffer.find(b"\n", self._scanned)
        if end < 0:
            self._scanned = len(self._buffer)
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        self._scanned = 0
        return line

    def _listen(self) -> bool:
        """Keep the end of what is said on standard error; whether there was any."""
        try:
            said = os.read(self._stderr, CHUNK)
        except BlockingIOError:
            return False
        self._said = (self._said + said)[-TAIL:]
        return bool(said)

    def _epitaph(self) -> str:
        """How the process ended, and its last words."""
        try:
            status = self._process.wait(GRACE)
        except subprocess.TimeoutExpired:
            how = "closed its standard output"
        else:
            how = (
                f"was ended by {_signal(-status)}" if status < 0 else f"ended with status {status}"
            )
        # What it said before it ended is in the pipe; an heir may go on talking.
        for _ in range(TAIL):
            if not self._listen():
                break
        words = [line.strip() for line in self._said.decode("utf-8", "replace").splitlines()]
        named = [line for line in words if ERROR.match(line)][-1:]
        return "; ".join([how, *(named or [line for line in words if line][-LAST_WORDS:])])


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def go() -> NoReturn:
    """End this process at once, and all that it has started here; from whichever of its threads."""
    # Never released: nothing is started any more.
    _births.acquire()
    for pid in tuple(_living):
        _kill(pid)
    os._exit(1)


def _end(process: subprocess.Popen[bytes]) -> None:
    _kill(process.pid)
    _living.discard(process.pid)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    process.wait()


def _kill(pid: int) -> None:
    # The group outlives its leader while anybody is in it.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
