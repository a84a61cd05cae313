"""`pods/exec`, `pods/attach` and `pods/portforward`: what is asked, and why it cannot be.

Containers here are emulated: no process is there to run a command in, to attach to, or to listen on a port.
The answer says so, after what a real cluster would look at first: the pod, its node, its containers.
"""

from __future__ import annotations

from apiserver_fake.rest import pod_log
from apiserver_fake.rest.paths import Parameters
from services.api.errors import ApiError, BadRequest
from services.api.meta import Document

STREAMS = ("attach", "exec", "portforward")


def asked(group: str, version: str, rest: list[str]) -> tuple[str, str, str]:
    """Return namespace, pod and stream of the path segments after the group version; all "" for any other path."""
    match group, version, rest:
        case "", "v1", ["namespaces", str(namespace), "pods", str(name), str(stream)] if stream in STREAMS:
            return namespace, name, stream
    return "", "", ""


def refusal(pod: Document, stream: str, parameters: Parameters) -> ApiError:
    """Return the answer to a client that asks for this stream of this pod."""
    name = pod["metadata"].get("name", "")
    if not (pod.get("spec") or {}).get("nodeName"):
        return BadRequest(f"pod {name} does not have a host assigned")
    reason = "containers are emulated here, what one does is described by the annotation keplab.dev/run"
    match stream:
        case "portforward":
            text = f"pod {name} listens on no port: {reason}"
        case _:
            try:
                container = pod_log.container_of(pod, parameters.text("container"))
            except BadRequest as error:
                return error
            what = "no command can be run" if stream == "exec" else "there is no process to attach to"
            text = f"{what} in container {container} of pod {name}: {reason}"
    return ApiError(text, reason="NotImplemented", code=501)
