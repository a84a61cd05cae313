"""KEP-5194's acceptance scenarios, as far as a workload's own controller has a part in them (kep-5194 15; controllers 16).

What a scenario below `experiments/kep-5194` expects is judged there; here are its other arms, its order and its cost.
"""

from functools import cache
from pathlib import Path

import pytest
from msgspec.structs import replace

from apiserver_fake.registry.authorization import authorizer
from lab.scenarios.run import load_scenario, simulate
from lab.scenarios.script.scenario import parse_scenario
from lab.scenarios.script.verbs import VERBS
from tests.scenarios.outcome import wrong_in

FOLDER = Path(__file__).parents[2] / "experiments" / "kep-5194"
DEPLOYMENTS, COLLECTOR = "system:controller:deployment", "system:controller:gc"
CLAIMS = "system:serviceaccount:kube-system:resource-claim-controller"


class Observed:
    """One run: what it did not meet, and each claim's commits: when, by whom, its consumers, its devices."""

    def __init__(self, scenario, seed, overrides, afterwards=None):
        self.scenario, self.lines = scenario, []
        self.result = simulate(
            scenario, seed=seed, overrides=overrides, on_line=self.lines.append, afterwards=afterwards
        )
        assert self.result.error == ""
        self.unmet = [f"{j.text} ({j.seen})" for j in self.result.expectations if not j.passed]
        self.broken = [f"{v.invariant}: {v.detail}" for v in self.result.violations]
        self.commits = [line for line in self.lines if line.ev == "store.commit" and line.obj is not None]

    def of(self, kind, name=""):
        return [c for c in self.commits if c.obj["kind"] == kind and c.obj["name"].startswith(name)]

    def at_s(self, line):
        return line.mono_ns / 1e9

    @property
    def claim(self):
        """The shared claim's commits as (writer, number of consumers, whether devices are granted)."""
        return [
            (line.identity, len(line.data.get("consumers") or ()), bool(line.data.get("granted")))
            for line in self.of("ResourceClaim", "net")
        ]


@cache
def _observed(name, seed, overrides):
    return Observed(load_scenario(FOLDER / f"{name}.txt"), seed, dict(overrides))


def observe(name, seed=1, /, **overrides):
    return _observed(name, seed, tuple((key.replace("__", "."), value) for key, value in overrides.items()))


def came_true(name, seed=1, /, **overrides):
    """Run the scenario; everything it expects must come true, and no invariant may break."""
    scenario = observe(name, seed, **overrides)
    assert wrong_in(scenario.scenario, scenario.result) == []
    return scenario


def parsed(text):
    return parse_scenario(text, str(FOLDER / "own.txt"), VERBS)


def played(text, afterwards=None, **overrides):
    """Run a scenario's lines."""
    scenario = Observed(parsed(text), 1, overrides, afterwards)
    assert (scenario.unmet, scenario.broken) == ([], [])
    return scenario


def test_kep_5194_01_the_scheduler_writes_a_shared_claim_twice_whatever_the_number_of_pods():
    scenario = came_true("one-entry")

    commits = scenario.of("ResourceClaim", "fabric")
    writes = [(c.data["type"], c.data.get("subresource", "")) for c in commits]
    assert writes == [("ADDED", ""), ("MODIFIED", ""), ("MODIFIED", "status")]
    assert commits[-1].data["workloads"] == ["train"]
    by_scheduler = [c for c in commits if c.identity == "system:kube-scheduler"]
    assert len(by_scheduler) == 2  # finalizer, allocation with the reference
    assert len(by_scheduler[-1].data["consumers"]) == 1
    # Nor does it ask for a write that changes nothing, which no commit would show.
    answers = [
        line for line in scenario.lines if line.ev == "api.response" and line.identity == "system:kube-scheduler"
    ]
    codes = [line.data["code"] for line in answers if line.data["path"].startswith("resourceclaims")]
    assert codes == [200, 200]


def test_kep_5194_03_a_job_that_has_ended_releases_and_then_the_claim_controller_deallocates():
    scenario = came_true("complete")

    assert scenario.claim[-3:] == [
        ("system:controller:job", 0, True), (CLAIMS, 0, False), (CLAIMS, 0, False),
    ]  # fmt: skip


