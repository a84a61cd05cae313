"""Devices for claims, observed as scenarios, with what happened read from the event log (dra-core 12; kubelet-unbinding 13)."""

from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from lab.scenarios.run import load_scenario, simulate
from lab.scenarios.script.scenario import parse_scenario
from lab.scenarios.script.verbs import VERBS
from services.dra.allocated_devices import Allocated
from tests.scenarios.outcome import wrong_in

FOLDER = Path(__file__).parents[2] / "experiments"
CLAIM_WRITES = [("ADDED", ""), ("MODIFIED", ""), ("MODIFIED", "status")]
CLAIMS = "system:serviceaccount:kube-system:resource-claim-controller"
ALLOCATED = [(CLAIMS, "ADDED", ""), *(("system:kube-scheduler", *write) for write in CLAIM_WRITES[1:])]
FREED = [*ALLOCATED, (CLAIMS, "MODIFIED", "status"), (CLAIMS, "MODIFIED", "")]
"""Who writes a claim of a template: created, finalizer, allocation with the reservation; deallocated, finalizer removed."""


class Observed:
    """One scenario observed, and its lines."""

    def __init__(self, name, seed, overrides):
        self.lines = []
        self.scenario = load_scenario(FOLDER / f"{name}.txt")
        self.result = simulate(self.scenario, seed=seed, overrides=overrides, on_line=self.lines.append)
        self.unmet = [f"{j.text} ({j.seen})" for j in self.result.expectations if not j.passed]
        self.broken = [f"{v.invariant}: {v.detail}" for v in self.result.violations]

    def of(self, *events, node=""):
        return [line for line in self.lines if line.ev in events and node in ("", line.node)]

    def claim_commits(self, name=""):
        return [
            line for line in self.of("store.commit")
            if line.obj["kind"] == "ResourceClaim" and line.obj["name"].startswith(name)
        ]  # fmt: skip


@cache
def _observed(name, seed, overrides):
    return Observed(name, seed, dict(overrides))


def observe(name, seed=1, /, **overrides):
    return _observed(name, seed, tuple((key.replace("__", "."), value) for key, value in overrides.items()))


def came_true(name, seed=1, /, **overrides):
    """Run the scenario; everything it expects must come true, and no invariant may break."""
    scenario = observe(name, seed, **overrides)
    assert wrong_in(scenario.scenario, scenario.result) == []
    return scenario


def test_dra_core_01_four_devices_for_five_pods_and_a_few_writes_for_each_claim():
    scenario = came_true("claims/one-for-each")

    def writes(pod):
        commits = scenario.claim_commits(f"{pod}-")
        return [(line.identity, line.data["type"], line.data.get("subresource", "")) for line in commits]

    assert [writes(pod) for pod in "bcde"] == [ALLOCATED] * 4
    # The garbage collector marks the claim for deletion before it is deallocated, or after, or is too late: the claim
    # controller deletes claims of pods that have ended.
    by_others = [write for write in writes("a") if write[0] != "system:controller:gc"]
    assert by_others[:4] == FREED[:4]
    deleted = (CLAIMS, "DELETED", "")
    assert by_others[4:] in ([FREED[4]], [deleted], [FREED[4], deleted])
    assert writes("a")[-1][1] == "DELETED"
    prepared = scenario.of("driver.prepare")
    assert len({line.data["devices"][0] for line in prepared[:4]}) == 4
    (of_a,) = (line for line in prepared if line.obj["name"].startswith("a-"))
    assert prepared[4].data["devices"] == of_a.data["devices"]


