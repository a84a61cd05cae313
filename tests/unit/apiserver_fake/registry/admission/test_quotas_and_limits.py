"""Quotas and limit ranges at the API server: what is charged, what is given by default, what is refused (kep-1287 3.2)."""

import random

import msgspec
import pytest

from apiserver_fake.extensions.register import whole_catalogue
from apiserver_fake.registry.read import ContinueTokens
from apiserver_fake.registry.registry import Registry
from apiserver_fake.registry.writes.new_objects import Limits
from apiserver_fake.storage.store import Store
from services.api.errors import ApiError, Forbidden, Invalid
from services.api.identity import ADMIN, Identity
from services.api.switches import Switches
from services.api.wire import Request

QUOTA_CONTROLLER = Identity("system:controller:resourcequota")


class AClock:
    at = 1_800_000_000.0

    def now(self):
        return self.at

    def wall(self):
        return self.at


class Server:
    """A registry over a store: each write is one batch."""

    def __init__(self):
        self.store = Store()
        self.registry = Registry(
            self.store,
            whole_catalogue(),
            clock=AClock(),
            random=random.Random(1),
            switches=Switches(),
            cursors=ContinueTokens(b"secret"),
            limits=Limits(),
        )
        self.write("create", "namespaces", body={"metadata": {"name": "default"}}, namespace="")

    def write(self, verb, resource, name="", body=None, *, namespace="default", identity=ADMIN, **fields):
        request = Request(
            verb=verb, resource=resource, namespace=namespace, name=name, body=msgspec.json.encode(body), **fields
        )
        self.registry.authorize(identity, request)
        staged = self.store.stage()
        mark = len(staged.changes)
        answer = self.registry.prepare(identity, request, "")(staged)
        staged.seal(mark)
        self.store.publish(staged.changes, 0.0)
        return msgspec.json.decode(answer.body)

    def read(self, resource, name):
        return msgspec.json.decode(self.store.get(resource, "default", name).body)

    def quota(self, hard, used=None, name="q", **spec):
        """Make a quota and say, as its controller would, what is used."""
        self.write("create", "resourcequotas", body={"metadata": {"name": name}, "spec": {"hard": hard, **spec}})
        status = {"status": {"hard": hard, "used": {**dict.fromkeys(hard, "0"), **(used or {})}}}
        self.write("patch", "resourcequotas", name, status, identity=QUOTA_CONTROLLER, subresource="status",
                   patch_type="merge")  # fmt: skip

    def limits(self, *items, name="lr"):
        return self.write("create", "limitranges", body={"metadata": {"name": name}, "spec": {"limits": list(items)}})

    def pod(self, name, requests=None, limits=None, **more):
        container = {"name": "c", "image": "i:1", "resources": resources(requests, limits)}
        spec = {"containers": [container], **more}
        return self.write("create", "pods", body={"metadata": {"name": name}, "spec": spec})

    def status(self, name, **status):
        self.write("patch", "pods", name, {"status": status}, subresource="status", patch_type="merge")

    def runs(self, name, requests, limits=None):
        """Report, as a kubelet does, what the pod was given and has."""
        self.status(name, phase="Running", containerStatuses=[
            {"name": "c", "image": "i:1", "imageID": "", "ready": True, "restartCount": 0, "state": {"running": {}},
             "allocatedResources": requests, "resources": resources(requests, limits)},
        ])  # fmt: skip

    def resize(self, name, requests=None, limits=None):
        container = {"name": "c", "resources": resources(requests, limits)}
        body = {"spec": {"containers": [container]}}
        return self.write("patch", "pods", name, body, subresource="resize", patch_type="strategic")

    def used(self, name="q"):
        return self.read("resourcequotas", name)["status"]["used"]


def resources(requests, limits):
    return {**({"requests": requests} if requests else {}), **({"limits": limits} if limits else {})}


@pytest.fixture
def server():
    return Server()