def test_kep_5194_04_nothing_is_released_before_the_last_pod_is_gone():
    scenario = came_true("background-delete")

    pods_gone_s = [scenario.at_s(c) for c in scenario.of("Pod", "web-") if c.data["type"] == "DELETED"]
    (released_s,) = (scenario.at_s(c) for c in scenario.of("ResourceClaim", "net") if c.identity == DEPLOYMENTS)
    assert len(pods_gone_s) == 3
    assert released_s > max(pods_gone_s)


LEAVING = """
set reserved_for.mode=kep5194
limit 120s
nodes n1..n2 cpu=8 drivers=net.example.com:0
apply interconnect.yaml
job train completions=4 parallelism=4 deadline=5 cpu=1 run="forever; on SIGTERM exit 0 after 20s" grace=30 claims=net
remember uid job/train metadata.uid
as admin create resourceclaims {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "net"}, "spec": {"reservedFor": {"apiGroup": "batch", "resource": "jobs", "name": "train", "uid": "$uid"}, "devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "interconnect"}}]}}} -> 201
expect within 5s count pods phase=Running == 4
expect within 10s each jobs name=train status.conditions[FailureTarget].reason == DeadlineExceeded
expect for 15s each resourceclaims name=net status.reservedFor[0].name == train
expect within 15s each jobs name=train status.conditions[Failed].reason == DeadlineExceeded
expect within 10s each resourceclaims name=net status.allocation == ""
"""


def test_kep_5194_04_a_job_is_done_and_its_pods_still_leave_so_that_the_reference_stays():
    scenario = played(LEAVING)

    ended_s = [scenario.at_s(c) for c in scenario.of("Pod", "train-") if c.data["phase"] == "Succeeded"]
    (released_s,) = (scenario.at_s(c) for c in scenario.of("ResourceClaim", "net") if "controller:job" in c.identity)
    assert max(ended_s) > 20.0
    assert released_s > max(ended_s)


def test_kep_5194_05_a_deployment_that_keeps_its_claim_at_zero_replicas_has_the_same_devices_again():
    released = came_true("scaled-to-zero")
    kept = observe("scaled-to-zero", release__on_scale_to_zero=False)

    pods_gone_s = max(released.at_s(c) for c in released.of("Pod", "web-") if c.data["type"] == "DELETED")
    released_s = max(released.at_s(c) for c in released.of("ResourceClaim") if c.identity == DEPLOYMENTS)
    assert released_s - pods_gone_s < 5.0
    assert kept.claim[-1] == ("system:kube-scheduler", 1, True)


KEPT = """
expect for 60s each resourceclaims name=net status.reservedFor[0].name == web
expect each resourceclaims name=net status.allocation.devices.results[0].device == switch-0
expect count events reason=ClaimReleased == 0
scale deployment/web replicas=4
expect within 20s count pods phase=Running == 4
"""


def test_kep_5194_05_a_claim_that_is_kept_for_a_minute_is_written_no_more_when_the_pods_come_back():
    text = (
        (FOLDER / "scaled-to-zero.txt")
        .read_text()
        .partition('expect within 5s each resourceclaims name=net status.reservedFor[0].name == ""')[0]
    )
    scenario = played(f"{text}{KEPT}", **{"release.on_scale_to_zero": False})

    gone_s = max(scenario.at_s(c) for c in scenario.of("Pod", "web-") if c.data["type"] == "DELETED")
    assert [c for c in scenario.of("ResourceClaim", "net") if scenario.at_s(c) > gone_s] == []
    assert (
        len([line for line in scenario.lines if line.ev == "kubelet.start" and scenario.at_s(line) > gone_s + 60]) == 4
    )


@pytest.mark.parametrize("seed", range(10))
def test_kep_5194_06_of_the_clear_and_the_next_reservation_one_loses_and_no_pod_runs_without_devices(seed):
    scenario = came_true("scale-race", seed)

    answers = [line for line in scenario.lines if line.ev == "api.response" and line.data["code"] == 409]
    refused = [line for line in answers if line.data["path"].startswith("resourceclaims")]
    # One at most for each of the two scalings that cross a clear.
    assert len([line for line in refused if line.identity in (CLAIMS, DEPLOYMENTS)]) <= 2
    assert scenario.claim[-1][1:] == (1, True)


