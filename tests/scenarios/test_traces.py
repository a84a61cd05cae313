"""Traces in virtual time: SimKube's with their run times, public ones, and files without names."""

import itertools
import json
from types import SimpleNamespace

import msgspec
import pytest
import yaml
from click.testing import CliRunner

from lab.benchmarks.algorithm import Algorithm
from lab.cli.__main__ import cli
from lab.exchange.format import Reading, open_stream
from lab.exchange.reading import Source
from lab.scenarios.run import load_scenario, simulate
from services.api.switches import Switches
from tests.unit.exchange.sktraces import BEGAN, deployment, event, trace

SALT = "0123456789abcdef-the-salt"


def keplab(*words):
    done = CliRunner().invoke(cli, [str(word) for word in words], catch_exceptions=False, standalone_mode=False)
    return done.return_value if done.exception is None else done.exception.code, done.output


def replayed(path, *more):
    code, printed = keplab("replay", path, "-o", "json", *more)
    return code, json.loads(printed[printed.index("{\n") :]), printed


def ran(folder, *lines, seed=0):
    scenario = folder / "s.txt"
    scenario.write_text("\n".join((*lines, "")))
    seen = []
    result = simulate(load_scenario(scenario), seed=seed, on_line=seen.append)
    unmet = [(each.text, each.seen) for each in result.expectations if not each.passed]
    return result, seen, unmet + [result.error] * bool(result.error)


def ran_beside(scenario, *lines):
    """Run an import's scenario with these lines beside its recording; return the result, and all that is wrong."""
    text = scenario.read_text().replace("format=kwok\nwait 60s\n", "format=kwok beside=yes\n")
    scenario.write_text("\n".join((text.rstrip(), *lines, "")))
    result = simulate(load_scenario(scenario))
    unmet = [(each.text, each.seen) for each in result.expectations if not each.passed]
    return result, [*unmet, *([result.error] if result.error else []), *result.violations]


def test_22_two_replays_of_a_trace_have_one_digest(tmp_path):
    path = tmp_path / "cronjob.sktrace"
    path.write_bytes(trace())

    first, second = (replayed(path) for _ in range(2))

    assert first[0] == 0
    assert "has no nodes; assumed are 10 cpu=32 memory=128Gi" in first[2]
    assert first[1]["measures"]["pods_created"] == 3
    assert first[1]["digest"] == second[1]["digest"]
    assert first[1]["virtual_s"] > 205


def test_22_pods_of_a_cron_job_run_thirty_seconds(tmp_path):
    (tmp_path / "c.sktrace").write_bytes(trace())

    _, _, unmet = ran(
        tmp_path,
        "nodes n1 cpu=4",
        "play c.sktrace beside=yes options=namespace-prefix:virtual",
        "expect within 65s count pods phase=Running == 1",
        "expect each pods metadata.namespace == virtual-default",
        "expect for 28s count pods phase=Running == 1",
        "expect within 4s count pods phase=Succeeded == 1",
    )

    assert unmet == []


def test_pods_of_a_deployment_live_as_its_lifecycles_and_are_made_again(tmp_path):
    lives = {("apps/v1.Deployment", "shop/web"): {1: [{"Finished": [BEGAN, BEGAN + 20]}, {"Running": BEGAN}]}}
    (tmp_path / "d.sktrace").write_bytes(trace([event(0, [deployment()])], lives))

    _, _, unmet = ran(
        tmp_path,
        "nodes n1 cpu=8",
        "play d.sktrace",
        "expect within 5s count pods phase=Running == 2",
        "expect count pods metadata.annotations[keplab.dev/pod-sequence-number]=0 == 1",
        "wait 14s",
        "expect count pods metadata.annotations[keplab.dev/pod-sequence-number]=2 == 0",
        "expect within 10s count pods metadata.annotations[keplab.dev/pod-sequence-number]=2 phase=Running == 1",
        "expect count pods metadata.annotations[keplab.dev/pod-sequence-number]=1 phase=Running == 1",
    )

    assert unmet == []


