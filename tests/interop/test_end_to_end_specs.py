"""Specs of Kubernetes' own end-to-end suite, step by step against a mesh of processes.

Those that a run of `e2e.test` (v1.20) found wrong once, each under its title there.
"""

import base64
import json

import kubernetes
import pytest
from conftest import until
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from services.runtime import certificates

GONE_MAX_S = 90.0
MERGE = "application/merge-patch+json"


class Api:
    """Calls of the mesh's REST interface as its administrator."""

    def __init__(self, kubeconfig):
        client = kubernetes.config.new_client_from_config(kubeconfig)
        self._url, self._pool = client.configuration.host, client.rest_client.pool_manager
        self._headers = {each["key"]: each["value"] for each in client.configuration.auth_settings().values()}

    def __call__(self, method, path, body=None, *, sends="application/json", accepts="application/json", code=None):
        """Return what is answered as JSON, a text as it is. Without `code`, any of 200 to 299 must come."""
        headers = {**self._headers, "Accept": accepts, "Content-Type": sends}
        text = None if body is None else json.dumps(body)
        answer = self._pool.request(method, self._url + path, headers=headers, body=text)
        text = answer.data.decode()
        assert answer.status == code if code else answer.status // 100 == 2, text
        return json.loads(text) if text[:1] in ("{", "[") else text

    def names(self, path):
        return sorted(each["metadata"]["name"] for each in self("GET", path)["items"])


@pytest.fixture(scope="module")
def api(whole_mesh):
    return Api(whole_mesh.kubeconfig)


def a_pod(name, **container):
    main = {"name": "main", "image": "busybox:1", **container}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"containers": [main], "terminationGracePeriodSeconds": 0, "restartPolicy": "Never"}}  # fmt: skip


def test_garbage_collector_should_not_be_blocked_by_dependency_circle(api, space):
    pods = f"/api/v1/namespaces/{space}/pods"
    made = {name: api("POST", pods, a_pod(name)) for name in ("pod1", "pod2", "pod3")}
    for name, owner in (("pod1", "pod3"), ("pod2", "pod1"), ("pod3", "pod2")):
        reference = {"apiVersion": "v1", "kind": "Pod", "name": owner, "uid": made[owner]["metadata"]["uid"],
                     "controller": True, "blockOwnerDeletion": True}  # fmt: skip
        api("PATCH", f"{pods}/{name}", {"metadata": {"ownerReferences": [reference]}}, sends=MERGE)

    foreground = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground",
                  "preconditions": {"uid": made["pod1"]["metadata"]["uid"]}}  # fmt: skip
    api("DELETE", f"{pods}/pod1", foreground)

    assert until(lambda: api.names(pods) == [], GONE_MAX_S)


def test_resource_quota_should_capture_the_life_of_a_secret(api, space):
    quota, secrets = f"/api/v1/namespaces/{space}/resourcequotas", f"/api/v1/namespaces/{space}/secrets"

    def used():
        return (api("GET", f"{quota}/q").get("status", {}).get("used") or {}).get("secrets")

    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"secrets": "10"}}}
    api("POST", quota, body)
    until(lambda: used() is not None)
    before = int(used())
    api("POST", secrets, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "Yg=="}})
    until(lambda: int(used()) == before + 1)
    api("DELETE", f"{secrets}/s")
    # A resync comes every half minute, the event at once.
    assert until(lambda: int(used()) == before, 8.0)


