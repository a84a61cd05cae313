"""The status of claims: what was allocated, what drivers report, and who may write which part (dra-core 1.3, 9)."""

from __future__ import annotations

import pytest

from apiserver_fake.registry.authorization import authorizer
from apiserver_fake.registry.strategy import strategy_for
from services.api.errors import Forbidden
from services.api.identity import ADMIN, SCHEDULER, Identity, driver_identity, node_identity
from services.api.kinds.resourceclaim import ADMIN_NAMESPACE_LABEL, CLAIMS
from services.api.wire import Request
from services.runtime.roles import Role, Rule

SHARE = "0a1b2c3d-0000-4000-8000-000000000000"
RESULT = {"request": "r/a", "driver": "gpu.example", "pool": "n1", "device": "gpu-0"}
ON_N1 = {"nodeSelectorTerms": [
    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}  # fmt: skip
DEVICE = {"driver": "gpu.example", "pool": "n1", "device": "gpu-0"}
DRIVER = Identity("system:serviceaccount:kube-system:gpu-driver")
NOW = "2026-01-01T00:00:00Z"


def claim(world, **status):
    requests = [{"name": "r", "firstAvailable": [{"name": "a", "deviceClassName": "gpu"}]}]
    return world.put(CLAIMS, {"metadata": {"name": "c"}, "spec": {"devices": {"requests": requests}}, "status": status})


def allocation(*results, **more):
    return {"devices": {"results": [*(results or (RESULT,))]}, "nodeSelector": ON_N1, **more}


def write(world, stored, wanted, identity=ADMIN, verb="update"):
    new = {**stored, "status": wanted}
    call = Request(verb=verb, resource=CLAIMS, namespace="default", name="c", subresource="status")
    ctx, rules = world.ctx(identity, call), strategy_for(CLAIMS)
    authorizer.admit(identity, call, stored, new, ctx)
    rules.prepare_status(stored, new, ctx)
    return [(cause.path, cause.message) for cause in rules.validate_status(stored, new, ctx)], new["status"]


@pytest.mark.parametrize(
    ("result", "path"),
    [
        ({}, None),
        ({"request": "r"}, None),
        ({"request": "r/b"}, "request"),
        ({"shareID": SHARE, "consumedCapacity": {"memory": "4Gi"}}, None),
        ({"shareID": SHARE.upper()}, "shareID"),
        ({"consumedCapacity": {"memory": "lots"}}, "consumedCapacity[memory]"),
        ({"tolerations": [{"key": "k", "operator": "Exists", "value": "v"}]}, "tolerations[0].value"),
        ({"bindingConditions": ["a"], "bindingFailureConditions": ["b"]}, None),
        ({"bindingConditions": ["a"]}, "bindingFailureConditions"),
    ],
)
def test_a_result_says_what_was_allocated_for_which_request(world, result, path):
    causes, _ = write(world, claim(world), {"allocation": allocation({**RESULT, **result})})

    assert [at for at, _ in causes] == ([] if path is None else [f"status.allocation.devices.results[0].{path}"])


@pytest.mark.parametrize("mark", ["true", "no"])
def test_admin_access_is_granted_in_marked_namespaces_only(world, mark):
    world.put("namespaces", {"metadata": {"name": "default", "labels": {ADMIN_NAMESPACE_LABEL: mark}}})

    causes, _ = write(world, claim(world), {"allocation": allocation({**RESULT, "adminAccess": True})})

    assert [at for at, _ in causes] == ([] if mark == "true" else ["status.allocation.devices.results[0].adminAccess"])


def condition(**more):
    return {"type": "Ready", "status": "True", "reason": "Linked", "message": "", "lastTransitionTime": NOW, **more}


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ({"conditions": [condition()], "data": {"mac": "x"}}, []),
        ({"device": "gpu-1"}, [("", 'Invalid value: "gpu.example/n1/gpu-1": must be an allocated device in the claim')]),
        ({"conditions": [condition(type=f"t{i}") for i in range(9)]},
         [(".conditions", "Too many: 9: must have at most 8 items")]),
        ({"conditions": [condition(reason="")]}, [(".conditions[0].reason", "Required value: must be set")]),
        ({"conditions": [condition(status="Maybe")]},
         [(".conditions[0].status",
           'Unsupported value: "Maybe": supported values: "False", "True", "Unknown"')]),
        ({"data": {"a": "x" * 10_240}}, [(".data", "Too long: may not be more than 10240 bytes")]),
        ({"networkData": {"interfaceName": "e" * 257}},
         [(".networkData.interfaceName", "Too long: may not be more than 256 bytes")]),
        ({"networkData": {"hardwareAddress": "e" * 129}},
         [(".networkData.hardwareAddress", "Too long: may not be more than 128 bytes")]),
        ({"networkData": {"ips": ["10.0.0.1/24", "10.0.0.1"]}},
         [(".networkData.ips[1]", ('Invalid value: "10.0.0.1": must be a valid address in CIDR form, '
           "(e.g. 10.9.8.7/24 or 2001:db8::1/64)"))]),
        ({"networkData": {"ips": ["2001:db8:0::1/64"]}},
         [(".networkData.ips[0]",
           'Invalid value: "2001:db8:0::1/64": must be in canonical form ("2001:db8::1/64")')]),
        ({"networkData": {"ips": [f"10.0.0.{i}/24" for i in range(17)]}},
         [(".networkData.ips", "Too many: 17: must have at most 16 items")]),
    ],
)  # fmt: skip
def test_a_driver_reports_on_allocated_devices(world, said, found):
    stored = claim(world, allocation=allocation())

    causes, _ = write(world, stored, {"allocation": allocation(), "devices": [{**DEVICE, **said}]})

    assert causes == [(f"status.devices[0]{path}", text) for path, text in found]


