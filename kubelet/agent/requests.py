"""The requests a node makes of the API server over and over: a pod's status, an unbind, its Lease. Pure.

Source: kubelet 2.2, 4; kubelet-unbinding 4.2.
"""

from __future__ import annotations

from kubelet.effects import CallUnbind
from kubelet.node.status import LEASE_NAMESPACE, lease_document
from kubelet.status.versions import Write
from kubelet.unbind.unbinding import unbind_body
from kubelet.view import KubeletPod
from services.api.times import format_micro_time
from services.api.wire import Request, encode

UNBIND = ("create", "unbind")

LEASES = "leases.coordination.k8s.io"
CALL_DEADLINE_S = 10.0


def status_request(pod: KubeletPod, write: Write, traceparent: str) -> Request:
    """Return the patch of a pod's status, for this uid alone."""
    return Request(
        verb="patch",
        resource="pods",
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        subresource="status",
        patch_type="strategic",
        uid=write.uid,
        body=encode(write.patch),
        traceparent=traceparent,
        field_manager="kubelet",
        deadline_s=CALL_DEADLINE_S,
    )


def unbind_request(
    call: CallUnbind, node: str, session: str, traceparent: str, *, fence: str, spelling: tuple[str, str] = UNBIND
) -> Request:
    """Return the unbind of a pod from its node, in the name of the kubelet's current session.

    `spelling`: verb and subresource, as `unbind.api` has them.
    """
    body = unbind_body(call.pod, call.key, node, session, call.reason, call.message, fence=fence)
    return Request(
        verb=spelling[0],
        resource="pods",
        namespace=call.pod.metadata.namespace,
        name=call.pod.metadata.name,
        subresource=spelling[1],
        uid=call.key.uid,
        body=encode(body),
        traceparent=traceparent,
        deadline_s=CALL_DEADLINE_S,
    )


def renewal_request(node: str, wall_s: float, duration_s: int) -> Request:
    """Return the patch that renews the Lease; it gives up long before the Lease ends. Seconds."""
    return Request(
        verb="patch",
        resource=LEASES,
        namespace=LEASE_NAMESPACE,
        name=node,
        patch_type="merge",
        body=encode({"spec": {"renewTime": format_micro_time(wall_s)}}),
        deadline_s=duration_s / 4,
    )


def lease_request(node: str, node_uid: str, duration_s: int, wall_s: float) -> Request:
    """Return the creation of the Lease, owned by the Node. Seconds."""
    document = lease_document(node, node_uid, duration_s, wall_s)
    return Request(verb="create", resource=LEASES, namespace=LEASE_NAMESPACE, name=node, body=encode(document))
