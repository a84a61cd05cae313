"""Files of scheduler_perf performed on the scheduler's core alone, and what the command makes of them (AS-24 to AS-26)."""

from pathlib import Path

import msgspec
import pytest
from click import UsageError
from click.testing import CliRunner

from lab.benchmarks.scheduler_perf import cases, run
from lab.benchmarks.scheduler_perf.core_cluster import CoreCluster
from lab.cli.bench import scheduler_perf
from lab.cli.commands.bench import bench
from services.api.meta import Key
from services.api.switches import Switches

EXAMPLE = Path(__file__).parents[3] / "examples/scheduler_perf/performance-config.yaml"
POD = "apiVersion: v1\nkind: Pod\nmetadata: {generateName: p-}\nspec: {containers: [{name: c, image: i}]}\n"
GROUP = "apiVersion: scheduling.k8s.io/v1beta1\nkind: PodGroup\nmetadata: {name: 'g-{{ .Index }}'}\nspec: {}\n"


def keplab_bench(*words):
    return CliRunner().invoke(bench, [str(word) for word in words], standalone_mode=False)


def outcome_of(tmp_path, steps, params="{}", **files):
    """Return what became of a workload of these operations on the core."""
    for name, text in files.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    text = f"- name: Case\n  workloadTemplate: {steps}\n  workloads: [{{name: w, params: {params}}}]\n"
    (tmp_path / "perf.yaml").write_text(text)
    (workload,) = cases.read(str(tmp_path / "perf.yaml")).workloads
    outcomes = run.Outcomes("topic")
    run.run([run.Prepared(workload, workload.steps(), ())], "algorithm", outcomes, lambda *_: None)
    (outcome,) = outcomes.all
    return outcome


def test_every_workload_of_the_example_ends_and_names_its_items():
    answer = keplab_bench(
        "--config", EXAMPLE, "--labels", "integration-test,short", "--form", "algorithm", "-o", "json"
    )

    document = msgspec.json.decode(answer.stdout)
    assert [(each["name"], each["failed"], each["skipped"]) for each in document["workloads"]] == [
        ("SchedulingBasic/5Nodes", "", ""),
        ("SchedulingBasic/5Nodes_AsyncAPICallsEnabled", "", ""),
        ("ResizePreemption/5Nodes", "", ""),
    ]
    assert answer.return_value == 0
    assert {item["labels"]["Name"] for item in document["dataItems"]} == {
        "SchedulingBasic/5Nodes/namespace-2",
        "SchedulingBasic/5Nodes_AsyncAPICallsEnabled/namespace-2",
        "ResizePreemption/5Nodes/resizes",
    }
    assert {item["labels"]["Form"] for item in document["dataItems"]} == {"algorithm"}
    metrics = {item["labels"]["Metric"]: item for item in document["dataItems"]}
    assert metrics["SchedulingDuration"]["unit"] == "s"
    assert set(metrics["heap_memory_usage"]["data"]) == {"Average", "Max", "Perc50", "Perc90", "Perc95", "Perc99"}
    assert metrics["memory_growth_rate"]["unit"] == "MB/min"
    assert metrics["scheduler_scheduling_attempt_duration_seconds"]["labels"]["result"] == "scheduled"
    measured = {each["name"]: each["measured"][0]["pods"] for each in document["workloads"]}
    assert measured["SchedulingBasic/5Nodes"] == 10


def test_data_items_are_written_for_perf_dash(tmp_path):
    answer = keplab_bench(
        "--config",
        EXAMPLE,
        "--labels",
        "",
        "--workload",
        "Basic/5Nodes$",
        "--form",
        "algorithm",
        "--data-items-dir",
        tmp_path / "new",
        "--topic",
        "mine",
    )

    (written,) = (tmp_path / "new").iterdir()
    assert written.name.startswith("BenchmarkPerfScheduling_benchmark_mine_")
    text = written.read_text()
    assert text.startswith('{\n  "version": "v1",\n  "dataItems": [\n    {\n      "data": {\n')
    assert f"wrote {written}" in answer.stdout
    labels = [item["labels"] for item in msgspec.json.decode(text)["dataItems"]]
    assert all(set(each) == set(labels[0]) for each in labels)


