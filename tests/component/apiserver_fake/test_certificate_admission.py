"""Whose certificate requests are taken, who approves them and who signs them: a right on the signer, over HTTP."""

import asyncio
import base64

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from services.controllers.csrsigning.controller import CONTROLLER
from services.runtime.roles import controller_roles
from tests.component.apiserver_fake.test_access import a_cluster

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
GROUP = "certificates.k8s.io"
CLIENT, OTHER = "kubernetes.io/kube-apiserver-client", "example.com/serving"
WRITER = {
    "apiGroups": [GROUP],
    "resources": [f"certificatesigningrequests{each}" for each in ("", "/approval", "/status")],
    "verbs": ["create", "get", "update", "patch"],
}
APPROVED = {"type": "Approved", "status": "True", "reason": "AutoApproved", "message": "fine"}
DENIED, FAILED = {**APPROVED, "type": "Denied"}, {**APPROVED, "type": "Failed"}


def pem_of(*organizations, name="eve"):
    key = ec.generate_private_key(ec.SECP256R1())
    subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organizations]
    subject.append(x509.NameAttribute(NameOID.COMMON_NAME, name))
    made = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(subject)).sign(key, hashes.SHA256())
    return base64.b64encode(made.public_bytes(serialization.Encoding.PEM)).decode()


def body_of(*organizations, signer=CLIENT):
    spec = {"request": pem_of(*organizations), "signerName": signer, "usages": ["client auth"]}
    return {"metadata": {"name": "e"}, "spec": spec}


def run(folder, scenario):
    async def inside():
        async with a_cluster(folder) as cluster:
            await cluster.role("writer", WRITER, namespace="")
            await cluster.binding("writer", "writer", "ann", kind="ClusterRole", namespace="")
            return await scenario(cluster)

    return asyncio.run(inside())


async def grant(cluster, verb, *names):
    rule = {"apiGroups": [GROUP], "resources": ["signers"], "verbs": [verb]}
    await cluster.role("signers", {**rule, **({"resourceNames": list(names)} if names else {})}, namespace="")
    await cluster.binding("signers", "signers", "ann", kind="ClusterRole", namespace="")


@pytest.mark.parametrize(
    ("organizations", "signer", "code"),
    [
        (("system:masters",), CLIENT, 403),
        (("dev", "system:masters"), CLIENT, 403),
        (("dev",), CLIENT, 201),
        ((), CLIENT, 201),
        (("system:masters",), OTHER, 201),
        (("system:masters",), "kubernetes.io/kubelet-serving", 201),
    ],
)
@pytest.mark.parametrize("who", ["ann", "admin"])
def test_a_client_certificate_of_the_privileged_group_may_not_be_requested(tmp_path, who, organizations, signer, code):
    async def scenario(cluster):
        return await cluster.call(who, "POST", REQUESTS, body_of(*organizations, signer=signer))

    found, answer = run(tmp_path, scenario)
    assert code == found, answer
    if code == 403:
        assert (
            'certificatesigningrequests.certificates.k8s.io "e" is forbidden: use of '
            "kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"
        ) == answer["message"]


RIGHTS = [((), 403), ((CLIENT,), 200), (("kubernetes.io/*",), 200), (("example.com/*", OTHER), 403), (("*",), 403)]


@pytest.mark.parametrize(("names", "code"), RIGHTS)
@pytest.mark.parametrize("condition", [APPROVED, DENIED], ids=["approved", "denied"])
@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_who_decides_on_a_request_needs_the_right_to_approve_for_its_signer(tmp_path, method, condition, names, code):
    async def scenario(cluster):
        await grant(cluster, "sign")
        if names:
            rule = {"apiGroups": [GROUP], "resources": ["signers"], "verbs": ["approve"], "resourceNames": list(names)}
            await cluster.role("approvers", rule, namespace="")
            await cluster.binding("approvers", "approvers", "ann", kind="ClusterRole", namespace="")
        made = await cluster.done("ann", "POST", REQUESTS, body_of())
        made["status"] = {"conditions": [condition]}
        sent = made if method == "PUT" else {"status": made["status"]}
        form = [("Content-Type", "application/json" if method == "PUT" else "application/merge-patch+json")]
        return await cluster.call("ann", method, f"{REQUESTS}/e/approval", sent, headers=form)

    found, answer = run(tmp_path, scenario)
    assert code == found, answer
    if code == 403:
        assert (
            'certificatesigningrequests.certificates.k8s.io "e" is forbidden: user not permitted to approve requests '
            'with signerName "kubernetes.io/kube-apiserver-client"'
        ) == answer["message"]