INCOMPLETE = """
limit 60s
nodes n1 cpu=8
apply gpus.yaml
as admin create resourceslices.resource.k8s.io {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "b"}, "spec": {"driver": "gpu.example.com", "nodeName": "n1", "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 2}, "devices": [{"name": "gpu-0"}]}} -> 201
as admin create resourceclaims {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "one"}, "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}} -> 201
as admin create resourceclaims {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "all"}, "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}]}}} -> 201
wait 1s
pod {first} claims={first} grace=0
wait 3s
expect each pods name={first} phase == Pending
expect each pods name={first} status.conditions[PodScheduled].message ~ "{why}"
expect each events reason=FailedScheduling message ~ "{why}"
as admin create resourceslices.resource.k8s.io {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "a"}, "spec": {"driver": "gpu.example.com", "nodeName": "n1", "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 2}, "devices": [{"name": "gpu-1"}]}} -> 201
expect within 15s each pods name={first} spec.nodeName == n1
expect each resourceclaims name={first} status.allocation.devices.results[0].device == gpu-1
"""


@pytest.mark.parametrize(("first", "why", "outcome"), [
    ("one", "cannot allocate all claims", "unschedulable"),
    ("all", "asks for all devices, but resource pool gpu.example.com/n1 is currently being updated", "error"),
])  # fmt: skip
def test_dra_core_02_and_03_half_a_pool_keeps_pods_waiting_and_its_first_slice_by_name_gives_the_first_device(
    first, why, outcome
):
    lines = []
    text = INCOMPLETE.replace("{first}", first).replace("{why}", why)

    result = simulate(parse_scenario(text, str(FOLDER / "claims" / "own.txt"), VERBS), seed=1, on_line=lines.append)

    assert [f"{j.text} ({j.seen})" for j in result.expectations if not j.passed] == []
    outcomes = [line.data["outcome"] for line in lines if line.ev == "sched.attempt"]
    assert outcomes == [outcome] * (len(outcomes) - 1) + ["scheduled"]
    assert len(outcomes) >= 2


def test_dra_core_05_a_device_without_the_attribute_costs_an_attempt_after_another_and_a_guard_none():
    scenario = came_true("claims/missing-attribute")

    tried = [
        (line.mono_ns / 1e9, line.data["outcome"])
        for line in scenario.of("sched.attempt")
        if line.obj["name"] == "plain"
    ]
    assert {outcome for _, outcome in tried} == {"error"}
    assert tried[1][0] - tried[0][0] >= 1.0  # its back-off
    guarded = [line.data["outcome"] for line in scenario.of("sched.attempt") if line.obj["name"] == "guarded"]
    assert guarded == ["scheduled"]


@pytest.mark.parametrize("seed", range(8))
def test_dra_core_06_the_first_alternative_is_worth_another_node_and_the_second_is_taken_where_it_is_the_only_one(seed):
    scenario = came_true("claims/alternatives", seed)

    granted = {line.obj["name"]: line.data["granted"] for line in scenario.claim_commits() if line.data.get("granted")}
    assert granted == {
        "first": ["gpu.example.com/n2/large-0"],
        "second": ["gpu.example.com/n1/small-0", "gpu.example.com/n1/small-1"],
    }


def test_dra_core_09_partitions_of_one_card_exclude_each_other():
    assert came_true("claims/partitions").result.passed
    assert came_true("drivers/published-partitions").result.passed


def test_dra_core_10_claims_share_a_device_until_its_capacity_is_used_up():
    assert came_true("claims/shares").result.passed
    assert came_true("drivers/published-shares").result.passed


def test_dra_core_11_admin_access_reaches_devices_in_use_and_occupies_none():
    assert came_true("claims/monitor").result.passed
    assert came_true("drivers/published-monitor").result.passed


UNLABELLED = """
limit 20s
nodes n1 cpu=4
apply gpus.yaml
as admin create resourceclaims {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "m"}, "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "adminAccess": true, "allocationMode": "All"}}]}}} -> 422
as admin create resourceclaimtemplates {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "m"}, "spec": {"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "adminAccess": true, "allocationMode": "All"}}]}}}} -> 422
expect count resourceclaims == 0
"""


def test_dra_core_11_without_the_label_on_the_namespace_neither_claim_nor_template_is_made():
    result = simulate(parse_scenario(UNLABELLED, str(FOLDER / "claims" / "own.txt"), VERBS), seed=1)

    assert (result.error, [f"{j.text} ({j.seen})" for j in result.expectations if not j.passed]) == ("", [])


