"""Endpoint slices: which pods are endpoints, how they are put into slices, and which changes matter."""

import msgspec
import pytest

from services.api.kinds.endpointslice import Endpoint, EndpointPort, EndpointSlice
from services.api.kinds.pod import Pod
from services.api.kinds.service import Service
from services.api.meta import ObjectMeta, ObjectReference
from services.api.printing import cells
from services.api.resources import resources
from services.controllers.endpointslice.controller import CONTROLLER
from services.controllers.endpointslice.placement import ENDPOINTS_MAX, place_endpoints
from services.reconcile.actions import Create, Delete, Patch, RecordEvent

HTTP = (EndpointPort(name="", protocol="TCP", port=80),)


@pytest.fixture
def world(world_of):
    found = world_of(CONTROLLER)
    found.put({"apiVersion": "v1", "kind": "Node",
               "metadata": {"name": "n1", "labels": {"topology.kubernetes.io/zone": "a"}}})  # fmt: skip
    return found


def a_service(name="web", selector=None, ports=None, labels=None, **spec):
    return {
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "labels": labels or {}},
        "spec": {"selector": {"app": "web"} if selector is None else selector, "clusterIP": "10.96.0.9",
                 "ports": ports or [{"port": 80, "protocol": "TCP"}], **spec},
    }  # fmt: skip


@pytest.fixture
def an_endpoint(a_pod):
    def build(name, ip="10.0.0.1", node="n1", **how):
        status = {"podIP": ip} if ip else {}
        return a_pod(name, node=node, status=status, **how)

    return build


class Look:
    """What one reconcile asked for."""

    def __init__(self, result):
        self.again_s = result.requeue_after_s
        self.created = [a.document for a in result.actions if isinstance(a, Create)]
        self.changed = {a.key.name: a.patch for a in result.actions if isinstance(a, Patch)}
        self.deleted = [a.key.name for a in result.actions if isinstance(a, Delete)]
        self.events = [f"{a.type} {a.reason}: {a.message}" for a in result.actions if isinstance(a, RecordEvent)]


def looked(world, *documents):
    for document in documents:
        world.put(document)
    return Look(world.reconcile("web"))


def seen(world, document, name="web-abcde"):
    """Let the slice that was asked for be there."""
    world.put({**document, "metadata": {**document["metadata"], "name": name}})


@pytest.mark.parametrize(
    ("distribution", "hints"),
    [
        ("PreferClose", {"for_zones": ["a"]}),
        ("PreferSameZone", {"for_zones": ["a"]}),
        ("PreferSameNode", {"for_zones": ["a"], "for_nodes": ["n1"]}),
    ],
)
def test_a_services_traffic_distribution_becomes_hints_of_its_ready_endpoints(
    world, an_endpoint, a_pod, distribution, hints
):
    unready = {"podIP": "10.0.0.2", "conditions": [{"type": "Ready", "status": "False"}]}
    (made,) = looked(
        world, a_service(trafficDistribution=distribution), an_endpoint("p1"), a_pod("p2", node="n1", status=unready)
    ).created

    first, second = made["endpoints"]
    names = {"for_zones": "forZones", "for_nodes": "forNodes"}
    assert first["hints"] == {names[of]: ({"name": each[0]},) for of, each in hints.items()}
    assert "hints" not in second

    seen(world, made)
    (changed,) = looked(world, a_service()).changed.values()
    assert all("hints" not in each for each in changed["endpoints"])


def test_a_ready_pod_is_an_endpoint_of_its_node_and_zone(world, an_endpoint):
    (made,) = looked(world, a_service(labels={"team": "x"}), an_endpoint("p1")).created

    assert made["metadata"]["generateName"] == "web-"
    assert made["metadata"]["labels"] == {
        "team": "x",
        "kubernetes.io/service-name": "web",
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
    }
    assert made["metadata"]["ownerReferences"][0]["kind"] == "Service"
    assert made["metadata"]["ownerReferences"][0]["controller"] is True
    assert (made["addressType"], made["ports"]) == ("IPv4", [{"name": "", "protocol": "TCP", "port": 80}])
    assert made["endpoints"] == [
        {
            "addresses": ("10.0.0.1",),
            "conditions": {"ready": True, "serving": True, "terminating": False},
            "targetRef": {"kind": "Pod", "namespace": "default", "name": "p1", "uid": "uid-p1"},
            "nodeName": "n1",
            "zone": "a",
        }
    ]


