"""Public traces: what their rows become, which part is taken, what is left out."""

import resource as usage
import sqlite3
from pathlib import Path

import msgspec
import pytest

from lab.exchange.format import Reading, format_of, formats
from lab.exchange.formats.borg import constraint_term
from lab.exchange.reading import Source
from lab.exchange.stream import Refused
from lab.exchange.traces.public import Part
from services.api.kinds.pod import RUN

NODES = """\
sn,cpu_milli,memory_mib,gpu,model
openb-node-0227,32000,262144,0,nan
openb-node-0228,128000,786432,8,G3
openb-node-0229,96000,786432,8,V100M32
"""
HEADER = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
)
PODS = (
    HEADER
    + """\
openb-pod-0035,16000,32768,1,1000,V100M16|V100M32,LS,Running,9967058,9968575,9967063
openb-pod-0017,88000,327680,8,1000,nan,Burstable,Succeeded,9437497,10769854,9437497
openb-pod-0022,4000,15258,1,220,nan,BE,Running,9679175,9973826,9679175
"""
)


def table(text, name="t.csv"):
    return Source(Path(name), name, text if isinstance(text, bytes) else text.encode())


def read(*tables, name="alibaba", is_lenient=False, **options):
    given = {key.replace("_", "-").strip("-"): value for key, value in options.items()}
    stream = formats()[name].read_many(tables, Reading(is_lenient=is_lenient, options=given))
    return list(stream.objects), list(stream.changes), stream.notes


def of(objects, kind):
    return {each.document["metadata"]["name"]: each.document for each in objects if each.document["kind"] == kind}


def runs(changes):
    return {c.name: c.document["metadata"]["annotations"][RUN] for c in changes}


def resources_of(change):
    return change.document["spec"]["containers"][0]["resources"]


# Alibaba


