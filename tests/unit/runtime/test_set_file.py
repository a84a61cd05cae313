"""A file with further switches of a process."""

import asyncio

import pytest

from scheduler.config import SchedulerConfig
from services.runtime import set_file
from services.runtime.config import StartError


def test_words_stand_between_commas_and_no_file_has_none(tmp_path):
    path = tmp_path / "scheduler"
    assert () == set_file.words(str(path))
    path.write_text(" a=b,c=d,\n")
    assert ("a=b", "c=d") == set_file.words(str(path))
    path.write_bytes(b"\xff")
    assert () == set_file.words(str(path))


def test_a_file_with_the_same_words_is_no_change(tmp_path, monkeypatch):
    monkeypatch.setattr(set_file, "LOOK_S", 0.0)
    path = tmp_path / "scheduler"
    path.write_text("a=b")

    async def looked():
        following = asyncio.ensure_future(set_file.wait_until_changed(str(path), ("a=b",)))
        path.write_text("a=b,")
        for _ in range(3):
            await asyncio.sleep(0)
        assert not following.done()
        path.write_text("")
        await following

    asyncio.run(looked())


def test_what_is_no_switch_is_refused_with_the_files_name(tmp_path):
    path = tmp_path / "scheduler"
    path.write_text("no.such=1")

    with pytest.raises(StartError, match=f"--set-file {path}: no switch is called 'no.such'"):
        set_file.assignments(SchedulerConfig(set_file=str(path)))
    assert () == set_file.assignments(SchedulerConfig())