def test_a_missed_threshold_is_a_failure_unless_thresholds_are_off(tmp_path):
    (tmp_path / "pod.yaml").write_text(POD)
    text = EXAMPLE.read_text().replace("templates/", f"{EXAMPLE.parent}/templates/")
    selector = "\n    thresholdMetricSelector: {name: SchedulingDuration, dataBucket: Duration, expectLower: true}"
    text = text.replace("- name: 5Nodes\n", f"- name: 5Nodes\n    threshold: 1e-9{selector}\n", 1)
    (tmp_path / "perf.yaml").write_text(text)
    words = (
        "--config",
        tmp_path / "perf.yaml",
        "--labels",
        "short",
        "--workload",
        "Basic/5Nodes$",
        "--form",
        "algorithm",
    )

    plain, strict = keplab_bench(*words), keplab_bench(*words, "--strict", "--no-thresholds")

    assert (plain.return_value, strict.return_value) == (1, 0)
    assert "missed" not in plain.stdout
    assert "missed" in strict.stdout


def test_a_threshold_without_a_figure_is_named(tmp_path):
    text = EXAMPLE.read_text().replace("templates/", f"{EXAMPLE.parent}/templates/")
    (tmp_path / "perf.yaml").write_text(text.replace("- name: 5Nodes\n", "- name: 5Nodes\n    threshold: 300\n", 1))

    answer = keplab_bench(
        "--config", tmp_path / "perf.yaml", "--labels", "", "--workload", "Basic/5Nodes$", "--form", "algorithm"
    )

    name = "SchedulingBasic/5Nodes"
    assert f"{name}: {name}/namespace-2: no SchedulingThroughput to compare with the threshold 300" in answer.stderr
    assert answer.return_value == 0


def test_what_is_wrong_is_refused_before_anything_runs(tmp_path):
    words = ("--form", "algorithm", "--labels", "")
    (tmp_path / "empty.yaml").write_text("[]")
    missing = EXAMPLE.read_text().replace("templates/pod.yaml", "templates/nothing.yaml")
    (tmp_path / "missing.yaml").write_text(missing)

    def refusal(*more):
        with pytest.raises(SystemExit) as error:
            bench.main([str(word) for word in (*words, *more)], standalone_mode=False)
        return error.value.code

    assert refusal("--config", tmp_path) == 2
    assert refusal("--config", tmp_path / "empty.yaml") == 2
    assert refusal("--config", tmp_path / "missing.yaml") == 2
    assert refusal("--config", EXAMPLE, "--workload", "nothing") == 2
    assert refusal("--config", EXAMPLE, "--data-items-dir", EXAMPLE / "below-a-file") == 2