@pytest.mark.parametrize(
    ("deletion", "is_free", "stays_s"), [("finalizer", True, 20.0), ("rc_fallback", True, 0.0), ("leak", False, 0.0)]
)
def test_kep_5194_07_who_releases_the_claim_of_a_deployment_that_is_deleted(deletion, is_free, stays_s):
    text = (FOLDER / "background-delete.txt").read_text().partition("expect within 5s each deployments")[0]
    scenario = played(
        f"{text}wait 1s\ndelete deployment/web\nwait 60s\n",
        **{"owner_deletion": deletion, "rc.owner_check_interval": 10.0},
    )

    asked_s = max(scenario.at_s(c) for c in scenario.of("Deployment") if c.data["type"] != "DELETED")
    (gone,) = (c for c in scenario.of("Deployment") if c.data["type"] == "DELETED")
    freed_s = [scenario.at_s(c) for c in scenario.of("ResourceClaim", "net") if not c.data.get("granted")]
    began_s = min(scenario.at_s(c) for c in scenario.of("Pod", "web-") if c.data.get("deletion"))
    assert bool([at for at in freed_s if at > began_s]) == is_free
    assert not is_free or max(freed_s) - began_s <= 35.0
    assert scenario.at_s(gone) - began_s >= stays_s if stays_s else scenario.at_s(gone) <= began_s + 1.0
    assert asked_s <= scenario.at_s(gone)


@pytest.mark.parametrize("slow", ["", "link claim-controller slow=1s\n"])
def test_kep_5194_08_pod_entries_go_first_then_the_workloads_then_the_allocation(slow):
    """Also where the claim controller is slower than the Deployment's, which then has to wait for it."""
    text = (
        (FOLDER / "mixed.txt")
        .read_text()
        .replace("scale deployment/web replicas=0\n", f"{slow}scale deployment/web replicas=0\n")
    )
    scenario = played(text.replace("within 5s", "within 15s"))

    by_scheduler = [(count, granted) for writer, count, granted in scenario.claim if writer == "system:kube-scheduler"]
    assert by_scheduler == [(0, False), (1, True), (2, True), (3, True)]  # the sixth pod, gate on again, wrote nothing
    listed = scenario.claim[scenario.claim.index(("system:kube-scheduler", 3, True)) + 1 :]
    owners = listed.index((DEPLOYMENTS, 0, True))
    assert listed[owners - 1] == (CLAIMS, 1, True)
    assert {writer for writer, _, _ in listed[:owners]} == {CLAIMS}
    assert listed[owners + 1] == (CLAIMS, 0, False)


def test_kep_5194_09_with_the_controllers_gate_off_no_entry_goes_and_with_it_on_again_all_do():
    scenario = came_true("gate-off-and-on")

    pods_gone_s = [scenario.at_s(c) for c in scenario.of("Pod") if c.data["type"] == "DELETED"]
    written_s = [scenario.at_s(c) for c in scenario.of("ResourceClaim", "net")]
    assert [at_s for at_s in written_s if min(pods_gone_s) < at_s < max(pods_gone_s) + 60.0] == []
    assert scenario.claim[-6:] == [
        # Without the gate it knows no pod but those listed: it lists the two that run, as one bound without a scheduler.
        (CLAIMS, 3, True), (CLAIMS, 4, True),
        (CLAIMS, 1, True), (DEPLOYMENTS, 0, True), (CLAIMS, 0, False), (CLAIMS, 0, False),
    ]  # fmt: skip


def test_kep_5194_09_the_claim_controller_tries_a_claim_with_an_unknown_entry_again_and_again():
    text = (
        (FOLDER / "gate-off-and-on.txt").read_text().partition("restart controllers with reserved_for.mode=kep5194")[0]
    )
    retries = {}

    def count(mesh):
        retries.update(mesh.instance("claim-controller").metrics())

    played(text, afterwards=count)

    assert retries['workqueue_retries_total{name="resource_claim"}'] > 5


