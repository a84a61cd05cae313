"""How the devices of a pod's claims are, as its containers' status shows them (KEP-4680)."""

import pytest

from kubelet.dra.calls import DeviceHealth
from kubelet.dra.health import DriverHealth
from kubelet.effects import WriteStatuses
from kubelet.pod.states import PodState
from kubelet.runtime.claims import HeldClaim, PreparedDevice
from kubelet.status.manager import StatusManager
from tests.unit.kubelet.pod.test_table import Node as Pods

DRIVER = "gpu.example.com"
USES = [{"name": "gpu", "resourceClaimName": "c"}]


def prepared(device="gpu-0", *requests, cdi=(), driver=DRIVER, share=""):
    return PreparedDevice(driver, "n1", device, requests, cdi, share)


def said(device="gpu-0", health="Healthy", message="", timeout_s=0.0):
    return DeviceHealth("n1", device, health, message=message, timeout_s=timeout_s)


GPU = prepared()


class Node:
    """A node on which one pod has a claim."""

    def __init__(self, a_pod, devices=(GPU,), uses=({"name": "gpu"},), claims=USES):
        self.pods = Pods()
        statuses = StatusManager(
            {}, self.pods.statuses, self.pods.out, render=lambda _: {}, shown=lambda _: None, is_over=lambda _: False,
            acknowledged=lambda *_: None,
        )  # fmt: skip
        self.health = DriverHealth(self.pods.table, statuses)
        containers = [{"name": "main", "resources": {"claims": list(uses)}}, {"name": "plain"}]
        self.pod = self.pods.begun(a_pod(containers=containers, spec={"resourceClaims": claims}))
        self.pod.claims = (HeldClaim("uid-c", "default", "c", prepared=tuple(devices)),)
        self.health.pod_started(self.pod, 0.0)

    def reported(self, *devices, now=1.0, driver=DRIVER):
        self.health.on_report(driver, devices, now)
        return self

    def shown(self, container="main"):
        return self.pod.claim_health.get(container)

    @property
    def changes(self):
        return sum(isinstance(each, WriteStatuses) for each in self.pods.out.effects)


def healths(node):
    return {each["resourceID"]: each["health"] for entry in node.shown() or () for each in entry["resources"]}


def test_of_a_device_that_no_driver_speaks_of_it_is_not_known_how_it_is(a_pod):
    node = Node(a_pod)

    assert node.shown() == [
        {"name": "claim:gpu", "resources": [{"resourceID": f"{DRIVER}/n1/gpu-0", "health": "Unknown"}]}
    ]
    assert node.shown("plain") is None


def test_a_report_changes_the_status_of_pods_once(a_pod):
    node = Node(a_pod)

    for _ in range(2):
        node.reported(said(health="Unhealthy", message="it smokes"))

    assert node.shown()[0]["resources"] == [
        {"resourceID": f"{DRIVER}/n1/gpu-0", "health": "Unhealthy", "message": "it smokes"}
    ]
    assert node.changes == 1


def test_a_report_names_all_devices_of_its_driver_and_none_of_another(a_pod):
    other = "nic.example.com"
    node = Node(a_pod, [prepared("gpu-0"), prepared("gpu-1"), prepared("nic-0", driver=other)])

    node.reported(said("gpu-0"), said("gpu-1")).reported(said("nic-0"), driver=other).reported(said("gpu-1"))

    assert healths(node) == {
        f"{DRIVER}/n1/gpu-0": "Unknown", f"{DRIVER}/n1/gpu-1": "Healthy", f"{other}/n1/nic-0": "Healthy",
    }  # fmt: skip
    node.health.clear(other, 2.0)
    assert healths(node)[f"{other}/n1/nic-0"] == "Unknown"


@pytest.mark.parametrize(("timeout_s", "believed_s"), [(0.0, 30.0), (5.0, 5.0)])
def test_a_report_is_believed_for_as_long_as_it_says_or_thirty_seconds(a_pod, timeout_s, believed_s):
    node = Node(a_pod).reported(said(message="m", timeout_s=timeout_s), now=100.0)

    for now, health in ((100.0 + believed_s - 0.1, "Healthy"), (100.0 + believed_s, "Unknown")):
        node.health.pod_started(node.pod, now)
        assert healths(node) == {f"{DRIVER}/n1/gpu-0": health}
    assert "message" not in node.shown()[0]["resources"][0]


def test_a_long_message_is_cut(a_pod):
    whole = Node(a_pod).reported(said(message="x" * 1024)).shown()[0]["resources"][0]["message"]
    cut = Node(a_pod).reported(said(message="x" * 1025)).shown()[0]["resources"][0]["message"]

    assert (whole, cut) == ("x" * 1024, "x" * 1021 + "...")


def test_a_container_sees_the_devices_of_the_request_that_it_uses(a_pod):
    devices = [prepared("gpu-0", "big"), prepared("gpu-1", "small"), prepared("gpu-2")]

    node = Node(a_pod, devices, uses=[{"name": "gpu", "request": "big/first"}, {"name": "none"}])

    (entry,) = node.shown()
    assert entry["name"] == "claim:gpu/big/first"
    assert [each["resourceID"] for each in entry["resources"]] == [f"{DRIVER}/n1/gpu-0", f"{DRIVER}/n1/gpu-2"]


def test_a_device_is_named_by_its_first_cdi_id_and_shown_once(a_pod):
    node = Node(
        a_pod, [prepared("gpu-0", "a", cdi=("x.io/gpu=0", "x.io/gpu=all")), prepared("gpu-0", "b", cdi=("x.io/gpu=0",))]
    )

    assert [each["resourceID"] for each in node.shown()[0]["resources"]] == ["x.io/gpu=0"]


def test_a_pod_that_has_ended_or_has_no_claims_is_left_as_it_is(a_pod):
    ended, plain = Node(a_pod), Node(a_pod)
    ended.pods.end(ended.pod, 1.0)
    ended.pod.become(PodState.TERMINATED)
    plain.pod.claims = ()

    for node in (ended, plain):
        node.reported(said(health="Unhealthy"))

    assert (ended.changes, plain.changes) == (0, 0)
    assert healths(ended) == {f"{DRIVER}/n1/gpu-0": "Unknown"}