def refused(call, *args, **fields):
    with pytest.raises(Forbidden) as error:
        call(*args, **fields)
    return error.value.message


# --- quota ---


def test_a_pod_is_charged_with_its_creation_in_one_group(server):
    server.quota({"requests.cpu": "1", "limits.memory": "2Gi", "pods": "10", "count/pods": "10"})
    before = server.store.rv

    server.pod("p", {"cpu": "300m"}, {"cpu": "500m", "memory": "1Gi"})

    assert server.used() == {"requests.cpu": "300m", "limits.memory": "1Gi", "pods": "1", "count/pods": "1"}
    [pod] = server.store.changes_after("pods", before)
    [quota] = server.store.changes_after("resourcequotas", before)
    assert pod.group_end == quota.group_end == quota.rv == pod.rv + 1


def test_what_would_exceed_a_quota_is_refused_and_charges_nothing(server):
    server.quota({"requests.cpu": "1", "pods": "5"}, {"requests.cpu": "800m", "pods": "2"})

    message = refused(server.pod, "p", {"cpu": "300m"})

    assert message == (
        'pods "p" is forbidden: exceeded quota: q, requested: requests.cpu=300m, used: requests.cpu=800m, '
        "limited: requests.cpu=1"
    )
    assert server.used() == {"requests.cpu": "800m", "pods": "2"}
    assert server.store.get("pods", "default", "p") is None


def test_several_exceeded_names_are_listed_in_order(server):
    server.quota({"memory": "1Gi", "cpu": "1"})

    message = refused(server.pod, "p", {"cpu": "2", "memory": "1536Mi"})

    assert "requested: cpu=2,memory=1536Mi, used: cpu=0,memory=0, limited: cpu=1,memory=1Gi" in message


def test_two_creations_of_one_batch_do_not_take_the_same_capacity(server):
    server.quota({"pods": "1"})
    staged = server.store.stage()

    def make(name):
        pod = {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}
        request = Request(verb="create", resource="pods", namespace="default", body=msgspec.json.encode(pod))
        return server.registry.prepare(ADMIN, request, "")(staged)

    make("a")
    with pytest.raises(Forbidden, match="exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1"):
        make("b")


def test_a_pod_must_say_what_a_quota_of_cpu_or_memory_counts(server):
    server.quota({"limits.cpu": "4", "requests.memory": "4Gi", "requests.ephemeral-storage": "1Gi"})
    inits = [{"name": "a", "image": "i:1", "resources": {"limits": {"cpu": "1"}}}]

    message = refused(server.pod, "p", {"cpu": "1"}, initContainers=inits)

    text = "failed quota: q: must specify limits.cpu for: c; requests.memory for: a,c"
    assert message == f'pods "p" is forbidden: {text}'


def test_a_quota_that_was_not_counted_yet_in_part_admits_no_pod(server):
    server.quota({"pods": "2"})
    server.write("patch", "resourcequotas", "q", {"status": {"used": {"pods": None}}}, subresource="status",
                 patch_type="merge")  # fmt: skip

    assert "status unknown for quota: q, resources: pods" in refused(server.pod, "p")


def test_a_quota_without_a_status_limits_nothing(server):
    server.write("create", "resourcequotas", body={"metadata": {"name": "q"}, "spec": {"hard": {"pods": "0"}}})

    assert server.pod("p")["metadata"]["name"] == "p"


def test_a_dry_run_is_refused_alike_and_charges_nothing(server):
    server.quota({"pods": "1"})
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}

    server.write("create", "pods", body=pod, dry_run=True)

    assert server.used() == {"pods": "0"}