@pytest.mark.parametrize("missing", ["controllers", "claim-controller"])
def test_kep_5194_09_both_controllers_need_the_gate_to_clean_up(missing):
    text = (
        (FOLDER / "gate-off-and-on.txt").read_text().replace(f"restart {missing} with reserved_for.mode=kep5194\n", "")
    )

    scenario = Observed(parsed(text), 1, {})

    assert "status.allocation" in " ".join(scenario.unmet)
    assert scenario.claim[-1][1:] == ((1, True) if missing == "controllers" else (4, True))


@pytest.mark.parametrize(("fence", "wait", "is_lost"), [
    ("none", "30ms", True), ("get", "30ms", False), ("touch", "30ms", False), ("get", "53ms", True), ("touch", "53ms", True),
])  # fmt: skip
def test_kep_5194_14_a_fence_leaves_the_moment_between_itself_and_the_bind(fence, wait, is_lost):
    text = (FOLDER / "fence-race.txt").read_text().replace("wait 30ms", f"wait {wait}")
    scenario = parse_scenario(text, str(FOLDER / "fence-race.txt"), VERBS)

    runs = [Observed(scenario, seed, {"scheduler.reserve_fence": fence}) for seed in range(8)]

    broken = [text for run in runs for text in run.broken]
    assert [text for text in broken if not text.startswith("I8: bound to n1")] == []
    assert bool(broken) == is_lost


REPLACED = """
set reserved_for.mode=kep5194 owner_deletion=rc_fallback rc.owner_check_interval=10
limit 120s
nodes n1..n2 cpu=8 drivers=net.example.com:0
apply interconnect.yaml
job train completions=1 cpu=1 run="on SIGTERM exit 0 after 4s" grace=30 claims=net
remember old job/train metadata.uid
as admin create resourceclaims {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "net"}, "spec": {"reservedFor": {"apiGroup": "batch", "resource": "jobs", "name": "train", "uid": "$old"}, "devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "interconnect"}}]}}} -> 201
expect within 10s count pods phase=Running == 1
delete job/train
gone job/train
job train completions=1 cpu=1 claims=other
remember new job/train metadata.uid
expect each resourceclaims name=net status.reservedFor[0].uid == $old
expect within 25s each resourceclaims name=net status.reservedFor[0].name == ""
expect within 5s each resourceclaims name=net status.allocation == ""
as admin create resourceclaims {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "other"}, "spec": {"reservedFor": {"apiGroup": "batch", "resource": "jobs", "name": "train", "uid": "$new"}, "devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "interconnect"}}]}}} -> 201
expect within 10s each resourceclaims name=other status.reservedFor[0].uid == $new
expect within 10s each jobs name=train status.active == 1
expect for 25s each resourceclaims name=other status.reservedFor[0].uid == $new
"""


def test_kep_5194_16_a_job_of_the_same_name_is_there_before_the_first_ones_pod_is_gone_and_has_a_claim_of_its_own():
    scenario = played(REPLACED)

    assert [writer for writer, count, _ in scenario.claim if count == 0][-2:] == [CLAIMS, CLAIMS]
    assert (
        scenario.of("ResourceClaim", "other")[-1].data["consumers"]
        != scenario.of("ResourceClaim", "net")[2].data["consumers"]
    )


def test_kep_5194_16_the_reference_of_a_job_that_was_replaced_is_the_claim_controllers_to_remove():
    scenario = came_true("owner-recreated")

    assert "system:controller:job" not in [writer for writer, _, _ in scenario.claim]


@pytest.fixture
def without_binding(monkeypatch):
    """The Deployment controller may write the status of claims, but not their reservations."""
    roles = tuple(
        replace(role, rules=tuple(rule for rule in role.rules if rule.name != "claim-binding"))
        if role.user == DEPLOYMENTS
        else role
        for role in authorizer.roles()
    )
    monkeypatch.setattr(authorizer, "roles", lambda: roles)
    authorizer.forget_rules()
    yield
    authorizer.forget_rules()


