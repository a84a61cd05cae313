"""Snapshots and recordings of kwokctl in virtual time: as they are, at their moments, in arms."""

import json

import pytest
from click.testing import CliRunner

from lab.cli.__main__ import cli
from lab.exchange.format import format_named
from lab.exchange.stream import Change
from lab.scenarios.run import load_scenario, simulate
from lab.scenarios.script.scenario import ScriptError

NODES = """\
---
apiVersion: v1
kind: Node
metadata: {{name: n{n}, uid: node-{n}, labels: {{pool: a}}, creationTimestamp: $(time-offset-nanosecond -7200000000000)}}
status: {{capacity: {{cpu: 32, memory: 64Gi, pods: 110}}, allocatable: {{cpu: 32, memory: 64Gi, pods: 110}}}}
"""
SET = """\
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: web, namespace: default, uid: set-1}
spec:
  replicas: 50
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: app, resources: {requests: {cpu: 500m}}}]}
status: {replicas: 50, readyReplicas: 50}
"""
POD = """\
---
apiVersion: v1
kind: Pod
metadata:
  name: web-{n}
  namespace: default
  uid: pod-{n}
  labels: {{app: web}}
  creationTimestamp: $(time-offset-nanosecond -3600000000000)
  ownerReferences: [{{apiVersion: apps/v1, kind: ReplicaSet, name: web, uid: set-1, controller: true}}]
spec: {{nodeName: n{node}, containers: [{{name: main, image: app, resources: {{requests: {{cpu: 500m}}}}}}]}}
status:
  phase: Running
  startTime: $(time-offset-nanosecond -3600000000000)
  conditions:
  - {{type: Ready, status: "True", lastTransitionTime: $(time-offset-nanosecond -3590000000000)}}
  containerStatuses:
  - {{name: main, image: app, imageID: app, containerID: "x://{n}", ready: true, started: true, restartCount: 0,
     state: {{running: {{startedAt: $(time-offset-nanosecond -3590000000000)}}}}}}
"""


def action(at_s, method, name, template="", resource="pods"):
    return (
        f"---\napiVersion: action.kwok.x-k8s.io/v1alpha1\nkind: ResourcePatch\n"
        f"resource: {{version: v1, resource: {resource}}}\ntarget: {{name: {name}, namespace: default}}\n"
        f"durationNanosecond: {int(at_s * 1e9)}\nmethod: {method}\n" + (f"template: {template}\n" if template else "")
    )


TEMPLATE = "{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: default}, spec: {terminationGracePeriodSeconds: 0, containers: [{name: a, image: 'x:1'}, {name: b, image: 'y:1'}]}}"


@pytest.fixture
def recording(tmp_path):
    """Write a recording and return its path."""

    def made(*parts, name="day.yaml"):
        path = tmp_path / name
        path.write_text("".join(parts))
        return path

    return made


def ran(path, *lines, seed=0, on_line=None):
    scenario = path.with_suffix(".txt")
    scenario.write_text("\n".join((f"begin {path.name}", *lines, "")))
    return simulate(load_scenario(scenario), seed=seed, on_line=on_line)


def unmet(result):
    return [(each.text, each.seen) for each in result.expectations if not each.passed] + [result.error] * bool(
        result.error
    )


def test_14_pods_that_run_go_on_running_with_the_nodes_share_that_they_had(recording):
    path = recording(*(NODES.format(n=n) for n in range(2)), SET, *(POD.format(n=n, node=n % 2) for n in range(50)))

    lines = []
    result = ran(
        path,
        "expect for 30s count pods phase=Running == 50",
        "expect each pods status.containerStatuses[main].restartCount == 0",
        "expect each pods status.startTime == 2025-12-31T23:00:00Z",
        "expect each pods metadata.ownerReferences[web].uid == set-1",
        "expect count pods node=n0 == 25",
        "expect each nodes name=n0 metadata.uid == node-0",
        on_line=lines.append,
    )

    assert unmet(result) == []
    assert result.violations == []
    assert [line for line in lines if line.ev in ("kubelet.container_start", "sched.bind")] == []