@pytest.mark.parametrize(("scopes", "selector", "pod", "counts"), [
    (["BestEffort"], None, {}, True),
    (["BestEffort"], None, {"requests": {"cpu": "1"}}, False),
    (["NotBestEffort"], None, {"requests": {"cpu": "1"}}, True),
    (["Terminating"], None, {"activeDeadlineSeconds": 5}, True),
    (["Terminating"], None, {}, False),
    (["NotTerminating"], None, {}, True),
    (["NotTerminating", "BestEffort"], None, {"requests": {"cpu": "1"}}, False),
    ([], ("In", ["high"]), {"priorityClassName": "high"}, True),
    ([], ("In", ["high"]), {}, False),
    ([], ("NotIn", ["high"]), {}, True),
    ([], ("Exists", []), {"priorityClassName": "high"}, True),
    ([], ("DoesNotExist", []), {"priorityClassName": "high"}, False),
])  # fmt: skip
def test_a_scope_says_which_pods_count(server, scopes, selector, pod, counts):
    body = {"metadata": {"name": "high"}, "value": 10}
    server.write("create", "priorityclasses.scheduling.k8s.io", body=body, namespace="")
    spec = {"scopes": scopes}
    if selector is not None:
        term = {"scopeName": "PriorityClass", "operator": selector[0], "values": selector[1]}
        spec = {"scopeSelector": {"matchExpressions": [term]}}
    server.quota({"pods": "9"}, **spec)

    server.pod("p", **pod)

    assert server.used() == {"pods": "1" if counts else "0"}


def test_claims_services_and_plain_counts_are_charged_too(server):
    server.quota({
        "requests.storage": "10Gi", "persistentvolumeclaims": "5",
        "gold.storageclass.storage.k8s.io/requests.storage": "2Gi", "services.nodeports": "5",
        "count/configmaps": "1", "configmaps": "1", "count/deployments.apps": "0",
    })  # fmt: skip
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}

    server.write("create", "persistentvolumeclaims", body={
        "metadata": {"name": "c"}, "spec": {**claim, "storageClassName": "gold"}})  # fmt: skip
    server.write("create", "services", body={
        "metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": [{"port": 1, "name": "a"}, {"port": 2, "name": "b"}],
                                            "selector": {}}})  # fmt: skip
    server.write("create", "configmaps", body={"metadata": {"name": "c"}})
    second = refused(server.write, "create", "configmaps", body={"metadata": {"name": "d"}})

    assert server.used() == {
        "requests.storage": "1Gi", "persistentvolumeclaims": "1",
        "gold.storageclass.storage.k8s.io/requests.storage": "1Gi", "services.nodeports": "2",
        "count/configmaps": "1", "configmaps": "1", "count/deployments.apps": "0",
    }  # fmt: skip
    assert "requested: configmaps=1,count/configmaps=1, used: configmaps=1,count/configmaps=1" in second


def test_events_are_never_counted(server):
    server.quota({"count/events": "0"})
    regarding = {"kind": "Pod", "name": "p", "namespace": "default"}

    made = server.write("create", "events", body={
        "metadata": {"name": "e"}, "involvedObject": regarding, "reason": "R", "type": "Normal"})  # fmt: skip

    assert made["metadata"]["name"] == "e"


# --- the six quota cases of a resize (kep-1287 16, acceptance scenario 17) ---


def running(server, requests, limits=None, hard=None, used=None):
    server.quota(hard or {"requests.cpu": "1"}, used)
    server.pod("p", requests, limits)
    server.runs("p", requests, limits)


def test_kep_1287_17_a_resize_beyond_the_quota_is_refused_and_one_up_to_it_is_charged(server):
    running(server, {"cpu": "800m"})

    message = refused(server.resize, "p", {"cpu": "1100m"})
    server.resize("p", {"cpu": "1"})

    assert message == (
        'pods "p" is forbidden: exceeded quota: q, requested: requests.cpu=300m, used: requests.cpu=800m, '
        "limited: requests.cpu=1"
    )
    assert server.used() == {"requests.cpu": "1"}


def test_kep_1287_17_a_smaller_request_frees_nothing_while_the_pod_has_more(server):
    running(server, {"cpu": "800m"})

    server.resize("p", {"cpu": "300m"})

    assert server.used() == {"requests.cpu": "800m"}
    assert "used: requests.cpu=800m" in refused(server.pod, "other", {"cpu": "300m"})


