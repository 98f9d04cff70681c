"""Chromium without a window, and the screenshots of docs/console.md: ``python -m docs.site.screenshots`` retakes them.

They show a small shop that is made anew: look at the pictures before you commit them.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

__all__ = ["CHROMIUM", "Browser", "console_of", "retake"]

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
"""The browser of this machine; None: there is none."""
IMAGES = Path(__file__).parent.parent / "img"
_BEGIN = """
import fcntl, os, sys
requests, answers = (fcntl.fcntl(int(one), fcntl.F_DUPFD, 10) for one in sys.argv[1:3])
os.dup2(requests, 3), os.dup2(answers, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""Becomes the browser, which reads requests from file descriptor 3 and writes answers to 4."""
_END_S = 10
WIDE, NARROW = (1180, 780), (420, 900)


class Browser:
    """One page of a browser, driven by the DevTools protocol over a pipe. Ends with its context."""

    def __init__(self, folder: Path) -> None:
        """Start it, with its profile in a folder. Raises ``RuntimeError`` where there is no Chromium."""
        if CHROMIUM is None:
            raise RuntimeError("needs Chromium: apt-get install chromium")
        (read, answers), (requests, write) = os.pipe(), os.pipe()
        command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        command += ["--remote-debugging-pipe", f"--user-data-dir={folder}", "about:blank"]
        begun = [sys.executable, "-c", _BEGIN, str(requests), str(answers), *command]
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(begun, pass_fds=(requests, answers), stdout=quiet, stderr=quiet)  # noqa: S603
        os.close(requests)
        os.close(answers)
        self._write = os.fdopen(write, "wb", buffering=0)
        self._read = os.fdopen(read, "rb", buffering=0)
        self._rest = b""
        self._events: list[str] = []
        self._number = 0
        self._session = ""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.ask("Page.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self._session = ""
        try:
            self.ask("Browser.close")  # killed, it leaves files behind
            self._process.wait(_END_S)
        except (RuntimeError, OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._write.close()
        self._read.close()

    def ask(self, method: str, **params: object) -> dict[str, Any]:
        """The result of a command. Raises ``RuntimeError`` with what the browser says."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        self._write.write(json.dumps(message).encode() + b"\0")
        while True:
            found = self._next()
            if found.get("id") == self._number:
                if "error" in found:
                    raise RuntimeError(f"{method}: {found['error']['message']}")
                result: dict[str, Any] = found["result"]
                return result

    def open(self, address: str, *, width: int = 1180, height: int = 780, dark: bool = False) -> None:
        """Load a page in a window of that size, until all of it is there."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.ask("Emulation.setDeviceMetricsOverride", **metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self._events.clear()
        self.ask("Page.navigate", url=address)
        self._wait_for_page()

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page; that of a promise, once it is there."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(str(found["exceptionDetails"]))
        return found["result"].get("value")

    def press_tab(self) -> None:
        """Go on to what is next."""
        self._press("Tab", 9)

    def follow(self) -> None:
        """Press Enter on a link, and wait for its page."""
        self._events.clear()
        self._press("Enter", 13, text="\r")
        self._wait_for_page()

    def picture(self) -> bytes:
        """The window as PNG."""
        return base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"])

    def _press(self, key: str, code: int, **text: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    def _wait_for_page(self) -> None:
        while "Page.loadEventFired" not in self._events:
            self._next()

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            read = self._read.read(65_536)
            if not read:
                raise RuntimeError("the browser has ended")
            self._rest += read
        message, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        if "method" in found:
            self._events.append(found["method"])
        return found


@contextmanager
def console_of(cluster: Path, *options: str) -> Iterator[str]:
    """The address of a console that runs meanwhile."""
    command = [sys.executable, "-m", "sparklog", "-c", str(cluster), "ui", "--listen", "127.0.0.1:0", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:  # noqa: S603
        try:
            yield (process.stderr.readline() if process.stderr else "").removeprefix("open ").rstrip("/\n")
        finally:
            process.terminate()


def retake() -> None:
    """Make the shop, and take its pictures."""
    with tempfile.TemporaryDirectory() as folder:
        cluster = Path(folder) / "shop"
        _make_shop(cluster)
        orders = "/topics/orders/records?mode=key&key=user-7&limit=5"
        pictures = {
            "console_overview": ("/", WIDE, False),
            "console_overview_dark": ("/", WIDE, True),
            "console_records": (orders, WIDE, False),
            "console_records_narrow": (orders, NARROW, False),
            "console_maintenance": ("/#maintenance", WIDE, False),
        }
        ended = threading.Event()
        with console_of(cluster, "--interval", "1") as address, Browser(Path(folder) / "profile") as browser:
            orderer = threading.Thread(target=_go_on_ordering, args=(cluster, ended))
            orderer.start()
            ended.wait(20)  # so that there is something over time
            for name, (path, (width, height), dark) in pictures.items():
                browser.open(f"{address}{path}", width=width, height=height, dark=dark)
                browser.evaluate(
                    "document.querySelector('h1').textContent = document.querySelector('h1').textContent"
                    ".replace(/file:.*/, 'file:///data/shop')"
                )
                (IMAGES / f"{name}.png").write_bytes(browser.picture())
            ended.set()
            orderer.join()


def _make_shop(cluster: Path) -> None:
    from sparklog.admin import Admin, NewTopic
    from sparklog.compaction import maintain
    from sparklog.log import open_cluster
    from sparklog.model import OffsetAndMetadata, TopicPartition
    from sparklog.producer import Producer

    typed = pa.schema([("sku", pa.string()), ("price", pa.decimal128(9, 2))])
    admin = Admin(cluster)
    admin.create_topics([NewTopic("orders", 4), NewTopic("payments", 2, configs={"cleanup.policy": "compact"})])
    admin.create_topics([NewTopic("prices", 2, value_schema=typed)])
    with Producer(cluster=cluster, transactional_id="checkout") as producer:
        producer.init_transactions()
        for number in range(8):
            producer.begin_transaction()
            for one in range(20):
                producer.send("payments", b'{"paid": true}', key=b"user-%d" % (one % 2))
            producer.send("orders", b'{"total": %d}' % number, key=b"user-%d" % number)
            producer.commit_transaction()
    with Producer(cluster=cluster) as producer:
        for _ in range(4):
            producer.send_batch(
                "prices", pa.table({"sku": ["a", "b"] * 50, "price": pa.array([1] * 100, typed.field(1).type)})
            )
            producer.flush()
    maintain(open_cluster(cluster))
    for group in ("billing", "mail"):
        admin.alter_group_offsets(
            group, {TopicPartition("orders", number): OffsetAndMetadata(0) for number in range(4)}
        )


def _go_on_ordering(cluster: Path, ended: threading.Event) -> None:
    from sparklog.producer import Producer

    number = 0
    with Producer(cluster=cluster, linger_ms=100) as producer:
        while not ended.wait(1.0):
            for one in range(20 + 7 * (number % 9)):
                value = {"total": number, "customer": f"c{one}", "items": [{"sku": "a"}, {"sku": "b"}]}
                headers = [("trace", b"x%d" % one)]
                producer.send("orders", json.dumps(value).encode(), key=b"user-%d" % (one % 40), headers=headers)
            number += 1


if __name__ == "__main__":
    retake()