def test_kep_5194_17_an_owner_without_the_right_to_bind_claims_is_refused_and_says_so(without_binding):
    text = (FOLDER / "scaled-to-zero.txt").read_text().partition("expect within 40s count pods == 0")[0]
    scenario = played(
        f"{text}expect within 40s count pods == 0\n"
        "expect within 15s count events reason=ClaimReleaseBlocked == 1\n"
        'expect each events reason=ClaimReleaseBlocked message ~ "cannot be released"\n'
        'expect each events reason=ClaimReleaseBlocked message ~ "resourceclaims/binding"\n'
        "expect each resourceclaims name=net status.reservedFor[0].name == web\n"
    )

    assert DEPLOYMENTS not in [writer for writer, _, _ in scenario.claim]


def test_kep_5194_17_with_the_gate_off_the_right_to_the_status_is_enough(without_binding):
    scenario = came_true("scaled-to-zero", DRAResourceClaimGranularStatusAuthorization=False)

    assert DEPLOYMENTS in [writer for writer, _, _ in scenario.claim]


def test_kep_5194_19_an_entry_for_each_pod_costs_watchers_a_hundred_times_as_much():
    shared = came_true("one-entry").result.measures
    each = observe("one-entry", reserved_for__mode="pods", reserved_for__max=10_000).result.measures

    assert shared["claim_consumers_max"] == 1
    assert each["claim_consumers_max"] == 300
    assert each["claim_watch_kib"] >= 100 * shared["claim_watch_kib"]


@pytest.mark.parametrize(("mode", "unmet"), [
    ("pods", ["reservedFor[0].resource", "reservedFor[1].name"]),
    ("kep5729", ["reservedFor[0].resource"]),
])  # fmt: skip
def test_kep_5194_11_the_scenario_of_the_thousand_pods_distinguishes_the_modes(mode, unmet):
    """With 64 pods: entries of pods cost the square of their number. The thousand are in `test_experiments.py`."""
    text = (FOLDER / "thousand-pods.txt").read_text().replace("max=10000", "max=9999").replace("1000", "64")

    scenario = Observed(parse_scenario(text, str(FOLDER / "thousand-pods.txt"), VERBS), 1, {"reserved_for.mode": mode})

    assert [next(path for path in unmet if path in text) for text in scenario.unmet] == unmet
    assert scenario.broken == []


def test_kep_5194_10_a_kubelet_with_the_gate_off_prepares_for_none_of_a_workloads_pods_until_it_has_it_again():
    scenario = came_true("old-kubelet")

    restarted_s = [scenario.at_s(c) for c in scenario.lines if c.ev == "proc.start" and c.comp == "kubelet/h0"]
    starts_s = [scenario.at_s(c) for c in scenario.lines if c.ev == "kubelet.start" and c.comp == "kubelet/h0"]
    assert len(restarted_s) == 3
    assert len(starts_s) == 2
    assert min(starts_s) > restarted_s[2] > 30.0
    assert observe("old-kubelet", reserved_for__mode="pods").unmet != []


def test_kep_5194_11_a_kubelet_restarted_with_the_gate_off_ends_nothing_and_makes_no_new_sandbox():
    scenario = came_true("kubelet-restart")

    first, off, booted, on = (
        scenario.at_s(c) for c in scenario.lines if c.ev == "proc.start" and c.comp == "kubelet/h0"
    )
    starts = [scenario.at_s(c) for c in scenario.lines if c.ev == "kubelet.start" and c.comp == "kubelet/h0"]
    assert [at_s for at_s in starts if off <= at_s < on] == []
    assert (len(starts), starts[0] > first, starts[1] > on > booted) == (2, True, True)


def test_kep_5194_11_a_kubelet_that_asks_at_its_restart_ends_the_containers_of_running_pods():
    text = (FOLDER / "kubelet-restart.txt").read_text().partition("expect for 20s each pods")[0]

    scenario = played(
        f"{text}expect within 20s each pods status.containerStatuses[0].ready == false\n"
        "expect within 20s count events reason=FailedPrepareDynamicResources == 2\n"
        "restart kubelet/* with reserved_for.mode=kep5194\n"
        "expect within 30s each pods status.containerStatuses[0].ready == true\n"
        "expect each pods status.containerStatuses[0].restartCount == 1\n",
        **{"kubelet.recheck_on_restart": "always"},
    )
    assert scenario.result.passed


