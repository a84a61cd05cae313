"""A page on a slow line: it is told what it missed, shows the state afterwards, and the mesh waits for nothing (check 22)."""

import asyncio
import threading

import pytest
from aiohttp import web

from tests.browser.test_fold import columns_of, shown
from tests.process.mesh_without_processes import TOKEN, MadeUp

SLOW = 64 * 1024
STEPS_MAX = 400


class Served:
    """The server of a made-up mesh, in a thread."""

    def __init__(self, folder):
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self.mesh = MadeUp(folder)
        self.run(self._begin())

    def run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(60)

    async def _begin(self):
        self._runner = web.AppRunner(self.mesh.server.application(), shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.address = f"http://127.0.0.1:{self._runner.addresses[0][1]}/ui/#t={TOKEN}"
        self._following = asyncio.create_task(self.mesh.live.run())
        while not self.mesh.live.feeds:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        await self.mesh.step()
        await self.mesh.settle()

    async def _end(self):
        await self.mesh.server.close()
        self._following.cancel()
        await asyncio.gather(self._following, return_exceptions=True)
        await self._runner.cleanup()

    def close(self):
        self.run(self._end())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


@pytest.fixture
def served(tmp_path):
    made = Served(tmp_path)
    yield made
    made.close()


async def until_cut(mesh):
    """Go on until lines were cut for the page and rows merged; return in how many steps."""
    (listener,) = mesh.live.listeners
    for steps in range(STEPS_MAX):
        if listener.outbox.cut_lines_total and listener.outbox.merged_total:
            await mesh.settle()
            return steps
        await mesh.step()
    raise AssertionError(f"after {STEPS_MAX} steps nothing had to wait for the page")


def test_22_a_page_on_a_slow_line_learns_what_it_missed_and_shows_the_state(served, new_page):
    page = new_page()
    page.open(served.address)
    page.throughput(SLOW)
    served.run(until_cut(served.mesh))
    live = served.mesh.live
    assert served.mesh.rv == live.model.rv, "the watch goes on while the page waits"
    page.throughput(0)
    page.until("(rv) => __keplab.state.rv.value === rv && __keplab.counters.gaps > 0", served.mesh.rv)

    found = shown(page)
    assert found["strings"] == live.model.strings
    assert {table: found[table] for table in ("nodes", "pods")} == columns_of(live.model)
    assert "not here, nor their marks" in page.text(".banner")
