"""I31: gauges show what is stored. No line of the event log says what a gauge shows, so it is read off the mesh."""

from lab.scenarios.run import simulate
from lab.scenarios.script.scenario import parse_scenario
from lab.scenarios.script.verbs import VERBS
from scheduler.metrics import SchedulerMetrics

SCENARIO = """
nodes n1..n2 cpu=4
replicaset web replicas=3 cpu=2
replicaset large replicas=2 cpu=9
pod gated cpu=1 gates=example.com/hold
job work cpu=1 completions=2 parallelism=2 run="exit 0 after 1s"
expect within 20s each jobs name=work status.succeeded == 2
wait 10s
"""


def shown_and_stored():
    """Return `{gauge: (what it shows, what is stored)}` of the mesh as the scenario leaves it."""
    shown, stored = {}, {}

    def take(mesh):
        for component in mesh.components():
            for name, value in mesh.instance(component).metrics().items():
                shown[name] = shown.get(name, 0) + value

    def follow(line):
        if line.ev == "store.commit":
            key = (line.obj["kind"], line.obj["ns"], line.obj["name"])
            stored[key] = line.data
            if line.data["type"] == "DELETED":
                del stored[key]

    simulate(parse_scenario(SCENARIO, "gauges.txt", VERBS), seed=1, afterwards=take, on_line=follow)
    pods = [data for (kind, _, _), data in stored.items() if kind == "Pod"]
    queued = sum(value for name, value in shown.items() if name.startswith("scheduler_pending_pods"))
    return {
        "scheduler_pending_pods": (queued, sum(not pod["node"] for pod in pods)),
        "kubelet_running_pods": (shown["kubelet_running_pods"], sum(pod["phase"] == "Running" for pod in pods)),
        "apiserver_storage_objects": (shown['apiserver_storage_objects{resource="pods"}'], len(pods)),
        "keplab_kubelet_nodes": (shown["keplab_kubelet_nodes"], sum(kind == "Node" for kind, _, _ in stored)),
    }


def test_gauges_show_what_is_stored():
    for gauge, (shown, held) in shown_and_stored().items():
        assert shown == held, gauge
        assert held > 0, gauge


def test_a_gauge_that_forgets_gated_pods_is_seen(monkeypatch):
    samples = SchedulerMetrics.samples

    def forgetful(self, *rest):
        return {name: value for name, value in samples(self, *rest).items() if 'queue="gated"' not in name}

    monkeypatch.setattr(SchedulerMetrics, "samples", forgetful)

    shown, held = shown_and_stored()["scheduler_pending_pods"]

    assert shown == held - 1