def test_there_is_one_report_for_each_device_or_share_of_it(world):
    shared = allocation(RESULT | {"shareID": SHARE})
    stored = claim(world, allocation=shared)

    causes, _ = write(world, stored, {"allocation": shared, "devices": [{**DEVICE, "shareID": SHARE}] * 2})

    assert [at for at, _ in causes] == ["status.devices[1]"]


def test_a_report_goes_with_its_device_and_takes_no_permission_for_that(world):
    stored = claim(world, allocation=allocation(), devices=[DEVICE])
    release = {name: value for name, value in stored["status"].items() if name != "allocation"}

    causes, status = write(world, stored, release, SCHEDULER)

    assert (causes, status) == ([], {})


@pytest.fixture
def roles(monkeypatch):
    """Give the driver a role with these rules for its claims, next to a permission for the whole status."""
    known = authorizer.roles()

    def give(*rules):
        status = Rule(name="s", verbs=("update", "patch"), resources=("resourceclaims.resource.k8s.io/status",))
        authorizer.forget_rules()
        monkeypatch.setattr(authorizer, "roles", lambda: (*known, Role(DRIVER.user, (status, *rules))))

    yield give
    monkeypatch.undo()
    authorizer.forget_rules()


def driver_rule(verb, *names):
    return Rule(name="d", verbs=(verb,), resources=("resourceclaims.resource.k8s.io/driver",), resource_names=names)


@pytest.mark.parametrize(
    ("rules", "is_allowed"),
    [
        ((), False),
        ((driver_rule("arbitrary-node:update"),), True),
        ((driver_rule("arbitrary-node:update", "gpu.example"),), True),
        ((driver_rule("arbitrary-node:update", "nic.example"),), False),
        ((driver_rule("arbitrary-node:patch"),), False),
        ((driver_rule("associated-node:update"),), False),  # it is associated with no node
    ],
)
def test_who_reports_on_devices_needs_a_permission_for_their_driver(world, roles, rules, is_allowed):
    roles(*rules)
    stored = claim(world, allocation=allocation())

    causes, _ = write(world, stored, {"allocation": allocation(), "devices": [DEVICE]}, DRIVER)

    text = (
        'Forbidden: changing status.devices requires resource="resourceclaims/driver", verb="[arbitrary-node:update]" '
        'permission: resourceclaims.resource.k8s.io "gpu.example" is forbidden: User '
        '"system:serviceaccount:kube-system:gpu-driver" cannot arbitrary-node:update resource "resourceclaims/driver" '
        'in API group "resource.k8s.io" in the namespace "default"'
    )
    assert causes == ([] if is_allowed else [("status.devices", text)])