GAP = """
scale deployment/web replicas=0
wait 0.2s
link controllers cut=both
wait 20s
pod bare cpu=1 restart=Never run="exit 0 after 80s" claims=net
expect within 10s each pods name=bare phase == Running
wait 15s
expect each resourceclaims name=net status.reservedFor[0].name == web
link controllers
expect within 30s count pods name=web-* == 0
expect within 40s count events reason=ClaimReleaseBlocked == 1
expect each pods name=bare phase == Running
expect each resourceclaims name=net status.reservedFor[0].name == web
expect within 60s each pods name=bare phase == Succeeded
expect within 10s each resourceclaims name=net status.allocation == ""
expect within 5s count events reason=ClaimReleased == 1
"""


def test_kep_5194_14_an_owner_whose_watches_had_a_gap_of_half_a_minute_releases_once_and_from_no_pod_that_runs():
    text = (FOLDER / "scaled-to-zero.txt").read_text().partition("scale deployment/web replicas=0")[0]
    scenario = played(f"{text.replace('limit 120s', 'limit 300s')}{GAP}")

    (released_s,) = (scenario.at_s(c) for c in scenario.of("ResourceClaim", "net") if c.identity == DEPLOYMENTS)
    assert released_s > max(scenario.at_s(c) for c in scenario.of("Pod", "bare") if c.data["phase"] == "Succeeded")


def test_kep_5194_12_each_of_the_fifty_pods_shows_why_it_is_deleted():
    text = (
        (FOLDER / "tainted.txt")
        .read_text()
        .replace("claims=fabric grace=1", 'claims=fabric grace=30 run="on SIGTERM exit 0 after 5s"')
    )
    why = "status.conditions[DisruptionTarget].reason=DeletionByDeviceTaintManager"
    came = text.replace(
        "apply tainted.yaml\n",
        f"apply tainted.yaml\nexpect within 4s count pods name=p* {why} == 50\nexpect count pods name=waits* {why} == 0\n",
    )

    assert played(came).result.passed


def test_controllers_20_a_pod_of_another_owner_keeps_the_claim_and_the_deployment():
    scenario = came_true("foreign-pod")

    bare_s = max(scenario.at_s(c) for c in scenario.of("Pod", "bare") if c.data["phase"] == "Succeeded")
    (gone,) = (c for c in scenario.of("Deployment") if c.data["type"] == "DELETED")
    assert scenario.at_s(gone) >= bare_s


def test_controllers_19_in_a_namespace_that_goes_the_claim_is_released_after_the_last_pod():
    scenario = came_true("namespace")

    pods_gone_s = max(scenario.at_s(c) for c in scenario.of("Pod", "web-") if c.data["type"] == "DELETED")
    freed = [c for c in scenario.of("ResourceClaim", "net") if c.identity == DEPLOYMENTS]
    assert len(freed) == 1
    assert scenario.at_s(freed[0]) >= pods_gone_s
    assert scenario.claim[-1][1:] == (0, False)


FLIPS = [
    ("mixed", "scheduler"),
    ("gate-off-and-on", "scheduler"),
    ("gate-off-and-on", "claim-controller"),
    ("old-kubelet", "kubelet/n1"),
    ("kubelet-restart", "kubelet/n1"),
    ("api-server-gate", "apiserver"),
    ("scheduler-gate", "scheduler"),
    ("progress-deadline", "kubelet/n2"),
]


@pytest.mark.parametrize(("name", "component"), FLIPS, ids=[f"{name}-{component}" for name, component in FLIPS])
def test_kep_5194_10_each_row_of_the_matrix_needs_the_gate_to_go_off_where_it_says(name, component):
    """kep-5194 10: with every gate on the row's result does not come, whatever else the scenario does."""
    text = (FOLDER / f"{name}.txt").read_text()
    off = f"restart {component} with reserved_for.mode=pods"
    assert off in text

    assert Observed(parsed(text.replace(off, f"restart {component}")), 1, {}).unmet != []


def test_kep_5194_10_rows_of_the_matrix_in_which_one_component_has_the_gate_off():
    for name in ("api-server-gate", "scheduler-gate", "progress-deadline"):
        assert came_true(name).result.passed