def test_a_public_trace_becomes_a_scenario_that_says_its_source(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nodes.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\nopenb-node-1,8000,16384,2,G3\n")
    header = (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
    )
    rows = ["p1,1000,1024,2,1000,G3,LS,Succeeded,100,700,100", "p2,1000,1024,1,1000,G3,LS,Succeeded,160,760,700"]
    (tmp_path / "pods.csv").write_text("\n".join((header, *rows, "")))

    code, printed = keplab("import", "nodes.csv", "pods.csv", "--compress", "60x", "--into-scenario", "gpus")

    assert (code, "gpus/gpus.txt begins from gpus.yaml" in printed) == (0, True), printed
    assert "# Cite: Weng et al., Beware of Fragmentation" in (tmp_path / "gpus/gpus.txt").read_text()
    text = (tmp_path / "gpus/gpus.txt").read_text()
    (tmp_path / "gpus/gpus.txt").write_text(
        text.replace("wait 60s", "expect within 30s count pods phase=Succeeded == 2")
    )
    result = simulate(load_scenario(tmp_path / "gpus/gpus.txt"))
    assert [each.seen for each in result.expectations if not each.passed] == []
    # The second waits for the first one's devices: both run for their time, one after the other.
    assert result.virtual_s > 11


ALIBABA_PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
)