@pytest.mark.parametrize(
    ("ready", "deleted", "published", "conditions"),
    [
        (True, False, False, (True, True, False)),
        (False, False, False, (False, False, False)),
        (True, True, False, (False, True, True)),
        (False, True, True, (True, False, True)),
    ],
)
def test_kep_1672_a_terminating_pod_may_serve_and_is_not_ready(
    world, an_endpoint, ready, deleted, published, conditions
):
    more = {"deletionTimestamp": "2026-01-01T00:00:30Z"} if deleted else {}
    (made,) = looked(
        world, a_service(publishNotReadyAddresses=published), an_endpoint("p1", ready=ready, **more)
    ).created

    assert tuple(made["endpoints"][0]["conditions"].values()) == conditions


def test_a_pod_that_ended_or_has_no_address_is_no_endpoint_and_one_empty_slice_says_so(world, an_endpoint):
    (made,) = looked(world, a_service(), an_endpoint("a", phase="Succeeded"), an_endpoint("b", ip="")).created

    assert (made["endpoints"], made["ports"]) == ([], None)


def test_kubelet_unbinding_a_pod_that_is_unbound_leaves_its_slice(world, an_endpoint):
    (made,) = looked(world, a_service(), an_endpoint("p1"), an_endpoint("p2", ip="10.0.0.2")).created
    seen(world, made)
    keys = world.put(an_endpoint("p1", ip="", node="", phase="Pending"))
    look = looked(world)

    assert keys == [("default", "web")]
    (change,) = look.changed.values()
    assert [each["addresses"] for each in change["endpoints"]] == [("10.0.0.2",)]


def test_only_changes_that_endpoints_show_lead_to_a_service(world, an_endpoint):
    world.put(a_service())
    pod = an_endpoint("p1")

    assert world.put(pod) == [("default", "web")]
    assert world.put({**pod, "metadata": {**pod["metadata"], "annotations": {"a": "b"}}}) == []
    assert world.put(an_endpoint("p1", ready=False)) == [("default", "web")]
    assert world.put({**pod, "metadata": {**pod["metadata"], "labels": {"app": "other"}}}) == [("default", "web")]


def test_nothing_more_is_asked_for_until_a_new_slice_is_seen(world, an_endpoint):
    (made,) = looked(world, a_service(), an_endpoint("p1")).created

    assert looked(world).created == []
    seen(world, made)
    assert looked(world).created == []


def test_a_named_port_is_looked_up_in_each_pod(world, an_endpoint):
    def with_port(name, ip, number):
        spec = {"containers": [{"name": "c", "ports": [{"name": "http", "containerPort": number}]}]}
        return an_endpoint(name, ip=ip, spec=spec)

    ports = [{"name": "web", "port": 80, "protocol": "TCP", "targetPort": "http"}]
    look = looked(
        world, a_service(ports=ports), with_port("p1", "10.0.0.1", 8080), with_port("p2", "10.0.0.2", 8081)
    )  # fmt: skip

    assert [each["ports"][0]["port"] for each in look.created] == [8080, 8081]


def test_a_pod_of_a_node_that_is_not_known_is_reported_and_tried_again(world, an_endpoint):
    look = looked(world, a_service(), an_endpoint("p1", node="gone"))

    assert look.events == [
        (
            "Warning FailedToUpdateEndpointSlices: Error updating Endpoint Slices for Service default/web: skipping Pod p1 "
            "for Service default/web: Node gone Not Found"
        )
    ]
    assert look.again_s == 1.0


def test_without_a_selector_slices_are_the_users_business(world, an_endpoint):
    world.put(an_endpoint("p1"))

    assert looked(world, a_service(selector={})).created == []


def endpoints(*numbers):
    return tuple(
        Endpoint(addresses=(f"10.0.{n >> 8}.{n & 255}",), target_ref=ObjectReference(uid=f"u{n}")) for n in numbers
    )


def a_slice(name, *numbers, ports=HTTP):
    return EndpointSlice(metadata=ObjectMeta(name=name, uid=name), endpoints=endpoints(*numbers), ports=ports)


def test_a_slice_has_a_hundred_endpoints_at_most():
    found = place_endpoints({HTTP: endpoints(*range(250))}, [])

    assert [len(each) for _, each in found.created] == [ENDPOINTS_MAX, ENDPOINTS_MAX, 50]


