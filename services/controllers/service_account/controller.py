"""Create the service account `default` in every namespace, and recreate it when it is deleted.

Source: upstream `pkg/controller/serviceaccount/serviceaccounts_controller.go`.
"""

from collections.abc import Iterable

from services.api.kinds.namespace import Namespace
from services.api.kinds.serviceaccount import ServiceAccount
from services.api.meta import Key
from services.reconcile.actions import NOTHING, Create, Result
from services.reconcile.controller import Change, Controller, Listers, Moment, Registration, Watch

DEFAULT = "default"


def account_changed(change: Change[ServiceAccount], listers: Listers) -> Iterable[Key]:
    """Return the namespace whose default account was deleted."""
    meta = change.object.metadata
    return (Key("", meta.namespace),) if change.new is None and meta.name == DEFAULT else ()


def reconcile(key: Key, listers: Listers, moment: Moment) -> Result:
    """Create the account in a namespace that is not being deleted."""
    namespace = listers.of(Namespace).get(key)
    if namespace is None or namespace.metadata.deletion_timestamp is not None:
        return NOTHING
    if listers.of(ServiceAccount).get(Key(key.name, DEFAULT)) is not None:
        return NOTHING
    metadata = {"name": DEFAULT, "namespace": key.name}
    return Result((Create("serviceaccounts", {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}),))


CONTROLLER = Registration(
    "service-account-controller",
    lambda _: Controller(
        "service-account-controller", Namespace, reconcile, watches=(Watch(ServiceAccount, account_changed),)
    ),
    start_order=90,
    by_default=False,
)
