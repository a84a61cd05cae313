"""NodeDeclaredFeatureValidator: a pod may change only in ways that its node can follow (KEP-5328).

Source: node-declared-features 4; upstream `plugin/pkg/admission/nodedeclaredfeatures` (v1.36).
"""

import msgspec

from apiserver_fake.registry.errors import forbidden
from apiserver_fake.registry.strategy import WriteContext
from services.api.features.declared_features import missing, needed_to_update
from services.api.kinds.node import Node
from services.api.kinds.pod import Pod
from services.api.meta import Document


def check_pod_update(old: Document, new: Document, ctx: WriteContext) -> None:
    """Check that the pod's node declares the features that the change of the spec needs; skipped for a pod
    without a node.

    Raises: Forbidden.
    """
    name = (new.get("spec") or {}).get("nodeName") or ""
    is_same = old["metadata"].get("generation") == new["metadata"].get("generation")
    if not ctx.switches.node_declared_features or not name or is_same:
        return
    needed = needed_to_update(msgspec.convert(old, Pod), msgspec.convert(new, Pod), ctx.switches.release)
    if not needed:
        return
    node = ctx.lookup("nodes", "", name)
    if node is None:
        raise forbidden("pods", new["metadata"]["name"], f'node "{name}" not found')
    if lacks := missing(needed, msgspec.convert(node, Node).status.declared_features):
        text = f'pod update requires features {", ".join(lacks)} which are not available on node "{name}"'
        raise forbidden("pods", new["metadata"]["name"], text)