def test_kep_1287_17_growing_again_within_what_the_pod_still_has_costs_nothing(server):
    running(server, {"cpu": "800m"})

    server.resize("p", {"cpu": "300m"})
    server.resize("p", {"cpu": "800m"})

    assert server.used() == {"requests.cpu": "800m"}


def test_kep_1287_17_memory_and_limits_have_quotas_of_their_own(server):
    running(server, {"cpu": "500m", "memory": "1Gi"}, {"cpu": "500m", "memory": "1Gi"},
            {"requests.memory": "2Gi", "limits.memory": "1536Mi"})  # fmt: skip

    message = refused(server.resize, "p", {"memory": "2Gi"}, {"memory": "2Gi"})
    server.resize("p", {"memory": "1536Mi"}, {"memory": "1536Mi"})

    assert "requested: limits.memory=1Gi, used: limits.memory=1Gi, limited: limits.memory=1536Mi" in message
    assert server.used() == {"requests.memory": "1536Mi", "limits.memory": "1536Mi"}


def test_kep_1287_17_an_infeasible_resize_is_not_used_any_more_and_the_next_one_is_charged_anew(server):
    running(server, {"cpu": "500m"})
    server.resize("p", {"cpu": "900m"})
    pending = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
    server.status("p", conditions=[pending])
    # The quota controller has counted since.
    server.write("patch", "resourcequotas", "q", {"status": {"used": {"requests.cpu": "500m"}}},
                 subresource="status", patch_type="merge")  # fmt: skip

    server.pod("other", {"cpu": "400m"})

    assert server.used() == {"requests.cpu": "900m"}


def test_kep_1287_17_a_quota_that_does_not_count_the_pod_does_not_mind(server):
    server.quota({"pods": "5"}, scopes=["BestEffort"])
    server.quota({"pods": "5"}, name="all")
    server.pod("p", {"cpu": "1"})

    server.resize("p", {"cpu": "5"})

    assert server.used() == {"pods": "0"}
    assert server.used("all") == {"pods": "1"}


# --- limit ranges ---


def of_containers(**parts):
    return {"type": "Container", **parts}


def of_pods(**parts):
    return {"type": "Pod", **parts}


def test_containers_get_what_they_do_not_state_and_the_pod_says_so(server):
    server.limits(of_containers(default={"cpu": "500m", "memory": "1Gi"}, defaultRequest={"cpu": "250m"}))

    made = server.pod("p", {"memory": "512Mi"})
    stated = server.pod("full", {"cpu": "1", "memory": "1Gi"}, {"cpu": "2", "memory": "2Gi"})

    assert made["spec"]["containers"][0]["resources"] == {
        "requests": {"memory": "512Mi", "cpu": "250m"},
        "limits": {"cpu": "500m", "memory": "1Gi"},
    }
    assert made["status"]["qosClass"] == "Burstable"
    assert made["metadata"]["annotations"]["kubernetes.io/limit-ranger"] == (
        "LimitRanger plugin set: cpu request for container c; cpu, memory limit for container c"
    )
    assert "annotations" not in stated["metadata"]