def test_28_the_readmes_rows_are_three_nodes_and_three_pods_with_their_run_times():
    objects, changes, notes = read(table(NODES), table(PODS))

    nodes = of(objects, "Node")
    assert list(nodes) == ["openb-node-0227", "openb-node-0228", "openb-node-0229"]
    assert nodes["openb-node-0228"]["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    assert "nvidia.com/gpu" not in nodes["openb-node-0227"]["status"]["allocatable"]
    assert runs(changes) == {
        "openb-pod-0017": "exit 0 after 1332357s",
        "openb-pod-0022": "exit 0 after 294651s",
        "openb-pod-0035": "exit 0 after 1512s",
    }
    assert [each.at_s for each in changes] == [0.0, 241_678.0, 529_561.0]
    required = changes[2].document["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert required["nodeSelectorTerms"] == [
        {"matchExpressions": [{"key": "nvidia.com/gpu.product", "operator": "In", "values": ["V100M16", "V100M32"]}]}
    ]
    assert [each.document["spec"]["priorityClassName"] for each in changes] == ["burstable", "be", "ls"]
    assert of(objects, "PriorityClass")["ls"]["value"] > of(objects, "PriorityClass")["be"]["value"]
    assert notes == {}


def test_a_share_of_a_gpu_is_rounded_up_or_counted_in_thousandths():
    whole = read(table(PODS))[1]
    objects, shares, _ = read(table(NODES), table(PODS), gpu_share="milli")

    assert [resources_of(each)["limits"] for each in whole] == [{"nvidia.com/gpu": n} for n in ("8", "1", "1")]
    assert [resources_of(each)["limits"] for each in shares] == [
        {"keplab.dev/gpu-milli": n} for n in ("8000", "220", "1000")
    ]
    assert of(objects, "Node")["openb-node-0229"]["status"]["capacity"]["keplab.dev/gpu-milli"] == "8000"


def test_a_share_of_a_gpu_is_a_claim_of_its_thousandths():
    objects, changes, _ = read(table(NODES), table(PODS), gpu_share="dra")

    slices = of(objects, "ResourceSlice")
    assert {name: len(each["spec"]["devices"]) for name, each in slices.items()} == {
        "openb-node-0228-gpu.keplab.dev": 8,
        "openb-node-0229-gpu.keplab.dev": 8,
    }
    assert slices["openb-node-0229-gpu.keplab.dev"]["spec"]["devices"][7]["attributes"] == {
        "model": {"string": "V100M32"}
    }
    assert list(of(objects, "DeviceClass")) == ["gpu.keplab.dev"]
    assert list(of(objects, "Node")["openb-node-0228"]["status"]["capacity"]) == ["cpu", "memory", "pods"]
    assert [str(each) for each in changes] == [
        "create resourceclaimtemplates.resource.k8s.io default/gpu-8x1000",
        "create pods default/openb-pod-0017",
        "create resourceclaimtemplates.resource.k8s.io default/gpu-1x220",
        "create pods default/openb-pod-0022",
        "create resourceclaimtemplates.resource.k8s.io default/gpu-1x1000-v100m16-v100m32",
        "create pods default/openb-pod-0035",
    ]
    (request,) = changes[2].document["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"]["capacity"] == {"requests": {"milli": "220"}}
    (request,) = changes[4].document["spec"]["spec"]["devices"]["requests"]
    assert "model in ['V100M16', 'V100M32']" in request["exactly"]["selectors"][0]["cel"]["expression"]
    assert "affinity" not in changes[5].document["spec"]
    assert "limits" not in resources_of(changes[5])


def test_a_window_takes_what_is_alive_in_it_with_its_remaining_time_and_compresses_both():
    _, changes, notes = read(table(PODS), _from="3d", to="7d", compress="24x")

    assert [(each.name, each.at_s) for each in changes] == [
        ("openb-pod-0017", 0.0),
        ("openb-pod-0022", 0.0),
        ("openb-pod-0035", (529_561 - 3 * 86_400) / 24),
    ]
    assert runs(changes)["openb-pod-0017"] == "exit 0 after 44714.875s"
    assert runs(changes)["openb-pod-0035"] == "exit 0 after 63s"
    assert notes == {}
    assert read(table(PODS), to="1d")[2] == {"pods outside the window of time": 2}


def test_pods_that_never_ran_run_for_ever_and_failed_ones_fail():
    rows = "a,1,1,0,0,,LS,Pending,10,,\nb,1,1,0,0,,LS,Failed,10,30,20\nc,1,1,0,0,,,Running,10,,20\n"

    _, changes, notes = read(table(HEADER + rows))

    assert runs(changes) == {"a": "forever", "b": "exit 1 after 10s", "c": "forever"}
    assert list(notes.values()) == [1, 1]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("a,x,1,0,0,,LS,Running,10,20,10", "t.csv:document 1 (line 2): cpu_milli: 'x': want a number"),
        ("a,1,1,0,0,,LS,Running,,20,10", "t.csv:document 1 (line 2): creation_time: '': want a number"),
        ("a,1,1,0,0,,LS,Running,10,5,10", "deletion_time 5: want creation_time 10 or later"),
        ("a,1,1,0,0,,LS,Running,10,20,8", "scheduled_time 8: want creation_time 10 or later"),
        ("a,1,1,0,0", "t.csv:document 1 (line 2): 5 cells where the header has 11"),
        (",1,1,0,0,,LS,Running,10,20,10", "name: nothing: want the name of a pod"),
        ('"a,1', "t.csv (line 2): unexpected end of data"),
        ("a,-1,1,0,0,,LS,Running,10,20,10", "cpu_milli -1: want a number from 0 to 9,007,199,254,740,992"),
        ("a,1,1e30,0,0,,LS,Running,10,20,10", "memory_mib 1e30: want a number from 0 to 8,589,934,592"),
        ("a,1,1,1.5,0,,LS,Running,10,20,10", "num_gpu 1.5: want a whole number from 0 to 128"),
        ("a,1,1,1,4600,,LS,Running,10,20,10", "gpu_milli 4600: want a number from 0 to 1,000"),
        (
            "a,1,1,0,0,,LS,Running,10,20,10\na,2,1,0,0,,LS,Running,10,20,10",
            "t.csv:document 2 (line 3): name a: t.csv:document 1 (line 2) has this name already",
        ),
    ],
)
def test_a_row_that_cannot_be_read_is_refused_with_place_and_field(row, message):
    with pytest.raises(Refused) as refused:
        read(table(HEADER + row))
    assert message in str(refused.value)


