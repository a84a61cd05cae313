"""Blocks: text inside a scenario instead of in a file beside it, with errors where they stand."""

import pytest

from lab.scenarios.run import load_scenario, plan_of, simulate
from lab.scenarios.script.scenario import ScriptError
from lab.scenarios.script.verbs import read_scenario

CLASS = """\
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec: {}
"""
CLAIM = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: one}
spec:
  devices:
    requests:
    - name: gpu
      exactly: {deviceClassName: gpu}
"""
DRIVER = "name: gpu.example.com\ndevices:\n- name: gpu-0\n"
STAGE = """\
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-runs}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: '.status.phase', operator: In, values: [Pending]}
    - {key: '.spec.nodeName', operator: Exists}
  next: {statusTemplate: 'phase: Running'}
"""
CONFIG = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
percentageOfNodesToScore: 50
"""
ITEM = "- apiVersion: v1\n  kind: ConfigMap\n  metadata: {{name: {}}}\n"
MANIFEST = "apiVersion: v1\nkind: Pod\nmetadata: {name: agent}\nspec: {containers: [{name: agent, image: agent}]}\n"
REST = "expect within 30s count pods phase=Running >= 1\n"
NODE_WITH_DRIVER = "nodes n1 cpu=4 drivers=cards.yaml\napply objects.yaml\npod a claims=one\n"
PAIRS = {
    "apply": ({"objects.yaml": f"{CLASS}---\n{CLAIM}", "cards.yaml": DRIVER}, NODE_WITH_DRIVER),
    "stages": ({"runs.yaml": STAGE}, "stages runs.yaml\nnodes n1 cpu=4\npod a cpu=1\n"),
    "scheduler-config": ({"config.yaml": CONFIG}, "scheduler-config config.yaml\nnodes n1 cpu=4\npod a cpu=1\n"),
    "static-pod": ({"agent.yaml": MANIFEST}, "nodes n1 cpu=4\nstatic-pod n1 agent.yaml\n"),
}


def digest(path):
    result = simulate(load_scenario(path), seed=3)
    assert (result.error, [each.text for each in result.expectations if not each.passed]) == ("", [])
    return result.digest


@pytest.mark.parametrize("name", PAIRS)
def test_a_run_is_the_same_whether_its_files_stand_beside_or_inside(tmp_path, name):
    files, text = PAIRS[name]
    (tmp_path / "beside").mkdir()
    (tmp_path / "inside").mkdir()
    for file, content in files.items():
        (tmp_path / "beside" / file).write_text(content)
    (tmp_path / "beside" / "t.txt").write_text(f"# T\n{text}{REST}")
    inside = "".join(f"file {file} <<EOF\n{content}EOF\n" for file, content in files.items())
    (tmp_path / "inside" / "t.txt").write_text(f"# T\n{inside}{text}{REST}")
    file, content = next(iter(files.items()))
    own = text.replace(f"static-pod n1 {file}", f"static-pod n1 as={file} <<END\n{content}END")
    own = own.replace(f"{name} {file}", f"{name} <<END\n{content}END")
    others = "".join(f"file {each} <<EOF\n{files[each]}EOF\n" for each in files if each != file)
    (tmp_path / "inside" / "own.txt").write_text(f"# T\n{others}{own}{REST}")

    assert own != text
    assert digest(tmp_path / "beside" / "t.txt") == digest(tmp_path / "inside" / "t.txt")
    assert digest(tmp_path / "beside" / "t.txt") == digest(tmp_path / "inside" / "own.txt")