def test_all_operations_that_mean_something_to_the_core(tmp_path):
    steps = """
  - {opcode: createNodes, count: 3, nodeTemplatePath: node.yaml}
  - {opcode: createNodes, count: 2, labelNodePrepareStrategy: {labelKey: zone, labelValues: [a, b]}}
  - {opcode: createNodes, count: 2, uniqueNodeLabelStrategy: {labelKey: example.com/own}}
  - opcode: createNodes
    count: 1
    nodeAllocatableStrategy:
      nodeAllocatable: {example.com/x: 2}
      csiNodeAllocatable: {ebs.csi.aws.com: {count: 3}}
  - {opcode: createNamespaces, prefix: many, count: 2}
  - {opcode: createPodSets, count: 2, namespacePrefix: set, createPodsOp: {opcode: createPods, count: 3}}
  - {opcode: createPods, count: 4, podTemplatePath: pod.yaml, namespace: many-0, skipWaitToCompletion: true}
  - {opcode: barrier}
  - {opcode: createPods, count: 2, podTemplatePath: pod.yaml, persistentVolumeTemplatePath: pv.yaml, persistentVolumeClaimTemplatePath: pvc.yaml}
  - {opcode: createAny, templatePath: class.yaml}
  - {opcode: createResourceDriver, driverName: test.io, nodes: "fixed-*", maxClaimsPerNode: 2}
  - {opcode: createResourceClaims, count: 4, namespace: claims, templatePath: claim.yaml}
  - {opcode: allocResourceClaims, namespace: claims}
  - {opcode: createAny, namespace: services, count: 2, templatePath: service.yaml}
  - {opcode: updateAny, count: 3, templatePath: node.yaml}
  - {opcode: deletePods, namespace: set-0}
  - {opcode: deletePods, namespace: set-1, deletePodsPerSecond: 100, labelSelector: {none: of-them}}
  - {opcode: churn, mode: recreate, number: 1, intervalMilliseconds: 10, templatePaths: [pod.yaml, service.yaml]}
  - {opcode: sleep, duration: 50ms}
  - {opcode: createPods, count: 3, podTemplatePath: gated.yaml, namespace: gated, skipWaitToCompletion: true}
  - {opcode: barrier, stageRequirement: Attempted}
  - {opcode: checkPodScheduled, namespace: many-0, expectedScheduled: true}
  - {opcode: startCollectingProfile, type: CPU, filePath: cpu.prof}
  - {opcode: createPods, count: 5, podTemplatePath: pod.yaml, steadyState: true, durationParam: $for, collectMetrics: true}"""
    outcome = outcome_of(
        tmp_path,
        steps,
        "{for: 2s}",
        pod=POD,
        gated=POD.replace("spec: {", "spec: {schedulingGates: [{name: a/b}], "),
        node="apiVersion: v1\nkind: Node\nmetadata: {name: 'fixed-{{ .Index }}', labels: {a: b}}\n"
        "status: {capacity: {cpu: 4, memory: 32Gi, pods: 110}, conditions: [{type: Ready, status: 'True'}]}\n",
        service="apiVersion: v1\nkind: Service\nmetadata: {generateName: s-}\nspec: {ports: [{port: 80}]}\n",
        pv="apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: x}\nspec: {capacity: {storage: 1Gi}, "
        "accessModes: [ReadOnlyMany], csi: {driver: ebs.csi.aws.com, volumeHandle: x}}\n",
        pvc="apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: x}\nspec: {accessModes: [ReadOnlyMany], "
        "resources: {requests: {storage: 1Gi}}}\n",
        claim="apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {generateName: c-}\n"
        "spec: {devices: {requests: [{name: r, exactly: {deviceClassName: any, allocationMode: ExactCount, count: 1}}]}}\n",
        **{"class": "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: any}\nspec: {}\n"},
    )

    assert (outcome.failed, outcome.skipped) == ("", "")
    assert outcome.remarks == ["op 23 startCollectingProfile: there are no Go profiles of a Python process"]
    (measured,) = outcome.measured
    assert measured.pods > 5
    assert {item.labels["Name"] for item in outcome.items} == {"Case/w/namespace-24"}


NODE = (
    "apiVersion: v1\nkind: Node\nmetadata: {generateName: n-}\nstatus: {capacity: {cpu: 4, memory: 32Gi, pods: 110}, \
conditions: [{type: Ready, status: 'True'}]}\n"
)


def test_nodes_are_called_by_their_hostname_so_that_pods_spread_over_them(tmp_path):
    spread = POD.replace(
        "spec: {",
        "spec: {topologySpreadConstraints: [{maxSkew: 1, minDomains: 9, topologyKey: kubernetes.io/hostname, "
        "whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {a: b}}}], ",
    ).replace("p-}", "p-, labels: {a: b}}")
    steps = "[{opcode: createNodes, count: 2, nodeTemplatePath: node.yaml}, {opcode: createNodes, count: 1}, \
{opcode: createPods, count: COUNT, podTemplatePath: spread.yaml, collectMetrics: true}]"

    assert outcome_of(tmp_path, steps.replace("COUNT", "3"), spread=spread, node=NODE).failed == ""
    one_more = outcome_of(tmp_path, steps.replace("COUNT", "4"), spread=spread, node=NODE).failed
    assert one_more.startswith("op 2 createPods: 3 of 4 pods of namespace-2 have a node; not namespace-2/p-")
    assert "0/3 nodes are available: 3 node(s) didn't match pod topology spread constraints" in one_more


