"""Which boot a host lives in, and what a boot leaves of what ran."""

import random

from kubelet.runtime.boots import BOOT_FILE, SEEN_FILE, after_boot, boot_id_of, look
from kubelet.runtime.records import LOST_EXIT, ContainerRecord, PodRecord
from kubelet.view import WorkerKey
from services.runtime.real import MemoryDisk

KEY = ("n1", WorkerKey("u", 1))


def disk(**files):
    made = MemoryDisk()
    made._files.update({name: text.encode() for name, text in files.items()})
    return made


def test_the_first_boot_is_not_new_and_is_written_down():
    boot = look(disk(), random.Random(1), [], 10.0)

    assert (boot.is_new, boot.missing) == (False, (BOOT_FILE, SEEN_FILE))
    assert len(boot.id) == 32


def test_a_restart_of_the_kubelet_is_no_boot():
    boot = look(disk(**{BOOT_FILE: "a", SEEN_FILE: "a"}), random.Random(1), [], 10.0)

    assert (boot.id, boot.is_new, boot.missing) == ("a", False, ())


def test_another_boot_id_means_the_machine_was_booted():
    boot = look(disk(**{BOOT_FILE: "b", SEEN_FILE: "a"}), random.Random(1), [], 10.0)

    assert (boot.id, boot.is_new, boot.missing) == ("b", True, (SEEN_FILE,))


def test_a_record_of_the_future_means_the_same():
    boot = look(
        disk(**{BOOT_FILE: "a", SEEN_FILE: "a"}), random.Random(1), [PodRecord("n1", "u", 1, start_s=99.0)], 10.0
    )

    assert boot.is_new


def test_after_a_boot_nothing_runs_and_what_had_ended_stays_as_it_was():
    running, ended = ContainerRecord("a", 5.0, 2), ContainerRecord("b", 5.0, 0, 3, 7.0)
    found = after_boot({KEY: PodRecord("n1", "u", 1, start_s=4.0, containers=[running, ended])}, 10.0)[KEY]

    assert found.containers == [ContainerRecord("a", 5.0, 2, LOST_EXIT, 10.0), ended]


def test_nodes_of_one_machine_have_boot_ids_of_their_own():
    assert boot_id_of("n1", "a") != boot_id_of("n2", "a")
    assert boot_id_of("n1", "a") == boot_id_of("n1", "a")
