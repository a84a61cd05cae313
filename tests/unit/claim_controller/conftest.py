"""The world of values of the controllers' tests, with reads that the server forbids, and claims in one line."""

import pytest

from services.api.meta import Key
from services.reconcile.controller import Moment
from tests.unit.controllers import conftest as controllers

CLAIM = "resource.k8s.io/v1"
DEVICE = {"request": "gpu", "driver": "d.x", "pool": "n1", "device": "gpu-0"}


class World(controllers.World):
    def moment(self, live=None, listed=None, refused=None):
        wall_s = controllers.WALL_S + self.now_s
        return Moment(self.now_s, wall_s, live or {}, listed or {}, refused or {})

    def sync(self, kind, name, namespace="default", after_s=0.0, **answers):
        """Reconcile `kind/name`, answering live reads as `answers` says."""
        self.now_s += after_s
        return self.controller.reconcile(Key(namespace, f"{kind}/{name}"), self, self.moment(**answers))


def a_claim(name="c", consumers=(), *, allocated=True, tolerations=(), spec=None, **metadata):
    """A claim that has gpu-0 of n1 and is reserved for these: a pod's name, or (group, resource, name)."""
    listed = []
    for each in consumers:
        if isinstance(each, str):
            listed.append({"resource": "pods", "name": each, "uid": f"uid-{each}"})
        else:
            group, resource, called = each
            listed.append({"apiGroup": group, "resource": resource, "name": called, "uid": f"uid-{called}"})
    result = {**DEVICE, "tolerations": list(tolerations)}
    status = {"reservedFor": listed} if listed else {}
    if allocated:
        status["allocation"] = {"devices": {"results": [result]}}
    metadata = {"name": name, **metadata}
    return {"apiVersion": CLAIM, "kind": "ResourceClaim", "metadata": metadata, "spec": spec or {}, "status": status}


def a_pod(name, claim="c", *, node="n1", phase="Running", entries=None, **metadata):
    entries = [{"name": "dev", "resourceClaimName": claim}] if entries is None else entries
    spec = {"containers": [{"name": "c", "image": "i"}], "nodeName": node, "resourceClaims": entries}
    status = metadata.pop("status", {})
    spec |= metadata.pop("spec", {})
    status = {"phase": phase, **status}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": spec, "status": status}


@pytest.fixture
def world_of():
    return World