def test_certificates_should_support_csr_api_operations(api, whole_mesh, tmp_path):
    requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "e2e.example.com")])
    signing = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    pem = signing.public_bytes(serialization.Encoding.PEM)
    certificate = base64.b64encode(certificates.authority(tmp_path).path.read_bytes()).decode()
    template = {
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"generateName": "e2e-example-csr-"},
        "spec": {"request": base64.b64encode(pem).decode(), "signerName": "example.com/e2e-specs",
                 "expirationSeconds": 3600, "usages": ["digital signature", "key encipherment", "server auth"]},
    }  # fmt: skip
    served = {each["name"] for each in api("GET", "/apis/certificates.k8s.io/v1")["resources"]}
    assert {f"certificatesigningrequests{below}" for below in ("", "/approval", "/status")} <= served

    made = [api("POST", requests, template) for _ in range(3)][-1]
    one = f"{requests}/{made['metadata']['name']}"
    assert api("GET", one)["spec"]["expirationSeconds"] == 3600
    chosen = f"{requests}?fieldSelector=spec.signerName%3Dexample.com/e2e-specs"
    assert len(api.names(chosen)) == 3
    patched = api("PATCH", one, {"metadata": {"annotations": {"patched": "true"}}}, sends=MERGE)
    patched["metadata"]["annotations"]["updated"] = "true"
    assert api("PUT", one, patched)["metadata"]["annotations"] == {"patched": "true", "updated": "true"}

    assert api("GET", f"{one}/approval")["metadata"]["uid"] == made["metadata"]["uid"]
    change = {"metadata": {"annotations": {"patchedapproval": "true"}},
              "status": {"conditions": [{"type": "ApprovalPatch", "status": "True", "reason": "e2e"}]}}  # fmt: skip
    patched = api("PATCH", f"{one}/approval", change, sends=MERGE)
    assert [each["type"] for each in patched["status"]["conditions"]] == ["ApprovalPatch"]
    assert patched["metadata"]["annotations"]["patchedapproval"] == "true"
    approved = {"type": "Approved", "status": "True", "reason": "E2E", "message": "Set from an e2e test"}
    patched["status"]["conditions"].append(approved)
    updated = api("PUT", f"{one}/approval", patched)
    assert [each["type"] for each in updated["status"]["conditions"]] == ["ApprovalPatch", "Approved"]

    assert api("GET", f"{one}/status")["metadata"]["uid"] == made["metadata"]["uid"]
    change = {"metadata": {"annotations": {"patchedstatus": "true"}}, "status": {"certificate": certificate}}
    patched = api("PATCH", f"{one}/status", change, sends=MERGE)
    assert patched["status"]["certificate"] == certificate
    assert patched["metadata"]["annotations"]["patchedstatus"] == "true"
    patched["status"]["conditions"].append({"type": "StatusUpdate", "status": "True", "reason": "E2E"})
    assert api("PUT", f"{one}/status", patched)["status"]["conditions"][-1]["type"] == "StatusUpdate"

    api("DELETE", one)
    assert api("GET", one, code=404)["reason"] == "NotFound"
    assert len(api.names(chosen)) == 2
    api("DELETE", chosen)
    assert api.names(chosen) == []


def test_ingress_api_should_support_creating_ingress_api_operations(api, space):
    ingresses = f"/apis/networking.k8s.io/v1/namespaces/{space}/ingresses"
    backend = {"service": {"name": "default-backend", "port": {"number": 8080}}}
    path = {"path": "/foo", "pathType": "Prefix", "backend": backend}
    template = {
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"generateName": "e2e-example-ing", "labels": {"ingress": "specs"}},
        "spec": {"defaultBackend": backend, "rules": [{"host": "foo.example.com", "http": {"paths": [path]}}]},
    }  # fmt: skip
    served = {each["name"] for each in api("GET", "/apis/networking.k8s.io/v1")["resources"]}
    assert {"ingresses", "ingresses/status"} <= served

    made = [api("POST", ingresses, template) for _ in range(3)][-1]
    one, chosen = f"{ingresses}/{made['metadata']['name']}", f"{ingresses}?labelSelector=ingress%3Dspecs"
    assert len(api.names(chosen)) == 3
    assert len(api.names("/apis/networking.k8s.io/v1/ingresses?labelSelector=ingress%3Dspecs")) == 3
    patched = api("PATCH", one, {"metadata": {"annotations": {"patched": "true"}}}, sends=MERGE)
    patched["metadata"]["annotations"]["updated"] = "true"
    assert api("PUT", one, patched)["metadata"]["annotations"]["updated"] == "true"

    point = {"loadBalancer": {"ingress": [{"ip": "169.1.1.1"}]}}
    change = {"metadata": {"annotations": {"patchedstatus": "true"}}, "status": point}
    patched = api("PATCH", f"{one}/status", change, sends=MERGE)
    assert patched["status"] == point
    assert patched["metadata"]["annotations"]["patchedstatus"] == "true"
    patched["status"] = {"loadBalancer": {"ingress": [{"ip": "169.1.1.2"}]}}
    assert api("PUT", f"{one}/status", patched)["status"] == patched["status"]
    assert api("GET", f"{one}/status")["metadata"]["uid"] == made["metadata"]["uid"]

    api("DELETE", one)
    assert len(api.names(chosen)) == 2
    api("DELETE", chosen)
    assert api.names(chosen) == []


