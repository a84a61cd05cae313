"""Pods that a node always rejects, and a ReplicaSet that replaces them, in a whole mesh (controllers, acceptance scenario 13)."""

from pathlib import Path

from lab.scenarios.run import simulate
from lab.scenarios.script.scenario import parse_scenario
from lab.scenarios.script.verbs import VERBS

REJECTING = """
set kubelet.on_reject=fail
limit 120s
nodes n1 cpu=64 threads=2 full-pcpus=true cpu-policy=static memory=256Gi
link kubelet/* slow={slow}
replicaset web replicas={replicas} cpu=1
wait {wait}s
expect count pods name=web-* phase=Running == 0
expect each pods phase=Failed status.reason == SMTAlignmentError
"""


class Run:
    """When pods failed, in seconds from the first pod; the Failed pods that are there, and when any was deleted."""

    def __init__(self, replicas, slow="0s", wait=61, **overrides):
        lines = []
        scenario = parse_scenario(REJECTING.format(replicas=replicas, slow=slow, wait=wait), str(Path(__file__)), VERBS)
        switches = {name.replace("__", "."): value for name, value in overrides.items()}
        result = simulate(scenario, seed=1, overrides=switches, on_line=lines.append)
        assert (result.error, [f"{j.text} ({j.seen})" for j in result.expectations if not j.passed]) == ("", [])
        pods = [line for line in lines if line.ev == "store.commit" and line.obj["kind"] == "Pod"]
        self.failed_s, self.deleted_s, self.there = {}, [], []
        left = {}
        for line in pods:
            name, at_s = line.obj["name"], (line.mono_ns - pods[0].mono_ns) / 1e9
            if line.data["type"] == "DELETED":
                left.pop(name, None)
                self.deleted_s.append(at_s)
            elif line.data["phase"] == "Failed":
                self.failed_s.setdefault(name, at_s)
                left[name] = None
            self.there.append((at_s, len(left)))

    def failures(self, from_s=0.0, to_s=60.0):
        return len([at_s for at_s in self.failed_s.values() if from_s <= at_s <= to_s])

    def rounds(self):
        """Return when each round of deletions began and ended."""
        found = []
        for at_s in self.deleted_s:
            if not found or at_s - found[-1][1] > 5.0:
                found.append((at_s, at_s))
            found[-1] = found[-1][0], at_s
        return found

    def there_at(self, at_s):
        return [count for when_s, count in self.there if when_s <= at_s][-1]


def test_controllers_13_a_thousand_pods_fail_in_less_than_a_minute_and_podgc_keeps_the_threshold_and_what_a_period_adds():
    """Over links of 20 ms: over faster ones it is 50 a second, as many as a kubelet reports."""
    run = Run(4, "20ms", 46, podgc__threshold=100)

    assert run.failures(0, 46) > 1000
    assert run.failures(23, 46) > 500, "it does not get slower"
    rounds = run.rounds()
    assert len(rounds) == 2
    previous_s = 0.0
    for began_s, ended_s in rounds:
        # Twenty seconds after the one before has ended; what fails meanwhile is for the next one.
        assert began_s - previous_s <= 21.0
        assert run.there_at(ended_s) <= 100 + run.failures(began_s - 0.5, ended_s)
        previous_s = ended_s
    most = max(count for _, count in run.there)
    growth = max(run.failures(began_s - 0.5, began_s + 22.0) for began_s, _ in [(0.0, 0.0), *rounds])
    assert 100 < most <= 100 + growth


def test_controllers_13_with_a_back_off_ten_replicas_fail_twenty_five_to_forty_times_a_minute():
    assert 25 <= Run(10, rs__failed_backoff="on").failures() <= 40
