"""`pods/log`: a container's output, fetched from its kubelet.

The API server fetches a container's output from the kubelet that runs the pod. The kubelet's address is in its
Node: the InternalIP of `status.addresses`, and `status.daemonEndpoints.kubeletEndpoint.Port`. Pod and node are
read with the server's own identity: the caller only needs the right to `get` `pods/log`, as in Kubernetes.
"""

import ssl
from typing import Any, Protocol
from urllib.parse import quote

import aiohttp
import msgspec
from aiohttp import web

from apiserver_fake.registry.validation.formats import value_text
from apiserver_fake.rest.log_options import LogOptions
from services.api.errors import ApiError, BadRequest, NotFound, Unavailable
from services.api.meta import Document
from services.api.wire import Api, Request

CONNECT_TIMEOUT_S = 5.0


class KubeletClient(Protocol):
    """The client settings for calls of kubelets."""

    @property
    def session(self) -> aiohttp.ClientSession:
        """The HTTP client session."""
        ...

    @property
    def scheme(self) -> str:
        """`https`, or `http` if this server has no certificate for it."""
        ...

    @property
    def tls(self) -> ssl.SSLContext | None:
        """The TLS context of connections; None without TLS."""
        ...

    @property
    def headers(self) -> dict[str, str]:
        """The headers that authenticate the API server."""
        ...


def container_of(pod: Document, asked: str) -> str:
    """Return the container name to use. Raises: BadRequest if there are several and none is named, or the name
    is unknown.

    Source: upstream `pkg/registry/core/pod/strategy.go` (validateContainer).
    """
    name, spec = pod["metadata"].get("name", ""), pod.get("spec") or {}
    lists = (spec.get(field) or () for field in ("initContainers", "containers", "ephemeralContainers"))
    names = [str(container.get("name")) for containers in lists for container in containers]
    if asked:
        if asked not in names:
            raise BadRequest(f"container {asked} is not valid for pod {name}")
        return asked
    if len(spec["containers"]) == 1:
        return str(spec["containers"][0].get("name"))
    raise BadRequest(f"a container name must be specified for pod {name}, choose one of: [{' '.join(names)}]")


def kubelet_address(node: Document) -> str:
    """Return `host:port` of a node's kubelet. Raises: Unavailable when the Node has no address."""
    status, name = node.get("status") or {}, node["metadata"].get("name", "")
    host = next((a.get("address") for a in status.get("addresses") or () if a.get("type") == "InternalIP"), None)
    port = ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port")
    if not host or not isinstance(port, int) or not 0 < port < 65536:
        raise Unavailable(
            f'node "{name}" gives no kubelet address: InternalIP {value_text(host)}, kubeletEndpoint port '
            f"{value_text(port)}"
        )
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def log_url(pod: Document, node: Document, container: str, options: LogOptions, scheme: str = "http") -> str:
    """Return the kubelet's URL for the log, with the requested options."""
    meta = pod["metadata"]
    path = "/".join(quote(part, safe="") for part in (meta["namespace"], meta["name"], container))
    return f"{scheme}://{kubelet_address(node)}/containerLogs/{path}{options.query}"


async def document_of(api: Api, resource: str, name: str, namespace: str = "") -> Document:
    """Return an object. Raises: ApiError."""
    response = await api.call(Request(verb="get", resource=resource, namespace=namespace, name=name))
    decoded: Any = msgspec.json.decode(response.unwrap().body)
    return dict(decoded)


async def stream(
    request: web.BaseRequest, namespace: str, name: str, itself: Api, kubelets: KubeletClient
) -> web.StreamResponse:
    """Send a pod's log as the kubelet gives it, until it ends or the client leaves; nothing where there is no node yet.

    Raises: BadRequest and Invalid for the options; ApiError of the pod's read; NotFound or Unavailable when the node or
    its kubelet is gone.
    """
    options = LogOptions.read(request.rel_url.query)
    options.check(name)
    pod = await document_of(itself, "pods", name, namespace)
    container = container_of(pod, options.container)
    node_name = str((pod.get("spec") or {}).get("nodeName") or "")
    if not node_name:
        return web.Response(status=204, headers={"Cache-Control": "no-cache, private"})
    try:
        node = await document_of(itself, "nodes", node_name)
    except NotFound:
        raise NotFound(
            f'pod "{name}" is bound to node "{node_name}", which does not exist: its log is gone with it',
            details={"name": node_name, "kind": "nodes"},
        ) from None
    url = log_url(pod, node, container, options, kubelets.scheme)
    try:
        return await _forward(request, url, kubelets, forever="follow" in options.flags)
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