DEPLOYMENT = """\
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default, uid: deployment-1, annotations: {deployment.kubernetes.io/revision: "4"}}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: app, resources: {requests: {cpu: 500m}}}]}
status: {replicas: 3, readyReplicas: 3, updatedReplicas: 3, availableReplicas: 3, observedGeneration: 1}
"""
OWNED = (
    SET.replace("replicas: 50", "replicas: 3")
    .replace("readyReplicas: 50", "readyReplicas: 3")
    .replace(
        "uid: set-1}",
        "uid: set-1, labels: {app: web},\n  annotations: {deployment.kubernetes.io/revision: '4'}, ownerReferences: "
        "[{apiVersion: apps/v1, kind: Deployment, name: web, uid: deployment-1, controller: true}]}",
    )
)


@pytest.mark.parametrize(("keeps_owners", "pods"), [(True, 4), (False, 3)], ids=["kept", "dropped"])
def test_13_a_pod_that_is_preempted_comes_again_where_its_owner_came_too(recording, keeps_owners, pods):
    made = [POD.format(n=n, node=0) for n in range(3)]
    owner = next(line for line in made[0].splitlines(keepends=True) if "ownerReferences" in line)
    if not keeps_owners:  # as `keplab import --drop-owners` leaves them
        made = [each.replace(owner, "") for each in made]
    owners = [DEPLOYMENT, OWNED] if keeps_owners else []
    parts = [NODES.format(n=0).replace("cpu: 32", "cpu: 2"), *owners, *made]

    result = ran(
        recording(*parts),
        "wait 5s",
        "expect count pods name=web-[012] phase=Running == 3",
        "priorityclass high value=100",
        "pod high cpu=1 priority-class=high",
        "expect within 60s count pods name=high phase=Running == 1",
        "wait 10s",
        f"expect count pods == {pods}",
    )

    assert unmet(result) == []
    assert result.violations == []


def test_14_pods_that_come_onto_nodes_with_kubelets_go_on_as_they_were(recording):
    snapshot = recording(NODES.format(n=0), SET.replace("50", "2"), *(POD.format(n=n, node=0) for n in range(2)))
    snapshot.write_text(snapshot.read_text().replace("restartCount: 0", "restartCount: 3"))
    scenario = snapshot.with_suffix(".txt")
    lines = (
        "nodes n0..n1 cpu=32 memory=64Gi",
        "play day.yaml pods=as-they-are",
        "expect within 5s count pods phase=Running == 2",
        "wait 30s",
        "expect each pods status.containerStatuses[main].restartCount == 3",
        "expect each pods status.containerStatuses[main].state.running.startedAt == 2025-12-31T23:00:10Z",
        "expect each pods status.startTime == 2025-12-31T23:00:00Z",
        "kill kubelet/n0",
        "wait 20s",
        "expect each pods status.containerStatuses[main].restartCount == 3",
        "expect count pods == 2",
    )
    scenario.write_text("\n".join((*lines, "")))

    seen = []
    result = simulate(load_scenario(scenario), on_line=seen.append)

    assert unmet(result) == []
    assert result.violations == []
    assert [line for line in seen if line.ev == "kubelet.start"] == []


def test_an_equal_snapshot_gives_an_equal_digest_from_there_on(recording):
    path = recording(NODES.format(n=0), SET.replace("50", "3"), *(POD.format(n=n, node=0) for n in range(3)))

    first, second = (ran(path, "delete pod/web-1", "settle") for _ in range(2))

    assert first.digest == second.digest
    assert ran(path, "delete pod/web-1", "settle", seed=1).digest != first.digest


def test_16_changes_happen_at_their_moments_of_virtual_time(recording):
    path = recording(
        NODES.format(n=0),
        action(1, "create", "p", TEMPLATE),
        action(
            2,
            "patch",
            "p",
            "{metadata: {annotations: {at: $(time-offset-nanosecond 2000000000)}}, spec: {containers: [{name: a, image: 'x:2'}]}}",
        ),
        action(3, "delete", "p"),
    )

    result = ran(
        path,
        f"play {path.name} beside=yes",
        "wait 999ms",
        "expect count pods == 0",
        "wait 2ms",
        "expect count pods name=p == 1",
        "wait 998ms",
        "expect each pods name=p spec.containers[a].image == x:1",
        "wait 2ms",
        "expect each pods name=p spec.containers[a].image == x:2",
        "expect each pods name=p spec.containers[b].image == y:1",
        "wait 996ms",
        "expect count pods name=p == 1",
        "wait 5s",
        "expect count pods == 0",
        "played",
    )

    assert unmet(result) == []


