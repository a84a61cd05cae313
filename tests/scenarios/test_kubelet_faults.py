"""Acceptance scenarios of kubelets that die, are cut off or come back, with their figures (kubelet 12, guarantees 13)."""

from collections import defaultdict
from pathlib import Path

import pytest

from lab.scenarios.run import load_scenario, simulate
from services.telemetry.eventlog import Line


class Log:
    """What a scenario's event log showed."""

    def __init__(self) -> None:
        self.lines: list[Line] = []

    def of(self, ev: str) -> list[Line]:
        return [line for line in self.lines if line.ev == ev]

    def starts(self) -> dict[str, int]:
        """Return how often each pod was started, by uid."""
        found: dict[str, int] = defaultdict(int)
        for line in self.of("kubelet.start"):
            found[line.obj["uid"]] += 1
        return dict(found)


@pytest.fixture
def report(tmp_path):
    """Run a scenario, demand that it comes true, and return its log and its result."""

    def run(text, seed=1):
        path = Path(tmp_path) / f"scenario-{seed}.txt"
        path.write_text(f"# Scenario\nlimit 900s\n{text}")
        log = Log()
        result = simulate(load_scenario(path), seed=seed, on_line=log.lines.append)
        wrong = [f"{j.line}: {j.text} ({j.seen}) at {j.at_s:.1f}" for j in result.expectations if not j.passed]
        wrong += [f"{v.invariant}: {v.detail}" for v in result.violations]
        assert [*wrong, *result.failures, result.error] == [""]
        return log, result

    return run


def test_kubelet_18_pods_run_on_through_400_s_and_replacements_overlap_with_them(report):
    log, _ = report(
        """nodes n1..n3 cpu=16
replicaset web replicas=9 cpu=1
expect within 20s count pods phase=Running == 9
link node/n1 cut=both
wait 400s
expect count pods metadata.deletionTimestamp=2* == 3
expect count pods phase=Running metadata.deletionTimestamp="" == 9
link node/n1
expect within 60s count pods == 9
settle
expect created pods == 12
"""
    )

    stopped = {line.obj["uid"]: line.mono_ns for line in log.of("kubelet.stop")}
    begun = {line.obj["uid"]: line.mono_ns for line in log.of("kubelet.start")}
    replacements = sorted(begun.values())[-3:]
    assert len(stopped) == 3
    assert max(replacements) < min(stopped.values())  # both ran: different pods, which is allowed
    assert set(log.starts().values()) == {1}


SITES = (
    "kubelet.admit",
    "kubelet.checkpoint",
    "kubelet.start",
    "before:pods/status",
    "after:pods/status",
    "kubelet.stop",
)


@pytest.mark.parametrize("site", SITES)
def test_as_26_a_kubelet_with_30_pods_killed_at_a_place_loses_and_repeats_nothing(report, site, repeat):
    """Killed at an early and a late passing of the place; a new pod runs within 5 s. 100 kills: --repeats 9."""
    for seed, count in enumerate((2 + repeat % 13, 20 - repeat % 7), 2 * repeat):
        churn = "scale replicaset/web replicas=0\n" if site == "kubelet.stop" else ""
        log, _ = report(
            f"""nodes n1 cpu=128 pods=250
kill kubelet/n1 at={site} count={count}
replicaset web replicas=30 cpu=1
expect within 30s count pods name=web-* phase=Running == 30
{churn}wait 5s
pod next cpu=1
expect within 5s each pods name=next phase == Running
expect each pods phase=Running status.containerStatuses[main].restartCount == 0
""",
            seed=seed,
        )
        assert set(log.starts().values()) == {1}
        assert len([line for line in log.of("fault.inject") if line.data["target"] == "kubelet/h0"]) == 1


@pytest.mark.parametrize("cut", ["replies", "requests"])
@pytest.mark.parametrize("seed", range(2))
def test_as_37_a_third_of_the_nodes_cut_off_one_way_runs_nothing_twice(report, cut, seed, repeat):
    unknown = 7 if cut == "requests" else 0
    log, _ = report(
        f"""set kubelet.on_reject=unbind
nodes n1..n20 cpu=8
replicaset web replicas=40 cpu=1
expect within 20s count pods phase=Running == 40
wait 5s
link node/n1..n7 cut={cut}
replicaset more replicas=40 cpu=1
expect for 39s count nodes status.conditions[Ready].status=Unknown == 0
wait 20s
expect count nodes status.conditions[Ready].status=Unknown == {unknown}
wait 11s
link node/n1..n7
expect within 30s count pods status.conditions[Ready].status=True == 80
expect within 30s count nodes status.conditions[Ready].status=True == 20
settle
""",
        seed=2 * repeat + seed,
    )

    assert set(log.starts().values()) == {1}


