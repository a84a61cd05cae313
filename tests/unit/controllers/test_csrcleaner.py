"""Certificate requests go an hour after their end, a day after their creation where nobody decided."""

import base64
import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from services.api.times import format_time
from services.controllers.csrcleaner.controller import CONTROLLER

HOUR_S = 3600.0
WALL_S = 1_767_225_600.0


def a_certificate(expires_s):
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    end = datetime.datetime.fromtimestamp(expires_s, datetime.UTC)
    built = x509.CertificateBuilder(name, name, key.public_key(), 1, end - datetime.timedelta(days=1), end)
    return base64.b64encode(built.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)).decode()


@pytest.mark.parametrize(
    ("conditions", "expires_in_s", "created_s_ago", "left_s"),
    [
        ({}, None, 0, 24 * HOUR_S),
        ({}, None, 24 * HOUR_S, 0),
        ({"Approved": 90 * HOUR_S}, None, 90 * HOUR_S, None),
        ({"Approved": 600}, 24 * HOUR_S, 700, HOUR_S - 600),
        ({"Approved": HOUR_S}, 24 * HOUR_S, 2 * HOUR_S, 0),
        ({"Approved": 600}, 60, 700, 60),
        ({"Approved": 600}, -1, 700, 0),
        ({"Denied": 60}, None, 9000, HOUR_S - 60),
        ({"Denied": HOUR_S + 1}, None, 9000, 0),
        ({"Approved": 60, "Failed": 30}, None, 9000, HOUR_S - 30),
        ({"Approved": 9000, "Failed": 8000}, None, 9000, 0),
    ],
)
def test_a_request_goes_when_its_time_has_come(world_of, conditions, expires_in_s, created_s_ago, left_s):
    world = world_of(CONTROLLER)
    now_s = WALL_S + world.now_s
    listed = [{"type": name, "status": "True", "lastTransitionTime": format_time(now_s - ago)}
              for name, ago in conditions.items()]  # fmt: skip
    status = {"conditions": listed}
    if expires_in_s is not None:
        status["certificate"] = a_certificate(now_s + expires_in_s)
    meta = {"name": "jane", "uid": "u", "creationTimestamp": format_time(now_s - created_s_ago)}
    world.put({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": meta,
               "spec": {"signerName": "kubernetes.io/kube-apiserver-client"}, "status": status})  # fmt: skip

    found = world.reconcile("jane", namespace="")

    if left_s == 0:
        (deleted,) = found.actions
        assert (deleted.resource, deleted.uid) == ("certificatesigningrequests.certificates.k8s.io", "u")
    else:
        assert found.actions == ()
        assert found.requeue_after_s == (None if left_s is None else pytest.approx(left_s, abs=1.0))
