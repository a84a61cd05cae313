"""Files of scheduler_perf: what is read, what is refused and where (AS-24, AS-26)."""

import pytest

from lab.benchmarks.scheduler_perf import cases
from lab.benchmarks.scheduler_perf.located_yaml import FileError, load
from lab.benchmarks.scheduler_perf.object_templates import ObjectTemplate
from lab.benchmarks.scheduler_perf.opcodes import OPCODES, CreatePods
from lab.benchmarks.scheduler_perf.run import uses_claim_templates
from lab.benchmarks.scheduler_perf.selection import Unselected, gates_of, is_enabled, select_workloads

FILE = """\
- name: Basic
  featureGates: {SchedulerAsyncAPICalls: true, GenericWorkload: false}
  labels: [case-label]
  workloadTemplate:
  - opcode: createNodes
    countParam: $nodes
  - opcode: createPods
    countParam: $pods
    collectMetrics: true
  workloads:
  - name: 5Nodes
    labels: [short]
    featureGates: {SchedulerAsyncAPICalls: false}
    params:
      nodes: 5
      pods: 10
  - name: 500Nodes
    labels: [performance]
    threshold: {misc: 300, other: 200}
    params: {nodes: 500, pods: 1000}
"""


def read(text=FILE):
    return cases.read_text("perf.yaml", text)


def refusal(old, new):
    assert old in FILE
    with pytest.raises(FileError) as error:
        resolved(FILE.replace(old, new, 1))
    return str(error.value)


def resolved(text):
    return [workload.steps() for workload in read(text).workloads]


def test_a_workload_has_the_operations_of_its_case_with_its_own_parameters():
    small, large = read().workloads

    assert [(step.number, step.op.opcode, step.op.count) for step in small.steps()] == [
        (0, "createNodes", 5),
        (1, "createPods", 10),
    ]
    assert [step.op.count for step in large.steps()] == [500, 1000]
    assert small.full_name == "Basic/5Nodes"
    assert small.labels == ("case-label", "short")
    assert small.gates == {"SchedulerAsyncAPICalls": False, "GenericWorkload": False}
    assert [large.threshold(topic) for topic in ("misc", "other", "third")] == [300, 200, 0]


def test_keys_are_matched_without_case():
    text = FILE.replace("countParam", "COUNTPARAM").replace("workloadTemplate", "WorkloadTemplate")

    assert [step.op.count for step in read(text).workloads[0].steps()] == [5, 10]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "collectMetrics: true",
            "collectMetrics: true\n    skipWaitToCompletion: true",
            "perf.yaml:7:5: Basic: op 1 createPods: collectMetrics and skipWaitToCompletion cannot be true at the same time",
        ),
        (
            "collectMetrics: true",
            "collectMetrics: true\n  - opcode: createPods\n    steadyState: true\n    skipWaitToCompletion: true",
            "perf.yaml:10:5: Basic: op 2 createPods: skipWaitToCompletion and steadyState cannot be true at the same time",
        ),
        (
            "collectMetrics: true",
            "collectMetric: true",
            "perf.yaml:9:5: Basic: op 1 createPods: unknown key 'collectMetric'; did you mean collectMetrics?",
        ),
        (
            "opcode: createNodes",
            "opcode: createNode",
            "perf.yaml:5:13: Basic: op 0: unknown opcode 'createNode'; did you mean createNodes or createPods?",
        ),
        ("opcode: createNodes", "count: 1", "perf.yaml:5:5: Basic: op 0: unknown opcode ''"),
        (
            "countParam: $nodes",
            "countParam: $nodes\n    CountParam: $pods",
            "perf.yaml:7:5: Basic: op 0 createNodes: key 'CountParam' is given twice",
        ),
        (
            "countParam: $nodes",
            "countParam: nodes",
            "perf.yaml:5:5: Basic: op 0 createNodes: countParam 'nodes': want $NAME",
        ),
        (
            "countParam: $nodes",
            "count: many",
            "perf.yaml:6:5: Basic: op 0 createNodes: count: Expected `int`, got `str`",
        ),
        (
            "countParam: $nodes",
            "countParam: $node",
            "perf.yaml:5:5: Basic/5Nodes: op 0 createNodes: parameter node is undefined",
        ),
        (
            "nodes: 5",
            "nodes: five",
            "perf.yaml:5:5: Basic/5Nodes: op 0 createNodes: parameter nodes is 'five': want a number",
        ),
        (
            "nodes: 5",
            "nodes: -5",
            "perf.yaml:5:5: Basic/5Nodes: op 0 createNodes: invalid count=-5; should be non-negative",
        ),
        (
            "pods: 10\n",
            "pods: 10\n      spare: 1\n",
            "perf.yaml:17:7: Basic/5Nodes: parameter spare is not used by the workload template",
        ),
        ("name: 500Nodes", "name: 5Nodes", "perf.yaml:17:5: Basic: workload name 5Nodes is not unique"),
        (
            "collectMetrics: true",
            "collectMetrics: false",
            "perf.yaml:1:3: Basic: no op in the workload template collects metrics",
        ),
        (
            "  labels: [case-label]",
            "  workload: []",
            "perf.yaml:3:3: unknown key 'workload'; did you mean workloads or workloadTemplate?",
        ),
        ("labels: [short]", "labels: [3]", "perf.yaml:12:14: labels: Expected `str`, got `int`"),
        ("misc: 300", "misc: -1", "perf.yaml:17:5: Basic: 500Nodes: invalid threshold -1; should be non-negative"),
        ("nodes: 5", "nodes: 5\n      nodes: 6", "perf.yaml:16:7: key 'nodes' is given twice"),
    ],
)
def test_what_is_wrong_is_refused_with_its_place(old, new, message):
    assert refusal(old, new) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "perf.yaml: no test cases defined"),
        ("[]", "perf.yaml: no test cases defined"),
        ("name: x", "perf.yaml:1:1: want a list of test cases"),
        ("- name: x\n- [", "perf.yaml:3:1: did not find expected node content"),
        ("- name: x\n  workloadTemplate: [{opcode: sleep}]", "perf.yaml:1:3: x: no workloads defined"),
        ("- name: x\n  workloads: [{name: a}]", "perf.yaml:1:3: x: no ops defined"),
        (FILE + FILE, "perf.yaml:21:3: Basic: name is not unique"),
        (FILE + "---\n[]", "perf.yaml:21:1: but found another document"),
    ],
)
def test_a_file_without_cases_is_refused(text, message):
    with pytest.raises(FileError) as error:
        read(text)

    assert str(error.value) == message


