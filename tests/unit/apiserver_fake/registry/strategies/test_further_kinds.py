"""ReplicationControllers, Endpoints, RuntimeClasses, flow control, certificate requests at the API server."""

import base64

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from services.api.errors import ApiError, Forbidden
from services.api.identity import ADMIN

CONTAINERS = {"containers": [{"name": "c", "image": "i"}]}
TEMPLATE = {"metadata": {"labels": {"app": "a"}}, "spec": CONTAINERS}
REQUESTS, CLASSES = "certificatesigningrequests.certificates.k8s.io", "runtimeclasses.node.k8s.io"
SCHEMAS, LEVELS = (f"{kind}.flowcontrol.apiserver.k8s.io" for kind in ("flowschemas", "prioritylevelconfigurations"))


def said(causes):
    return [f"{cause.path}: {cause.message}" for cause in causes]


def test_a_replication_controller_takes_its_selector_and_labels_from_its_template(world):
    made = world.create("replicationcontrollers", {"metadata": {"name": "r"}, "spec": {"template": TEMPLATE}})
    assert (made["spec"]["selector"], made["metadata"]["labels"], made["spec"]["replicas"]) == (
        {"app": "a"}, {"app": "a"}, 1)  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "cause"),
    [
        ({"template": {"spec": CONTAINERS}}, "spec.selector: Required value"),
        ({"selector": {"app": "b"}, "template": TEMPLATE}, "`selector` does not match template `labels`"),
        ({"selector": {"app": "b"}}, "spec.template: Required value"),
    ],
)
def test_what_a_replication_controller_may_not_say(world, spec, cause):
    causes, _ = world.try_create("replicationcontrollers", {"metadata": {"name": "r"}, "spec": spec})
    assert any(cause in text for text in said(causes)), said(causes)


@pytest.mark.parametrize(
    ("subset", "cause"),
    [
        ({"ports": [{"port": 1}]}, "subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`"),
        ({"addresses": [{"ip": "127.0.0.1"}]}, "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
        ({"addresses": [{"ip": "x"}]}, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
        ({"addresses": [{"ip": "1.2.3.4"}], "ports": [{"port": 0}]}, "must be between 1 and 65535, inclusive"),
        ({"addresses": [{"ip": "1.2.3.4"}], "ports": [{"port": 1}, {"port": 2}]}, "ports[0].name: Required value"),
    ],
)
def test_what_endpoints_may_not_say(world, subset, cause):
    causes, _ = world.try_create("endpoints", {"metadata": {"name": "e"}, "subsets": [subset]})
    assert any(cause in text for text in said(causes)), said(causes)


def a_pod(**spec):
    return {"metadata": {"name": "p"}, "spec": {**CONTAINERS, **spec}}


def test_a_pod_gets_what_its_runtime_class_says(world):
    toleration = {"key": "sandboxed", "operator": "Exists"}
    scheduling = {"nodeSelector": {"runtime": "sandboxed"}, "tolerations": [toleration]}
    overhead = {"podFixed": {"cpu": "250m"}}
    meta = {"metadata": {"name": "sandboxed"}}
    world.put(CLASSES, {**meta, "handler": "runsc", "overhead": overhead, "scheduling": scheduling})

    spec = world.try_create("pods", a_pod(runtimeClassName="sandboxed", nodeSelector={"a": "b"}))[1]["spec"]

    assert spec["overhead"] == {"cpu": "250m"}
    assert spec["nodeSelector"] == {"a": "b", "runtime": "sandboxed"}
    assert toleration in spec["tolerations"]


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"runtimeClassName": "no"}, 'pods "p" is forbidden: pod rejected: RuntimeClass "no" not found'),
        ({"overhead": {"cpu": "1"}}, "Pod Overhead set without corresponding RuntimeClass defined Overhead"),
        ({"runtimeClassName": "r", "overhead": {"cpu": "1"}}, "Pod's Overhead doesn't match RuntimeClass's defined"),
        (
            {"runtimeClassName": "r", "nodeSelector": {"a": "c"}},
            "conflict: runtimeClass.scheduling.nodeSelector[a] = b",
        ),
    ],
)
def test_a_pod_that_contradicts_its_runtime_class_is_refused(world, spec, why):
    document = {"metadata": {"name": "r"}, "handler": "h", "overhead": {"podFixed": {"cpu": "250m"}}}
    world.put(CLASSES, {**document, "scheduling": {"nodeSelector": {"a": "b"}}})
    with pytest.raises(Forbidden, match=r"pod rejected|conflict") as refused:
        world.try_create("pods", a_pod(**spec))
    assert why in str(refused.value)


def test_flow_control_is_completed(world):
    queue = {"type": "Limited", "limited": {"limitResponse": {"type": "Queue", "queuing": {}}}}
    level = world.create(LEVELS, {"metadata": {"name": "l"}, "spec": queue})
    schema = world.create(SCHEMAS, {"metadata": {"name": "s"}, "spec": {"priorityLevelConfiguration": {"name": "l"}}})
    assert level["spec"]["limited"]["limitResponse"]["queuing"] == {"queueLengthLimit": 50, "queues": 64, "handSize": 8}
    assert level["spec"]["limited"]["nominalConcurrencyShares"] == 30
    assert schema["spec"]["matchingPrecedence"] == 1000