def test_of_two_ranges_the_first_gives_and_the_last_that_gave_is_named(server):
    server.limits(of_containers(defaultRequest={"cpu": "100m"}), name="a")
    server.limits(of_containers(defaultRequest={"cpu": "200m", "memory": "1Gi"}), name="b")
    server.limits(of_containers(defaultRequest={"cpu": "300m"}), name="c")

    made = server.pod("p")

    assert made["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "100m", "memory": "1Gi"}
    note = made["metadata"]["annotations"]["kubernetes.io/limit-ranger"]
    assert note == "LimitRanger plugin set: memory request for container c"


def test_a_limit_range_fills_its_own_defaults_from_its_bounds(server):
    made = server.limits(
        of_containers(max={"cpu": "2"}, min={"cpu": "100m", "memory": "1Mi"}), of_pods(max={"cpu": "4"})
    )

    assert made["spec"]["limits"][0] == {
        "type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "100m", "memory": "1Mi"},
        "default": {"cpu": "2"}, "defaultRequest": {"cpu": "2", "memory": "1Mi"},
    }  # fmt: skip
    assert made["spec"]["limits"][1] == {"type": "Pod", "max": {"cpu": "4"}}


def test_a_default_makes_a_pod_meet_a_quota(server):
    server.quota({"limits.cpu": "1"})
    server.limits(of_containers(default={"cpu": "600m"}))

    server.pod("p")

    assert server.used() == {"limits.cpu": "600m"}
    assert "exceeded quota" in refused(server.pod, "second")


@pytest.mark.parametrize(("item", "requests", "limits", "text"), [
    (of_containers(min={"cpu": "100m"}, default={"cpu": "1"}, defaultRequest={"cpu": "100m"}), {"cpu": "50m"}, None,
     "minimum cpu usage per Container is 100m, but request is 50m"),
    (of_containers(max={"memory": "1Gi"}), None, {"memory": "2Gi"},
     "maximum memory usage per Container is 1Gi, but limit is 2Gi"),
    (of_containers(maxLimitRequestRatio={"cpu": "2"}), {"cpu": "100m"}, {"cpu": "1"},
     "cpu max limit to request ratio per Container is 2, but provided ratio is 10.000000"),
    (of_containers(maxLimitRequestRatio={"cpu": "2"}), None, None,
     "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0"),
    (of_pods(max={"cpu": "1"}), {"cpu": "500m"}, None, "maximum cpu usage per Pod is 1.  No limit is specified"),
    (of_pods(min={"memory": "1Gi"}), {"cpu": "500m"}, None,
     "minimum memory usage per Pod is 1Gi.  No request is specified"),
    (of_pods(max={"cpu": "1", "memory": "1Gi"}), {"cpu": "2", "memory": "1Gi"}, {"cpu": "2", "memory": "2Gi"},
     "[maximum cpu usage per Pod is 1, but limit is 2, maximum memory usage per Pod is 1Gi, but limit is 2Gi]"),
])  # fmt: skip
def test_what_is_out_of_bounds_is_refused_in_upstreams_words(server, item, requests, limits, text):
    server.limits(item)

    assert refused(server.pod, "p", requests, limits) == f'pods "p" is forbidden: {text}'


def test_a_claims_storage_is_bounded(server):
    server.limits({"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}})

    def claim(size):
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
        return server.write("create", "persistentvolumeclaims", body={"metadata": {"name": "c"}, "spec": spec})

    assert "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 512Mi" in refused(claim, "512Mi")
    assert "maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi" in refused(claim, "3Gi")
    assert claim("2Gi")


# --- the twelve limit range cases of a resize (kep-1287 16) ---

BOUNDS = of_containers(
    min={"cpu": "100m", "memory": "128Mi"}, max={"cpu": "1", "memory": "1Gi"}, maxLimitRequestRatio={"cpu": "4"}
)
BURSTABLE = ({"cpu": "250m", "memory": "256Mi"}, {"cpu": "500m", "memory": "512Mi"})
WHOLE = of_pods(min={"cpu": "200m", "memory": "256Mi"}, max={"cpu": "1", "memory": "1Gi"})


@pytest.mark.parametrize(("item", "requests", "limits", "text"), [
    (BOUNDS, {"cpu": "50m"}, {"cpu": "150m"}, "minimum cpu usage per Container is 100m, but request is 50m"),
    (BOUNDS, {"memory": "64Mi"}, {}, "minimum memory usage per Container is 128Mi, but request is 64Mi"),
    (BOUNDS, {"cpu": "500m"}, {"cpu": "1500m"}, "maximum cpu usage per Container is 1, but limit is 1500m"),
    (BOUNDS, {}, {"memory": "2Gi"}, "maximum memory usage per Container is 1Gi, but limit is 2Gi"),
    (BOUNDS, {"cpu": "100m"}, {}, "cpu max limit to request ratio per Container is 4, but provided ratio is 5.000000"),
    (BOUNDS, {"cpu": "100m"}, {"cpu": "400m"}, ""),
    (BOUNDS, {"cpu": "1", "memory": "512Mi"}, {"cpu": "1", "memory": "1Gi"}, ""),
    (WHOLE, {"cpu": "100m"}, {}, "minimum cpu usage per Pod is 200m, but request is 100m"),
    (WHOLE, {"memory": "128Mi"}, {}, "minimum memory usage per Pod is 256Mi, but request is 128Mi"),
    (WHOLE, {}, {"cpu": "1500m"}, "maximum cpu usage per Pod is 1, but limit is 1500m"),
    (WHOLE, {}, {"memory": "1100Mi"}, "maximum memory usage per Pod is 1Gi, but limit is 1100Mi"),
    (WHOLE, {"cpu": "200m"}, {"cpu": "1"}, ""),
])  # fmt: skip
def test_kep_1287_17_a_resize_keeps_within_the_limit_range(server, item, requests, limits, text):
    server.limits(item)
    server.pod("p", *BURSTABLE)

    if text:
        assert refused(server.resize, "p", requests, limits) == f'pods "p" is forbidden: {text}'
    else:
        after = server.resize("p", requests, limits)["spec"]["containers"][0]["resources"]
        assert after["requests"] == {**BURSTABLE[0], **requests}


def test_a_bound_younger_than_the_pod_binds_only_what_a_resize_changes(server):
    server.pod("p", {"cpu": "2", "memory": "256Mi"}, {"cpu": "2", "memory": "256Mi"})
    server.limits(of_containers(max={"cpu": "1", "memory": "1Gi"}))

    server.resize("p", {"memory": "512Mi"}, {"memory": "512Mi"})
    message = refused(server.resize, "p", {"cpu": "1500m"}, {"cpu": "1500m"})

    assert "maximum cpu usage per Container is 1, but limit is 1500m" in message


# --- the objects themselves ---


@pytest.mark.parametrize(("spec", "path", "message"), [
    ({"hard": {"disk": "1"}}, "spec.hard[disk]", 'Invalid value: "disk": must be a standard resource for quota'),
    ({"hard": {"pods": "1500m"}}, "spec.hard[pods]", 'Invalid value: "1500m": must be an integer'),
    ({"hard": {"requests.cpu": "-1"}}, "spec.hard[requests.cpu]", "must be greater than or equal to 0"),
    ({"hard": {"pods": "1"}, "scopes": ["Small"]}, "spec.scopes", "unsupported scope"),
    ({"hard": {"cpu": "1"}, "scopes": ["BestEffort"]}, "spec.scopes", "unsupported scope applied to resource"),
    ({"hard": {"pods": "1"}, "scopes": ["BestEffort", "NotBestEffort"]}, "spec.scopes", "conflicting scopes"),
    ({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In"}]}},
     "spec.scopeSelector.matchExpressions.values", "must be at least one value"),
    ({"scopeSelector": {"matchExpressions": [{"scopeName": "BestEffort", "operator": "In", "values": ["x"]}]}},
     "spec.scopeSelector.matchExpressions.operator", "must be 'Exists' when scope is any of"),
])  # fmt: skip
def test_a_quota_that_makes_no_sense_is_invalid(server, spec, path, message):
    with pytest.raises(Invalid) as error:
        server.write("create", "resourcequotas", body={"metadata": {"name": "q"}, "spec": spec})

    assert path in [cause["field"] for cause in error.value.details["causes"]]
    assert message in error.value.message


def test_scopes_never_change_and_users_do_not_write_what_is_used(server):
    server.quota({"pods": "5"}, {"pods": "3"}, scopes=["BestEffort"])
    change = {"spec": {"hard": {"pods": "6"}}, "status": {"used": {"pods": "0"}}}

    after = server.write("patch", "resourcequotas", "q", change, patch_type="merge")
    with pytest.raises(Invalid, match="field is immutable"):
        server.write("patch", "resourcequotas", "q", {"spec": {"scopes": []}}, patch_type="merge")

    assert (after["spec"]["hard"], after["status"]["used"]) == ({"pods": "6"}, {"pods": "3"})


@pytest.mark.parametrize(("item", "path", "message"), [
    ({"type": "Node"}, "spec.limits[0].type", "must be a standard limit type or fully qualified"),
    (of_containers(max={"disk": "1"}), "spec.limits[0].max[disk]", "must be a standard resource for containers"),
    (of_pods(default={"cpu": "1"}), "spec.limits[0].default", "may not be specified when `type` is 'Pod'"),
    (of_containers(min={"cpu": "2"}, max={"cpu": "1"}), "spec.limits[0].min[cpu]",
     "min value 2 is greater than max value 1"),
    (of_containers(default={"cpu": "1"}, defaultRequest={"cpu": "2"}), "spec.limits[0].defaultRequest[cpu]",
     "default request value 2 is greater than default limit value 1"),
    (of_pods(maxLimitRequestRatio={"cpu": "500m"}), "spec.limits[0].maxLimitRequestRatio[cpu]",
     "ratio 500m is less than 1"),
    (of_pods(min={"cpu": "1"}, max={"cpu": "2"}, maxLimitRequestRatio={"cpu": "3"}),
     "spec.limits[0].maxLimitRequestRatio[cpu]", "ratio 3 is greater than max/min = 2.000000"),
    ({"type": "PersistentVolumeClaim"}, "spec.limits[0].limits", "either minimum or maximum storage value"),
])  # fmt: skip
def test_a_limit_range_that_contradicts_itself_is_invalid(server, item, path, message):
    with pytest.raises(Invalid) as error:
        server.limits(item)

    assert path in [cause["field"] for cause in error.value.details["causes"]]
    assert message in error.value.message


def test_one_item_a_type(server):
    with pytest.raises(Invalid, match='Duplicate value: "Pod"'):
        server.limits(of_pods(max={"cpu": "1"}), of_pods(min={"cpu": "1"}))


def test_owners_of_a_namespace_see_their_quota_and_do_not_change_it(server):
    server.write("patch", "namespaces", "default", {"metadata": {"labels": {"emulation/owner": "alice"}}},
                 namespace="", patch_type="merge")  # fmt: skip
    server.quota({"pods": "1"})
    alice = Identity("user:alice")

    server.registry.authorize(alice, Request(verb="get", resource="resourcequotas", namespace="default", name="q"))
    with pytest.raises(ApiError):
        server.write("patch", "resourcequotas", "q", {"spec": {"hard": {"pods": "9"}}}, identity=alice,
                     patch_type="merge")  # fmt: skip


def device_claim(name, *requests):
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": [*requests]}}}


def exactly(device_class, name="r", **more):
    return {"name": name, "exactly": {"deviceClassName": device_class, **more}}


def one_of(*alternatives):
    return {"name": "one-of", "firstAvailable": [
        {"name": f"a{i}", "deviceClassName": device_class, **more}
        for i, (device_class, more) in enumerate(alternatives)]}  # fmt: skip


GPUS, NICS = "gpu.deviceclass.resource.k8s.io/devices", "nic.deviceclass.resource.k8s.io/devices"


@pytest.mark.parametrize(
    ("requests", "gpus", "nics"),
    [
        ([exactly("gpu", count=3)], "3", "0"),
        ([exactly("gpu", allocationMode="All")], "32", "0"),
        ([exactly("gpu", "r1"), exactly("gpu", "r2", count=2)], "3", "0"),
        ([one_of(("gpu", {"count": 2}), ("gpu", {"count": 5}), ("nic", {}))], "5", "1"),
        ([exactly("nic"), one_of(("gpu", {}), ("nic", {"count": 2}))], "1", "3"),
    ],
)
def test_devices_that_claims_ask_for_are_charged_by_class(server, requests, gpus, nics):
    server.quota({GPUS: "40", NICS: "40"}, {GPUS: "0", NICS: "0"})

    server.write("create", "resourceclaims.resource.k8s.io", body=device_claim("c", *requests))

    assert server.read("resourcequotas", "q")["status"]["used"] == {GPUS: gpus, NICS: nics}


def test_more_devices_of_a_class_than_its_quota_are_refused(server):
    server.quota({GPUS: "4"}, {GPUS: "2"})
    body = device_claim("c", exactly("gpu", count=3))

    text = refused(server.write, "create", "resourceclaims.resource.k8s.io", body=body)

    assert text.endswith(f"exceeded quota: q, requested: {GPUS}=3, used: {GPUS}=2, limited: {GPUS}=4")


BACKED, BY_CLASS = "requests.example.com/gpu", "requests.deviceclass.resource.kubernetes.io/gpu"
CLASS = {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "example.com/gpu"}}


def of_pod(claim, pod):
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod["metadata"]["uid"], "controller": True}
    meta = {"annotations": {"resource.kubernetes.io/extended-resource-claim": "true"}, "ownerReferences": [owner]}
    return {**claim, "metadata": {**claim["metadata"], **meta}}


def a_pod_with_a_gpu(count="2"):
    container = {"name": "c", "image": "i:1", "resources": {"limits": {"example.com/gpu": count}}}
    return {"metadata": {"name": "p"}, "spec": {"containers": [container]}}


def used_of(server):
    return server.read("resourcequotas", "q")["status"]["used"]


def test_claims_use_up_the_extended_resource_that_their_class_backs(server):
    server.write("create", "deviceclasses.resource.k8s.io", body=CLASS, namespace="")
    server.quota({BACKED: "4", BY_CLASS: "9", GPUS: "9"}, {BACKED: "0", BY_CLASS: "0", GPUS: "0"})

    server.write("create", "resourceclaims.resource.k8s.io", body=device_claim("c", exactly("gpu", count=3)))

    assert used_of(server) == {BACKED: "3", BY_CLASS: "3", GPUS: "3"}
    text = refused(server.write, "create", "resourceclaims.resource.k8s.io",
                   body=device_claim("d", exactly("gpu", count=2)))  # fmt: skip
    assert text.endswith(f"exceeded quota: q, requested: {BACKED}=2, used: {BACKED}=3, limited: {BACKED}=4")


def test_a_class_without_an_extended_resource_uses_up_none(server):
    server.write("create", "deviceclasses.resource.k8s.io", body={**CLASS, "spec": {}}, namespace="")
    server.quota({BACKED: "0", BY_CLASS: "0", GPUS: "9"}, {BACKED: "0", BY_CLASS: "0", GPUS: "0"})

    server.write("create", "resourceclaims.resource.k8s.io", body=device_claim("c", exactly("gpu", count=3)))

    assert used_of(server) == {BACKED: "0", BY_CLASS: "0", GPUS: "3"}


def test_the_claim_made_for_a_pods_extended_resource_is_not_charged_twice(server):
    server.write("create", "deviceclasses.resource.k8s.io", body=CLASS, namespace="")
    server.quota({BACKED: "4", GPUS: "9"}, {BACKED: "0", GPUS: "0"})
    server.write("create", "pods", body=a_pod_with_a_gpu())
    pod = server.read("pods", "p")

    server.write("create", "resourceclaims.resource.k8s.io",
                 body=of_pod(device_claim("own", exactly("gpu", count=2)), pod))  # fmt: skip
    assert used_of(server) == {BACKED: "2", GPUS: "2"}

    server.write("create", "resourceclaims.resource.k8s.io",
                 body=of_pod(device_claim("second", exactly("gpu", count=2)), pod))  # fmt: skip
    assert used_of(server) == {BACKED: "4", GPUS: "4"}
