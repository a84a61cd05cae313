"""Scripts, latencies, definitions and the journal's records: texts in, values out."""

import re

import pytest

from kubelet.config import KubeletConfig
from kubelet.node.definition import NodeDefinition, resize_node
from kubelet.runtime.behavior import script_of
from kubelet.runtime.latency import Distribution, LatencyModel
from kubelet.runtime.records import ContainerRecord, PodRecord, encode_record, newest
from kubelet.runtime.script import FOREVER, Script, ScriptError, parse_script
from kubelet.timers import Timers
from services.runtime.config import StartError


@pytest.mark.parametrize(
    ("text", "script"),
    [("forever", FOREVER), ("exit 0 after 5s", Script(exit_after_s=5.0)),
     ("crash after 200ms", Script(exit_after_s=0.2, exit_code=1)),
     ("oom after 1m", Script(exit_after_s=60.0, exit_code=137, reason="OOMKilled")),
     ("ready after 3s; on SIGTERM ignore", Script(ready_after_s=3.0, ignores_term=True)),
     ("on SIGTERM exit 2 after 4s", Script(term_exit_code=2, term_after_s=4.0))],
)  # fmt: skip
def test_a_script_says_what_a_container_does(text, script):
    assert parse_script(text) == script


@pytest.mark.parametrize("text", ["exit", "exit 256", "crash 5s", "forever young", "flap 1s x", "ready after soon"])
def test_a_clause_that_is_not_understood_is_named(text):
    with pytest.raises(ScriptError, match=r"want|understood"):
        parse_script(text)


@pytest.mark.parametrize(
    ("words", "script"),
    [(["sleep", "5"], Script(exit_after_s=5.0)), (["sleep", "infinity"], FOREVER),
     (["sh", "-c", "sleep 2; exit 3"], Script(exit_after_s=2.0, exit_code=3)),
     (["false"], Script(exit_after_s=0.0, exit_code=1)), (["nginx"], FOREVER)],
)  # fmt: skip
def test_well_known_commands_need_no_annotation(a_pod, words, script):
    pod = a_pod(containers=[{"name": "main", "command": words}])

    assert script_of(pod, pod.spec.containers[0], is_init=False) == script


def test_draws_depend_on_seed_node_pod_and_stage_alone():
    model, again = LatencyModel.parse((), 7), LatencyModel.parse((), 7)
    again.for_pod("n1", "other").of("sandbox")

    assert model.for_pod("n1", "u").of("sandbox") == again.for_pod("n1", "u").of("sandbox")
    assert model.for_pod("n1", "u").of("sandbox") != model.for_pod("n2", "u").of("sandbox")
    assert model.for_pod("n1", "u").of("create") != model.for_pod("n1", "u").of("create", 1)


@pytest.mark.parametrize(
    ("text", "median", "slack"),
    [("constant:2", 2.0, 0.0), ("uniform:1,3", 2.0, 0.1), ("normal:2,0.5", 2.0, 0.1), ("lognormal:2,0.5", 2.0, 0.1),
     ("pareto:1,1", 2.0, 0.15), ("empirical:2,2,2", 2.0, 0.0)],
)  # fmt: skip
def test_a_distribution_has_the_median_it_says(text, median, slack):
    model = LatencyModel.parse((f"sandbox={text}",), 1)
    draws = sorted(model.for_pod("n", f"u{i}").of("sandbox") for i in range(2001))

    assert draws[1000] == pytest.approx(median, abs=slack)
    assert draws[0] >= 0


@pytest.mark.parametrize("text", ["gamma:1", "uniform:1", "constant:x", "normal:-1,2", "pareto:1,0", "constant:nan"])
def test_a_malformed_distribution_is_refused(text):
    with pytest.raises(ValueError, match=text.split(":")[0]):
        Distribution.parse(text)


def test_a_node_definition_sums_its_numa_nodes_and_reserves_cpus():
    node = NodeDefinition.parse(
        {"name": "n", "numa": [{"cpus": 8, "devices": {"example.com/gpu": 2}}] * 2, "reservedCpus": 2}
    )

    assert node.capacity()["cpu"] == "16"
    assert node.allocatable()["cpu"] == "14"
    assert node.capacity()["example.com/gpu"] == "4"