def test_a_folder_and_a_file_that_is_none_are_refused(tmp_path):
    with pytest.raises(FileError, match="is a folder; want a file of test cases"):
        cases.read(str(tmp_path))
    with pytest.raises(FileError, match="No such file"):
        cases.read(str(tmp_path / "nothing.yaml"))


def test_aliases_and_nesting_have_limits():
    many = "a: &a 1\nb: [" + ", ".join(["*a"] * 101) + "]"
    with pytest.raises(FileError, match="more than 100 aliases"):
        load("f", many)
    with pytest.raises(FileError, match="nested deeper than 64"):
        load("f", "[" * 65 + "]" * 65)


def test_numbers_are_those_of_gos_yaml():
    text = "[1, 1e-9, -2.5, 0x10, 1:30, yes, 2026-01-02, '3', .5]"

    assert load("f", text).plain == [1, 1e-9, -2.5, 16, "1:30", True, "2026-01-02", "3", 0.5]


def test_sets_of_pods_are_unrolled_and_operations_numbered_anew():
    text = """\
- name: Sets
  workloadTemplate:
  - opcode: createPodSets
    countParam: $sets
    namespacePrefix: set
    createPodsOp:
      opcode: createPods
      count: 2
      collectMetrics: true
      templateParams: {size: $size, fixed: 3}
  - opcode: sleep
    durationParam: $wait
  workloads:
  - {name: w, params: {sets: 3, size: large, wait: 10ms}}
"""
    steps = read(text).workloads[0].steps()

    assert [(step.number, step.op.opcode) for step in steps] == [
        (0, "createPods"),
        (1, "createPods"),
        (2, "createPods"),
        (3, "sleep"),
    ]
    assert [step.op.namespace for step in steps[:3]] == ["set-0", "set-1", "set-2"]
    assert steps[0].op.template_params == {"size": "large", "fixed": 3}
    assert steps[3].op.duration == "10ms"


def test_a_count_is_multiplied_and_a_kind_that_is_none_is_refused():
    text = FILE.replace("countParam: $pods", "countParam: $pods\n    countMultiplierParam: $nodes")
    assert read(text).workloads[0].steps()[1].op.count == 50

    composite = "opcode: createCompositePodGroups\n    namespace: a\n    templatePath: t.yaml"
    assert "keplab has no kind CompositePodGroup" in refusal("opcode: createNodes", composite)


def test_every_opcode_says_what_it_does():
    assert len(OPCODES) == 22
    assert all(each.__doc__ for each in OPCODES.values())
    assert CreatePods().signature_batch_size == 0


@pytest.mark.parametrize(
    ("label_filter", "labels", "runs"),
    [
        ("performance", ["performance", "short"], True),
        ("performance", ["short"], False),
        ("+performance,-short", ["performance"], True),
        ("+performance,-short", ["performance", "short"], False),
        ("integration-test,short", ["integration-test"], False),
        ("", [], True),
        ("-short", [], True),
    ],
)
def test_labels_select_as_upstreams_filter(label_filter, labels, runs):
    assert is_enabled(label_filter, labels) is runs


def test_nothing_selected_says_what_there_is():
    assert [each.name for each in select_workloads(read(), "/5", "")] == ["5Nodes", "500Nodes"]
    with pytest.raises(Unselected, match="no workload matches --workload 'Basics/5Nodes'; there is Basic/5Nodes"):
        select_workloads(read(), "Basics/5Nodes", "")
    with pytest.raises(Unselected, match="they have case-label, performance, short, and --labels '' selects all"):
        select_workloads(read(), "", "slow")
    with pytest.raises(Unselected, match=r"--workload '\['"):
        select_workloads(read(), "[", "")


