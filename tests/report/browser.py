"""A browser that is controlled over a pipe by its developer protocol, so that only the browser must be installed."""

import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_PATIENCE = 60.0  # seconds for one answer
_FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage")
# The browser reads the protocol from descriptor 3 and writes it to descriptor 4.
_JOIN = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find() -> str | None:
    """Return the path of an installed browser, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Tab:
    """A page and its network requests."""

    def __init__(self, reads: int, writes: int) -> None:
        self._reads, self._writes = reads, writes
        self._buffer = b""
        self._last = 0
        self._session: str | None = None
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Accessibility"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        """Call a method of the protocol, and return its answer."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": arguments}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._writes, json.dumps(message).encode() + b"\0")
        answer = self._wait("id", self._last)
        assert "error" not in answer, f"{method}: {answer['error']}"
        result: dict[str, Any] = answer["result"]
        return result

    def open(self, page: Path) -> None:
        """Load a file and everything it needs."""
        self.call("Page.navigate", url=page.as_uri())
        self._wait("method", "Page.loadEventFired")

    def run(self, script: str) -> Any:
        """Return the value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def resize(self, width: int, height: int = 800) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def look(self, media: str = "screen", scheme: str = "light") -> None:
        """Emulate paper or a screen, bright or dark."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=media, features=features)

    def _wait(self, key: str, value: Any) -> dict[str, Any]:
        deadline = time.monotonic() + _PATIENCE
        while True:
            message, found, rest = self._buffer.partition(b"\0")
            if not found:
                left = deadline - time.monotonic()
                assert left > 0, f"the browser said nothing about {key}={value} for {_PATIENCE} s"
                if select.select([self._reads], [], [], left)[0]:
                    piece = os.read(self._reads, 2**20)
                    assert piece, "the browser closed its end"
                    self._buffer += piece
                continue
            self._buffer = rest
            said: dict[str, Any] = json.loads(message)
            if said.get("method") == "Network.requestWillBeSent":
                self.requests.append(said["params"]["request"]["url"])
            if said.get(key) == value:
                return said


@contextmanager
def tab(path: str, profile: Path) -> Iterator[Tab]:
    """Start a browser with one page, and end it with the block."""
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    command = [path, *_FLAGS, f"--user-data-dir={profile}", "--remote-debugging-pipe"]
    joined = [sys.executable, "-c", _JOIN, str(theirs_in), str(theirs_out), *command]
    process = subprocess.Popen(joined, pass_fds=(theirs_in, theirs_out), stderr=subprocess.DEVNULL)
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        yield Tab(ours_in, ours_out)
    finally:
        os.close(ours_out)  # the browser ends with its pipe
        os.close(ours_in)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