@pytest.mark.parametrize(
    ("fields", "named"),
    [({"numa": "2*8"}, "2x8"), ({"topologyPolicy": "nearest"}, "topologyPolicy"), ({"cpus": 3}, "cpus"),
     ({"memory": "lots"}, "lots"), ({"numa": "9x1", "topologyPolicy": "restricted"}, "9 NUMA nodes")],
)  # fmt: skip
def test_a_wrong_definition_names_the_node_and_the_field(fields, named):
    with pytest.raises(ValueError, match="node bad: .*" + named.replace("*", r"\*")):
        NodeDefinition.parse({"name": "bad", **fields})


def test_a_node_defined_twice_stops_the_start():
    config = KubeletConfig(name="h", nodes=2, definitions=(NodeDefinition(name="node-1"),))

    with pytest.raises(StartError, match="node-1 is defined twice"):
        config.node_definitions()


def test_guarantees_fm_k5_torn_foreign_and_superseded_records_are_left_out():
    def record(node, uid, **fields):
        return encode_record(PodRecord(node, uid, 2, **fields)).rstrip(b"\n")

    kept = record("n1", "a", containers=[ContainerRecord("c", 1.0, 1)])
    lines = [record("n1", "a"), kept, record("n2", "b"), record("n1", "c"), record("n1", "c", is_gone=True), kept[:9]]

    reading = newest(PodRecord, lines, frozenset({"n1"}))

    assert [r.uid for r in reading.found.values()] == ["a"]
    assert next(iter(reading.found.values())).containers[0].restarts == 1
    assert (reading.torn, reading.elsewhere) == (1, {"n2": 1})


def test_timers_come_due_in_the_order_of_their_times():
    timers = Timers()

    assert timers.set(2.0, "b")
    assert timers.set(1.0, "a")
    assert not timers.set(3.0, "c")

    assert timers.due(2.0) == ["a", "b"]
    assert timers.next_at_s == 3.0


@pytest.mark.parametrize(
    ("policy", "container", "ends"),
    [
        ("Never", {"image": "hello-world"}, (1.0, 0)),
        ("OnFailure", {"image": "docker.io/library/perl:5.34.0", "command": ["perl", "-wle", "print 1"]}, (1.0, 0)),
        ("Never", {"image": "nginx:1.27"}, (None, 0)),
        ("Never", {"image": "registry.k8s.io/pause@sha256:0"}, (None, 0)),
        ("Never", {"image": "busybox", "command": ["sleep", "infinity"]}, (None, 0)),
        ("Never", {"image": "busybox", "command": ["sh", "-c", "exit 3"]}, (0.0, 3)),
        ("Always", {"image": "hello-world"}, (None, 0)),
        ("Never", {"image": "busybox", "stdin": True}, (None, 0)),
    ],
)
def test_a_container_of_which_nothing_is_known_ends_if_its_pod_is_to_end(a_pod, policy, container, ends):
    pod = a_pod(containers=[{"name": "main", **container}], spec={"restartPolicy": policy})
    main = pod.spec.containers[0]

    script = script_of(pod, main, is_init=False, completion_s=1.0)
    assert (script.exit_after_s, script.exit_code) == ends
    if ends[0] == 1.0:
        assert script_of(pod, main, is_init=False) is FOREVER


@pytest.mark.parametrize(
    ("defined", "text", "message"),
    [
        ({}, "{", "node n1: capacity: Input data was truncated"),
        ({}, "[]", "node n1: capacity: '[]': want cpu, ephemeralStorage, extended, memory, pods"),
        ({}, '{"labels": {}}', "node n1: capacity: 'labels': want cpu, ephemeralStorage, extended, memory, pods"),
        ({}, '{"cpu": "much"}', "node n1: "),
        ({"numa": "2x4"}, '{"cpu": "4"}', "node n1: capacity: its managers hand out what there was at its start"),
    ],
)
def test_a_machine_does_not_get_what_it_cannot_have(defined, text, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        resize_node(NodeDefinition.parse({"name": "n1", **defined}), text)


def test_a_machine_gets_other_resources_and_its_own_again():
    node = NodeDefinition.parse({"name": "n1", "cpu": "8", "kubeReserved": {"cpu": "1"}})
    larger = resize_node(node, '{"cpu": "16", "extended": {"example.com/card": 2}}')

    assert (larger.allocatable()["cpu"], larger.capacity()["example.com/card"]) == ("15", "2")
    assert resize_node(node, "") == node