@pytest.mark.parametrize("who", ["apiserver", "scheduler*", "controllers", "claim-controller", "kubelet/n1"])
@pytest.mark.parametrize("sign", "+-")
def test_as_38_a_wall_clock_that_jumps_changes_nothing(report, who, sign, repeat):
    """By an hour, and every second time by 30 s: --repeats 2 has all of them."""
    by = sign + ("1h", "30s")[repeat % 2]
    log, result = report(
        f"""set kubelet.on_reject=unbind
schedulers 2
nodes n1 cpu=64 threads=2 full-pcpus=true cpu-policy=static memory=256Gi
nodes n2..n3 cpu=16
replicaset web replicas=6 cpu=1
expect within 30s count pods phase=Running == 6
expect always count nodes status.conditions[Ready].status=True == 3
expect always count pods name=web-* status.conditions[Ready].status=True == 6
expect always count pods status.unbindHistory[1].nodeName=n1 == 0
clock {who} by={by}
pod guest cpu=1
wait 130s
expect each pods name=guest phase == Running
clock {who}
wait 10s
settle
expect each leases name=kube-scheduler spec.leaseTransitions <= 1
"""
    )

    jumped_ns, ended_ns = log.of("fault.inject")[0].mono_ns, int((result.started_s + result.virtual_s) * 1e9)
    assert [line.comp for line in log.of("watch.close") if jumped_ns < line.mono_ns < ended_ns] == []


@pytest.mark.parametrize("how", ["missing", "truncated", "foreign"])
def test_guarantees_fm_k5_pods_keep_their_own_cpus_when_the_checkpoint_is_lost(report, how):
    log, _ = report(
        f"""nodes n1 cpu=16 cpu-policy=static reserved=1
replicaset web replicas=6 cpu=2
expect within 20s count pods phase=Running == 6
wait 2s
corrupt kubelet/n1 how={how}
wait 5s
pod late cpu=2
expect within 5s each pods name=late phase == Running
wait 2s
kill kubelet/n1
wait 5s
expect each pods status.containerStatuses[main].restartCount == 0
"""
    )

    cpus = defaultdict(set)
    for line in log.of("kubelet.admit"):
        cpus[line.obj["uid"]].add(line.data["cpus"]["main"])
    assert [len(each) for each in cpus.values()] == [1] * 7
    assert len({each for found in cpus.values() for each in found}) == 7
    lost = [line.data["pods"] for line in log.of("kubelet.checkpoint_lost")]
    assert len(lost) == 1  # then it is written down again
    assert 0 < lost[0] <= 6
    assert set(log.starts().values()) == {1}


def test_as_54_many_kubelets_of_four_hosts_come_back_one_after_the_other(report, repeat):
    """First the kubelets are killed, then the API server, then both. 200 kubelets from the second repeat on."""
    nodes = 200 if repeat else 88
    log, _ = report(
        f"""hosts 4
nodes n1..n{nodes} cpu=8
replicaset web replicas=16 cpu=1
expect within 30s count pods phase=Running == 16
wait 1s
expect always count nodes status.conditions[Ready].status=True == {nodes}
kill kubelet/*
wait 8s
kill apiserver
wait 8s
kill apiserver
kill kubelet/*
wait 8s
expect each pods status.containerStatuses[main].restartCount == 0
settle
""",
        seed=repeat,
    )

    kills = sorted({line.mono_ns for line in log.of("fault.inject")})
    for place, (begun, sessions) in enumerate(zip(kills, (nodes, 0, nodes), strict=True)):
        until = [*kills, begun + 30_000_000_000][place + 1]
        opened = [line for line in log.of("kubelet.session") if line.data["acked"] and begun < line.mono_ns < until]
        back = [w.mono_ns for w in log.of("watch.open") if "system:node:" in w.identity and begun < w.mono_ns < until]
        assert len(opened) == sessions
        assert len(back) == nodes
        assert max(back) - begun < 30_000_000_000
        assert max(back) - min(back) > 4_000_000_000
    assert 429 not in {line.data["code"] for line in log.of("api.response")}


def test_guarantees_n1_capacity_of_a_pod_that_ended_is_not_taken_twice_by_the_next_kubelet(report):
    """The API server has not received of the end when the kubelet dies; what the pod had is another's by then."""
    log, _ = report(
        """nodes n1 cpu=1
pod p cpu=400m
pod q cpu=500m restart=Never run="exit 0 after 8s"
expect within 5s count pods phase=Running == 2
resize pod/p cpu=600m
expect within 2s each pods name=p status.conditions[PodResizePending].reason == Deferred
link node/n1 cut=requests
wait 10s
kill kubelet/n1
link node/n1
expect within 20s each pods name=q phase == Succeeded
expect within 5s each pods name=p status.containerStatuses[main].resources.requests.cpu == 600m
"""
    )

    assert [line.obj["name"] for line in log.of("kubelet.admit") if line.data.get("adopted")] == ["p"]
