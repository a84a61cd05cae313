"""A driver that a file describes: fields, or the ResourceSlices it publishes; each mistake is one line (dra-core 1.1)."""

import pytest

from kubelet.dra.emulated.driver import Command, EmulatedDriver
from kubelet.dra.emulated.files import read_driver, read_drivers
from lab.scenarios.run import load_scenario, plan_of
from lab.scenarios.script.scenario import ScriptError

CARDS = """
apiVersion: v1
kind: List
items:
- apiVersion: resource.k8s.io/v1
  kind: ResourceSlice
  metadata: {name: worker-7-gpu.example.com-abcde}
  spec:
    driver: gpu.example.com
    nodeName: worker-7
    pool: {name: worker-7, generation: 4, resourceSliceCount: 3}
    devices:
    - {name: half-0, consumesCounters: [{counterSet: card, counters: {memory: {value: 40Gi}}}]}
    - {name: half-1, consumesCounters: [{counterSet: card, counters: {memory: {value: 40Gi}}}]}
- apiVersion: resource.k8s.io/v1
  kind: ResourceSlice
  metadata: {name: worker-7-gpu.example.com-fghij}
  spec:
    driver: gpu.example.com
    nodeName: worker-7
    pool: {name: worker-7, generation: 4, resourceSliceCount: 3}
    devices:
    - {name: whole, consumesCounters: [{counterSet: card, counters: {memory: {value: 80Gi}}}]}
- apiVersion: resource.k8s.io/v1
  kind: ResourceSlice
  metadata: {name: worker-7-gpu.example.com-klmno}
  spec:
    driver: gpu.example.com
    nodeName: worker-7
    pool: {name: worker-7, generation: 4, resourceSliceCount: 3}
    sharedCounters:
    - {name: card, counters: {memory: {value: 80Gi}}}
"""
SHARED = CARDS[CARDS.rindex("    driver:") :]
FIELDS = """
name: gpu.example.com
devices:
- name: nic
  allowMultipleAllocations: true
  capacity: {bandwidth: {value: 10Gi, requestPolicy: {default: 1Gi, validRange: {min: 1Gi, step: 1Gi}}}}
prepare: 0.5
"""


def read(text, folder, **options):
    (folder / "cards.yaml").write_text(text)
    return read_driver(folder / "cards.yaml", options)


def offered(definition):
    return list(EmulatedDriver(definition, "n1", guards=False).slices().values())


def test_slices_of_another_cluster_are_published_slice_by_slice_for_the_node_the_driver_runs_on(tmp_path):
    specs = offered(read(CARDS + "---\nprepare: 2\n", tmp_path))

    assert [[device["name"] for device in spec.get("devices", ())] for spec in specs] == [
        ["half-0", "half-1"],
        ["whole"],
        [],
    ]
    assert specs[2]["sharedCounters"] == [{"name": "card", "counters": {"memory": {"value": "80Gi"}}}]
    assert [spec["pool"] for spec in specs] == [{"name": "n1", "generation": 4, "resourceSliceCount": 3}] * 3
    assert {spec["nodeName"] for spec in specs} == {"n1"}


def test_once_a_device_is_gone_the_pool_is_published_in_as_few_slices_as_possible(tmp_path):
    emulated = EmulatedDriver(read(CARDS, tmp_path), "n1", guards=False)

    emulated.act(Command("remove", ("whole",)))

    assert [len(spec.get("devices", ())) for spec in emulated.slices().values()] == [2, 0]


def test_a_pool_may_have_the_nodes_name_in_its_own(tmp_path):
    (spec,) = offered(read("name: a.b\npools: [{name: $(NODE_NAME)/cards, devices: 1}]", tmp_path))

    assert spec["pool"]["name"] == "n1/cards"


def test_nine_counter_sets_are_published_in_two_slices(tmp_path):
    sets = ", ".join(f"{{name: card-{number}, counters: {{memory: {{value: 1Gi}}}}}}" for number in range(9))

    specs = offered(read(f"name: a.b\ndevices: 1\nsharedCounters: [{sets}]", tmp_path))

    assert [len(spec.get("sharedCounters", ())) for spec in specs] == [0, 8, 1]