def test_lenient_reading_counts_rows_that_cannot_be_read():
    rows = "a,x,1,0,0,,LS,Running,10,20,10\nb,1,1,0,0,,LS,Running,10,20,10\n"

    _, changes, notes = read(table(HEADER + rows), is_lenient=True)

    assert ([each.name for each in changes], notes) == (["b"], {"rows of pods that cannot be read": 1})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"_from": "2d", "to": "1d"}, "--to 1d: want more than --from 2d"),
        ({"_from": "soon"}, "--from soon: want for example 90s, 12h or 2d"),
        ({"sample": "2"}, "--sample 2: want a share above 0 and up to 1"),
        ({"compress": "0x"}, "--compress 0x: want a factor above 0 such as 24x"),
        ({"seed": "a"}, "--seed a: want a whole number"),
        ({"gpu_share": "half"}, "--gpu-share half: want up, milli or dra"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(Refused) as refused:
        read(table(PODS), **options)
    assert message in str(refused.value)


def test_ten_thousand_rows_in_any_order_come_by_time_and_in_bounded_memory():
    rows = (
        f"p{n},1000,1024,0,0,,LS,Running,{(n * 7919) % 10_007},20000,{(n * 7919) % 10_007}\n" for n in range(10_000)
    )
    data = table((HEADER + "".join(rows)).encode())
    before = usage.getrusage(usage.RUSAGE_SELF).ru_maxrss

    stream = formats()["alibaba"].read(data, Reading())
    count, last = 0, -1.0
    for change in stream.changes:
        assert change.at_s >= last
        count, last = count + 1, change.at_s

    assert count == 10_000
    assert usage.getrusage(usage.RUSAGE_SELF).ru_maxrss - before < 40 << 10


def test_a_sample_takes_whole_collections_by_seed():
    parts = [Part(share=0.3, seed=seed) for seed in (0, 0, 1)]
    taken = [{n for n in range(2000) if part.has(str(n))} for part in parts]

    assert taken[0] == taken[1] != taken[2]
    assert 500 < len(taken[0]) < 700


# Google


def borg(*rows):
    return table("".join(msgspec.json.encode(row).decode() + "\n" for row in rows), "t.json")


def machine(number, at=0, kind=1, **more):
    return {"time": str(at), "machine_id": str(number), "type": kind, "switch_id": "s1", "platform_id": "p/1=", **more}


def instance(at_s, kind, index=0, collection=7, **more):
    return {
        "time": str(int(at_s * 1_000_000)),
        "type": kind,
        "collection_id": str(collection),
        "instance_index": index,
        "priority": 103,
        "resource_request": {"cpus": 0.25, "memory": 0.5},
        **more,
    }


CAPACITY = {"capacity": {"cpus": 0.5, "memory": 1.0}}
SCALE = {"scale": "cpu=64,memory=256Gi"}


def test_machines_and_instances_of_borg_are_nodes_and_pods_at_a_scale():
    machines = borg(machine(1, **CAPACITY), machine(2, **CAPACITY), machine(2, 5_000_000, 2))
    events = borg(instance(0, 0), instance(10, "SCHEDULE"), instance(40, 6), instance(5, 0, 1, 8), instance(6, 7, 1, 8))

    objects, changes, notes = read(machines, events, name="borg", **SCALE)

    nodes = of(objects, "Node")
    assert nodes["machine-1"]["status"]["capacity"] == {"cpu": "32000m", "memory": str(256 << 30), "pods": "256"}
    assert nodes["machine-1"]["metadata"]["labels"]["keplab.dev/switch"] == "s1"
    assert list(nodes) == ["machine-1", "machine-2"]
    assert of(objects, "PriorityClass")["borg-103"]["value"] == 103
    pods = [each for each in changes if each.resource == "pods"]
    assert runs(pods) == {"c-7-0": "exit 0 after 30s", "c-8-1": "exit 0 after 1s"}
    assert resources_of(pods[0])["requests"] == {"cpu": "16000m", "memory": str(128 << 30)}
    assert [(each.at_s, str(each)) for each in changes if each.resource == "nodes"] == [(5.0, "delete nodes machine-2")]
    assert notes == {"times: machines go": 1}


def moments(changes):
    return [(each.at_s, each.method, each.name) for each in changes]


def test_machines_of_borg_come_go_and_change_at_their_times():
    larger = {"capacity": {"cpus": 1.0, "memory": 1.0}}
    machines = borg(
        machine(1, **CAPACITY),
        machine(1, 30_000_000, "UPDATE", **larger),
        machine(1, 31_000_000, 3, **larger),
        machine(2, 10_000_000, "ADD", **CAPACITY),
        machine(2, 20_000_000, "REMOVE"),
        machine(2, 25_000_000, 2),
        machine(2, 50_000_000, 1, missing_data_reason=1),
        machine(3, 0, "ADD"),
        machine(4, 5_000_000, 0),
        machine(5, 5_000_000, 3, **CAPACITY),
        machine(5, 8_000_000, 1),
    )
    attributes = borg(
        {"time": "0", "machine_id": "1", "name": "kernel", "value": "1"},
        {"time": "40000000", "machine_id": "1", "name": "kernel", "value": "2"},
        {"time": "45000000", "machine_id": "1", "name": "kernel", "deleted": True},
    )

    objects, changes, notes = read(machines, attributes, name="borg", **SCALE)

    assert list(of(objects, "Node")) == ["machine-1"]
    assert moments(changes) == [
        (8.0, "create", "machine-5"),
        (10.0, "create", "machine-2"),
        (20.0, "delete", "machine-2"),
        (30.0, "patch", "machine-1"),
        (40.0, "patch", "machine-1"),
        (45.0, "patch", "machine-1"),
        (50.0, "create", "machine-2"),
    ]
    assert changes[0].document["status"]["capacity"]["cpu"] == "32000m"
    assert changes[3].document["status"]["capacity"]["cpu"] == "64000m"
    assert [each.document["metadata"]["labels"] for each in changes[4:6]] == [
        {"attribute.keplab.dev/kernel": "2"},
        {"attribute.keplab.dev/kernel": None},
    ]
    assert notes == {
        "events of machines that say EVENT_TYPE_UNKNOWN": 1,
        "events of machines that the trace infers (missing_data_reason): they are replayed as others": 1,
        "times: machines change their capacity": 1,
        "events of machines that say no capacity: left out": 1,
        "events of machines that change nothing": 1,
        "times: machines change an attribute": 2,
        "times: machines come": 3,
        "times: machines go": 1,
        "removals of machines that are not there": 1,
        "updates of machines before they come: they have it then": 1,
    }


def test_a_window_begins_with_the_machines_that_are_there_and_is_compressed():
    machines = borg(
        machine(1, **CAPACITY),
        machine(1, 3_600_000_000, 2),
        machine(2, 1_800_000_000, 1, **CAPACITY),
        machine(2, 7_200_000_000, 3, capacity={"cpus": 1.0, "memory": 1.0}),
        machine(2, 10_800_000_000, 2),
    )

    objects, changes, notes = read(machines, name="borg", _from="1h", to="3h", compress="60x", **SCALE)

    assert list(of(objects, "Node")) == ["machine-2"]
    assert moments(changes) == [(60.0, "patch", "machine-2")]
    assert notes == {"events of machines after the window of time": 1, "times: machines change their capacity": 1}


def test_what_borg_has_and_kubernetes_has_not_is_left_out_and_counted():
    events = borg(
        instance(0, 0, collection=1, collection_type=1),
        instance(0, 0, alloc_collection_id="1"),
        instance(1, 3),
        instance(2, 4),
        instance(3, 3),
        instance(9, 5),
    )
    collections = borg(
        {"time": "0", "type": 0, "collection_id": "7", "max_per_machine": 1, "max_per_switch": 4, "priority": 1}
    )

    _, (pod,), notes = read(events, collections, name="borg", **SCALE)

    assert pod.document["metadata"]["annotations"][RUN] == "exit 1 after 6s"
    assert "podAntiAffinity" in pod.document["spec"]["affinity"]
    assert notes == {
        "limits of instances a switch (max_per_switch)": 1,
        "events of alloc sets": 1,
        "evictions by the cell's own scheduler": 1,
        "instances that ran within alloc sets, and run as others here": 1,
    }


def test_an_update_while_it_runs_is_a_resize():
    larger = {"resource_request": {"cpus": 0.5, "memory": 0.5}}

    _, changes, _ = read(
        borg(instance(0, 0), instance(1, 3), instance(5, 10, **larger), instance(9, 6)), name="borg", **SCALE
    )

    assert [(each.at_s, each.method) for each in changes] == [(0.0, "create"), (5.0, "patch")]
    (container,) = changes[1].document["spec"]["containers"]
    assert container["resources"]["requests"]["cpu"] == "32000m"


@pytest.mark.parametrize(
    ("relation", "value", "term"),
    [
        (0, "x", {"operator": "In", "values": ["x"]}),
        ("NOT_EQUAL", "x", {"operator": "NotIn", "values": ["x"]}),
        (6, None, {"operator": "Exists"}),
        (7, None, {"operator": "DoesNotExist"}),
        (2, "3", {"operator": "Lt", "values": ["3"]}),
        (4, "3", {"operator": "Lt", "values": ["4"]}),
        (3, "3", {"operator": "Gt", "values": ["3"]}),
        (5, "3", {"operator": "Gt", "values": ["2"]}),
    ],
)
def test_constraints_of_borg_are_node_affinity(relation, value, term):
    found = constraint_term({"name": "attr", "value": value, "relation": relation}, "f")
    assert found == {"key": "attribute.keplab.dev/attr", **term}


def test_a_constraint_on_a_number_that_is_not_whole_is_refused():
    with pytest.raises(Refused, match=r"constraint attr LESS_THAN '2.5': want a whole number"):
        constraint_term({"name": "attr", "value": "2.5", "relation": 2}, "f")


def test_lenient_reading_of_borg_counts_rows_of_every_table_that_cannot_be_read():
    machines = borg(machine(1, **CAPACITY), machine(2, 0, 9, **CAPACITY), {"time": "0", "type": 1}, machine(3, "x"))
    wrong = {"name": "attr", "value": "2.5", "relation": 2}
    events = borg(instance(0, 0), instance(1, "BEGIN"), instance(0, 0, 1, constraint=[wrong]))

    objects, changes, notes = read(machines, events, name="borg", is_lenient=True, **SCALE)

    assert (list(of(objects, "Node")), [each.name for each in changes]) == (["machine-1"], ["c-7-0"])
    assert notes == {"rows that cannot be read": 5}
    with pytest.raises(Refused, match=r"type '9': want 0 to 3, or one of EVENT_TYPE_UNKNOWN, ADD, REMOVE, UPDATE"):
        read(machines, events, name="borg", **SCALE)


def test_a_negative_request_of_borg_is_refused():
    events = borg(instance(0, 0, resource_request={"cpus": -0.5, "memory": 0.1}))

    with pytest.raises(Refused, match=r"resource_request: cpus -0\.5: want a number from 0 to "):
        read(events, name="borg", **SCALE)


def test_borg_needs_a_scale_and_reads_csv():
    csv_text = (
        "time,type,collection_id,instance_index,priority,resource_request.cpus,resource_request.memory\n"
        "0,0,7,0,103,0.25,0.5\n1000000,3,7,0,103,,\n3000000,6,7,0,103,,\n"
    )
    with pytest.raises(Refused, match=r"--scale is not given: want for example cpu=64,memory=256Gi"):
        read(table(csv_text), name="borg")

    assert format_of(table(csv_text)).name == "borg"
    assert runs(read(table(csv_text), name="borg", **SCALE)[1]) == {"c-7-0": "exit 0 after 2s"}


def test_a_sample_of_borg_has_all_instances_of_a_collection_or_none():
    events = borg(*(instance(n, 0, index, n) for n in range(40) for index in range(3)))

    changes = read(events, name="borg", sample="0.5", **SCALE)[1]

    by_collection = {}
    for each in changes:
        by_collection.setdefault(each.name.split("-")[1], []).append(each.name)
    assert 10 < len(by_collection) < 30
    assert {len(names) for names in by_collection.values()} == {3}


# Azure


@pytest.fixture
def azure(tmp_path):
    path = tmp_path / "packing.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE vmType (id, vmTypeId, machineId, core, memory, hdd, ssd, nic)")
        database.execute("CREATE TABLE vm (vmId, tenantId, vmTypeId, priority, starttime, endtime)")
        database.executemany(
            "INSERT INTO vmType VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [(1, 10, 0, 0.5, 0.25, None, 0.1, 0.01), (2, 10, 1, 0.25, 0.1, None, 0, 0), (3, 11, 1, 1, 1, 0.5, 0, 0)],
        )
        database.executemany(
            "INSERT INTO vm VALUES (?, ?, ?, ?, ?, ?)",
            [
                (0, 5, 10, 0, -1.0, 1.0),
                (1, 5, 10, 1, 0.5, None),
                (2, 6, 11, 0, 0.25, 0.5),
                (3, 6, 10, 0, 0.25, 0.75),
                (4, 6, 10, 0, -3.0, -2.0),
            ],
        )
    return Source(path)