def test_two_pods_share_a_device_by_halves_and_a_third_waits(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nodes.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\nn1,32000,65536,1,T4\nn2,32000,65536,1,G3\n")
    rows = [f"p{n},1000,1024,1,500,T4,LS,Succeeded,{100 + n},{200 + n},{100 + n}\n" for n in range(3)]
    (tmp_path / "pods.csv").write_text(ALIBABA_PODS + "".join(rows))

    code, printed = keplab("import", "nodes.csv", "pods.csv", "--gpu-share", "dra", "--into-scenario", "halves")

    assert code == 0, printed
    lines = (
        "wait 10s",
        "expect count pods phase=Running node=n1 == 2",
        "expect count pods name=p2 phase=Pending == 1",
        "expect count resourceclaims status.allocation.devices.results[0].device=gpu-0 == 2",
        "expect count resourceclaims status.allocation.devices.results[0].consumedCapacity.milli=500 == 2",
        'expect each pods name=p2 status.conditions[PodScheduled].message ~ "cannot allocate all claims"',
        "expect within 110s count pods name=p2 phase=Running == 1",
        "played",
        "expect within 110s count pods phase=Succeeded == 3",
        "expect within 30s count resourceclaims == 0",
    )
    _, wrong = ran_beside(tmp_path / "halves/halves.txt", *lines)

    assert wrong == []


def borg_machine(number, at_s, kind, share=0.5):
    row = {"time": at_s * 1_000_000, "machine_id": number, "type": kind, "capacity": {"cpus": share, "memory": share}}
    return json.dumps(row) + "\n"


def borg_instance(index, at_s, kind):
    row = {"time": at_s * 1_000_000, "type": kind, "collection_id": 7, "instance_index": index, "priority": 103}
    return json.dumps(row | {"resource_request": {"cpus": 0.3, "memory": 0.1}}) + "\n"


def test_machines_of_a_public_trace_come_go_and_grow_with_their_kubelets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    machines = [(1, 0, 1), (2, 0, 1), (3, 1000, 1), (1, 2000, 2), (2, 3000, 3, 1.0), (1, 8000, 1)]
    (tmp_path / "machines.json").write_text("".join(borg_machine(*each) for each in machines))
    instances = [borg_instance(n, at, kind) for n in range(6) for at, kind in ((100 + n, 0), (100 + n, 3), (9900, 6))]
    (tmp_path / "instances.json").write_text("".join(instances))

    code, printed = keplab(
        *("import", "machines.json", "instances.json", "--scale", "cpu=64,memory=256Gi", "--compress", "10x"),
        *("--into-scenario", "cell"),
    )

    assert (code, "1 times: machines go" in printed) == (0, True), printed
    lines = (
        "wait 90s",
        "expect count nodes == 2",
        "expect count pods phase=Running == 2",
        "wait 14s",
        "expect each nodes name=machine-3 status.conditions[Ready].status == True",
        "expect count pods phase=Running == 3",
        "wait 94s",
        "expect count nodes == 3",
        "wait 5s",
        "expect count nodes name=machine-1 == 0",
        "expect within 70s count pods == 5",
        "wait 70s",
        "expect each nodes name=machine-2 status.allocatable.cpu == 64000m",
        "expect within 30s count pods node=machine-2 phase=Running == 3",
        "played",
        "expect within 5s count pods node=machine-1 phase=Running == 1",
        "expect count nodes == 3",
    )
    result, wrong = ran_beside(tmp_path / "cell/cell.txt", *lines)

    assert wrong == []
    assert result.virtual_s > 800


def test_a_table_of_machines_alone_is_replayed_at_its_scale(tmp_path):
    (tmp_path / "machines.json").write_text(borg_machine(1, 0, 1) + borg_machine(2, 700, 1))

    code, document, _ = replayed(tmp_path / "machines.json", "--option", "scale=cpu=64,memory=256Gi")

    assert (code, document["passed"]) == (0, True)
    assert document["virtual_s"] > 700


def test_hooks_run_only_where_they_are_allowed(tmp_path):
    (tmp_path / "c.sktrace").write_bytes(trace([event(0)], {}))
    mark = tmp_path / "ran"
    (tmp_path / "hooks.yaml").write_text(f"preRun: [{{cmd: touch, args: ['{mark}']}}]\n")

    code, printed = keplab("replay", tmp_path / "c.sktrace", "--hooks", tmp_path / "hooks.yaml")
    assert (code, "add --allow-hooks" in printed, mark.exists()) == (2, True, False)

    keplab("replay", tmp_path / "c.sktrace", "--hooks", tmp_path / "hooks.yaml", "--allow-hooks", "--for", "1s")
    assert mark.exists()


# Anonymised = original


def planted(number):
    """Names in which somebody could be known; sorted in another order than they are numbered."""
    return f"acme-{(number * 7919) % 9973:04}-{number}"


def cluster(nodes, pods):
    """A cluster whose names decide: equal nodes are chosen by name, teams by label, spread by the zone's."""
    team = {"metadata": {"name": planted(9000)}, "apiVersion": "v1", "kind": "Namespace"}
    yield team
    for n in range(nodes):
        amounts = {"cpu": str(8 + n % 3), "memory": "32Gi", "pods": "110"}
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": planted(n),
                "uid": planted(3000 + n),
                "labels": {
                    "kubernetes.io/hostname": planted(n),
                    "topology.kubernetes.io/zone": planted(4000 + n % 3),
                    f"{planted(5000)}.example.com/pool": planted(5001 + n % 4),
                },
                "annotations": {planted(5010): planted(5011)},
            },
            "spec": {"taints": [{"key": planted(5020), "value": planted(5021), "effect": "NoSchedule"}]}
            if n % 5 == 0
            else {},
            "status": {
                "capacity": amounts,
                "allocatable": amounts,
                "addresses": [
                    {"type": "InternalIP", "address": "10.1.2.3"},
                    {"type": "Hostname", "address": planted(n)},
                ],
                "images": [
                    {"names": [f"registry.{planted(5030)}.example.com/{planted(5031)}:1"], "sizeBytes": 500_000_000}
                ],
                "conditions": [
                    {
                        "type": "Ready",
                        "status": "True",
                        "message": planted(5040),
                        "reason": "KubeletReady",
                        **dict.fromkeys(("lastHeartbeatTime", "lastTransitionTime"), "2025-12-31T23:59:50Z"),
                    }
                ],
            },
        }
    for n in range(pods):
        app = planted(6000 + n % 40)
        spec = {
            "containers": [
                {
                    "name": planted(6100),
                    "image": f"registry.{planted(5030)}.example.com/{planted(5031)}:1",
                    "env": [{"name": planted(6200), "value": planted(6201)}],
                    "args": [planted(6202)],
                    "resources": {"requests": {"cpu": f"{100 + n % 7 * 50}m", "memory": "128Mi"}},
                }
            ]
        }
        if n % 3 == 0:
            spec["nodeSelector"] = {f"{planted(5000)}.example.com/pool": planted(5001 + n % 4)}
        if n % 4 == 0:
            spec["tolerations"] = [{"key": planted(5020), "operator": "Equal", "value": planted(5021)}]
        if n % 6 == 1:
            term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {planted(6300): app}}}
            spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": planted(1000 + n),
                "namespace": planted(9000),
                "labels": {planted(6300): app},
                "uid": planted(20_000 + n),
            },
            "spec": spec,
        }