def test_a_pod_of_a_client_that_was_recorded_as_it_was_bound_is_replayed(tmp_path):
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default", "uid": "u1"},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "a", "image": "x:1"}]},
    }
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}  # null, as every API server says
    bound = {**pod, "spec": {**pod["spec"], "nodeName": "n7"}, "status": {"conditions": [scheduled]}}
    path = tmp_path / "day.yaml"
    with path.open("wb") as file:
        writer = format_named("kwok").write(file, 0.0)
        for at_s, method, document in ((1.0, "create", pod), (2.0, "update", bound)):
            writer.change(Change(at_s, method, "pods", "default", "p", document))
        writer.close()
    path.write_text(NODES.format(n=0) + "---\n" + path.read_text())

    result = ran(path, f"play {path.name}", "settle", "expect each pods name=p spec.nodeName == n0")

    assert unmet(result) == []


def test_a_change_that_cannot_be_made_is_the_scenarios_mistake(recording):
    path = recording(NODES.format(n=0), action(1, "patch", "nobody", "{metadata: {labels: {a: b}}}"))

    result = ran(path, f"play {path.name}")

    assert result.is_mistake
    assert result.error.endswith(
        "day.yaml:document 2 (line 7): patch pods default/nobody: Pod default/nobody is not there"
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("begin gone.yaml", "begin gone.yaml: gone.yaml: there is no such file beside the scenario"),
        ("begin ../day.yaml", "begin ../day.yaml: '../day.yaml' lies outside the scenario's folder"),
        ("begin day.yaml format=bson", "begin day.yaml: --format bson: want one of "),
        ("begin bad.yaml", 'begin bad.yaml: bad.yaml:document 1 (line 2): Pod default/x: Pod "x" is invalid: '),
    ],
)
def test_a_snapshot_that_cannot_be_used_is_refused_before_anything_starts(recording, tmp_path, line, message):
    recording(NODES.format(n=0))
    recording("---\napiVersion: v1\nkind: Pod\nmetadata: {name: x, namespace: default}\nspec: {}\n", name="bad.yaml")
    scenario = tmp_path / "s.txt"
    scenario.write_text(f"{line}\nwait 1s\n")

    with pytest.raises(ScriptError) as refused:
        simulate(load_scenario(scenario))
    assert message in str(refused.value)


def keplab(*words):
    done = CliRunner().invoke(cli, [str(word) for word in words], catch_exceptions=False, standalone_mode=False)
    return done.return_value if done.exception is None else done.exception.code, done.output


def test_a_replay_is_compared_in_arms(recording, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = recording(NODES.format(n=0), action(1, "create", "p", TEMPLATE))

    code, printed = keplab(
        "replay",
        path,
        "--arm",
        "a",
        "--arm",
        "b:kubelet.on_reject=unbind",
        "--workers",
        "1",
        "--for",
        "5s",
        "-o",
        "json",
    )

    found = json.loads(printed[printed.index("{") :])
    assert code in (0, None)
    assert [arm["name"] for arm in found["arms"]] == ["a", "b"]


def test_a_replay_in_virtual_time_runs_lines_of_a_scenario_beside_it(recording, tmp_path):
    path = recording(NODES.format(n=0), action(4, "create", "p", TEMPLATE))
    faults = tmp_path / "faults.txt"
    faults.write_text("kill scheduler down=1s\nwait 3s\nexpect count pods == 0\n")

    code, printed = keplab("replay", path, "--virtual", "--fault", faults, "-o", "json")

    found = json.loads(printed[printed.index("{") :])
    assert (code, found["passed"], found["virtual_s"] > 13) == (0, True, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--speed", "0"), "--speed 0: want a number above 0, such as 10, or max"),
        (("--fault", "day.yaml"), "--fault needs virtual time; add --virtual"),
        (("--virtual", "--format", "x"), "--format x: want one of "),
        (("--virtual", "--for", "soon"), "--for 'soon' is no duration"),
    ],
)
def test_wrong_options_are_one_line(recording, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    path = recording(NODES.format(n=0))

    code, printed = keplab("replay", path.name, *words)

    assert (code, message in printed) == (2, True), printed
