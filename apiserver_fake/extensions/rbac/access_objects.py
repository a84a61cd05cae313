"""The objects that a server with RBAC keeps for its clients: the default roles, and the authority's
certificate bundle.
"""

from collections.abc import Callable, Iterator

import msgspec

from apiserver_fake.extensions.rbac.bootstrap import bootstrap_objects, reconcile
from apiserver_fake.registry.authorization.access import Access
from services.api.meta import Document
from services.api.wire import Request

CONFIGMAPS, AUTHENTICATION = "configmaps", "extension-apiserver-authentication"
"""Resource and name of the ConfigMap in which clients in the cluster, and the publisher of
`kube-root-ca.crt`, find the authority's certificate.
"""


def access_objects(access: Access, find: Callable[[str, str, str], Document | None]) -> Iterator[Request]:
    """Yield the writes that create or update the objects of this access setting, where they differ from the
    stored ones.
    """
    wanted = [*(bootstrap_objects() if access.is_rbac else ())]
    if access.authority:
        meta = {"name": AUTHENTICATION, "namespace": "kube-system"}
        data = {"client-ca-file": access.authority}
        wanted.append((CONFIGMAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}))
    for resource, document in wanted:
        name, namespace = document["metadata"]["name"], document["metadata"].get("namespace", "")
        stored = find(resource, namespace, name)
        if stored is None:
            verb, new = "create", document
        elif resource == CONFIGMAPS:
            verb, new = "update", {**stored, "data": {**(stored.get("data") or {}), **document["data"]}}
        else:
            verb, new = "update", reconcile(stored, document)
        if new != stored:
            body = msgspec.json.encode(new)
            at = name if verb == "update" else ""
            yield Request(verb=verb, resource=resource, namespace=namespace, name=at, body=body)