def in_a_mesh(folder, name):
    result, lines, _ = ran(folder, f"begin {name} pods=pending format=kwok", "wait 1s", seed=3)
    assert result.error == ""
    return {line.obj["name"]: line.node for line in lines if line.ev == "sched.assume"}


def by_the_scheduler(folder, name):
    """Decide about the pods one after the other, in the order of their names, as a list has them."""
    moments = itertools.count()
    core = Algorithm(Switches(), clock=lambda: next(moments) / 1e6)
    objects = [each.document for each in open_stream(Source(folder / name), Reading())[1].objects]
    names = {each["metadata"]["uid"]: each["metadata"]["name"] for each in objects if each["kind"] == "Pod"}
    for kind, add in (("Node", core.add_node), ("Pod", lambda pod: core.add_pod(core.decode(pod)))):
        chosen = sorted((each for each in objects if each["kind"] == kind), key=lambda each: each["metadata"]["name"])
        for document in chosen:
            add(SimpleNamespace(body=msgspec.json.encode(document)))
    core.rest()
    return {names[uid]: pod.spec.node_name for uid, pod in core.bound.items()}


@pytest.mark.parametrize(("decided", "nodes", "pods"), [(by_the_scheduler, 200, 2000), (in_a_mesh, 20, 150)])
def test_29_an_anonymised_cluster_is_decided_about_as_the_original(tmp_path, decided, nodes, pods):
    documents = list(cluster(nodes, pods))
    (tmp_path / "plain.yaml").write_text(yaml.dump_all(documents, Dumper=yaml.CSafeDumper))
    (tmp_path / "salt").write_text(SALT)

    code, printed = keplab(
        "anonymise", tmp_path / "plain.yaml", "--salt", tmp_path / "salt", "-o", tmp_path / "shared.yaml"
    )
    assert (code, "is in format kwok" in printed) == (0, True), printed

    shared = (tmp_path / "shared.yaml").read_text()
    names = {text for document in documents for text in _texts(document) if "acme" in text}
    assert len(names) > (500 if pods == 2000 else 100)
    assert "acme" not in shared
    assert [name for name in names if name in shared] == []
    assert SALT not in shared
    assert "10.1.2.3" not in shared

    others = list(yaml.load_all(shared, Loader=yaml.CSafeLoader))
    role = {
        kind: {
            one["metadata"]["name"]: other["metadata"]["name"]
            for one, other in zip(documents, others, strict=True)
            if one["kind"] == kind
        }
        for kind in ("Pod", "Node")
    }
    first, second = (decided(tmp_path, name) for name in ("plain.yaml", "shared.yaml"))
    assert len(first) > 0.95 * pods
    assert len(set(first.values())) > 0.9 * nodes
    assert {role["Pod"][pod]: role["Node"][node] for pod, node in first.items()} == second


VOLUMES = """\
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {capacity: {cpu: 8, memory: 8Gi, pods: 9}, allocatable: {cpu: 8, memory: 8Gi, pods: 9}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: acme-settings, namespace: default}
data: {acme.ini: secret}
---
apiVersion: v1
kind: Pod
metadata: {name: acme, namespace: default, labels: {acme-tier: acme-a}}
spec:
  containers:
  - name: acme-main
    image: acme
    volumeMounts:
    - {name: kube-api-access-x2b4d, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
    - {name: acme-files, mountPath: /etc/acme, subPath: acme/conf}
  volumes:
  - name: kube-api-access-x2b4d
    projected:
      sources:
      - serviceAccountToken: {expirationSeconds: 3607, path: token}
      - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
      - downwardAPI: {items: [{path: namespace, fieldRef: {apiVersion: v1, fieldPath: metadata.namespace}}]}
  - name: acme-files
    configMap: {name: acme-settings, items: [{key: acme.ini, path: acme/conf}]}
  - name: acme-labels
    downwardAPI: {items: [{path: acme-tier, fieldRef: {fieldPath: "metadata.labels['acme-tier']"}}]}
"""