def test_fields_of_a_definition_win_over_the_lines_options():
    text = "nodes n1..n2 cpu=4 memory=8Gi <<EOF\nmemory: 16Gi\nswapBehavior: LimitedSwap\nEOF\nwait 1s\n"

    nodes = plan_of(read_scenario(text, "t.txt"), seed=0).nodes

    assert [(n["name"], n["cpu"], n["memory"], n["swapBehavior"]) for n in nodes] == [
        ("n1", "4", "16Gi", "LimitedSwap"),
        ("n2", "4", "16Gi", "LimitedSwap"),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("apply <<EOF\nkind: Pod\n", "t.txt:1: the block that begins here has no end; want a line that is EOF alone"),
        (
            "pod a <<EOF\nEOF\n",
            "t.txt:1: pod takes no block; those that do: apply, file, kwok, node, nodes, scheduler-config",
        ),
        ("expect count pods == 1 <<EOF\nEOF\n", "t.txt:1: expect takes no block"),
        ("apply x.yaml <<EOF\nEOF\n", "t.txt:1: 'x.yaml' is too much"),
        ("apply <<EOF\nEOF\n", "t.txt:1: apply <<EOF: there is no object in it"),
        ("apply missing.yaml\n", "t.txt:1: missing.yaml: there is no such file beside the scenario"),
        ("apply ../t.yaml\n", "t.txt:1: '../t.yaml' lies outside the scenario's folder"),
        ("# T\napply <<EOF\na: 1\n\tb: 2\nEOF\n", "t.txt:4: a tab; YAML is indented with spaces"),
        ("apply <<EOF\na: [1\nEOF\n", "t.txt:3: did not find expected"),
        ("apply <<EOF\na: 1\na: 2\nEOF\n", "t.txt:3: key 'a' is given twice"),
        ("apply <<EOF\na: &x\n- *x\nEOF\n", "t.txt:2: an alias stands within what it names"),
        ("apply <<EOF\n- 1\nEOF\n", "t.txt:2: want an object with apiVersion and kind, not list"),
        ("apply <<EOF\nkind: Pod\nEOF\n", "t.txt:2: Pod: apiVersion: want a text, not None"),
        (
            "apply <<EOF\nmetadata: {name: x}\napiVersion: v2\nkind: Pod\nEOF\n",
            "t.txt:3: Pod x: apiVersion: 'v2': Pod is served as v1",
        ),
        (
            "apply <<EOF\napiVersion: apps/v1\nkind: Deploymnt\nmetadata: {name: x}\nEOF\n",
            "t.txt:3: Deploymnt x: kind: no kind 'Deploymnt' in 'apps/v1' is served (did you mean Deployment?)",
        ),
        (
            f"apply <<EOF\n{CLASS}---\n{CLAIM.replace('deviceClassName', 'deviceClasName')}EOF\n",
            "t.txt:14: ResourceClaim one: no field 'spec.devices.requests[0].exactly.deviceClasName' in ResourceClaim",
        ),
        (
            "apply <<EOF\napiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\nspec:\n  replicas: two\nEOF\n",
            "t.txt:7: Deployment web: spec.replicas: 'two'",
        ),
        (
            f"apply <<EOF\napiVersion: v1\nkind: List\nitems:\n{ITEM.format('a')}{ITEM.format('b')}  dta: {{}}\nEOF\n",
            "t.txt:11: ConfigMap b: no field 'dta' in ConfigMap",
        ),
        (
            "apply <<EOF\napiVersion: v1\nkind: PodList\nitems:\n- metadata: {name: a}\n  spec: {containrs: []}\nEOF\n",
            "t.txt:6: Pod a: no field 'spec.containrs' in Pod",
        ),
        ("file a.yaml\nwait 1s\n", "t.txt:1: want a block: file NAME <<EOF"),
        (
            "file a.yaml <<EOF\nEOF\nfile a.yaml <<EOF\nEOF\nwait 1s\n",
            "t.txt:3: file a.yaml is already there from line 1 on",
        ),
        ("nodes n1 <<EOF\nname: n2\nEOF\nwait 1s\n", "t.txt:2: name: the line names the nodes, n1"),
        ("nodes n1 <<EOF\n- 1\nEOF\nwait 1s\n", "t.txt:2: want one object with fields of a node's definition"),
        ("nodes n1 <<EOF\npods: 3\nswapBehavior: Some\nEOF\nwait 1s\n", "t.txt:3: node n1: Invalid enum value 'Some'"),
        (
            "nodes n1 <<EOF\npods: 3\nswap: Some\nEOF\nwait 1s\n",
            "t.txt:3: node n1: Object contains unknown field `swap`",
        ),
        (
            f"file c.yaml <<EOF\n{DRIVER}- name: gpu-1\n  attributes: 3\nEOF\nnodes n1 drivers=c.yaml\nwait 1s\n",
            "t.txt:6: drivers=c.yaml: gpu.example.com: devices[1].attributes: 3: json: cannot",
        ),
        ("static-pod n1 <<EOF\nEOF\n", "t.txt:1: a block has no name; want static-pod NODE as=NAME.yaml <<EOF"),
    ],
)
def test_an_error_in_a_block_names_line_object_and_field(text, message):
    with pytest.raises(ScriptError) as caught:
        plan_of(read_scenario(text, "t.txt"), seed=0)

    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"stages <<EOF\n{STAGE.replace('In,', 'Is,')}EOF\nnodes n1 cpu=1\nwait 1s\n", "t.txt:9: "),
        (f"# T\nscheduler-config <<EOF\n{CONFIG.replace('50', 'half')}EOF\nnodes n1 cpu=1\nwait 1s\n", "t.txt:5: "),
    ],
)
def test_an_error_in_a_file_that_a_process_reads_names_the_scenarios_line(text, message):
    with pytest.raises(ScriptError) as caught:
        simulate(read_scenario(text, "t.txt"))

    assert str(caught.value).startswith(message)


def test_what_the_api_server_refuses_in_a_block_is_named_with_its_line():
    claim = CLAIM.replace("name: gpu", "name: GPU")
    text = f"# T\nnodes n1 cpu=1\napply <<EOF\n{CLASS}---\n{claim}EOF\n"

    result = simulate(read_scenario(text, "t.txt"), seed=1)

    assert result.error.startswith(
        't.txt:3: apply <<EOF: t.txt:15: ResourceClaim.resource.k8s.io "one" is invalid: spec.d'
    )
    assert not result.is_mistake


def test_lines_after_a_block_have_their_own_numbers():
    scenario = read_scenario("apply <<EOF\r\n" + CLASS.replace("\n", "\r\n") + "EOF\r\nwait 1s\r\n", "t.txt")

    assert [(step.verb, step.line) for step in scenario.steps] == [("apply", 1), ("wait", 7)]
    assert scenario.steps[0].block.text == CLASS
