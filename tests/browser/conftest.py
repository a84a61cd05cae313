"""Browser, pages and what they show. Where no Chromium is, every test of this folder skips and says so in one line."""

import asyncio
import threading

import pytest
from aiohttp import web

from tests.browser import recorded
from tests.browser.big_cluster import BigCluster
from tests.browser.driver import Browser, chromium
from tests.browser.feed import Feed


@pytest.fixture(scope="session")
def browser():
    """One browser for all; each test has pages of its own."""
    path = chromium()
    if not path:
        pytest.skip("no Chromium: apt-get install chromium, or name one in KEPLAB_CHROMIUM")
    made = Browser(path)
    yield made
    made.close()


@pytest.fixture
def new_page(browser):
    """Make pages; at the end none of them may have complained."""
    pages = []

    def make(**how):
        pages.append(browser.page(**how))
        return pages[-1]

    yield make
    for page in pages:
        problems = list(page.problems)
        page.close()
        assert problems == []


@pytest.fixture(scope="session")
def history():
    return recorded.some_history()


@pytest.fixture(scope="session")
def replay(tmp_path_factory, history):
    """The page of one made-up recording, as a file."""
    folder = tmp_path_factory.mktemp("replay")
    return recorded.page_of(folder, recorded.record(folder / "a.keprec", history))


class Served:
    """A feed in a thread. `run(f)` calls a function where the server runs; `send(frames)` sends to all pages."""

    def __init__(self, feed):
        self.feed = feed
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self.port = 0
        self.start()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.port}/"

    def run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(30)

    def start(self):
        async def begin():
            self._runner = web.AppRunner(self.feed.app(), shutdown_timeout=0.1)
            await self._runner.setup()
            site = web.TCPSite(self._runner, "127.0.0.1", self.port)
            await site.start()
            self.port = self._runner.addresses[0][1]

        self.run(begin())

    def stop(self):
        async def end():
            for socket in list(self.feed.sockets):
                await socket.close()
            await self._runner.cleanup()

        self.run(end())

    def send(self, frames):
        async def give():
            for socket in list(self.feed.sockets):
                for each in frames:
                    await socket.send_bytes(each)

        self.run(give())

    def close(self):
        self.stop()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


@pytest.fixture
def serve():
    """Serve a made-up cluster; nothing changes unless the test sends it."""
    made = []

    def begin(nodes=60, pods=900, seed=1, **options):
        made.append(Served(Feed(BigCluster(nodes, pods, seed), 0, **options)))
        return made[-1]

    yield begin
    for each in made:
        each.close()
