"""Serve a Python engine: `python -m medusa_conformance.serve MODULE:ATTRIBUTE`.

The attribute is called as `factory(coordinate, capacity)` and gives an engine: any object with some
of the protocol's stages. `spec/line-protocol.md` says what is read and written.
"""

from __future__ import annotations

import os
import select
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from threading import Thread
from typing import Any, BinaryIO

import medusa_manifests
from medusa_conformance.engine_name import misnamed
from medusa_spec.documents import validate
from medusa_spec.errors import InputError, Refused, Unsupported
from medusa_spec.loading import parse_coordinate
from medusa_spec.stages import STAGES
from medusa_spec.wire import (
    PROTOCOL,
    plain,
    read_arguments,
    read_request,
    short,
    write_answer,
    write_line,
)
from medusa_spec.wire_array import LINE_LIMIT, Place

USAGE = "usage: python -m medusa_conformance.serve MODULE:ATTRIBUTE"
USAGE_ERROR = 3

SMALLEST = ("six-node", "root-only", "chain-three", "a31-nine-row")
"""Frozen coordinates, of which one is enough to see what an engine can do."""

GRACE = 2.0
"""Seconds that an engine gets to finish what it does once nobody asks any more."""


class Server:
    """One target, its sessions, and an answer to each request."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._sessions: dict[int, Any] = {}
        self._factory: Any = None
        self._fault = ""
        try:
            self._factory = _imported(target)
        except InputError as error:
            self._fault = str(error)

    def reply(self, line: bytes) -> dict[str, Any] | None:
        """The reply to a line; `None` to a request to end."""
        number = None
        try:
            request = read_request(line)
            number = request["id"]
            if request["command"] == "stop" and "session" not in request:
                return None
            if self._fault:
                return {"id": number, "error": self._fault}
            return {"id": number, "answer": self._answer(request)}
        except Refused as refused:
            return {"id": number, "refused": short(str(refused))}
        except Unsupported as unsupported:
            return {"id": number, "unsupported": short(str(unsupported))}
        except (Exception, SystemExit) as error:
            traceback.print_exc()
            return {"id": number, "error": _told(error)}

    def _answer(self, request: Mapping[str, Any]) -> Any:
        command = request["command"]
        if command == "capabilities":
            return self._capabilities()
        session = request["session"]
        if command == "start":
            document = request["coordinate"]
            validate(document, "coordinate", "request: coordinate")
            self._sessions[session] = self._factory(parse_coordinate(document), request["capacity"])
            return {}
        if session not in self._sessions:
            raise InputError("request", "session", f"{session} was never started, or has ended")
        if command == "stop":
            del self._sessions[session]
            return {}
        stage = request["stage"]
        method = getattr(self._sessions[session], stage, None)
        if not callable(method):
            raise Unsupported(f"the engine has no stage {stage}")
        answer = method(*read_arguments(stage, request["arguments"]))
        return write_answer(stage, answer, "base64")

    def _capabilities(self) -> dict[str, Any]:
        seen = self._shown()
        name, version = (getattr(seen, field, None) for field in ("name", "version"))
        dialect = getattr(seen, "dialect", {})
        if not isinstance(dialect, Mapping):
            raise InputError(self._target, "dialect", "is no mapping")
        return {
            "protocol": PROTOCOL,
            "name": name if isinstance(name, str) and name else self._target,
            "version": version if isinstance(version, str) and version else None,
            "language": "Python",
            "stages": list(_stages(seen)),
            "dialect": plain(dialect, Place(self._target, "dialect")),
            "arrays": "base64",
        }

    def _shown(self) -> Any:
        """What shows the stages: the class, or an engine where a function makes them."""
        if isinstance(self._factory, type) and any(_stages(self._factory)):
            return self._factory
        said = ""
        for name in SMALLEST:
            coordinate = medusa_manifests.load(name)
            try:
                return self._factory(coordinate, coordinate.capacity)
            except (Refused, Unsupported) as no:
                said = str(no)
            except (Exception, SystemExit) as error:
                traceback.print_exc()
                rule = f"makes no engine for the coordinate {name}: {_told(error)}"
                raise InputError(self._target, "", rule) from None
        raise InputError(self._target, "", f"makes no engine for {', '.join(SMALLEST)}: {said}")


def _stages(seen: Any) -> Iterator[str]:
    return (stage for stage in STAGES if callable(getattr(seen, stage, None)))


def _imported(target: str) -> Any:
    fault = misnamed(target, Path.cwd())
    if fault is not None:
        raise InputError(target, "", fault)
    module, _, attribute = target.partition(":")
    try:
        found = import_module(module)
    except (Exception, SystemExit) as error:
        traceback.print_exc()
        raise InputError(target, "", f"cannot import {module}: {_told(error)}") from None
    try:
        factory = attrgetter(attribute)(found)
    except AttributeError:
        raise InputError(target, "", f"{module} has no attribute {attribute}") from None
    if not callable(factory):
        raise InputError(target, "", "is not callable; factory(coordinate, capacity) is called")
    return factory


def _told(error: BaseException) -> str:
    """An exception in one line, and the last place in the engine's folder that it passed."""
    text = short(
        str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
    )
    folder = Path.cwd()
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.is_relative_to(folder) and "site-packages" not in path.parts:
            return f"{text} ({path.relative_to(folder)}:{frame.lineno})"
    return text


def _private_streams() -> tuple[BinaryIO, BinaryIO]:
    """The protocol's own ends of standard input and output.

    Whatever the engine prints goes to standard error, and it reads nothing: a line of its own
    would be taken for a reply, and a request that it read would never be answered.
    """
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return requests, replies


def _follow(requests: BinaryIO) -> None:
    """End soon after who asks has gone, whatever the engine is busy with."""
    poll = select.poll()
    # Without events of its own: data is not waited for, and a hang-up always told.
    poll.register(requests, 0)
    poll.poll()
    time.sleep(GRACE)
    os._exit(1)


def main(arguments: list[str]) -> int:
    """Answer requests until there are no more, or one asks to end."""
    if len(arguments) != 1:
        print(USAGE, file=sys.stderr)
        return USAGE_ERROR
    requests, replies = _private_streams()
    Thread(target=_follow, args=(requests,), daemon=True).start()
    if sys.path[:1] != [os.getcwd()]:
        sys.path.insert(0, os.getcwd())
    server = Server(arguments[0])
    while line := requests.readline(LINE_LIMIT + 1):
        reply = server.reply(line)
        if reply is None:
            break
        try:
            written = write_line(reply, "reply")
        except InputError as error:
            written = write_line({"id": reply["id"], "error": str(error)}, "reply")
        replies.write(written)
        replies.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
