"""Firefox without a driver of its own: asked over WebDriver BiDi, the protocol that it serves itself.

Its specification: https://w3c.github.io/webdriver-bidi/; used are session.new, session.subscribe, browsingContext.getTree and
navigate, script.evaluate, and the event log.entryAdded.
"""

import asyncio
import json
import os
import shutil
import subprocess
import time

import aiohttp

BEGINS_S = 60.0
ANSWERS_S = 60.0


def firefox():
    """Return where a Firefox is, or ""; KEPLAB_FIREFOX names another one."""
    named = os.environ.get("KEPLAB_FIREFOX")
    return named or next((found for name in ("firefox-esr", "firefox") if (found := shutil.which(name))), "")


def ask(path, profile, address, scripts):
    """Open an address without a network, and return the values of expressions, awaited one after the other, and what
    the console complained of. `profile`: an empty folder."""
    words = [path, "--headless", "--profile", str(profile), "--remote-debugging-port", "0", "about:blank"]
    # A proxy that does not exist stands between it and any network.
    proxies = "".join(
        f'user_pref("network.proxy.{kind}", "127.0.0.1"); user_pref("network.proxy.{kind}_port", 9);'
        for kind in ("http", "ssl")
    )
    (profile / "user.js").write_text(f'user_pref("network.proxy.type", 1); {proxies}')
    browser = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        return asyncio.run(_asked(browser, profile, address, scripts))
    finally:
        browser.terminate()
        browser.wait(30)


async def _asked(browser, profile, address, scripts):
    async with aiohttp.ClientSession() as session:
        return await _Session(await _connected(session, browser, profile)).ask(address, scripts)


async def _connected(session, browser, profile):
    """Return the socket; Firefox writes its port into its profile once it listens."""
    port = profile / "WebDriverBiDiServer.json"
    end_s = time.monotonic() + BEGINS_S
    while not port.exists():
        assert browser.poll() is None, "Firefox ended"
        assert time.monotonic() < end_s, "Firefox does not listen"
        await asyncio.sleep(0.05)
    found = json.loads(port.read_text())
    return await session.ws_connect(f"ws://{found['ws_host']}:{found['ws_port']}/session", max_msg_size=0)


class _Session:
    """One page of Firefox."""

    def __init__(self, socket):
        self._socket, self._number, self.complaints = socket, 0, []

    async def ask(self, address, scripts):
        await self._call("session.new", capabilities={})
        await self._call("session.subscribe", events=["log.entryAdded"])
        (page,) = (await self._call("browsingContext.getTree"))["contexts"]
        await self._call("browsingContext.navigate", context=page["context"], url=address, wait="complete")
        values = []
        for script in scripts:
            target = {"context": page["context"]}
            found = await self._call("script.evaluate", expression=script, target=target, awaitPromise=True)
            assert "result" in found, found
            values.append(found["result"].get("value"))
        return values, self.complaints

    async def _call(self, method, **params):
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": params})
        while True:
            message = json.loads((await self._socket.receive(ANSWERS_S)).data)
            if message.get("method") == "log.entryAdded" and message["params"]["level"] in ("error", "warn"):
                self.complaints.append(message["params"]["text"])
            if message.get("id") == self._number:
                assert message["type"] == "success", message
                return message["result"]
