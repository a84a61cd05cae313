"""How runs count resizes and what they cost: resizes, how long they took, victims and their capacity."""

from __future__ import annotations

import msgspec
import pytest

from lab.scenarios.measures.resizes import Preemptions, Resizes, resize_measures
from services.api.kinds.pod import Pod
from services.reconcile.controller import Change
from services.telemetry.eventlog import Line


class Seen:
    """What a run's observer sees of pods."""

    def __init__(self):
        self.resizes, self.preemptions = Resizes(), Preemptions()
        self._pods = {}

    def pod(self, at, name, desired, has, *, generation, node="n1"):
        """Show the pod: what it asks for and what it has, in millicores."""
        size = {"cpu": f"{has}m", "memory": "1Gi"}
        document = {
            "metadata": {"name": name, "namespace": "default", "uid": name, "generation": generation},
            "spec": {"nodeName": node, "containers": [
                {"name": "c", "resources": {"requests": {"cpu": f"{desired}m", "memory": "1Gi"}}}]},
            "status": {"containerStatuses": [
                {"name": "c", "allocatedResources": size, "resources": {"requests": size}}]},
        }  # fmt: skip
        new = msgspec.convert(document, Pod)
        self.resizes.observe(Change(self._pods.get(name), new), at)
        self._pods[name] = new
        return self

    def line(self, ev, name):
        obj = {"kind": "Pod", "ns": "default", "name": name, "uid": name}
        self.preemptions.take(Line(1, 1, 0, "", "scheduler", "i", ev, obj=obj))
        return self

    @property
    def figures(self):
        return resize_measures(self.resizes, self.preemptions)


@pytest.fixture
def seen():
    return Seen()


def test_a_resize_takes_from_the_request_until_the_node_reports_it(seen):
    seen.pod(0, "h", 100, 100, generation=1).pod(5, "h", 300, 100, generation=2).pod(12, "h", 300, 300, generation=2)

    assert (seen.figures["resizes_asked"], seen.figures["resizes_met"]) == (1, 1)
    assert seen.figures["time_to_resized_p99_s"] == 7.0


def test_a_resize_that_replaces_another_goes_on_waiting(seen):
    seen.pod(0, "h", 100, 100, generation=1).pod(1, "h", 300, 100, generation=2).pod(4, "h", 200, 100, generation=3)
    seen.pod(9, "h", 200, 200, generation=3)

    assert (seen.figures["resizes_asked"], seen.figures["time_to_resized_p50_s"]) == (1, 8.0)


def test_a_resize_that_is_taken_back_was_never_done(seen):
    seen.pod(0, "h", 100, 100, generation=1).pod(1, "h", 300, 100, generation=2).pod(4, "h", 100, 100, generation=3)

    assert (seen.figures["resizes_asked"], seen.figures["resizes_met"]) == (1, 0)
    assert seen.figures["time_to_resized_p50_s"] is None


def test_victims_count_once_with_what_they_were_allocated(seen):
    seen.pod(0, "v", 500, 500, generation=1).pod(1, "v", 2000, 500, generation=2)
    seen.line("sched.resize", "h").line("sched.resize", "h").line("sched.victim", "v").line("sched.victim", "v")

    found = seen.figures
    assert (found["victims"], found["evicted_cpu"], found["evicted_memory_gib"]) == (1, 0.5, 1.0)
    assert found["resize_attempts"] == 2