def test_gates_are_switches_and_unknown_ones_are_refused_or_named():
    small = read().workloads[0]
    assert gates_of(small, ignores_unknown=False).assignments == (
        "OpportunisticBatching=false",
        "GenericWorkload=false",
        "SchedulerAsyncAPICalls=false",
    )

    batching, unknown, always = (
        read(FILE.replace("GenericWorkload: false", gate)).workloads[0]
        for gate in ("OpportunisticBatching: true", "NoSuchGate: true", "DynamicResourceAllocation: false")
    )
    assert "OpportunisticBatching=true" in gates_of(batching, ignores_unknown=False).assignments
    assert gates_of(unknown, ignores_unknown=True).ignored == ("NoSuchGate=true",)
    with pytest.raises(
        FileError, match=r"perf.yaml:2:48: Basic/5Nodes: featureGates: NoSuchGate=true: NoSuchGate is a"
    ):
        gates_of(unknown, ignores_unknown=False)
    with pytest.raises(FileError, match="DynamicResourceAllocation is always on in keplab"):
        gates_of(always, ignores_unknown=False)


TEMPLATE = """\
kind: Pod
metadata:
  name: p-{{ .Index }}
  labels:
    group: g-{{ DivideInt .Index .perGroup }}
    turn: "{{ Mod .Index 3 }} of {{ .Count }}"
    sum: "{{ AddInt .Index 1 }} {{ AddFloat .Index 0.5 }} {{ SubtractInt .Index 1 }} {{ SubtractFloat 1 0.25 }}"
    product: "{{ MultiplyInt .Index 3 }} {{ MultiplyFloat .Index 0.5 }} {{ DivideFloat .Index 8 }}"
    text: "{{ .text }}"
    large: "{{ .large }}"
    missing: "{{ .missing }}"
    older: "{{ div .Index 3 }} {{ mod .Index 3 }}"
{{- if eq .Index 4 }}
  annotations: {is: four}
{{- end }}
"""


def test_templates_are_gos_html_templates_with_upstreams_functions(tmp_path):
    path = tmp_path / "pod.yaml"
    path.write_text(TEMPLATE)
    values = {"Index": 4, "Count": 7, "perGroup": 3.0, "text": "a'b", "large": 2_500_000.0}

    made = ObjectTemplate(str(path)).fill(values)

    assert made["metadata"] == {
        "name": "p-4",
        "labels": {
            "group": "g-1",
            "turn": "1 of 7",
            "sum": "5 4.5 3 0.75",
            "product": "12 2 0.5",
            "text": "a&#39;b",
            "large": "2.5e&#43;06",
            "missing": "",
            "older": "1 1",
        },
        "annotations": {"is": "four"},
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: {{ DivideInt .Index 0 }}", "line 1: DivideInt: division by zero"),
        ("name: {{ AddInt .text }}", "line 1: AddInt: cannot cast many to float64"),
        ("name: {{ Now }}", "line 1: function 'Now' is not supported"),
        ("name: {{ .Index", "line 1: unclosed action"),
        ("[]", "1:1: want one object, such as a Pod"),
        ("metadata: {name: a, name: b}", "1:21: key 'name' is given twice"),
        ("metadata: []", "1:1: metadata: want a mapping"),
    ],
)
def test_a_template_that_gives_no_object_is_refused_with_its_path(text, message, tmp_path):
    path = tmp_path / "t.yaml"
    path.write_text(text)

    with pytest.raises(FileError) as error:
        ObjectTemplate(str(path)).fill({"Index": 0, "text": "many"})

    assert str(error.value).startswith(f"{path}:")
    assert message in str(error.value)


def test_objects_of_a_template_without_actions_are_the_callers_own(tmp_path):
    path = tmp_path / "t.yaml"
    path.write_text("kind: Pod\nmetadata: {labels: {a: b}}")
    template = ObjectTemplate(str(path))

    template.fill({})["metadata"]["labels"]["a"] = "changed"

    assert template.fill({})["metadata"]["labels"] == {"a": "b"}


@pytest.mark.parametrize(
    ("op", "uses"),
    [
        ("{opcode: createPods, count: 1, podTemplatePath: plain.yaml}", False),
        ("{opcode: createAny, templatePath: claims.yaml}", True),
        ("{opcode: churn, mode: create, templatePaths: [plain.yaml]}", False),
        ("{opcode: churn, mode: create, templatePaths: [plain.yaml, claims.yaml]}", True),
    ],
)
def test_templates_of_claims_are_found_in_every_file_that_an_operation_names(op, uses, tmp_path):
    (tmp_path / "plain.yaml").write_text("kind: Pod\nmetadata: {name: p}\nspec: {}")
    (tmp_path / "claims.yaml").write_text("kind: ResourceClaimTemplate\nmetadata: {name: t}")
    text = FILE.replace("  - opcode: createNodes\n    countParam: $nodes\n", f"  - {op}\n")
    workload = cases.read_text(str(tmp_path / "perf.yaml"), text).workloads[0]

    assert uses == uses_claim_templates(workload, workload.template)
