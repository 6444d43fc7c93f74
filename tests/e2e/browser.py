"""Chromium without a window, as a client that decides for itself what it trusts and speaks."""

import base64
import hashlib
import json
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import websocket
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

CHROMIUM = shutil.which("chromium") or ""
_PATIENCE_S = 120.0
_ALWAYS = (
    "--headless=new",
    "--no-sandbox",  # the tests may run as root
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-dev-shm-usage",
    "--no-first-run",
)


def pin_of(certificate: Path) -> str:
    """Return what names the key of a certificate for ``--ignore-certificate-errors-spki-list``."""
    key = x509.load_pem_x509_certificate(certificate.read_bytes()).public_key()
    digest = hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).digest()
    return base64.b64encode(digest).decode()


def page(url: str, *, profile: Path, host: str, port: int, trusted: Path) -> str:
    """Open a page and return what it shows; ``host`` is at ``port`` of 127.0.0.1.

    Of all certificates that no public authority signed, only one with the key of ``trusted`` is taken.
    """
    arguments = [
        *_ALWAYS,
        f"--user-data-dir={profile}",
        f"--host-resolver-rules=MAP {host}:443 127.0.0.1:{port}, MAP {host} 127.0.0.1, EXCLUDE 127.0.0.1",
        f"--ignore-certificate-errors-spki-list={pin_of(trusted)}",
        "--virtual-time-budget=10000",
        "--dump-dom",
    ]
    done = subprocess.run(
        [CHROMIUM, *arguments, url],
        capture_output=True,
        text=True,
        check=False,
        timeout=_PATIENCE_S,
        env={**os.environ, "HOME": str(profile)},
    )
    return done.stdout


class Tab:
    """One page in a browser of its own, asked by the DevTools protocol; a context manager.

    ``complaints`` are the errors and warnings of the page since it was opened: exceptions, the console, what its policy
    blocked.
    """

    def __init__(self, profile: Path) -> None:
        self.complaints: list[str] = []
        self._number = 0
        profile.mkdir(parents=True)
        with (profile / "chromium.log").open("wb") as log:
            self._process = subprocess.Popen(
                [CHROMIUM, *_ALWAYS, f"--user-data-dir={profile}", "--remote-debugging-port=0", "about:blank"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "HOME": str(profile)},
            )
        try:
            port_file = profile / "DevToolsActivePort"
            self.until(lambda: port_file.exists() and "\n" in port_file.read_text(), "Chromium listens")
            self._port = int(port_file.read_text().splitlines()[0])
            self.until(self._pages, "there is a page")
            url = self._pages()[0]["webSocketDebuggerUrl"]
            self._socket = websocket.create_connection(url, timeout=_PATIENCE_S, suppress_origin=True)
        except BaseException:
            self._end()
            raise
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self._end()

    def _end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _pages(self) -> list[dict[str, Any]]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/json/list", timeout=_PATIENCE_S) as answer:
            found: list[dict[str, Any]] = json.load(answer)
        return [each for each in found if each["type"] == "page"]

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol; return its result."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv())
            if message.get("id") == self._number:
                assert "error" not in message, (method, message)
                result: dict[str, Any] = message["result"]
                return result
            self._note(message)

    def _note(self, event: dict[str, Any]) -> None:
        parameters = event.get("params", {})
        match event.get("method"):
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(parameters["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if parameters["type"] in {"error", "warning", "assert"}:
                self.complaints.append(json.dumps(parameters["args"]))
            case "Log.entryAdded" if parameters["entry"]["level"] in {"error", "warning"}:
                self.complaints.append(json.dumps(parameters["entry"]))

    def open(self, url: str) -> None:
        """Open a page; what it complained of before is forgotten."""
        self.complaints.clear()
        self.send("Page.navigate", url=url)
        self.until(lambda: self.run("location.href") == url and self.run("document.readyState") == "complete", url)

    def run(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript in the page."""
        result = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def look(self, *, width: int, height: int, dark: bool = False) -> None:
        """Have a window of this size, with this colour scheme; narrow ones are those of a phone."""
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self) -> bytes:
        """Return what is seen as PNG."""
        return base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"])

    def until(self, condition: Callable[[], object], what: str, patience_s: float = _PATIENCE_S) -> None:
        """Wait for a condition. Raises: AssertionError."""
        end = time.monotonic() + patience_s
        while not condition():
            assert time.monotonic() < end, f"waited for: {what}; complaints: {self.complaints}"
            time.sleep(0.05)