def test_dra_core_13_a_taint_that_comes_later_is_for_later_claims():
    assert came_true("claims/tainted-later").result.passed


def test_dra_core_12_and_13_a_driver_taints_its_devices_and_every_change_is_a_new_generation():
    scenario = came_true("drivers/published-taints")

    acts = [line.data["act"] for line in scenario.of("driver.command")]
    assert acts == ["taint", "taint", "untaint", "taint"]


def test_dra_core_14_a_driver_taints_a_device_that_it_cannot_attach_before_it_reports_that():
    scenario = came_true("drivers/published-binding")

    reports = [(line.data["device"], line.data["failed"]) for line in scenario.of("driver.binding")]
    assert reports == [("n1/gpu-0", True), ("n1/gpu-1", False)]


ALL_TEN_AT_ONCE = """
set SchedulerAsyncAPICalls=true
limit 60s
nodes n1 cpu=16 drivers=gpu.example.com:1
apply gpus.yaml
wait 1s
replicaset web replicas=10 claims=shared
wait 2s
link scheduler slow=1s
apply shared-gpu.yaml
wait 3s
expect count pods phase=Running == 0
link scheduler
expect within 12s count pods phase=Running == 10
"""


def test_dra_core_15_an_allocation_in_flight_is_not_relied_upon_and_ten_pods_share_the_claim():
    assert came_true("claims/in-flight").result.passed
    lines = []

    result = simulate(
        parse_scenario(ALL_TEN_AT_ONCE, str(FOLDER / "claims" / "own.txt"), VERBS), seed=1, on_line=lines.append
    )

    assert [f"{j.text} ({j.seen})" for j in result.expectations if not j.passed] == []
    first, *others = (line for line in lines if line.ev == "sched.attempt")
    in_flight = "resource claim default/shared is in the process of being allocated"
    waited = {line.obj["name"] for line in others if in_flight in line.data.get("message", "")}
    assert first.data["outcome"] == "scheduled"
    assert len(waited - {first.obj["name"]}) == 9
    started = [line.mono_ns for line in lines if line.ev == "kubelet.start"]
    assert len(started) == 10
    assert max(started) - first.mono_ns <= 15e9
    claims = [c for c in lines if c.ev == "store.commit" and c.obj["kind"] == "ResourceClaim"]
    assert len(claims[-1].data["consumers"]) == 10


@pytest.mark.parametrize("seed", range(20))
def test_twenty_pods_share_a_claim_without_starving_each_other(seed):
    """At most one of them loses five times in a row, and then it wins after one back-off."""
    scenario = came_true("preenqueue-status/transient-claim", seed)

    errors = [line for line in scenario.of("sched.attempt") if line.data.get("outcome") == "error"]
    assert len(errors) <= 1
    assert len(scenario.claim_commits("gpu")[-1].data["consumers"]) == 20


@pytest.mark.parametrize(("guard", "running", "prepared"), [("none", 2, 2), ("driver", 1, 1), ("apiserver", 1, 1)])
def test_dra_core_16_two_schedulers_give_one_device_twice_without_a_guard(guard, running, prepared):
    scenario = observe("claims/two-schedulers", dra__double_allocation_guard=guard)

    assert scenario.broken == []
    assert len(scenario.of("kubelet.start")) == running
    assert len(scenario.of("driver.prepare")) == prepared
    granted = [line for line in scenario.claim_commits() if line.data.get("granted")]
    assert len({line.obj["uid"] for line in granted}) == (1 if guard == "apiserver" else 2)


TWENTY_MS = (FOLDER / "claims" / "two-schedulers.txt").read_text().partition("wait 20s")[0].replace("500ms", "20ms")


