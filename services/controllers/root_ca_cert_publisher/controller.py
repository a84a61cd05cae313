"""Keep the ConfigMap `kube-root-ca.crt` in every namespace: the authority that signed the API server's
certificate.

Upstream's controller reads the certificate from a file; here the API server publishes it in
`kube-system/extension-apiserver-authentication`, and one authority signs for servers and clients.
Source: upstream `pkg/controller/certificates/rootcacertpublisher/publisher.go`.
"""

from collections.abc import Iterable

from services.api.kinds.configmap import ConfigMap
from services.api.kinds.namespace import Namespace
from services.api.meta import Key
from services.reconcile.actions import NOTHING, Create, Patch, Result
from services.reconcile.controller import Change, Controller, Listers, Moment, Registration, Watch

NAME, ENTRY = "kube-root-ca.crt", "ca.crt"
SOURCE = Key("kube-system", "extension-apiserver-authentication")
DESCRIPTION = "kubernetes.io/description"
TEXT = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the "
    "internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes "
    "clusters."
)


def configmap_changed(change: Change[ConfigMap], listers: Listers) -> Iterable[Key]:
    """Return the namespace whose copy changed; all namespaces when the certificate changed."""
    key = change.object.metadata.key
    if key == SOURCE:
        return [namespace.metadata.key for namespace in listers.of(Namespace).all()]
    return (Key("", key.namespace),) if key.name == NAME else ()


def reconcile(key: Key, listers: Listers, moment: Moment) -> Result:
    """Create the copy, or correct its contents."""
    namespace, source = listers.of(Namespace).get(key), listers.of(ConfigMap).get(SOURCE)
    if namespace is None or namespace.metadata.deletion_timestamp is not None or source is None:
        return NOTHING
    at = Key(key.name, NAME)
    data, config_map = {ENTRY: source.data.get("client-ca-file", "")}, listers.of(ConfigMap).get(at)
    if config_map is None:
        metadata = {"name": NAME, "namespace": key.name, "annotations": {DESCRIPTION: TEXT}}
        document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        return Result((Create("configmaps", document),))
    if config_map.data == data and config_map.metadata.annotations.get(DESCRIPTION) == TEXT:
        return NOTHING
    removed = dict.fromkeys(name for name in config_map.data if name not in data)
    patch = {"metadata": {"annotations": {DESCRIPTION: TEXT}}, "data": {**removed, **data}}
    return Result((Patch("configmaps", at, patch, uid=config_map.metadata.uid),))


CONTROLLER = Registration(
    "root-ca-cert-publisher",
    lambda _: Controller(
        "root-ca-cert-publisher", Namespace, reconcile, watches=(Watch(ConfigMap, configmap_changed),)
    ),
    start_order=90,
    by_default=False,
)