def test_a_right_on_all_signers_is_enough(tmp_path):
    async def scenario(cluster):
        await grant(cluster, "*")
        made = await cluster.done("ann", "POST", REQUESTS, body_of())
        return await cluster.call(
            "ann", "PUT", f"{REQUESTS}/e/approval", {**made, "status": {"conditions": [APPROVED]}}
        )

    assert 200 == run(tmp_path, scenario)[0]


@pytest.mark.parametrize(("names", "code"), RIGHTS)
def test_who_writes_a_status_needs_the_right_to_sign_for_the_signer(tmp_path, names, code):
    async def scenario(cluster):
        await grant(cluster, "sign", *names) if names else await grant(cluster, "approve")
        made = await cluster.done("ann", "POST", REQUESTS, body_of())
        return await cluster.call("ann", "PUT", f"{REQUESTS}/e/status", {**made, "status": {"conditions": [FAILED]}})

    found, answer = run(tmp_path, scenario)
    assert code == found, answer
    if code == 403:
        assert (
            'certificatesigningrequests.certificates.k8s.io "e" is forbidden: user not permitted to sign requests with '
            'signerName "kubernetes.io/kube-apiserver-client"'
        ) == answer["message"]


def test_a_status_that_changes_neither_certificate_nor_conditions_needs_no_right_on_the_signer(tmp_path):
    async def scenario(cluster):
        made = await cluster.done("ann", "POST", REQUESTS, body_of())
        decided = {**made, "status": {"conditions": [APPROVED]}}
        decided = await cluster.done("admin", "PUT", f"{REQUESTS}/e/approval", decided)
        return await cluster.call("ann", "PUT", f"{REQUESTS}/e/status", decided)

    assert 200 == run(tmp_path, scenario)[0]


@pytest.mark.parametrize("signer", [CLIENT, OTHER])
def test_an_administrator_approves_whatever_the_signer(tmp_path, signer):
    async def scenario(cluster):
        made = await cluster.done("ann", "POST", REQUESTS, body_of(signer=signer))
        decided = {**made, "status": {"conditions": [APPROVED]}}
        return await cluster.call("admin", "PUT", f"{REQUESTS}/e/approval", decided)

    assert 200 == run(tmp_path, scenario)[0]


@pytest.mark.parametrize(
    ("role", "path"),
    [("system:certificates.k8s.io:kube-apiserver-client-approver", "approval"), ("cluster-admin", "status")],
)
def test_the_shipped_roles_of_approvers_and_signers_are_enough(tmp_path, role, path):
    async def scenario(cluster):
        await cluster.binding("shipped", role, "ann", kind="ClusterRole", namespace="")
        made = await cluster.done("ann", "POST", REQUESTS, body_of())
        status = {"conditions": [APPROVED if path == "approval" else FAILED]}
        return await cluster.call("ann", "PUT", f"{REQUESTS}/e/{path}", {**made, "status": status})

    assert 200 == run(tmp_path, scenario)[0]


def test_the_signing_controller_may_sign():
    assert CONTROLLER.name == "csrsigning"
    [role] = [each for each in controller_roles() if each.user == "system:controller:csrsigning"]
    assert ("sign",) in [rule.verbs for rule in role.rules if "signers.certificates.k8s.io" in rule.resources]
