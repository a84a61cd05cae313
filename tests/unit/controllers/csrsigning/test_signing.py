"""Approved certificate requests are signed by their signer's rules; others are left alone."""

import base64

import pytest

from services.controllers.csrsigning.controller import CONTROLLER, LONGEST_S
from services.reconcile.controller import Registration

CLIENT = "kubernetes.io/kube-apiserver-client"


def a_request(*conditions, signer=CLIENT, usages=("client auth",), certificate="", **more):
    request = base64.b64encode(b"pem").decode()
    spec = {"request": request, "signerName": signer, "usages": list(usages), **more}
    status = {"conditions": [{"type": each, "status": "True"} for each in conditions], "certificate": certificate}
    meta = {"name": "jane"}
    return {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": meta,
            "spec": spec, "status": status}  # fmt: skip


class Signer:
    def __init__(self, fault=""):
        self.asked, self.fault = [], fault

    def __call__(self, request, usages, seconds, wall_s):
        self.asked.append((request, tuple(usages), seconds))
        if self.fault:
            raise ValueError(self.fault)
        return b"certificate"


def reconciled(world_of, request, signer):
    build = CONTROLLER.build_signing
    world = world_of(Registration("csrsigning", lambda switches: build(switches, signer)))
    world.put(request)
    return world.reconcile("jane", namespace="").actions


@pytest.mark.parametrize(("asked_s", "given_s"), [(3600, 3600), (None, LONGEST_S), (10 * LONGEST_S, LONGEST_S)])
def test_an_approved_request_is_signed_for_as_long_as_it_asks_at_most_a_year(world_of, asked_s, given_s):
    signer = Signer()
    (patch,) = reconciled(world_of, a_request("Approved", expirationSeconds=asked_s), signer)

    assert patch.patch == {"status": {"certificate": base64.b64encode(b"certificate").decode()}}
    assert signer.asked == [(b"pem", ("client auth",), given_s)]


@pytest.mark.parametrize(
    "request_",
    [
        a_request(),
        a_request("Approved", "Denied"),
        a_request("Approved", "Failed"),
        a_request("Approved", certificate="eA=="),
        a_request("Approved", signer="example.com/own"),
    ],
)
def test_what_is_not_to_be_signed_is_left_alone(world_of, request_):
    signer = Signer()
    assert reconciled(world_of, request_, signer) == ()
    assert signer.asked == []


@pytest.mark.parametrize(
    ("request_", "fault", "message"),
    [
        (a_request("Approved", usages=["server auth"]), "", "invalid usages for kube-apiserver-client certificate"),
        (a_request("Approved"), "bad key", "unable to sign: bad key"),
    ],
)
def test_a_request_that_cannot_be_signed_fails(world_of, request_, fault, message):
    (patch,) = reconciled(world_of, request_, Signer(fault))
    failed = patch.patch["status"]["conditions"][-1]
    assert (failed["type"], failed["reason"]) == ("Failed", "SignerValidationFailure")
    assert message in failed["message"]