@pytest.mark.parametrize(("guard", "granted", "running"), [("none", 2, 2), ("driver", 2, 1), ("apiserver", 1, 1)])
def test_dra_core_16_twenty_ms_are_enough_for_it_whatever_the_seed(guard, granted, running, repeat):
    """200 runs of each (`--repeats 10`) were as these: twice without a guard, refused by the driver, once."""
    refused = "expect count events reason=FailedPrepareDynamicResources ==" + (" 1" if guard == "driver" else " 0")
    scenario = parse_scenario(f"{TWENTY_MS}wait 6s\n{refused}\n", str(FOLDER / "claims" / "own.txt"), VERBS)
    for seed in range(20 * repeat, 20 * repeat + 20):
        lines = []

        result = simulate(scenario, seed=seed, overrides={"dra.double_allocation_guard": guard}, on_line=lines.append)

        commits = [line for line in lines if line.ev == "store.commit"]
        claims = {c.obj["uid"] for c in commits if c.obj["kind"] == "ResourceClaim" and c.data.get("granted")}
        assert (seed, len(claims), sum(line.ev == "kubelet.start" for line in lines)) == (seed, granted, running)
        assert [f"{j.text} ({j.seen})" for j in result.expectations if not j.passed] == []
        assert [*result.violations] == []


def test_dra_core_17_three_failures_cost_time_and_nothing_else():
    scenario = came_true("claims/slow-start")

    (start,), failed = scenario.of("kubelet.start"), scenario.of("kubelet.unbind_call")
    assert start.mono_ns / 1e9 >= 30
    assert failed == []


def test_dra_core_18_a_claim_that_two_pods_share_is_prepared_once_and_unprepared_after_the_last():
    scenario = came_true("claims/shared")

    steps = [line.ev for line in scenario.of("driver.prepare", "driver.unprepare", "kubelet.start", "kubelet.stop")]
    assert steps == [
        "driver.prepare", "kubelet.start", "kubelet.start", "kubelet.stop", "kubelet.stop", "driver.unprepare",
    ]  # fmt: skip


def test_dra_core_19_slices_outlive_a_driver_by_half_a_minute_and_come_back_with_it():
    scenario = came_true("claims/driver-away")

    gone = [
        line.mono_ns / 1e9 for line in scenario.of("store.commit")
        if line.obj["kind"] == "ResourceSlice" and line.data["type"] == "DELETED"
    ]  # fmt: skip
    assert len(gone) == 1
    assert 40 <= gone[0] <= 42


@pytest.mark.parametrize("seed", [1, 7, 8, 9])
def test_dra_core_20_whichever_process_is_killed_meanwhile_nothing_is_granted_twice_or_left(seed):
    scenario = came_true("claims/killed", seed)

    for pod in "abc":
        ((device,),) = {tuple(c.data["granted"]) for c in scenario.claim_commits(f"{pod}-") if c.data.get("granted")}
        (node,) = {line.node for line in scenario.of("kubelet.start") if line.obj["name"] == pod}
        assert device.split("/")[1] == node
    # The first scheduler died after it had written the claim and before it could bind; the next one bound the pod.
    started = [line.mono_ns for line in scenario.of("proc.start") if line.comp == "scheduler"]
    allocated = next(line.mono_ns for line in scenario.claim_commits("a-") if line.data.get("granted"))
    (bound,) = (line.mono_ns for line in scenario.of("sched.bind_call") if line.obj["name"] == "a")
    assert allocated < started[1] < bound


@pytest.mark.parametrize("release", ["scheduler", "postfilter", "rc"])
def test_kubelet_unbinding_15_devices_that_do_not_come_up_are_left_for_others(release):
    scenario = came_true("unbinding/devices", unbind__claim_release=release)

    (call,) = scenario.of("kubelet.unbind_call")
    assert call.mono_ns / 1e9 >= 120
    (freed,) = scenario.of("driver.unprepare", node="n1")
    assert scenario.lines.index(freed) < scenario.lines.index(call)
    own = [
        (line.identity, "granted" in line.data) for line in scenario.claim_commits("guest-") if line.data["subresource"]
    ]
    who = {"rc": "system:serviceaccount:kube-system:resource-claim-controller"}.get(release, "system:kube-scheduler")
    assert own == [("system:kube-scheduler", True), (who, False), ("system:kube-scheduler", True)]
    failed = [line for line in scenario.of("sched.attempt") if line.data["outcome"] != "scheduled"]
    assert len([line for line in failed if "deallocation" in line.data["message"]]) == (release == "postfilter")


