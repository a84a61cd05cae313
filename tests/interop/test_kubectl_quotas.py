"""kubectl and what bounds a namespace: quotas and limit ranges, made, shown and met."""

import json


def printed(mesh, namespace, hard, used):
    """Say, as the quota controller would, what is enforced and used."""
    path = f"/api/v1/namespaces/{namespace}/resourcequotas/q/status"
    mesh.call("PATCH", path, {"status": {"hard": hard, "used": used}}, content_type="application/merge-patch+json")


def a_pod(name, **resources):
    spec = {"containers": [{"name": "c", "image": "i:1", "resources": resources}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def test_create_quota_get_and_describe_show_what_is_used(kubectl, mesh, namespace):
    kubectl("create", "quota", "q", "--hard=requests.cpu=1,limits.memory=2Gi,pods=3", "--scopes=NotBestEffort",
            "-n", namespace)  # fmt: skip
    printed(mesh, namespace, {"requests.cpu": "1", "limits.memory": "2Gi", "pods": "3"},
         {"requests.cpu": "0", "limits.memory": "0", "pods": "0"})  # fmt: skip
    size = {"cpu": "400m", "memory": "1Gi"}
    kubectl("create", "-n", namespace, "-f", "-", stdin=a_pod("one", requests=size, limits=size))

    refusal = kubectl("create", "-n", namespace, "-f", "-", code=1,
                      stdin=a_pod("two", requests={"cpu": "700m"}, limits={"memory": "1Gi"}))  # fmt: skip
    listed = kubectl("get", "quota", "-n", namespace)
    described = [line.split() for line in kubectl("describe", "quota", "q", "-n", namespace).splitlines()]

    assert (
        "exceeded quota: q, requested: requests.cpu=700m, used: requests.cpu=400m, limited: requests.cpu=1" in refusal
    )
    assert listed.split()[:4] == ["NAME", "REQUEST", "LIMIT", "AGE"]
    assert "pods: 1/3, requests.cpu: 400m/1" in listed
    assert "limits.memory: 1Gi/2Gi" in listed
    assert ["Scopes:", "NotBestEffort"] in described
    assert ["limits.memory", "1Gi", "2Gi"] in described


def test_a_resize_meets_the_quota(kubectl, mesh, namespace):
    kubectl("create", "quota", "q", "--hard=requests.cpu=1", "-n", namespace)
    printed(mesh, namespace, {"requests.cpu": "1"}, {"requests.cpu": "0"})
    kubectl("create", "-n", namespace, "-f", "-", stdin=a_pod("one", requests={"cpu": "800m"}))

    def patch(cpu):
        return json.dumps({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}})

    refusal = kubectl("patch", "pod", "one", "-n", namespace, "--subresource=resize", "-p", patch("1100m"), code=1)
    kubectl("patch", "pod", "one", "-n", namespace, "--subresource=resize", "-p", patch("1"))

    assert 'pods "one" is forbidden: exceeded quota: q, requested: requests.cpu=300m' in refusal
    assert "requests.cpu: 1/1" in kubectl("get", "quota", "-n", namespace)


def test_a_limit_range_is_applied_described_and_gives_defaults(kubectl, namespace):
    item = {"type": "Container", "max": {"cpu": "2"}, "default": {"memory": "1Gi"}, "defaultRequest": {"cpu": "100m"}}
    body = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "lr"}, "spec": {"limits": [item]}}

    kubectl("apply", "-n", namespace, "-f", "-", stdin=body)
    kubectl("create", "-n", namespace, "-f", "-", stdin=a_pod("p"))
    listed = kubectl("get", "limits", "-n", namespace)
    described = [line.split() for line in kubectl("describe", "limits", "lr", "-n", namespace).splitlines()]
    pod = json.loads(kubectl("get", "pod", "p", "-n", namespace, "-o", "json"))

    assert listed.split()[:3] == ["NAME", "CREATED", "AT"]
    assert ["Container", "cpu", "-", "2", "100m", "2", "-"] in described
    assert pod["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "2", "memory": "1Gi"},
        "requests": {"cpu": "100m", "memory": "1Gi"},
    }
    assert "Resource Limits" in kubectl("describe", "namespace", namespace)


def test_explain_knows_them(kubectl):
    assert "scopeSelector" in kubectl("explain", "quota.spec")
    assert "maxLimitRequestRatio" in kubectl("explain", "limitrange.spec.limits")