@pytest.mark.parametrize(
    ("resource", "spec", "cause"),
    [
        (LEVELS, {"type": "Some"}, 'spec.type: Unsupported value: "Some": supported values: "Exempt", "Limited"'),
        (LEVELS, {"type": "Limited"}, "spec.limited: Required value: must not be empty when type is Limited"),
        (SCHEMAS, {"matchingPrecedence": 10001}, "must not be greater than 10000"),
        (SCHEMAS, {}, "spec.priorityLevelConfiguration.name: Required value: must reference a priority level"),
        (SCHEMAS, {"rules": [{}]}, "spec.rules[0].subjects: Required value: subjects must contain at least one value"),
    ],
)
def test_what_flow_control_may_not_say(world, resource, spec, cause):
    causes, _ = world.try_create(resource, {"metadata": {"name": "x"}, "spec": spec})
    assert any(cause in text for text in said(causes)), said(causes)


def a_request(**more):
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "jane")])
    pem = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    text = base64.b64encode(pem.public_bytes(serialization.Encoding.PEM)).decode()
    spec = {"request": text, "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"], **more}
    return {"kind": "CertificateSigningRequest", "metadata": {"name": "jane"}, "spec": spec}


UPSTREAMS_USAGES = (
    "signing", "digital signature", "content commitment", "key encipherment", "key agreement", "data encipherment", "cert sign",
    "crl sign", "encipher only", "decipher only", "any", "server auth", "client auth", "code signing", "email protection",
    "s/mime", "ipsec end system", "ipsec tunnel", "ipsec user", "timestamping", "ocsp signing", "microsoft sgc", "netscape sgc",
)  # fmt: skip
"""`KeyUsage` of staging/src/k8s.io/api/certificates/v1/types.go."""


def test_a_request_may_ask_for_every_usage_that_upstream_knows_and_for_no_other(world):
    made = world.create(REQUESTS, a_request(usages=list(UPSTREAMS_USAGES)))

    assert list(UPSTREAMS_USAGES) == made["spec"]["usages"]
    causes, _ = world.try_create(REQUESTS, a_request(usages=["", "time stamping"]))
    assert {"spec.usages[0]", "spec.usages[1]"} <= {text.partition(": ")[0] for text in said(causes)}


def test_a_request_says_who_asks_whatever_the_client_wrote(world):
    made = world.create(REQUESTS, a_request(username="root", groups=["g"]))
    assert (made["spec"]["username"], made["spec"]["groups"]) == (ADMIN.user, [*ADMIN.groups])
    _, changed = world.try_update(REQUESTS, made, {**made, "spec": {**made["spec"], "username": "root"}})
    assert changed["spec"] == made["spec"]


@pytest.mark.parametrize(
    ("more", "cause"),
    [
        ({"request": "eA=="}, "PEM block type must be CERTIFICATE REQUEST"),
        ({"usages": []}, "spec.usages: Required value"),
        ({"usages": ["sing"]}, 'spec.usages[0]: Unsupported value: "sing"'),
        ({"signerName": "x"}, "must be a fully qualified domain and path of the form 'example.com/signer-name'"),
        ({"signerName": "kubernetes.io/legacy-unknown"}, "the legacy signerName is not allowed via this API version"),
        ({"expirationSeconds": 599}, "may not specify a duration less than 600 seconds"),
    ],
)
def test_what_a_request_may_not_say(world, more, cause):
    causes, _ = world.try_create(REQUESTS, a_request(**more))
    assert any(cause in text for text in said(causes)), said(causes)


def approve(world, *conditions):
    stored = world.get(REQUESTS, "jane", "")
    body = {**stored, "status": {"conditions": [*conditions], "certificate": "taken from no approval"}}
    return world.sub(ADMIN, REQUESTS, "jane", "approval", body, verb="update", namespace="").document["status"]


def test_a_request_is_approved_once_and_for_all(world):
    world.create(REQUESTS, a_request())
    status = approve(world, {"type": "Approved", "status": "True", "reason": "KubectlApprove"})

    assert [each["type"] for each in status["conditions"]] == ["Approved"]
    assert status["conditions"][0]["lastUpdateTime"] == status["conditions"][0]["lastTransitionTime"]
    assert "certificate" not in status
    with pytest.raises(ApiError, match="updates may not remove a condition of type"):
        approve(world, {"type": "Denied", "status": "True"})
    with pytest.raises(ApiError, match="mutually exclusive"):
        approve(world, {"type": "Approved", "status": "True"}, {"type": "Denied", "status": "True"})
    with pytest.raises(ApiError, match=r'status.conditions.*Unsupported value: "False"'):
        approve(world, {"type": "Approved", "status": "False"})
