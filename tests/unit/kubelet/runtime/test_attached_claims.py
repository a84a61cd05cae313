"""Which claims are attached to a node, for whom, and how many there may be (kubelet 5.2, 8)."""

import pytest

from kubelet.runtime.volumes import NodeVolumes, claims_of
from kubelet.view import WorkerKey
from services.api.meta import Key

P, Q = WorkerKey("p", 2), WorkerKey("q", 2)
A, B, C = (Key("default", name) for name in "abc")


def test_a_claim_that_another_pod_uses_is_attached_already():
    volumes = NodeVolumes()

    assert [volumes.take(P, [A, B]), volumes.take(Q, [B]), volumes.take(Q, [B, C]), volumes.take(Q, [C, B])] == [
        True, False, True, False,
    ]  # fmt: skip


def test_a_claim_stays_attached_until_the_last_pod_that_uses_it_is_over():
    volumes = NodeVolumes()
    volumes.take(P, [A, B])
    volumes.take(Q, [B])

    volumes.release(P)
    assert (volumes.take(Q, [B]), volumes.take(Q, [A])) == (False, True)
    volumes.release(Q)

    assert volumes.take(P, [B])


@pytest.mark.parametrize(
    ("limit", "claims", "refuses"),
    [(2, [B, C], True), (2, [B], False), (2, [A], False), (3, [B, C], False), (2, [B, B], False), (0, [B, C], False),
     (1, [A], False), (1, [B], True), (2, [], False)],
)  # fmt: skip
def test_a_node_refuses_what_is_more_than_it_can_attach(limit, claims, refuses):
    volumes = NodeVolumes(limit)
    volumes.take(P, [A])

    assert volumes.refuses(claims) is refuses


def test_a_pods_claims_are_those_of_its_volumes_in_their_order(a_pod):
    volumes = [
        {"name": "two", "persistentVolumeClaim": {"claimName": "b"}},
        {"name": "none", "emptyDir": {}},
        {"name": "own", "ephemeral": {"volumeClaimTemplate": {}}},
        {"name": "one", "persistentVolumeClaim": {"claimName": "a"}},
    ]

    assert claims_of(a_pod(spec={"volumes": volumes})) == [B, Key("default", "p-own"), A]
