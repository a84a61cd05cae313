"""Pods by phase at every change: exact for short runs, as many samples for long ones, pods that are gone count nowhere."""

from itertools import pairwise

from lab.scenarios.measures.phases import SAMPLES_MAX, Phases, Sample


def test_every_change_is_a_sample_at_its_own_moment():
    phases = Phases()
    phases.sample(0.0)
    phases.move("", "Pending", 0.0103)
    phases.move("Pending", "Running", 0.0217)
    phases.move("Running", "Running", 0.03)
    phases.move("Running", "Failed", 1.5)
    phases.move("Failed", "", 1.75)
    phases.move("", "Succeeded", 1.75)

    assert phases.samples == [
        Sample(0.0, 0, 0, 0, 0),
        Sample(0.0103, 1, 0, 0, 0),
        Sample(0.0217, 0, 1, 0, 0),
        Sample(1.5, 0, 0, 1, 1),
        Sample(1.75, 0, 0, 0, 1, 1),
    ]


def test_a_long_run_has_as_many_samples_as_a_short_one_and_keeps_what_is_so_now():
    phases = Phases()
    for number in range(20 * SAMPLES_MAX):
        phases.move("", "Failed", number * 0.1)

    assert SAMPLES_MAX // 4 < len(phases.samples) <= SAMPLES_MAX
    assert phases.samples[-1].failed == 20 * SAMPLES_MAX
    moments = [sample.at_s for sample in phases.samples]
    assert moments == sorted(set(moments))
    assert all(abs(sample.failed - sample.at_s / 0.1) < 1.5 for sample in phases.samples), "each is true at its moment"
    assert max(later - at for at, later in pairwise(moments)) < 0.01 * moments[-1]
