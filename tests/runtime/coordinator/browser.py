"""A headless Chromium that is asked through its debugging socket."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.request import urlopen

from websockets.asyncio.client import ClientConnection, connect

LIMIT_S = 90.0


class Tab:
    """One page.  ``said``: what the browser logged of it, errors and refusals of its content policy among them."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._count = 0
        self.said: list[str] = []

    async def call(self, method: str, **parameters: object) -> Any:
        """The result of one command."""
        self._count += 1
        await self._socket.send(json.dumps({"id": self._count, "method": method, "params": parameters}))
        async with asyncio.timeout(LIMIT_S):
            while True:
                message = json.loads(await self._socket.recv())
                if message.get("method") == "Log.entryAdded":
                    self.said.append(message["params"]["entry"]["text"])
                if message.get("method") == "Runtime.exceptionThrown":
                    self.said.append(str(message["params"]["exceptionDetails"]))
                if message.get("id") == self._count:
                    return message["result"]

    async def value(self, script: str) -> Any:
        """What an expression is worth on the page."""
        return (await self.call("Runtime.evaluate", expression=script, returnByValue=True))["result"].get("value")

    async def until(self, script: str) -> None:
        """Wait until an expression holds."""
        async with asyncio.timeout(LIMIT_S):
            while not await self.value(script):
                await asyncio.sleep(0.05)

    async def open(self, url: str, width: int, *, dark: bool = False) -> None:
        """Go to ``url``."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False
        )
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        await self.call("Emulation.setEmulatedMedia", features=scheme)
        await self.call("Page.navigate", url=url)


def _read(url: str) -> bytes:
    with urlopen(url, timeout=LIMIT_S) as answer:
        return bytes(answer.read())


@asynccontextmanager
async def browser() -> AsyncIterator[Tab]:
    """A page of a browser of its own."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert path is not None, "no Chromium on this machine: this tier needs one"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = await asyncio.create_subprocess_exec(
            path,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            f"--user-data-dir={profile}",
            "--remote-debugging-port=0",
            "--disable-dev-shm-usage",
            "about:blank",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            assert process.stderr is not None
            async with asyncio.timeout(LIMIT_S):
                while b"DevTools listening on ws://" not in (line := await process.stderr.readline()):
                    assert line, "the browser ended"
            port = line.decode().partition("ws://127.0.0.1:")[2].partition("/")[0]
            async with asyncio.timeout(LIMIT_S):
                found = await asyncio.to_thread(_read, f"http://127.0.0.1:{port}/json/list")
            targets = json.loads(found)
            (address,) = [one["webSocketDebuggerUrl"] for one in targets if one["type"] == "page"]
            async with connect(address, max_size=None, proxy=None) as socket:
                tab = Tab(socket)
                for domain in ("Page", "Runtime", "Log"):
                    await tab.call(f"{domain}.enable")
                yield tab
                await tab.call("Browser.close")
        finally:
            if process.returncode is None:
                try:
                    await asyncio.wait_for(process.communicate(), 10)
                except TimeoutError:
                    process.kill()
                    await process.communicate()
