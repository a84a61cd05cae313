"""What a process's file says of its machine is what its seams show."""

import asyncio
import errno
import os
import random
import signal

import msgspec
import pytest

from services.client.link_faults import LinkFaults
from services.runtime.config import StartError
from services.runtime.machine import FailingDisk, Machine, MachineFaults, OffClock, Strike
from services.runtime.real import MemoryDisk, RealClock


@pytest.fixture
def machine(tmp_path):
    """Return a machine of which nothing is known yet, and how to say what is wrong with it."""
    path = tmp_path / "faults"
    made = Machine(str(path), random.Random(1))

    def say(**faults):
        path.write_bytes(msgspec.json.encode(MachineFaults(**faults)))
        made.read()

    return made, say


def test_a_wall_clock_is_off_and_seconds_are_not(machine):
    made, say = machine
    real = RealClock()
    clock = OffClock(real, made)
    say(wall_offset_s=-3600.0)

    assert clock.wall() == pytest.approx(real.wall() - 3600.0, abs=1.0)
    assert clock.now() == pytest.approx(real.now(), abs=1.0)


@pytest.mark.parametrize("name", ["ENOSPC", "EIO"])
def test_a_disk_refuses_to_write_and_still_reads(machine, name):
    made, say = machine

    async def act():
        disk = FailingDisk(MemoryDisk(), made)
        await disk.append_all({"log": b"a"})
        say(disk_error=name)
        with pytest.raises(OSError) as caught:  # noqa: PT011  its number is what matters
            await disk.append_all({"log": b"b"})
        say()
        await disk.append_all({"log": b"c"})
        return caught.value.errno, disk.read("log")

    assert asyncio.run(act()) == (getattr(errno, name), b"ac")


def test_links_are_those_of_the_file_and_no_others(machine):
    made, say = machine
    say(links={"n1": LinkFaults(cut="both")})
    say(links={"n2": LinkFaults(slow_s=1.0)})

    assert made.gates.of("n1").faults == LinkFaults()
    assert made.gates.of("n2").faults == LinkFaults(slow_s=1.0)


def test_a_strike_is_for_the_process_it_names(machine, monkeypatch):
    struck = []
    monkeypatch.setattr(os, "kill", lambda *words: struck.append(words))
    made, say = machine
    for number, pid in enumerate((os.getpid() + 1, os.getpid())):
        say(strikes=(Strike(number, pid, "kubelet.start"),))
        made.on_reached("kubelet.start")

    assert struck == [(os.getpid(), signal.SIGKILL)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "--faults-file .*faults: "),
        ('{"disk_error": "EBUSY"}', "'EBUSY' is no error of a disk; there are: ENOSPC, EIO"),
        ('{"links": {"n1": {"cut": "up"}}}', "cut=up"),
        ('{"wal_offset_s": 1}', "unknown field `wal_offset_s`"),
    ],
)
def test_a_file_that_means_nothing_is_named(tmp_path, text, message):
    (tmp_path / "faults").write_text(text)

    with pytest.raises(StartError, match=message):
        Machine(str(tmp_path / "faults"), random.Random(1))


def test_the_event_log_is_given_what_is_wrong_with_a_link_and_nothing_else():
    assert {} == LinkFaults().data()
    assert {"cut": "both", "late": {"status": 2.0}} == LinkFaults(cut="both", late={"status": 2.0}).data()