@pytest.mark.parametrize(
    ("driver", "node", "verb", "refused"),
    [("gpu.example", "n1", "patch", False), ("gpu.example", "n2", "patch", True), ("nic.example", "n1", "patch", True)],
)
def test_a_drivers_service_account_reports_on_its_own_devices_on_its_tokens_node(world, driver, node, verb, refused):
    stored = claim(world, allocation=allocation())
    wanted = {"allocation": allocation(), "devices": [DEVICE]}

    causes, _ = write(world, stored, wanted, driver_identity(driver, node), verb)

    assert [at for at, _ in causes] == (["status.devices"] if refused else [])
    asked = "[associated-node:patch arbitrary-node:patch]" if node == "n1" else "[arbitrary-node:patch]"
    assert all(f'verb="{asked}"' in text for _, text in causes)


def test_a_driver_neither_allocates_nor_updates(world):
    stored, driver = claim(world, allocation=allocation()), driver_identity("gpu.example", "n1")

    causes, _ = write(world, stored, {}, driver, "patch")
    assert [at for at, _ in causes] == ["status"]
    with pytest.raises(Forbidden):
        write(world, stored, {"allocation": allocation(), "devices": [DEVICE]}, driver)


def test_kep_5194_17_who_reserves_needs_a_permission_for_binding(world, roles):
    stored = claim(world, allocation=allocation(), reservedFor=[{"resource": "pods", "name": "p", "uid": "u"}])
    released = {"allocation": allocation()}

    roles()
    causes, _ = write(world, stored, released, DRIVER)
    roles(Rule(name="b", verbs=("update",), resources=("resourceclaims.resource.k8s.io/binding",)))
    granted, _ = write(world, stored, released, DRIVER)
    roles()
    world.switch(DRAResourceClaimGranularStatusAuthorization=False)
    without_gate, _ = write(world, stored, released, DRIVER)

    text = (
        'Forbidden: changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", '
        'verb="update" permission: resourceclaims.resource.k8s.io is forbidden: User '
        '"system:serviceaccount:kube-system:gpu-driver" cannot update resource "resourceclaims/binding" in API group '
        '"resource.k8s.io" at the cluster scope'
    )
    assert (causes, granted, without_gate) == ([("status", text)], [], [])


def test_a_node_reports_on_devices_that_are_allocated_there_and_changes_nothing_else(world):
    stored = claim(world, allocation=allocation())
    anywhere = claim(world, allocation=allocation() | {"nodeSelector": None})
    report = {"allocation": allocation(), "devices": [DEVICE]}

    assert write(world, stored, report, node_identity("n1"))[0] == []
    assert [at for at, _ in write(world, stored, report, node_identity("n2"))[0]] == ["status.devices"]
    elsewhere = {**anywhere["status"], "devices": [DEVICE]}
    assert [at for at, _ in write(world, anywhere, elsewhere, node_identity("n1"))[0]] == ["status.devices"]
    with pytest.raises(Forbidden):
        write(world, stored, {}, node_identity("n1"))


@pytest.mark.parametrize(("node", "is_allowed"), [("n1", True), ("n2", False)])
def test_a_node_reports_on_a_claim_that_is_allocated_there_before_its_pod_is_bound(world, node, is_allowed):
    claim(world, allocation=allocation())
    call = Request(verb="patch", resource=CLAIMS, namespace="default", name="c", subresource="status")

    def ask():
        authorizer.authorize(node_identity(node), call, world.lookup, world.list)

    if is_allowed:
        ask()
    else:
        with pytest.raises(Forbidden):
            ask()