def test_kep_5194_10_a_claim_of_an_api_server_without_the_gate_lists_its_pods_whatever_the_scheduler_knows():
    scenario = came_true("api-server-gate")

    # What an API server recovers when it starts has no author.
    commits = [c for c in scenario.of("ResourceClaim", "meanwhile") if c.identity]
    assert [(c.identity, len(c.data.get("consumers") or ())) for c in commits[-3:]] == [
        ("system:kube-scheduler", count) for count in (1, 2, 3)
    ]


def test_kep_5194_10_the_controllers_of_workloads_release_nothing_until_they_have_the_gate_again():
    text = (FOLDER / "scaled-to-zero.txt").read_text().partition("scale deployment/web replicas=0")[0]

    scenario = played(
        f"{text}restart controllers with reserved_for.mode=pods\n"
        "scale deployment/web replicas=0\n"
        "expect within 40s count pods == 0\n"
        "expect for 60s each resourceclaims name=net status.reservedFor[0].name == web\n"
        "expect count events reason=ClaimReleased == 0\n"
        "restart controllers with reserved_for.mode=kep5194\n"
        'expect within 5s each resourceclaims name=net status.allocation == ""\n'
        "expect within 5s count events reason=ClaimReleased == 1\n"
    )
    assert scenario.result.passed


@pytest.mark.parametrize(("step", "unmet"), [
    # The claim controller without the gate lists the pods by itself, but never takes the workload off.
    ("as admin patch resourceclaims/net/status", 'status.reservedFor[0].name == ""'),
    # The deletion of the workload waits for the finalizer, and the deletion of its pods for that of the workload.
    ("as admin patch statefulsets/web", "count pods == 0 (2 found)"),
])  # fmt: skip
def test_kep_5194_10_a_downgrade_is_safe_only_with_each_of_its_steps(step, unmet):
    came_true("safe-downgrade")
    lines = (FOLDER / "safe-downgrade.txt").read_text().splitlines()

    without = Observed(parsed("\n".join(line for line in lines if not line.startswith(step))), 1, {})

    assert unmet in without.unmet[0]


@pytest.mark.parametrize(("seconds", "orphans"), [(110, 0), (130, 1)])
def test_kep_5194_07_a_claim_that_leaks_is_counted_as_orphaned_after_two_minutes(seconds, orphans):
    text = (FOLDER / "background-delete.txt").read_text().partition("expect within 5s each deployments")[0]
    counted = {}

    def count(mesh):
        counted.update(mesh.instance("claim-controller").metrics())

    played(f"{text}wait 1s\ndelete deployment/web\nwait {seconds}s\n", afterwards=count, owner_deletion="leak")

    assert counted["claim_orphaned"] == orphans


def test_kep_5194_08_the_scenarios_that_flip_a_gate_have_one_digest_a_seed():
    names = sorted({name for name, _ in FLIPS})[:3]
    digests = [[simulate(load_scenario(FOLDER / f"{name}.txt"), seed=3).digest for name in names] for _ in range(2)]

    assert digests[0] == digests[1]
    assert len(set(digests[0])) == 3


ON_N1 = (FOLDER / "postfilter.txt").read_text().partition("expect within 10s each pods name=second")[0]


@pytest.mark.parametrize(
    ("dealloc", "node", "attempts", "failures"),
    [("never_nonpod", "", 1, 1), ("if_no_scheduled_pods", "n2", 2, 1), ("in_memory", "n2", 1, 0)],
)
def test_kep_5194_13_who_frees_a_claim_that_a_workload_holds_where_no_pod_can_go(dealloc, node, attempts, failures):
    scenario = played(
        f"{ON_N1}wait 65s\n"
        f"expect each pods name=second spec.nodeName == {node or chr(34) * 2}\n"
        f"expect count events reason=FailedScheduling == {failures}\n"
        "expect each resourceclaims name=shared status.reservedFor[0].name == train\n",
        **{"scheduler.postfilter_dealloc": dealloc},
    )

    tried = [line for line in scenario.lines if line.ev == "sched.attempt" and line.obj["name"] == "second"]
    assert len(tried) == attempts
    freed = [c for c in scenario.of("ResourceClaim", "shared") if not c.data.get("granted")]
    assert len(freed[2:]) == (1 if node else 0)
