"""The trace of every pod that starts on a node: one span for its sync, and one below it for each stage."""

from kubelet.view import KubeletPod, WorkerKey
from services.api.seams import Span, Tracer

FOLLOWS = {
    "admitted": "start worker",
    "worker": "mount volumes",
    "mount": "create sandbox",
    "sandbox": "start containers",
    "running": "write status",
    "rejected": "reject pod",
    "unbinding": "unbind pod",
}
"""The activity that follows each stage of a pod's start; each is a span of its own below `sync pod`."""


class PodTraces:
    """The spans of one node's pods. Invariant: each sync has at most one open stage span."""

    def __init__(self, tracer: Tracer, node: str) -> None:
        self._tracer, self._node = tracer, node
        self._spans: dict[WorkerKey, tuple[Span, Span | None, str]] = {}
        """The span of each sync, that of its stage, and what the stage is called."""

    def begin(self, key: WorkerKey, pod: KubeletPod, traceparent: str) -> None:
        """Begin the span of a pod sync; `traceparent` names its cause."""
        span = self._tracer.start(
            "sync pod",
            kind="consumer" if traceparent else "internal",
            parent=traceparent,
            links=(traceparent,) if traceparent else (),
            pod=pod.metadata.name,
            namespace=pod.metadata.namespace,
            uid=key.uid,
            node=self._node,
        )
        self._spans[key] = span, None, ""

    def stage(self, key: WorkerKey, stage: str, reason: str) -> None:
        """End the span of the former activity, and begin the span of the activity that follows this stage."""
        held = self._spans.get(key)
        if held is None or not held[0].trace_id:
            return
        span, before, name = held
        following = FOLLOWS.get(stage)
        if following is None:
            span.event(stage)
            return
        if name == following:
            return
        if before is not None:
            before.end()
        started = self._tracer.start(following, parent=span.traceparent)
        if reason:
            started.set(reason=reason)
        self._spans[key] = span, started, following

    def end(self, key: WorkerKey, error: str) -> None:
        """End the sync's span and the open span of its stage."""
        if (held := self._spans.pop(key, None)) is not None:
            if held[1] is not None:
                held[1].end()
            held[0].end(error)

    def trace_id(self, key: WorkerKey) -> str:
        """Return the trace id of a running sync, else ""."""
        held = self._spans.get(key)
        return held[0].trace_id if held is not None else ""

    def traceparent(self, key: WorkerKey) -> str:
        """Return the traceparent of a running sync, else ""."""
        held = self._spans.get(key)
        return held[0].traceparent if held is not None else ""

    def stage_traceparent(self, key: WorkerKey) -> str:
        """Return the traceparent of the open stage, or else of the whole sync."""
        held = self._spans.get(key)
        return (held[1] or held[0]).traceparent if held is not None else ""
