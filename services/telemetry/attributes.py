"""Every log key and span attribute, spelled once.

Log keys and the keyword arguments of `Tracer.start` are short Python names (`pod`, `node`); what
leaves the process as a span attribute has OpenTelemetry's name. The RPC conventions are still
moving, so their spelling lives here alone.
"""

from __future__ import annotations

CONTROLLER = "controller"
KEY = "key"
POD = "pod"
NODE = "node"
NAMESPACE = "namespace"
CLAIM = "claim"
UID = "uid"
PHASE = "phase"
RESOURCE_VERSION = "resource_version"
REASON = "reason"
ATTEMPT = "attempt"

RPC_METHOD = "rpc.method"
SERVICE_NAME = "service.name"
SERVICE_INSTANCE = "service.instance.id"

SPAN_NAMES: dict[str, str] = {
    POD: "k8s.pod.name",
    NODE: "k8s.node.name",
    NAMESPACE: "k8s.namespace.name",
    UID: "k8s.pod.uid",
    PHASE: "k8s.pod.phase",
    CONTROLLER: "keplab.controller",
    KEY: "keplab.key",
    CLAIM: "keplab.claim",
    RESOURCE_VERSION: "keplab.resource_version",
    REASON: "keplab.reason",
    ATTEMPT: "keplab.attempt",
}
"""Keyword argument of a span → the attribute it leaves the process as; others keep their name."""
