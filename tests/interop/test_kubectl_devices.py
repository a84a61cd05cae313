"""kubectl and devices: classes, claims, slices and taint rules, made, shown, explained and refused."""

import json


def claim(name, **request):
    devices = {"requests": [{"name": "gpu", **request}]}
    meta = {"name": name}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": meta, "spec": {"devices": devices}}


def slice_(name, **spec):
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.example", "pool": pool, "allNodes": True, **spec}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}


def rows(text):
    return [line.split() for line in text.splitlines()]


ALTERNATIVES = [{"name": "big", "deviceClassName": "gpu"}, {"name": "small", "deviceClassName": "gpu", "count": 2}]


def test_a_claim_with_alternatives_is_applied_twice_and_shown_by_its_state(kubectl, namespace):
    body = claim("c", firstAvailable=ALTERNATIVES)

    first = kubectl("apply", "-n", namespace, "-f", "-", stdin=body)
    second = kubectl("apply", "-n", namespace, "-f", "-", stdin=body)
    result = {"request": "gpu/big", "driver": "gpu.example", "pool": "p", "device": "gpu-0"}
    status = {"status": {"allocation": {"devices": {"results": [result]}}}}
    kubectl("patch", "resourceclaim", "c", "-n", namespace, "--subresource=status", "--type=merge",
            "-p", json.dumps(status))  # fmt: skip

    # Requests are an atomic list: kubectl sends them again, without the defaults, and what is stored stays the same.
    assert (first.split()[-1], second.split()[-1]) == ("created", "configured")
    header, row = rows(kubectl("get", "resourceclaims", "-n", namespace))
    assert (header, row[:2]) == (["NAME", "STATE", "AGE"], ["c", "allocated"])


def test_what_a_claim_may_not_ask_for_is_refused_by_its_field(kubectl, namespace):
    exactly = {"deviceClassName": "gpu", "adminAccess": True, "tolerations": [{"key": "k", "operator": "Near"}]}

    refusal = kubectl("create", "-n", namespace, "-f", "-", stdin=claim("c", exactly=exactly), code=1)

    assert "admin access to devices requires the `resource.kubernetes.io/admin-access: true` label" in refusal
    assert 'tolerations[0].operator: Unsupported value: "Near": supported values: "Equal", "Exists"' in refusal


def test_slices_are_listed_and_a_capital_in_a_drivers_name_is_warned_of(kubectl):
    kubectl("create", "-f", "-", stdin=slice_("devices-a", nodeName="n1", allNodes=None, devices=[{"name": "gpu-0"}]))
    warned = kubectl("create", "-f", "-", stdin=slice_("devices-b", driver="GPU.example", devices=[{"name": "gpu-0"}]))

    listed = rows(kubectl("get", "resourceslices", "devices-a"))
    kubectl("delete", "resourceslices", "devices-a", "devices-b")

    assert 'driver names should be lowercase; "GPU.example" contains uppercase characters' in warned
    assert listed[0] == ["NAME", "NODE", "DRIVER", "POOL", "AGE"]
    assert listed[1][:4] == ["devices-a", "n1", "gpu.example", "devices-a"]


def test_taint_rules_are_nowhere_while_their_gate_is_off(kubectl):
    spec = {"deviceSelector": {"driver": "gpu.example"}, "taint": {"key": "worn", "effect": "NoSchedule"}}
    rule = {"apiVersion": "resource.k8s.io/v1beta2", "kind": "DeviceTaintRule", "metadata": {"name": "r"}, "spec": spec}

    assert 'the server doesn\'t have a resource type "devicetaintrules"' in kubectl("get", "devicetaintrules", code=1)
    assert "the server doesn't have a resource type" in kubectl("explain", "devicetaintrule.spec.taint.effect", code=1)
    assert 'no matches for kind "DeviceTaintRule"' in kubectl("create", "-f", "-", stdin=rule, code=1)
