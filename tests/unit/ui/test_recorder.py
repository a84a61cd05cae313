"""Where a server records a mesh: beside the recording of another one, unless a file was named."""

import asyncio
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from lab.recordings.format import COMMIT
from lab.recordings.writer import BeingRecorded, NotRecordable
from lab.ui import run, runs
from lab.ui.lines import Entry
from lab.ui.run import Options
from services.telemetry.eventlog import Line


@pytest.fixture
def begin(monkeypatch):
    """Begin a recording while others write these."""

    def recorder(taken, **options):
        def begun(live, rest, path, version):
            if path.name in taken:
                raise BeingRecorded(f"{path} is being written by another command")
            return path.name

        monkeypatch.setattr(run, "LiveRecorder", begun)
        return run._recorder(Options(recording=Path("mesh/ui.keprec"), **options), None, None, "1")

    return recorder


def test_a_second_server_records_beside_the_first(begin):
    assert "ui.keprec" == begin(())
    assert "ui-2.keprec" == begin(("ui.keprec",))
    assert "ui-4.keprec" == begin(("ui.keprec", "ui-2.keprec", "ui-3.keprec"))


def test_a_file_that_was_named_is_that_one_or_none_and_so_many_servers_are_enough(begin):
    with pytest.raises(NotRecordable, match=r"ui\.keprec is being written"):
        begin(("ui.keprec",), must_record=True)
    every = ("ui.keprec", *(f"ui-{number}.keprec" for number in range(2, 10)))
    with pytest.raises(NotRecordable, match=r"ui-9\.keprec is being written"):
        begin(every)


def test_a_version_that_is_shown_is_awaited_and_no_newer_one(tmp_path, monkeypatch):
    asyncio.run(_read_what_is_shown(tmp_path, monkeypatch))


async def _read_what_is_shown(tmp_path, monkeypatch):
    access = SimpleNamespace(switches=(), events=tmp_path)
    live = SimpleNamespace(
        place=SimpleNamespace(access=access), model=SimpleNamespace(rv=1), zero_s=0.0, wall_s=0.0, on_change=[], on_lines=[]
    )  # fmt: skip
    recorder = runs.LiveRecorder(live, None, tmp_path / "ui.keprec", "1")
    recorder._on_lines([commit(1)])
    assert (await recorder.recording(7)).recording.rv_range == (1, 1)

    live.model.rv = 2
    answer = asyncio.create_task(recorder.recording(2))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not answer.done()
    recorder._on_lines([commit(2)])
    assert (await answer).recording.rv_range == (1, 2)

    monkeypatch.setattr(runs, "LINES_LAG_MAX_S", 0)  # lines that never come are not awaited for ever
    live.model.rv = 3
    assert (await recorder.recording(3)).recording.rv_range == (1, 2)
    recorder.close()


def commit(rv):
    obj = {"kind": "Pod", "ns": "default", "name": "p", "uid": "u"}
    data = {"type": "ADDED", "content_sha256": f"{rv:064}"}
    line = Line(1, rv, rv * 1000, "2026-01-01T00:00:00.000000Z", "apiserver", "i", COMMIT, rv=rv, obj=obj, data=data)
    return Entry(msgspec.json.encode(line), line)
