"""`pods/log`: a container's output, fetched from its kubelet.

The API server fetches a container's output from the kubelet that runs the pod. The kubelet's address is what its Node
says: the InternalIP among `status.addresses` and `status.daemonEndpoints.kubeletEndpoint.Port`. Pod and node are read
as the server itself: the caller needs the right to `get` `pods/log` and no other, as in Kubernetes.
"""

import ssl
from typing import Any, Protocol
from urllib.parse import quote

import aiohttp
import msgspec
from aiohttp import web

from apiserver_fake.rest.paths import Parameters, Route
from services.api.errors import ApiError, BadRequest, NotFound, Unavailable
from services.api.meta import Document
from services.api.wire import Api, Request

CONNECT_TIMEOUT_S = 5.0


class KubeletClient(Protocol):
    """How this server reaches kubelets."""

    @property
    def session(self) -> aiohttp.ClientSession:
        """What connects."""
        ...

    @property
    def scheme(self) -> str:
        """`https`, or `http` where this server has no certificate for it."""
        ...

    @property
    def tls(self) -> ssl.SSLContext | None:
        """What a connection is made with."""
        ...

    @property
    def headers(self) -> dict[str, str]:
        """What says who is calling."""
        ...


_FLAGS = ("follow", "previous", "timestamps")
_NUMBERS = ("tailLines", "sinceSeconds", "limitBytes")


def container_of(pod: Document, asked: str) -> str:
    """Return the container whose log is meant. Raises: BadRequest when one of several is not named, or none is so."""
    name, spec = pod["metadata"].get("name", ""), pod.get("spec") or {}
    names = [str(c.get("name")) for c in spec.get("containers") or ()]
    inits = [str(c.get("name")) for c in spec.get("initContainers") or ()]
    ephemeral = [str(c.get("name")) for c in spec.get("ephemeralContainers") or ()]
    if asked:
        if asked not in (*names, *inits, *ephemeral):
            raise BadRequest(f"container {asked} is not valid for pod {name}")
        return asked
    default = (pod["metadata"].get("annotations") or {}).get("kubectl.kubernetes.io/default-container", "")
    if default in names:
        return str(default)
    if len(names) == 1:
        return names[0]
    choices = f"choose one of: [{' '.join(names)}]"
    if inits:
        choices += f" or one of the init containers: [{' '.join(inits)}]"
    raise BadRequest(f"a container name must be specified for pod {name}, {choices}")


def kubelet_address(node: Document) -> str:
    """Return `host:port` of a node's kubelet. Raises: Unavailable when the node does not say."""
    status, name = node.get("status") or {}, node["metadata"].get("name", "")
    host = next((a.get("address") for a in status.get("addresses") or () if a.get("type") == "InternalIP"), None)
    port = ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port")
    if not host or not isinstance(port, int) or not 0 < port < 65536:
        raise Unavailable(f'node "{name}" gives no kubelet address: InternalIP {host!r}, kubeletEndpoint port {port!r}')
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def log_url(pod: Document, node: Document, container: str, parameters: Parameters, scheme: str = "http") -> str:
    """Return the kubelet's URL with the options it was asked for. Raises: BadRequest for a malformed option."""
    options = [f"{flag}=true" for flag in _FLAGS if parameters.flag(flag)]
    options += [f"{name}={value}" for name in _NUMBERS if (value := parameters.number(name)) is not None]
    if since := parameters.text("sinceTime"):
        options.append(f"sinceTime={quote(since, safe='')}")
    meta = pod["metadata"]
    path = "/".join(quote(part, safe="") for part in (meta["namespace"], meta["name"], container))
    query = f"?{'&'.join(options)}" if options else ""
    return f"{scheme}://{kubelet_address(node)}/containerLogs/{path}{query}"


async def document_of(api: Api, resource: str, name: str, namespace: str = "") -> Document:
    """Return an object. Raises: ApiError."""
    response = await api.call(Request(verb="get", resource=resource, namespace=namespace, name=name))
    decoded: Any = msgspec.json.decode(response.unwrap().body)
    return dict(decoded)


async def stream(
    request: web.BaseRequest, route: Route, parameters: Parameters, itself: Api, kubelets: KubeletClient
) -> web.StreamResponse:
    """Send the log as the kubelet gives it, until it ends or the client leaves.

    Raises: ApiError of the pod's read; BadRequest; NotFound or Unavailable when the node or its kubelet is gone.
    """
    pod = await document_of(itself, "pods", route.name, route.namespace)
    container = container_of(pod, parameters.text("container"))
    node_name = str((pod.get("spec") or {}).get("nodeName") or "")
    if not node_name:
        raise BadRequest(f"pod {route.name} does not have a host assigned")
    try:
        node = await document_of(itself, "nodes", node_name)
    except NotFound:
        raise NotFound(
            f'pod "{route.name}" is bound to node "{node_name}", which does not exist: its log is gone with it',
            details={"name": node_name, "kind": "nodes"},
        ) from None
    url = log_url(pod, node, container, parameters, kubelets.scheme)
    try:
        return await _forward(request, url, kubelets, forever=parameters.flag("follow"))
    except (aiohttp.ClientConnectionError, TimeoutError) as error:
        raise Unavailable(
            f'the kubelet of node "{node_name}" at {kubelet_address(node)} does not answer: {type(error).__name__}'
        ) from error


async def _forward(request: web.BaseRequest, url: str, kubelets: KubeletClient, *, forever: bool) -> web.StreamResponse:
    timeout = aiohttp.ClientTimeout(total=None if forever else 60.0, connect=CONNECT_TIMEOUT_S)
    async with kubelets.session.get(
        url, ssl=kubelets.tls or True, timeout=timeout, headers=kubelets.headers, allow_redirects=False
    ) as answer:
        if answer.status >= 400:
            text = (await answer.content.read(4096)).decode("utf-8", "replace").strip()
            reason = {400: "BadRequest", 404: "NotFound"}.get(answer.status, "ServiceUnavailable")
            raise ApiError(
                text or f"the kubelet answered {answer.status}",
                reason=reason,
                code=answer.status if answer.status < 500 else 503,
            )
        response = web.StreamResponse(headers={"Content-Type": "text/plain", "Cache-Control": "no-cache, private"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        try:
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
        except (aiohttp.ClientError, TimeoutError):
            # Headers are out: a broken stream is the only honest end left.
            if request.transport is not None:
                request.transport.abort()
            return response
        await response.write_eof()
        return response