def test_the_volumes_of_an_anonymised_pod_are_what_an_api_server_takes_and_refer_to_the_same(tmp_path):
    (tmp_path / "salt").write_text(SALT)
    (tmp_path / "plain.yaml").write_text(VOLUMES)
    words = ("anonymise", tmp_path / "plain.yaml", "--salt", tmp_path / "salt", "-o", tmp_path / "shared.yaml")
    assert keplab(*words)[0] == 0

    shared = (tmp_path / "shared.yaml").read_text()
    assert "acme" not in shared
    _, config, pod = yaml.load_all(shared, Loader=yaml.CSafeLoader)
    own, files, labels = pod["spec"]["volumes"]
    assert own["projected"] == list(yaml.safe_load_all(VOLUMES))[2]["spec"]["volumes"][0]["projected"]
    assert files["configMap"]["items"][0]["key"] in config["data"]
    assert pod["spec"]["containers"][0]["volumeMounts"][1]["subPath"] == files["configMap"]["items"][0]["path"]
    (key,) = pod["metadata"]["labels"]
    assert labels["downwardAPI"]["items"][0]["fieldRef"]["fieldPath"] == f"metadata.labels['{key}']"
    code, printed = keplab("replay", tmp_path / "shared.yaml", "--virtual")
    assert code == 0, printed


ROLLED_OUT = """\
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {capacity: {cpu: 8, memory: 8Gi, pods: 9}, allocatable: {cpu: 8, memory: 8Gi, pods: 9}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: acme, namespace: default, uid: u-1, annotations: {deployment.kubernetes.io/revision: "1"}}
spec: {replicas: 1, selector: {matchLabels: {app: acme}}, template: {metadata: {labels: {app: acme}}, spec: {containers: [{name: a, image: a}]}}}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata:
  name: acme-5f494f76d9
  namespace: default
  uid: u-2
  labels: {app: acme, pod-template-hash: 5f494f76d9}
  annotations: {deployment.kubernetes.io/revision: "1"}
  ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: acme, uid: u-1, controller: true}]
spec:
  replicas: 1
  selector: {matchLabels: {app: acme, pod-template-hash: 5f494f76d9}}
  template: {metadata: {labels: {app: acme, pod-template-hash: 5f494f76d9}}, spec: {containers: [{name: a, image: a}]}}
"""


@pytest.mark.parametrize("name", ["plain.yaml", "shared.yaml"])
def test_a_deployment_has_the_replica_set_that_it_had_also_anonymised(tmp_path, name):
    (tmp_path / "salt").write_text(SALT)
    (tmp_path / "plain.yaml").write_text(ROLLED_OUT)
    words = ("anonymise", tmp_path / "plain.yaml", "--salt", tmp_path / "salt", "-o", tmp_path / "shared.yaml")
    assert keplab(*words)[0] == 0
    (tmp_path / "s.txt").write_text(f"begin {name}\nsettle\nexpect count pods == 1\nexpect count replicasets == 1\n")

    result = simulate(load_scenario(tmp_path / "s.txt"), seed=0)

    assert [(each.text, each.seen) for each in result.expectations if not each.passed] == []
    assert result.error == ""


def _texts(value):
    if isinstance(value, dict):
        for key, each in value.items():
            yield key
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, str):
        yield value


def test_a_salt_that_is_too_short_is_refused(tmp_path):
    (tmp_path / "salt").write_text("short")
    (tmp_path / "c.sktrace").write_bytes(trace())

    code, printed = keplab("anonymise", tmp_path / "c.sktrace", "--salt", tmp_path / "salt", "-o", tmp_path / "o")

    assert (code, "5 bytes: want at least 16" in printed, (tmp_path / "o").exists()) == (2, True, False)


@pytest.mark.parametrize("options", [(), ("--anonymise", "salt")])
def test_an_anonymised_trace_replays_as_the_original(tmp_path, monkeypatch, options):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "salt").write_text(SALT)
    (tmp_path / "c.sktrace").write_bytes(trace())
    assert keplab("anonymise", "c.sktrace", "--salt", "salt", "-o", "shared.sktrace")[0] == 0
    data = (tmp_path / "shared.sktrace").read_bytes()
    assert b"hello-simkube" not in data
    assert b"busybox" not in data

    code, document, _ = replayed("shared.sktrace" if not options else "c.sktrace", *options)

    assert (code, document["measures"]["pods_created"]) == (0, 3)
