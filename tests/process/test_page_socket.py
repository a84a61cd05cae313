"""A page that does not read: what it misses it is told, what it shows afterwards is the state, and the mesh goes on (check 22)."""

import asyncio

import aiohttp
import numpy as np
from aiohttp import web

from lab.recordings import frames
from lab.ui.outbox import BUDGET_BYTES
from lab.ui.session import COOKIE
from tests.process.mesh_without_processes import KEY, MadeUp


def test_22_a_page_that_does_not_read_has_the_state_afterwards_and_slows_nothing(tmp_path):
    async def main():
        mesh = MadeUp(tmp_path)
        live = mesh.live
        runner = web.AppRunner(mesh.server.application())
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0]
        following = asyncio.create_task(live.run())
        mirror, gaps, lines = frames.Mirror(), [], 0
        try:
            async with aiohttp.ClientSession() as http:
                page = await http.ws_connect(
                    f"http://{host}:{port}/ui/v1/socket", headers={"Cookie": f"{COOKIE}={KEY}"}, max_msg_size=0
                )
                await page.send_str('{"t": "sub", "run": "live"}')
                while not live.listeners:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
                (listener,) = live.listeners
                page._response.connection.protocol.pause_reading()
                while not (listener.outbox.cut_lines_total and listener.outbox.merged_total):
                    await mesh.step()
                await mesh.settle()
                assert mesh.rv == live.model.rv, "the watch goes on while the page waits"
                assert listener.outbox.waiting_bytes <= BUDGET_BYTES
                page._response.connection.protocol.resume_reading()
                async for message in page:
                    frame = mirror.take(message.data)
                    gaps += [frame.header] if frame.kind == frames.GAP else []
                    lines += len(frame.header["lines"]) if frame.kind == frames.LINES else 0
                    if (
                        frame.kind <= frames.DELTA
                        and frame.rv == mesh.rv
                        and mirror.strings == live.model.strings
                        and _same(live, mirror)
                    ):
                        break
                await page.close()
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await runner.cleanup()
        return gaps, lines, mesh.rv

    async def bounded():
        async with asyncio.timeout(60):
            return await main()

    gaps, lines, rv = asyncio.run(bounded())
    assert gaps
    assert lines + sum(gap["lines"] for gap in gaps) == rv - 1


def _same(live, mirror):
    pods = live.model.columns("pods")
    return len(pods["name"]) == len(mirror.tables["pods"]["name"]) and all(
        np.array_equal(values, mirror.tables["pods"][name]) for name, values in pods.items()
    )