def test_kubelet_unbinding_16_a_claim_that_another_pod_uses_is_not_touched():
    scenario = came_true("unbinding/devices-shared")

    granted = {tuple(line.data["granted"]) for line in scenario.claim_commits("shared") if "granted" in line.data}
    assert granted == {("gpu.example.com/n1/gpu-0",)}
    assert scenario.of("driver.unprepare") == []
    last = scenario.claim_commits("shared")[-1]
    assert len(last.data["consumers"]) == 1


def test_kep_5194_02_the_257th_pod_of_a_claim_is_refused_by_the_server_again_and_again():
    scenario = came_true("kep-5194/full-list")

    refused = [line for line in scenario.of("sched.attempt") if "Too many: 257" in line.data.get("message", "")]
    full_s = scenario.claim_commits("fabric")[-1].mono_ns / 1e9
    tries = Counter(line.obj["name"] for line in refused if line.mono_ns / 1e9 <= full_s + 60)
    assert {line.data["outcome"] for line in refused} == {"error"}
    assert len(tries) == 44
    assert min(tries.values()) >= 3
    assert len(scenario.claim_commits("fabric")[-1].data["consumers"]) == 256


@pytest.mark.parametrize(("fence", "node", "broken"), [("none", "n1", ["I8"]), ("get", "n2", []), ("touch", "n2", [])])
def test_kep_5194_14_a_claim_that_moved_misplaces_a_pod_unless_it_is_looked_at(fence, node, broken):
    scenario = observe("kep-5194/lost-fence", scheduler__reserve_fence=fence)

    (bound,) = [line for line in scenario.of("sched.bind_call") if line.obj["name"] == "late"]
    assert (bound.node, [text.split(":")[0] for text in scenario.broken]) == (node, broken)


def test_dra_core_14_a_pod_is_bound_once_its_device_is_attached_and_a_failure_costs_one_attempt():
    scenario = came_true("claims/attached")

    (allocated,) = [line.mono_ns for line in scenario.claim_commits("a-") if line.data.get("granted")][:1]
    (bound,) = [line.mono_ns for line in scenario.of("sched.bind_call") if line.obj["name"] == "a"]
    assert 12.0 <= (bound - allocated) / 1e9 <= 18.0
    outcomes = [line.data["outcome"] for line in scenario.of("sched.attempt") if line.obj["name"] == "b"]
    assert outcomes == ["scheduled", "error", "unschedulable", "scheduled"]  # gpu-0, which fails; deallocated; gpu-1
    reports = [(line.node, line.data["device"], line.data["failed"]) for line in scenario.of("driver.binding")]
    assert reports == [("n1", "n1/gpu-0", False), ("n2", "n2/gpu-0", True), ("n2", "n2/gpu-1", False)]


def test_dra_core_14_without_the_gate_the_pod_is_bound_at_once():
    scenario = observe("claims/attached", DRADeviceBindingConditions=False)

    assert scenario.unmet
    assert scenario.of("driver.binding") == []


RACE = """
nodes n1 cpu=16 drivers=gpu.example.com:1
apply gpus.yaml
wait 1s
link scheduler slow=500ms
pod a claim-templates=gpu
pod b claim-templates=gpu
wait 10s
"""


@pytest.mark.parametrize(("is_mutant", "broken"), [(False, set()), (True, {"I6", "I7"})])
def test_m13_an_allocator_that_ignores_what_is_in_flight_gives_a_device_twice(monkeypatch, is_mutant, broken):
    if is_mutant:
        monkeypatch.setattr(Allocated, "put", lambda self, uid, *allocations: None)
    scenario = parse_scenario(RACE, str(FOLDER / "claims" / "race.txt"), VERBS)

    result = simulate(scenario, seed=1)

    assert {violation.invariant for violation in result.violations} == broken
