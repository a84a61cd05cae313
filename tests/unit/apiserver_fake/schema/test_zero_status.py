import pytest

from apiserver_fake.schema.schemas import zero_status

COUNTS = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")


@pytest.mark.parametrize(
    ("api_version", "kind", "status"),
    [
        ("apps/v1", "Deployment", {}),
        ("apps/v1", "ReplicaSet", {"replicas": 0}),
        ("apps/v1", "StatefulSet", {"replicas": 0, "availableReplicas": 0}),
        ("v1", "Service", {"loadBalancer": {}}),
        ("networking.k8s.io/v1", "Ingress", {"loadBalancer": {}}),
        ("policy/v1", "PodDisruptionBudget", dict.fromkeys(COUNTS, 0)),
        ("storage.k8s.io/v1", "VolumeAttachment", {"attached": False}),
        ("v1", "ConfigMap", None),
        ("v1", "Nothing", None),
    ],
)
def test_the_status_of_a_new_object_is_what_upstreams_encoder_writes_of_an_empty_one(api_version, kind, status):
    assert zero_status(api_version, kind) == status