def test_a_new_endpoint_goes_where_a_slice_changes_anyway():
    full, changing = a_slice("full", *range(99)), a_slice("changing", 200, 201)
    found = place_endpoints({HTTP: endpoints(*range(99), 201, 300)}, [full, changing])

    assert [(each.metadata.name, len(now)) for each, now in found.changed] == [("changing", 2)]
    assert (found.created, found.deleted) == ([], [])


def test_a_slice_without_endpoints_goes():
    found = place_endpoints({HTTP: endpoints(1)}, [a_slice("a", 1), a_slice("b", 2), a_slice("old", 1, ports=())])

    assert [each.metadata.name for each in found.deleted] == ["b", "old"]
    assert (found.created, found.changed) == ([], [])


def test_columns_show_three_ports_and_addresses():
    columns = resources()["endpointslices.discovery.k8s.io"].columns
    made = msgspec.to_builtins(a_slice("web-1", 1, 2, 3, 4))
    made["ports"] = [{"port": n} for n in (80, 443)]
    document = {**made, "metadata": {"name": "web-1", "creationTimestamp": "2026-01-01T00:00:00Z"}}

    assert cells(columns, {**document, "addressType": "IPv4"}, 1_767_225_690.0) == [
        "web-1", "IPv4", "80,443", "10.0.0.1,10.0.0.2,10.0.0.3 + 1 more...", "90s"]  # fmt: skip
    assert cells(columns, {**document, "ports": None, "endpoints": []}, 1_767_225_690.0)[2:4] == ["<unset>", "<unset>"]


def test_a_view_of_a_pod_has_what_endpoints_need():
    pod = msgspec.convert({"spec": {"hostname": "h", "subdomain": "s"}}, Pod)

    assert (pod.spec.hostname, pod.spec.subdomain) == ("h", "s")


def test_changes_and_what_is_desired_are_counted(world, an_endpoint):
    looked(world, a_service(), an_endpoint("p1"))

    assert world.controller.metrics() == {
        'endpoint_slice_controller_changes{operation="create"}': 1,
        "endpoint_slice_controller_endpoints_desired": 1,
        "endpoint_slice_controller_num_endpoint_slices": 1,
    }


def named_port(number):
    return {"spec": {"containers": [{"name": "c", "ports": [{"name": "http", "containerPort": number}]}]}}


def test_slices_follow_the_labels_of_their_service_and_one_that_goes_is_only_deleted(world, an_endpoint):
    """Labels that are no more are taken away; a slice that is deleted in the same breath is not changed before."""
    ports = [{"name": "web", "port": 80, "protocol": "TCP", "targetPort": "http"}]
    pods = [an_endpoint("p1", **named_port(8080)), an_endpoint("p2", ip="10.0.0.2", **named_port(8081))]
    first, second = looked(world, a_service(ports=ports, labels={"team": "x"}), *pods).created
    seen(world, first, "web-a")
    seen(world, second, "web-b")

    gone = an_endpoint("p2", ip="10.0.0.2", phase="Succeeded", **named_port(8081))
    look = looked(world, a_service(ports=ports, labels={"tier": "front"}), gone)

    assert look.deleted == ["web-b"]
    assert list(look.changed) == ["web-a"]
    assert look.changed["web-a"]["metadata"]["labels"] == {
        "team": None,
        "tier": "front",
        "kubernetes.io/service-name": "web",
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
    }
    assert "endpoints" not in look.changed["web-a"]


def test_a_slice_whose_labels_and_endpoints_both_change_is_written_once(world, an_endpoint):
    (made,) = looked(world, a_service(labels={"team": "x"}), an_endpoint("p1")).created
    seen(world, made)

    look = looked(world, a_service(labels={"team": "y"}), an_endpoint("p1", ready=False))

    (change,) = look.changed.values()
    assert change["metadata"]["labels"]["team"] == "y"
    assert change["endpoints"][0]["conditions"]["ready"] is False


@pytest.mark.parametrize(("address", "label"), [("None", {"service.kubernetes.io/headless": ""}), ("10.96.0.9", {})])
def test_slices_of_a_headless_service_say_so_and_labels_that_mean_slices_are_not_the_users(world, address, label):
    own = {"service.kubernetes.io/headless": "mine", "kubernetes.io/service-name": "mine", "a": "b"}
    (made,) = looked(world, a_service(labels=own, clusterIP=address)).created

    assert made["metadata"]["labels"] == {
        "a": "b",
        "kubernetes.io/service-name": "web",
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
        **label,
    }


