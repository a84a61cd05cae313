"""A Deployment's annotations are those of its current ReplicaSet, also when they are written later."""

from services.controllers.deployment.controller import CONTROLLER
from services.reconcile.actions import Create, Patch

CAUSE = "kubernetes.io/change-cause"
APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def a_deployment(**annotations):
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    meta = {"name": "web", "annotations": {"deployment.kubernetes.io/revision": "1", **annotations}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}


def patches(result):
    sets = [each.patch for each in result.actions if isinstance(each, Patch) and each.resource == "replicasets.apps"]
    return [each["metadata"]["annotations"] for each in sets if "annotations" in each.get("metadata", {})]


def test_a_change_cause_written_after_the_rollout_reaches_the_current_set(world_of):
    world = world_of(CONTROLLER)
    world.put(a_deployment())
    (made,) = [each for each in world.reconcile("web").actions if isinstance(each, Create)]
    world.put(made.document)
    assert patches(world.reconcile("web")) == []

    world.put(a_deployment(**{CAUSE: "first", APPLIED: "{}"}))

    assert [each.get(CAUSE) for each in patches(world.reconcile("web"))] == ["first"]
    assert all(APPLIED not in each for each in patches(world.reconcile("web")))