def test_preemption_execution_path_runs_replica_sets_to_verify_preemption_running_path(api, space):
    node, resource = "/api/v1/nodes/node-0", "example.com/fakecpu"
    add = [{"op": "add", "path": "/status/capacity/example.com~1fakecpu", "value": "1000"}]
    api("PATCH", f"{node}/status", add, sends="application/json-patch+json")
    until(lambda: api("GET", node)["status"]["allocatable"].get(resource), 30.0)
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    for number in range(1, 5):
        body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": f"p{number}"}}
        api("POST", classes, body | {"value": number})
    seen = {}

    def run(name, amount, priority, pods):
        template = a_pod("x", resources={"requests": {resource: amount}, "limits": {resource: amount}})["spec"]
        template |= {"priorityClassName": priority, "nodeSelector": {"kubernetes.io/hostname": "node-0"}}
        del template["restartPolicy"]
        template["terminationGracePeriodSeconds"] = 1
        spec = {"replicas": 1, "selector": {"matchLabels": {"name": name}},
                "template": {"metadata": {"labels": {"name": name}}, "spec": template}}  # fmt: skip
        body = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name}, "spec": spec}
        api("POST", f"/apis/apps/v1/namespaces/{space}/replicasets", body)
        one = f"/apis/apps/v1/namespaces/{space}/replicasets/{name}"
        until(lambda: api("GET", one)["status"].get("availableReplicas") == pods)

    def look():
        for each in api("GET", f"/api/v1/namespaces/{space}/pods")["items"]:
            seen.setdefault(each["metadata"]["labels"]["name"], set()).add(each["metadata"]["uid"])
        return {name: len(uids) for name, uids in seen.items()}

    run("rs-pod1", "200", "p1", 1)
    run("rs-pod2", "300", "p2", 1)
    run("rs-pod3", "450", "p3", 1)
    look()
    run("rs-pod4", "500", "p4", 1)

    assert until(lambda: look() == {"rs-pod1": 2, "rs-pod2": 2, "rs-pod3": 1, "rs-pod4": 1})


def test_servers_with_support_for_table_transformation_should_return_a_406_for_a_backend_without_metadata(api):
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
              "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}  # fmt: skip
    table = "application/json;as=Table;v=v1;g=meta.k8s.io"

    answer = api("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review, accepts=table, code=406)

    assert (answer["kind"], answer["reason"]) == ("Status", "NotAcceptable")


def test_custom_resource_publish_openapi_works_for_crd_without_validation_schema(api, space):
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "e2e-foos", "singular": "e2e-foo", "kind": "E2eFoo", "listKind": "E2eFooList"}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "e2e-foos.specs.example.com"},
        "spec": {"group": "specs.example.com", "names": names, "scope": "Namespaced", "versions": [version]},
    }  # fmt: skip
    api("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)

    published = until(lambda: api("GET", "/openapi/v2")["definitions"].get("com.example.specs.v1.E2eFoo"))

    assert "x-kubernetes-preserve-unknown-fields" not in published
    assert "properties" not in published
    foos = f"/apis/specs.example.com/v1/namespaces/{space}/e2e-foos"
    body = {"apiVersion": "specs.example.com/v1", "kind": "E2eFoo", "metadata": {"name": "a"}, "b": [{"c": 1}]}
    assert api("POST", foos, body)["b"] == [{"c": 1}]
    api("DELETE", f"{foos}/a")


def logs_of(api, space, pod):
    one = f"/api/v1/namespaces/{space}/pods/{pod['metadata']['name']}"
    api("POST", f"/api/v1/namespaces/{space}/pods", pod)
    until(lambda: api("GET", one)["status"]["phase"] == "Succeeded")
    return api("GET", f"{one}/log").splitlines()


def test_secrets_should_be_consumable_via_the_environment(api, space):
    data = {f"data-{n}": base64.b64encode(f"value-{n}".encode()).decode() for n in (1, 2, 3)}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": data}
    api("POST", f"/api/v1/namespaces/{space}/secrets", secret)
    variables = [{"name": "SECRET_DATA", "valueFrom": {"secretKeyRef": {"name": "s", "key": "data-1"}}}]
    sources = [{"prefix": "p_", "secretRef": {"name": "s"}}]

    printed = logs_of(api, space, a_pod("env", command=["sh", "-c", "env"], env=variables, envFrom=sources))

    assert {"SECRET_DATA=value-1", "p_data-1=value-1", "p_data-2=value-2", "p_data-3=value-3"} <= {*printed}


def test_downward_api_should_provide_default_limits_cpu_memory_from_node_allocatable(api, space):
    variables = [
        {"name": name, "valueFrom": {"resourceFieldRef": {"resource": resource}}}
        for name, resource in (("CPU_LIMIT", "limits.cpu"), ("MEMORY_LIMIT", "limits.memory"))
    ]

    printed = logs_of(api, space, a_pod("limits", command=["sh", "-c", "env"], env=variables))

    values = dict(line.split("=", 1) for line in printed if "_LIMIT=" in line)
    assert int(values["CPU_LIMIT"]) > 0
    assert int(values["MEMORY_LIMIT"]) > 0
    node = api("GET", f"/api/v1/namespaces/{space}/pods/limits")["spec"]["nodeName"]
    allocatable = api("GET", f"/api/v1/nodes/{node}")["status"]["allocatable"]
    assert values["CPU_LIMIT"] == allocatable["cpu"]