def test_slices_of_others_neither_lead_to_a_service_nor_are_changed(world, an_endpoint):
    (made,) = looked(world, a_service(), an_endpoint("p1")).created
    foreign = {**made, "metadata": {**made["metadata"], "name": "web-mine", "labels": {
        "kubernetes.io/service-name": "web", "endpointslice.kubernetes.io/managed-by": "me"}}}  # fmt: skip

    assert world.put(foreign) == []
    assert world.put({**foreign, "metadata": {**foreign["metadata"], "labels": {}}}) == []
    seen(world, made)
    world.drop("Pod", "p1")
    look = looked(world)
    assert (look.changed, look.deleted, [each["endpoints"] for each in look.created]) == ({}, ["web-abcde"], [[]])


def test_a_creation_that_failed_is_asked_for_again_and_any_other_failure_changes_nothing(world, an_endpoint):
    world.put(a_service())
    world.put(an_endpoint("p1"))
    result = world.reconcile("web")
    (create,) = result.actions
    key = world.of(Service).all()[0].metadata.key

    world.controller.failed(key, Delete("endpointslices.discovery.k8s.io", key, uid="u"), "Conflict")
    assert looked(world).created == []
    world.controller.failed(key, create, "Forbidden")
    assert len(looked(world).created) == 1


def test_a_service_that_is_being_deleted_is_left_to_the_garbage_collector_and_one_that_is_gone_is_forgotten(
    world, an_endpoint
):
    going = a_service()
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert looked(world, going, an_endpoint("p1")).created == []

    (made,) = looked(world, a_service()).created
    assert made
    world.drop("Service", "web")
    assert world.controller.metrics()["endpoint_slice_controller_endpoints_desired"] == 0
    assert looked(world, a_service()).created, "nothing is expected of the one before"


def test_a_service_that_publishes_unready_addresses_does_not_wait_for_nodes(world, an_endpoint):
    look = looked(world, a_service(publishNotReadyAddresses=True), an_endpoint("p1", node="gone"))

    assert (look.events, look.again_s) == ([], None)
    assert len(look.created[0]["endpoints"]) == 1


def test_the_first_pod_without_a_known_node_is_named_and_the_others_are_endpoints(world, an_endpoint):
    look = looked(world, a_service(), an_endpoint("p1", node="gone"), an_endpoint("p2", ip="10.0.0.2"),
                  an_endpoint("p3", node="lost"))  # fmt: skip

    assert ["skipping Pod p1" in each for each in look.events] == [True]
    assert [each["targetRef"]["name"] for each in look.created[0]["endpoints"]] == ["p2"]


def test_what_is_new_goes_into_the_first_slice_that_it_fits_into_as_a_whole():
    found = place_endpoints({HTTP: endpoints(*range(99), *range(200, 250), 300, 301)},
                   [a_slice("full", *range(99)), a_slice("half", *range(200, 250))])  # fmt: skip
    assert [(each.metadata.name, len(now)) for each, now in found.changed] == [("half", 52)]

    found = place_endpoints({HTTP: endpoints(*range(99), *range(300, 302))}, [a_slice("full", *range(99))])
    assert (found.changed, [len(each) for _, each in found.created]) == ([], [2])
    found = place_endpoints({HTTP: endpoints(*range(99), 300)}, [a_slice("full", *range(99))])
    assert [(each.metadata.name, len(now)) for each, now in found.changed] == [("full", 100)]


def test_an_endpoint_that_changes_stays_where_it_was():
    changed = Endpoint(addresses=("10.0.0.1",), target_ref=ObjectReference(uid="u1"), node_name="n2")
    old = a_slice("a", 1)

    assert place_endpoints({HTTP: (changed,)}, [old]).changed == [(old, (changed,))]


def test_the_empty_slice_of_a_service_without_endpoints_is_kept_and_emptied():
    empty, stale = a_slice("empty", ports=()), a_slice("stale", 1, 2, ports=())

    kept = place_endpoints({}, [empty, a_slice("old", 1)])
    assert (kept.created, kept.changed, [each.metadata.name for each in kept.deleted]) == ([], [], ["old"])
    emptied = place_endpoints({}, [stale])
    assert (emptied.created, emptied.changed, emptied.deleted) == ([], [(stale, ())], [])
    assert place_endpoints({}, []).created == [((), ())]
