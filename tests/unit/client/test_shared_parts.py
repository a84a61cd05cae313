"""Equal parts of views are shared, and no view is another afterwards."""

import msgspec

from kubelet.view import KubeletPod
from services.api.kinds.pod import Pod
from services.api.meta import ObjectMeta
from services.client.shared_parts import SHARED_MAX, _mappings, _texts, share_parts


def _body(name):
    pod = {
        "metadata": {"name": name, "uid": f"uid-of-{name}", "labels": {"app": "web", "tier": "front"}},
        "spec": {
            "nodeName": "node-1",
            "containers": [{"name": "main", "image": "pause:3.10", "resources": {"requests": {"cpu": "1"}}}],
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 300}],
        },
        "status": {
            "phase": "Succeeded",
            "conditions": [{"type": "PodReadyToStartContainers", "status": "False", "reason": "PodCompleted"}],
            "podIPs": [{"ip": "10.0.0.1"}],
        },
    }
    return msgspec.json.encode(pod)


def test_a_view_equals_what_it_was_and_shares_its_texts_and_mappings_with_others():
    for kind in (Pod, KubeletPod):
        one, other = (msgspec.json.decode(_body(name), type=kind) for name in ("a", "b"))

        share_parts(one)
        share_parts(other)

        assert one == msgspec.json.decode(_body("a"), type=kind)
        assert other == msgspec.json.decode(_body("b"), type=kind)
        assert one.metadata.labels is other.metadata.labels
        assert one.spec.containers[0].resources.requests is other.spec.containers[0].resources.requests
        assert one.spec.tolerations[0].key is other.spec.tolerations[0].key
        assert one.status.conditions[0].type is other.status.conditions[0].type


def test_few_texts_and_mappings_are_remembered():
    for number in range(SHARED_MAX + 100):
        share_parts(Pod(metadata=ObjectMeta(name=f"p{number}", labels={"number": str(number)})))

    assert len(_texts) <= SHARED_MAX
    assert len(_mappings) <= SHARED_MAX
