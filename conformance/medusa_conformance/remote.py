"""An engine in a process of its own, asked through the line protocol (`spec/line-protocol.md`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from medusa_conformance.child import Child
from medusa_conformance.incident import Incident
from medusa_spec.coordinate import Coordinate
from medusa_spec.errors import InputError, Refused, Unsupported
from medusa_spec.wire import (
    read_answer,
    read_capabilities,
    read_reply,
    short,
    write_arguments,
    write_line,
)
from medusa_spec.wire_array import Arrays

START_SECONDS = 60.0
"""The least that a process gets for its first reply: importing torch alone takes seconds."""

QUOTED = 60
"""Characters of a line of rubbish that are shown."""


@dataclass(frozen=True, slots=True)
class Description:
    """What an engine's process says of itself; `stages` are its capabilities."""

    name: str
    version: str | None
    language: str
    stages: frozenset[str]
    dialect: Mapping[str, Any]
    arrays: Arrays


class Remote:
    """One target, and the process that runs it: begun when it is first asked, and again if it ends.

    `timeout` is in seconds, for each request; `environment` is this process's own unless given.
    Every method but `close` raises `Incident` where the process does anything but answer, and
    `InputError` where it cannot be started or says, before anything else, that there is no engine
    to be had.
    """

    def __init__(
        self,
        argv: Sequence[str],
        folder: Path,
        timeout: float = 30.0,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._argv = tuple(argv)
        self._environment = environment
        self._folder = folder
        self._timeout = timeout
        self._child: Child | None = None
        self._description: Description | None = None
        self._requests = count(1)
        self._sessions = count(1)
        self._released: list[tuple[Child, int]] = []
        self._written: tuple[Coordinate, dict[str, Any]] | None = None

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def describe(self) -> Description:
        """What the engine says of itself."""
        self._running()
        assert self._description is not None
        return self._description

    def engine(self, coordinate: Coordinate, capacity: int) -> RemoteEngine:
        """A fresh engine for a coordinate's model, with a cache of so many rows."""
        child = self._running()
        session = next(self._sessions)
        message = {
            "command": "start",
            "session": session,
            "coordinate": self._document(coordinate),
            "capacity": capacity,
        }
        self.ask(child, "start", message)
        return RemoteEngine(self, child, session)

    def close(self) -> None:
        """Let the process go; what does not go is ended, with its group."""
        if self._child is not None:
            self._child.leave(
                write_line({"id": next(self._requests), "command": "stop"}, "request")
            )
            self._child = None

    def ask(self, child: Child, stage: str, message: Mapping[str, Any]) -> Any:
        """The answer to one message, as it was written, behind the farewells that are due."""
        while self._released:
            owner, session = self._released.pop()
            if owner is child:
                farewell = {"command": "stop", "session": session}
                reply = self._reply(child, "stop", farewell, self._timeout)
                if "error" in reply:
                    raise Incident("crash", "stop", reply["error"])
        reply = self._reply(child, stage, message, self._timeout)
        if "answer" in reply:
            return reply["answer"]
        if "refused" in reply:
            raise Refused(short(reply["refused"]))
        if "unsupported" in reply:
            raise Unsupported(short(reply["unsupported"]))
        raise Incident("crash", stage, reply["error"])

    def release(self, child: Child, session: int) -> None:
        """Note that nobody will ask this session again; its process is told so in time."""
        if child.alive:
            self._released.append((child, session))

    def _document(self, coordinate: Coordinate) -> dict[str, Any]:
        # Many engines are made for one coordinate. What is expected of them is the judge's.
        if self._written is None or self._written[0] is not coordinate:
            self._written = coordinate, replace(coordinate, expected={}).document()
        return self._written[1]

    def _running(self) -> Child:
        if self._child is None or not self._child.alive:
            self._child = child = Child(self._argv, self._folder, self._environment)
            self._requests = count(1)
            seconds = max(self._timeout, START_SECONDS)
            reply = self._reply(child, "capabilities", {"command": "capabilities"}, seconds)
            if "answer" not in reply:
                child.end()
                text = next(text for key, text in reply.items() if key != "id")
                if self._description is None:
                    raise InputError("target", "", short(text))
                # There was an engine to be had before, and somebody's run is going on.
                raise Incident("crash", "capabilities", text)
            self._description = _described(child, reply["answer"])
        return self._child

    def _reply(
        self, child: Child, stage: str, message: Mapping[str, Any], seconds: float
    ) -> dict[str, Any]:
        number = next(self._requests)
        line = child.exchange(write_line({"id": number, **message}, "request"), seconds, stage)
        try:
            reply = read_reply(line)
        except InputError as error:
            shown = line[:QUOTED].decode("utf-8", "replace")
            raise _rubbish(child, stage, f"{error}; the line begins {shown!r}") from None
        if reply["id"] != number:
            raise _rubbish(child, stage, "reply: id: is not that of the request")
        return reply


class RemoteEngine:
    """A session: a method for each stage that its process has, with the arguments of `STAGES`.

    A method answers with plain numbers, mappings and arrays. It raises `Refused`, `Unsupported`, or
    `Incident`, at once where the process has ended since.
    """

    def __init__(self, remote: Remote, child: Child, session: int) -> None:
        self._remote = remote
        self._child = child
        self._session = session
        self._description = remote.describe()

    def __getattr__(self, stage: str) -> Callable[..., Any]:
        if stage.startswith("_") or stage not in self._description.stages:
            raise AttributeError(f"the engine has no stage {stage}")

        def call(*given: Any) -> Any:
            if not self._child.alive:
                text = "the process that held this engine has ended"
                raise Incident("exit", stage, text, asked=False)
            written = write_arguments(stage, given, self._description.arrays)
            message = {
                "command": "stage",
                "session": self._session,
                "stage": stage,
                "arguments": written,
            }
            answer = self._remote.ask(self._child, stage, message)
            try:
                return read_answer(stage, answer)
            except InputError as error:
                raise _rubbish(self._child, stage, str(error)) from None

        return call

    def __del__(self) -> None:
        self._remote.release(self._child, self._session)


def _described(child: Child, answer: Any) -> Description:
    try:
        said = read_capabilities(answer)
    except InputError as error:
        raise _rubbish(child, "capabilities", str(error)) from None
    return Description(
        name=said["name"],
        version=said["version"],
        language=said["language"],
        stages=frozenset(said["stages"]),
        dialect=said["dialect"],
        arrays=said["arrays"],
    )


def _rubbish(child: Child, stage: str, text: str) -> Incident:
    # Of a process that has once answered out of turn no later line can be trusted.
    child.end()
    return Incident("rubbish", stage, text)