def test_nodes_run_linux_as_a_kubelet_says_unless_their_template_says_otherwise(tmp_path):
    steps = "[{opcode: createNodes, count: 1, nodeTemplatePath: node.yaml}, \
{opcode: createPods, count: 1, podTemplatePath: pod.yaml, collectMetrics: true}]"
    pod = POD.replace("spec: {", "spec: {nodeSelector: {kubernetes.io/os: linux}, ")
    windows = NODE.replace("{generateName: n-}", "{generateName: n-, labels: {kubernetes.io/os: windows}}")

    assert outcome_of(tmp_path, steps, pod=pod, node=NODE).failed == ""
    refused = outcome_of(tmp_path, steps.replace("node.yaml", "windows.yaml"), pod=pod, windows=windows).failed
    assert "1 node(s) didn't match Pod's node affinity/selector" in refused


def test_a_waiting_pod_is_tried_again_when_updateany_changes_it(tmp_path):
    steps = """
  - {opcode: createNodes, count: 1, nodeTemplatePath: node.yaml}
  - {opcode: startCollectingMetrics, namespaces: [waiting]}
  - {opcode: createPods, count: 2, podTemplatePath: pod.yaml, namespace: waiting, skipWaitToCompletion: true}
  - {opcode: barrier, stageRequirement: Attempted}
  - {opcode: updateAny, count: 2, templatePath: tolerating.yaml, namespace: waiting}
  - {opcode: barrier}
  - {opcode: stopCollectingMetrics}"""
    pod = POD.replace("generateName: p-", "name: 'p-{{ .Index }}'")
    tolerating = pod.replace("spec: {", "spec: {tolerations: [{key: a, operator: Exists}], ")
    tainted = NODE + "spec: {taints: [{key: a, effect: NoSchedule}]}\n"

    outcome = outcome_of(tmp_path, steps, pod=pod, tolerating=tolerating, node=tainted)

    assert outcome.failed == ""
    assert [each.pods for each in outcome.measured] == [2]


def test_what_a_node_can_allocate_beside_its_capacity_does_not_replace_it(tmp_path):
    steps = """
  - {opcode: createNodes, count: 1, nodeTemplatePath: node.yaml, nodeAllocatableStrategy: {nodeAllocatable: {a.b/c: 2}}}
  - {opcode: createPods, count: 1, podTemplatePath: pod.yaml, collectMetrics: true}"""
    pod = POD.replace(
        "image: i", "image: i, resources: {requests: {cpu: 3, memory: 2Gi, a.b/c: 2}, limits: {a.b/c: 2}}"
    )

    assert outcome_of(tmp_path, steps, node=NODE, pod=pod).failed == ""


