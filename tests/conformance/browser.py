"""Headless Chromium, driven through the DevTools protocol over a pair of pipes."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
"""The browser of this machine, if it has one."""

# In a container it may not make namespaces of its own, and nothing here comes from elsewhere.
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
PATIENCE = 60.0
"""Seconds that an answer may take, on a machine with other work."""


class Browser:
    """One browser with one page; everything that it says is kept in `events`."""

    def __init__(self, folder: Path) -> None:
        assert CHROMIUM is not None
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        log = os.open(folder / "chromium.log", os.O_WRONLY | os.O_CREAT)
        # Chromium reads from descriptor 3 and writes to 4. Numbers from 10 up are none of those
        # that are given away, whichever the pipes have.
        high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (theirs_in, theirs_out, log)]
        self._process = os.posix_spawn(
            CHROMIUM,
            [CHROMIUM, *FLAGS, f"--user-data-dir={folder / 'profile'}", "about:blank"],
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, ours, theirs)
                for ours, theirs in zip((*high, high[2]), (3, 4, 1, 2), strict=True)
            ],
        )
        for end in (theirs_in, theirs_out, log, *high):
            os.close(end)
        self._unread = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        page = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=page, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.kill(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
        os.close(self._in)
        os.close(self._out)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Ask for something, and keep what is said until its answer comes."""
        self._number += 1
        request = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            request["sessionId"] = self._session
        os.write(self._out, json.dumps(request).encode() + b"\0")
        while True:
            said = self._read()
            if said.get("id") == self._number:
                assert "error" not in said, said
                result: dict[str, Any] = said["result"]
                return result
            self.events.append(said)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._in], [], [], PATIENCE)
            assert ready, "the browser does not answer"
            piece = os.read(self._in, 1 << 16)
            assert piece, "the browser has ended"
            self._unread += piece
        message, _, self._unread = self._unread.partition(b"\0")
        said: dict[str, Any] = json.loads(message)
        return said

    def open(self, address: str) -> None:
        """Load a page, and forget what was said of another."""
        self.events.clear()
        self.call("Page.navigate", url=address)
        self.wait("document.readyState === 'complete'")

    def value(self, expression: str) -> Any:
        """What an expression of JavaScript comes to, once it is settled."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait(self, expression: str) -> None:
        """Until an expression is true."""
        until = time.monotonic() + PATIENCE
        while not self.value(expression):
            assert time.monotonic() < until, f"never true: {expression}"
            time.sleep(0.02)

    def screen(self, width: int, height: int, scheme: str = "light") -> None:
        """Be a screen of this size whose owner prefers this colour scheme, and no motion.

        A page that glides to its place would still move below the next click.
        """
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        wishes = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
        features = [{"name": name, "value": value} for name, value in wishes.items()]
        self.call("Emulation.setEmulatedMedia", features=features)

    def click(self, selector: str) -> None:
        """Press the mouse in the middle of the first element that the selector names."""
        found = json.dumps(selector)
        x, y = self.value(
            f"""(() => {{
                const element = document.querySelector({found});
                element.scrollIntoView({{block: "center", behavior: "instant"}});
                const box = element.getClientRects()[0];
                return [box.x + Math.min(box.width / 2, 40), box.y + box.height / 2];
            }})()"""
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def picture(self, target: Path, whole: bool = False) -> None:
        """Save what the screen shows, or the whole page."""
        data = self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        target.write_bytes(base64.b64decode(data))

    def complaints(self) -> list[dict[str, Any]]:
        """Errors, warnings and everything else that reached the console."""
        kinds = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [event for event in self.events if event["method"] in kinds]

    def requests(self) -> list[str]:
        """Addresses that were asked for."""
        asked = "Network.requestWillBeSent"
        return [e["params"]["request"]["url"] for e in self.events if e["method"] == asked]
