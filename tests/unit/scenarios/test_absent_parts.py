"""What a state names and the mesh that begins from it lacks."""

import pytest

from lab.recordings.format import Parts
from lab.scenarios.absent_parts import absent_parts
from lab.scenarios.initial_state import State, StoredObject
from lab.scenarios.mesh import MeshPlan
from services.api.switches import Switches
from services.runtime.components import Schedulers


def claim(name, driver):
    result = {"request": "r", "driver": driver, "pool": "p", "device": "d0"}
    status = {"allocation": {"devices": {"results": [result]}}}
    return StoredObject(
        "resourceclaims.resource.k8s.io", {"metadata": {"name": name, "namespace": "default"}, "status": status}
    )


def pod(name, node="", claims=(), scheduler="default-scheduler"):
    spec = {
        "schedulerName": scheduler,
        "resourceClaims": [{"name": each, "resourceClaimName": each} for each in claims],
        **({"nodeName": node} if node else {}),
    }
    return StoredObject("pods", {"metadata": {"name": name, "namespace": "default"}, "spec": spec})


def slice_of(driver):
    return StoredObject("resourceslices.resource.k8s.io", {"metadata": {"name": "s"}, "spec": {"driver": driver}})


def plan(*objects, nodes=({"name": "n1"},), parts=None, **declared):
    state = State(rv=7, wall_s=0.0, objects=objects, parts=parts or Parts())
    return MeshPlan(nodes=tuple(nodes), switches=Switches(), state=state, **declared)


WITH_DRIVER = {"name": "n1", "drivers": "gpu.example.com:2"}


def test_a_mesh_that_begins_empty_lacks_nothing():
    assert absent_parts(MeshPlan(nodes=({"name": "n1"},))) == []


def test_claims_of_a_driver_that_no_node_has_are_named_up_to_three():
    one = absent_parts(plan(claim("a", "gpu.example.com")))
    four = absent_parts(plan(*(claim(name, "gpu.example.com") for name in "abcd")))

    ending = "gpu.example.com, which no node of this mesh has: pods with it will not start; declare nodes … drivers=gpu.example.com:0"
    assert one == [f"claim default/a is allocated from {ending}"]
    assert four == [f"claims default/a, default/b, default/c and 1 more are allocated from {ending}"]


def test_published_devices_of_a_driver_that_no_node_has_are_said():
    sentence = (
        "ResourceSlices are published by net.example.com, which no node of this mesh has: pods with its devices will not "
        "start; declare nodes … drivers=net.example.com:0"
    )
    assert absent_parts(plan(slice_of("net.example.com"))) == [sentence]
    assert absent_parts(plan(slice_of("gpu.example.com"), nodes=[WITH_DRIVER])) == []


def test_a_node_that_lacks_the_driver_of_its_pods_is_named():
    objects = claim("a", "gpu.example.com"), pod("p", "n2", ["a"]), pod("q", "n1", ["a"])

    assert absent_parts(plan(*objects, nodes=[WITH_DRIVER, {"name": "n2"}])) == [
        "pod default/p on n2 uses claims of gpu.example.com, which n2 does not have in this mesh"
    ]


@pytest.mark.parametrize(("node", "others", "lacks"), [("", (), True), ("n1", (), False), ("", ("second",), False)])
def test_a_pod_without_a_node_waits_for_a_scheduler_that_is_not_there(node, others, lacks):
    made = plan(pod("p", node, scheduler="second"), schedulers=Schedulers(others=others))

    sentence = "pod default/p waits for scheduler second, which this mesh does not have; declare scheduler second"
    assert absent_parts(made) == ([sentence] if lacks else [])


def test_profiles_of_a_configuration_are_schedulers(tmp_path):
    path = tmp_path / "scheduler.yaml"
    path.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles: [{schedulerName: packing}]\n"
    )
    made = plan(pod("a", scheduler="packing"), pod("b"), schedulers=Schedulers(config=str(path)))

    sentence = (
        "pod default/b waits for scheduler default-scheduler, which this mesh does not have; "
        "declare scheduler default-scheduler"
    )
    assert absent_parts(made) == [sentence]


def test_objects_of_kwoks_kinds_that_are_not_enabled_are_said():
    stage = StoredObject("stages.kwok.x-k8s.io", {"kind": "Stage", "metadata": {"name": "s"}})

    assert absent_parts(plan(stage)) == ["objects of kind Stage change nothing in this mesh; declare enable-crds Stage"]
    assert absent_parts(plan(stage, enable_crds=("Stage",))) == []


def test_files_of_the_recorded_scenario_are_said_unless_they_are_declared_again():
    parts = Parts(file_lines=["stages slow.yaml", "scheduler-config packing.yaml"])

    assert absent_parts(plan(parts=parts, stages=("slow.yaml",))) == [
        "the recording's scenario says `scheduler-config packing.yaml`, which this mesh does not have"
    ]