def test_fields_of_templates_that_upstream_types_are_found_in_any_case_and_others_refused(tmp_path):
    tainted = NODE.replace("metadata:", "Spec: {taints: [{key: a, effect: NoSchedule}]}\nmetadata:")
    pods = {
        "plain": POD,
        "tolerant": POD.replace("spec: {", "spec: {Tolerations: [{Key: a, Operator: Exists}], "),
        "unknown": POD.replace("spec: {", "spec: {tolerate: [], "),
    }
    steps = "[{opcode: createNodes, count: 1, nodeTemplatePath: node.yaml}, \
{opcode: createPods, count: 1, podTemplatePath: POD.yaml, collectMetrics: true}]"
    failed = {name: outcome_of(tmp_path, steps.replace("POD", name), node=tainted, **pods).failed for name in pods}

    assert "1 node(s) had untolerated taint(s)" in failed["plain"]
    assert failed["tolerant"] == ""
    assert failed["unknown"] == "op 1 createPods: unknown.yaml: unknown field 'spec.tolerate'"


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ("[{opcode: createPodGroups, count: 1, namespace: a, templatePath: group.yaml}, COLLECT]", "--form mesh"),
        ("[{opcode: createPods, count: 1, podTemplatePath: claims.yaml}, COLLECT]", "--form mesh"),
    ],
)
def test_what_the_core_does_not_have_is_one_line(tmp_path, steps, why):
    claims = POD.replace("spec: {", "spec: {resourceClaims: [{name: c, resourceClaimTemplateName: t}], ")
    outcome = outcome_of(
        tmp_path, steps.replace("COLLECT", "{opcode: createPods, collectMetrics: true}"), claims=claims, group=GROUP
    )

    assert why in outcome.skipped
    assert "\n" not in outcome.skipped


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        (
            "[{opcode: startCollectingMetrics, name: a, namespaces: [x]}, {opcode: createPods, collectMetrics: true}]",
            "op 1 createPods: metrics are collected already, as Case/w/a; collections must not overlap",
        ),
        ("[{opcode: stopCollectingMetrics}]", "op 0 stopCollectingMetrics: nothing is collected"),
        ("[{opcode: barrier, namespaces: [x]}, {opcode: stopCollectingMetrics}]", "op 0 barrier: unknown namespace x"),
        (
            "[{opcode: createNodes, count: 1}, {opcode: createPods, count: 2, podTemplatePath: large.yaml, collectMetrics: true}]",
            "op 1 createPods: 0 of 2 pods of namespace-1 have a node; not namespace-1/p-",
        ),
        (
            "[{opcode: createNodes, count: 1}, {opcode: createPods, count: 2, podTemplatePath: large.yaml, steadyState: true, duration: 1s, collectMetrics: true}]",
            "op 1 createPods: no pod at all got scheduled",
        ),
        (
            "[{opcode: createPods, count: 2, collectMetrics: true}]",
            "op 0 createPods: namespace-0/pod-00000: no nodes available to schedule pods",
        ),
        (
            "[{opcode: createResourceDriver, driverName: d, nodes: x, maxClaimsPerNode: 1}, {opcode: stopCollectingMetrics}]",
            "op 0 createResourceDriver: no node matches 'x'",
        ),
        (
            "[{opcode: createAny, templatePath: pod.yaml}, {opcode: stopCollectingMetrics}]",
            "op 0 createAny: Pod: namespace",
        ),
    ],
)
def test_a_workload_that_does_not_get_there_names_the_operation(tmp_path, steps, why):
    large = POD.replace("image: i", "image: i, resources: {requests: {cpu: 9}}")

    assert outcome_of(tmp_path, steps, pod=POD, large=large).failed.startswith(why)


def test_an_interruption_leaves_what_was_measured(tmp_path, capsys):
    options = scheduler_perf.PerfOptions(
        config=str(EXAMPLE),
        workload_re="Basic/5Nodes",
        labels="",
        form="algorithm",
        data_items_dir=tmp_path,
        topic="",
        no_thresholds=False,
        strict=False,
        unknown_gates="refuse",
        assignments=(),
        output="text",
    )
    calls = []

    def interrupted(what, done, total):
        calls.append(what)
        if what == "waiting for namespace-1" and done == total and calls.count("waiting for namespace-2"):
            raise KeyboardInterrupt  # the second workload is under way

    with pytest.raises(KeyboardInterrupt):
        scheduler_perf.bench_file(options, str(EXAMPLE), interrupted)

    (file,) = tmp_path.iterdir()
    names = {item["labels"]["Name"] for item in msgspec.json.decode(file.read_bytes())["dataItems"]}
    assert names == {"SchedulingBasic/5Nodes/namespace-2"}
    assert "SchedulingBasic/5Nodes/namespace-2" in capsys.readouterr().out


def test_options_that_go_with_a_file_are_refused_beside_others():
    with pytest.raises(UsageError, match="--strict goes with --config, not with cel"):
        bench.main(["--strict", "cel"], standalone_mode=False)
    with pytest.raises(UsageError, match="--strict wants --config"):
        bench.main(["--strict"], standalone_mode=False)


async def _resize(cluster, document):
    await cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}}, "")
    await cluster.create(document, "a")
    more = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}}
    await cluster.update({**document, **more}, "a", "resize")
    return (await cluster.documents("pods", "a"))[0]


def test_a_resize_changes_the_resources_of_containers_alone():
    cluster = CoreCluster(Switches())
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container]}}

    doing = _resize(cluster, document)
    with pytest.raises(StopIteration) as ended:
        doing.send(None)

    resized = ended.value.value["spec"]["containers"][0]
    assert (resized["image"], resized["resources"]["requests"]) == ("i", {"cpu": "2"})
    assert cluster.pods.state(Key("a", "p")) is not None
