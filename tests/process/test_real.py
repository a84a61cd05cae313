"""The real disk keeps what it has said it keeps; the committed stubs fit their source."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from services.runtime.real import FileDisk, MemoryDisk

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(params=["file", "memory"])
def disk(request, tmp_path):
    """Each kind of disk a process can be given: one contract."""
    made = FileDisk(tmp_path / "disk") if request.param == "file" else MemoryDisk()
    yield made
    made.close()


def test_a_disk_replaces_appends_lists_and_removes(disk):
    async def scenario():
        await disk.write("nodes/n1", b"old")
        await disk.write("nodes/n1", b"new")
        await disk.append_all({"log": b"a"})
        await disk.append_all({"log": b"b"})
        await disk.append_all({"gone": b"x"})
        await disk.remove("gone")
        await disk.remove("never there")

    asyncio.run(scenario())

    assert ["log", "nodes/n1"] == disk.names()
    assert (b"new", b"ab", None) == (disk.read("nodes/n1"), disk.read("log"), disk.read("gone"))


def test_a_disk_gives_another_life_what_the_first_had_written(tmp_path):
    async def scenario(disk):
        await disk.write("checkpoint", b"1")

    first = FileDisk(tmp_path)
    asyncio.run(scenario(first))
    (tmp_path / "checkpoint.99.tmp").write_bytes(b"torn")

    assert (["checkpoint"], b"1") == (FileDisk(tmp_path).names(), FileDisk(tmp_path).read("checkpoint"))


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", ""])
def test_a_name_cannot_leave_the_directory(tmp_path, name):
    with pytest.raises(ValueError, match="no name for a file"):
        FileDisk(tmp_path).read(name)


def test_the_committed_stubs_fit_their_source():
    pytest.importorskip("grpc_tools")

    checked = subprocess.run(
        [sys.executable, "-m", "protos", "--check"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )

    assert (0, "") == (checked.returncode, checked.stderr)