def test_options_win_over_the_file_and_files_mix_with_short_forms(tmp_path):
    (tmp_path / "cards.yaml").write_text(FIELDS)

    cards, nics = read_drivers("cards.yaml:prepare=2+nic.example.com:4", tmp_path)

    assert (cards["name"], cards["prepare"], cards["devices"][0]["name"]) == ("gpu.example.com", 2.0, "nic")
    assert nics == {"name": "nic.example.com", "devices": 4}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("generation: 4, resourceSliceCount: 3}\n    sharedC", "generation: 5, resourceSliceCount: 3}\n    sharedC",
         "'worker-7-gpu.example.com-klmno': spec.pool.generation: 5, but ResourceSlice 'worker-7-gpu.example.com-abcde' of"),
        ("resourceSliceCount: 3", "resourceSliceCount: 2",
         "spec.pool.resourceSliceCount: 2, but there are 3 slices of pool 'worker-7' here"),
        (SHARED, SHARED.replace("gpu.", "npu."),
         "spec.driver: 'npu.example.com', but ResourceSlice 'worker-7-gpu.example.com-abcde': spec.driver is"),
        ("nodeName: worker-7", "allNodes: true", "spec.allNodes: a driver of a node publishes devices of that node only"),
        ("nodeName: worker-7", "nodename: worker-7", "spec: no field 'nodename'; there are: driver, pool, nodeName"),
        ("- {name: card,", "- {name: board,",
         "devices[0].consumesCounters[0].counterSet: 'card' is not among the pool's sharedCounters: board"),
        ("- {name: card, counters: {memory", "- {name: card, counters: {slots",
         "devices[0].consumesCounters[0].counters: 'memory' is not in counter set 'card', which has: slots"),
        ("kind: ResourceSlice", "kind: DeviceClass", "kind: 'DeviceClass', want ResourceSlice"),
        ("resource.k8s.io/v1\n", "resource.k8s.io/v1beta1\n",
         "apiVersion: 'resource.k8s.io/v1beta1' of a ResourceSlice, want 'resource.k8s.io/v1'"),
        ("apiVersion: v1\n", "devices: 4\n---\napiVersion: v1\n", "devices: want that or ResourceSlices, not both"),
    ],
)  # fmt: skip
def test_slices_that_disagree_are_one_line_with_file_field_and_both_values(old, new, said, tmp_path):
    assert old in CARDS
    with pytest.raises(ValueError, match=r"^[^\n]*$") as found:
        read(CARDS.replace(old, new), tmp_path)

    assert str(found.value).startswith(f"{tmp_path}/cards.yaml: ")
    assert said in str(found.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (FIELDS + "divices: 4", "cards.yaml: Object contains unknown field `divices`"),
        (FIELDS.replace("requestPolicy", "requestpolicy"),
         'unknown field "devices[0].capacity.bandwidth.requestpolicy"'),
        (FIELDS.replace("10Gi", "10Gi}, slots: {value: 1").replace("  allowMultipleAllocations: true", "  allNodes: true").replace(", requestPolicy: {default: 1Gi, validRange: {min: 1Gi, step: 1Gi}}", ""), "devices[0]: Invalid value"),
        (FIELDS.replace("  allowMultipleAllocations: true\n", ""),
         "devices[0].capacity[bandwidth].requestPolicy: Forbidden: allowMultipleAllocations must be true"),
        (FIELDS.replace("10Gi", "ten"), "devices[0].capacity.bandwidth.value: 'ten': quantities must match"),
        ("name: a.b\npools: [{name: cards, devices: 1}]", "pool 'cards': n1 and n2 would publish the same pool"),
    ],
)  # fmt: skip
def test_a_scenario_names_the_line_the_file_and_the_field_that_the_api_server_would_refuse(text, said, tmp_path):
    (tmp_path / "cards.yaml").write_text(text)
    (tmp_path / "scene.txt").write_text("nodes n1..n2 cpu=4 drivers=cards.yaml\nwait 1s\n")

    with pytest.raises(ScriptError, match=r"^[^\n]*$") as found:
        plan_of(load_scenario(tmp_path / "scene.txt"), seed=0)

    assert str(found.value).startswith(f"{tmp_path}/scene.txt:1: ")
    assert said in str(found.value)
    assert "cards.yaml" in str(found.value)


def test_a_scenario_names_a_file_that_is_not_there(tmp_path):
    (tmp_path / "scene.txt").write_text("nodes n1 cpu=4 drivers=cards.yaml\nwait 1s\n")

    with pytest.raises(ScriptError, match=r"scene.txt:1: .*cards.yaml: No such file or directory"):
        plan_of(load_scenario(tmp_path / "scene.txt"), seed=0)
