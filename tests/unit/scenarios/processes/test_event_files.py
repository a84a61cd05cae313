"""A run as processes is judged from event files: in order of time, none twice, none that is missing passed over (I27)."""

import asyncio

import msgspec
import pytest

from lab.scenarios.mesh import MeshPlan
from lab.scenarios.processes import process_mesh
from lab.scenarios.processes.event_files import Incomplete, Tail
from lab.scenarios.processes.process_mesh import ProcessMesh
from services.telemetry.eventlog import Line


def write(folder, component, *numbered, torn=b""):
    """Append lines, each `(seq, seconds)`, to a component's file."""
    folder.mkdir(exist_ok=True)
    with (folder / f"{component}.0001.jsonl").open("ab") as file:
        for seq, at_s in numbered:
            line = Line(1, seq, int(at_s * 1e9), "", component, "0001", "proc.start")
            file.write(msgspec.json.encode(line) + b"\n")
        file.write(torn)


def shown(lines):
    return [(line.comp, line.mono_ns / 1e9) for line in lines]


def test_lines_of_several_files_come_in_order_of_time_and_only_once_they_are_old_enough(tmp_path):
    tail = Tail(tmp_path / "events")
    assert tail.poll(None) == []
    write(tmp_path / "events", "kubelet", (1, 1.0), (2, 4.0))
    write(tmp_path / "events", "scheduler", (1, 2.0), (2, 3.0))

    assert shown(tail.poll(3_000_000_000)) == [("kubelet", 1.0), ("scheduler", 2.0)]
    write(tmp_path / "events", "kubelet", (3, 4.5))
    assert shown(tail.poll(4_000_000_000)) == [("scheduler", 3.0)]
    assert shown(tail.poll(None)) == [("kubelet", 4.0), ("kubelet", 4.5)]
    assert tail.poll(None) == []


def test_a_line_that_is_still_being_written_is_read_when_it_is_whole(tmp_path):
    tail = Tail(tmp_path)
    write(tmp_path, "kubelet", (1, 1.0), torn=b'{"v":1,')
    assert shown(tail.poll(None)) == [("kubelet", 1.0)]

    rest = msgspec.json.encode(Line(1, 2, 2_000_000_000, "", "kubelet", "0001", "proc.end"))
    write(tmp_path, "kubelet", torn=rest.removeprefix(b'{"v":1,') + b"\n")
    assert shown(tail.poll(None)) == [("kubelet", 2.0)]


@pytest.mark.parametrize(("numbers", "torn", "says"), [
    (((1, 1.0), (3, 2.0)), b"", r"kubelet\.0001\.jsonl:2: seq is 3"),
    (((2, 1.0),), b"", r"kubelet\.0001\.jsonl:1: seq is 2"),
    (((1, 1.0),), b"nonsense\n", r"kubelet\.0001\.jsonl:2: "),
])  # fmt: skip
def test_a_file_with_a_gap_is_incomplete_and_stays_so(tmp_path, numbers, torn, says):
    tail = Tail(tmp_path)
    write(tmp_path, "kubelet", *numbers, torn=torn)

    for _ in range(2):
        with pytest.raises(Incomplete, match=says):
            tail.poll(None)


class Clock:
    def __init__(self):
        self.now_s = 0.0

    def now(self):
        return self.now_s


def test_a_mesh_judges_lines_while_it_runs_half_a_second_after_they_were_written(tmp_path, monkeypatch):
    """By then no other process can have an older one, as each writes at once."""
    monkeypatch.setattr(process_mesh, "POLL_S", 0)
    seen = []
    mesh = ProcessMesh(MeshPlan(), data_dir=tmp_path, on_line=seen.append)
    mesh.clock = Clock()
    write(tmp_path / "events", "kubelet", (1, 1.0), (2, 2.0))

    async def run():
        judging = asyncio.create_task(mesh._audit())
        found = []
        for now_s in (1.4, 1.6, 2.6):
            mesh.clock.now_s = now_s
            for _ in range(5):
                await asyncio.sleep(0)
            found.append(len(seen))
        write(tmp_path / "events", "kubelet", (4, 3.0))
        await asyncio.wait_for(judging, 10)
        return found

    assert asyncio.run(run()) == [0, 1, 2]
    assert mesh.incomplete == "kubelet.0001.jsonl:3: seq is 4"
