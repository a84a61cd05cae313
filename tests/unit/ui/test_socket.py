"""What a page is sent that looks at a recording: every line, however slow it is and wherever it goes meanwhile."""

import asyncio
from types import SimpleNamespace

import msgspec
import pytest
from aiohttp import WSMsgType

from lab.recordings import frames
from lab.recordings.reader import Recording
from lab.ui.lines import shown_of
from lab.ui.outbox import Outbox
from lab.ui.runs import Run
from lab.ui.socket import Page
from tests.browser import recorded


class Socket:
    """A connection that takes nothing until all messages were read, and is gone when nothing more comes."""

    def __init__(self, *messages):
        self._messages = [msgspec.json.encode(each) for each in messages]
        self._has_read = asyncio.Event()
        self.sent = []

    async def __aiter__(self):
        for each in self._messages:
            yield SimpleNamespace(type=WSMsgType.TEXT, data=each)
        self._has_read.set()
        while len(self.sent) < 3 or self.sent[-1] is not self.last:
            self.last = self.sent[-1] if self.sent else None
            for _ in range(20):
                await asyncio.sleep(0)

    last = None

    async def send_bytes(self, frame):
        await self._has_read.wait()
        self.sent.append(frame)


@pytest.fixture
def run(tmp_path):
    history = recorded.some_history()
    found = Run("one", Recording.open(recorded.record(tmp_path / "a.keprec", history)))
    yield found
    found.recording.close()


def frames_of(run, *messages):
    async def serve():
        socket, runs = Socket(*messages), SimpleNamespace(live=None, of=lambda *_: asyncio.sleep(0, run))
        page = Page(socket, runs)
        page.outbox = Outbox(2_000)
        await page.serve()
        return [frames.read_frame(frame) for frame in socket.sent]

    return asyncio.run(serve())


@pytest.mark.parametrize("goes_on", [[], [{"t": "seek", "run": "one", "rv": 9}, {"t": "seek", "run": "one", "rv": 20}]])
def test_every_line_of_a_recording_is_sent_to_a_page_that_is_slow_or_seeks_meanwhile(run, goes_on):
    every = shown_of(run.recording.lines())[0]
    found = frames_of(run, {"t": "sub", "run": "one"}, *goes_on)
    lines = [line for frame in found if frame.kind == frames.LINES for line in frame.header["lines"]]

    assert [(line["comp"], line["seq"]) for line in lines] == [(line.comp, line.seq) for line in every]
    assert len(lines) > 30
    assert sum(len(msgspec.json.encode(line)) for line in lines) > 2_000
    assert frames.GAP not in {frame.kind for frame in found}


def test_a_page_that_wants_no_lines_is_sent_none(run):
    kinds = {frame.kind for frame in frames_of(run, {"t": "sub", "run": "one", "lines": False})}

    assert {frames.DICT, frames.NODES, frames.PODS} == kinds