def azure_read(source, **options):
    stream = formats()["azure"].read(source, Reading(options=options))
    return list(stream.objects), list(stream.changes), stream.notes


def test_requests_of_azure_are_pods_on_machines_of_one_type(azure):
    assert format_of(azure).name == "azure"
    objects, changes, notes = azure_read(azure, machine="0")

    assert [(each.name, each.at_s) for each in changes] == [("vm-0", 0.0), ("vm-3", 21_600.0), ("vm-1", 43_200.0)]
    assert runs(changes) == {"vm-0": "exit 0 after 86400s", "vm-3": "exit 0 after 43200s", "vm-1": "forever"}
    assert resources_of(changes[0])["requests"]["cpu"] == "32000m"
    assert resources_of(changes[0])["limits"] == {"keplab.dev/ssd": "100", "keplab.dev/nic": "10"}
    assert [each.document["spec"]["priorityClassName"] for each in changes] == ["high", "high", "low"]
    assert len(of(objects, "Node")) == 2
    assert notes["requests of a VM type that does not run on machine 0"] == 1
    assert notes["requests outside the window of time"] == 1


def test_the_machine_of_azure_on_which_most_types_run_is_taken(azure):
    objects, changes, notes = azure_read(azure, nodes="7")

    assert len(of(objects, "Node")) == 7
    assert len(changes) == 4
    assert "of 2 types of machine: 1 is taken" in next(iter(notes))
    with pytest.raises(Refused, match="machine 9: want one of 0, 1"):
        azure_read(azure, machine="9")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("UPDATE vmType SET core = 'half' WHERE id = 1", "VM type 10: core 'half': want a share of a machine, 0 to 1"),
        ("UPDATE vmType SET nic = -0.5 WHERE id = 1", "VM type 10: nic -0.5: want a share of a machine, 0 to 1"),
        ("UPDATE vm SET starttime = 'x' WHERE vmId = 3", "vm 3: starttime 'x', endtime 0.75: want days"),
        ("UPDATE vm SET endtime = 0.125 WHERE vmId = 3", "vm 3: endtime 0.125: want starttime 0.25 or later"),
    ],
)
def test_a_row_of_azure_that_cannot_be_used_is_refused_with_its_field(azure, change, message):
    with sqlite3.connect(azure.path) as database:
        database.execute(change)

    with pytest.raises(Refused) as refused:
        azure_read(azure, machine="0")
    assert message in str(refused.value)


def test_a_database_without_the_tables_is_refused(tmp_path):
    path = tmp_path / "x.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE other (vmTypeId)")

    with pytest.raises(Refused, match=r"no table has vmId, .*; there are other"):
        azure_read(Source(path))


def test_each_public_trace_says_its_licence_and_citation():
    for name in ("alibaba", "borg", "azure"):
        assert "Cite: " in formats()[name].source
