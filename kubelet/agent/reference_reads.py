"""The API reads of the objects that one node's pods refer to. Each pod's reads are a task of their own.

Values of a ConfigMap or Secret are decoded for variables only, and stay in memory (X-SEC). Source:
guarantees X-NR13, X-TOK3; upstream `pkg/volume/csi`.
"""

import msgspec

from kubelet.agent.claim_volumes import volume_of
from kubelet.agent.node import NodeShell
from kubelet.effects import ReadReferences
from kubelet.reference_manager import ReferenceManager
from kubelet.references.references import (
    CLAIMS,
    CONFIG_MAPS,
    NOTHING,
    RUNTIME_CLASSES,
    SECRETS,
    TOKENS,
    Content,
    Reference,
    missing,
)
from kubelet.timers import CALL_DEADLINE_S
from kubelet.view import KubeletPod
from services.api.errors import UNREADABLE, ApiError, NotFound, UnknownOutcome
from services.api.kinds.csidriver import DRIVERS
from services.api.meta import Document, Key
from services.api.wire import Request, encode
from services.client.client import request_of

TOKEN_S = 3607


class _Keyed(msgspec.Struct, frozen=True, rename="camel"):
    """A ConfigMap or Secret whose values are decoded when they are needed."""

    data: dict[str, msgspec.Raw] | None = None
    binary_data: dict[str, msgspec.Raw] | None = None


_KEYED = msgspec.json.Decoder(_Keyed)


class ReferenceReads:
    """The reads of one node, made with the node's identity."""

    def __init__(self, node: NodeShell, manager: ReferenceManager) -> None:
        self._node, self._manager = node, manager

    async def references(self, wanted: ReadReferences) -> None:
        """Read the objects one after the other, and hand each, or the error, to the machine."""
        contents: dict[Reference, Content | str] = {}
        for reference in wanted.wanted:
            try:
                contents[reference] = await self._read(reference, wanted)
            except (ApiError, UnknownOutcome, *UNREADABLE) as error:
                contents[reference] = str(error)
        self._manager.references_read(wanted, contents, self._node.now())
        self._node.drain()

    async def _read(self, reference: Reference, wanted: ReadReferences) -> Content:
        """Raises: ApiError, UnknownOutcome, and what a decoder raises."""
        pod = wanted.pod
        match reference.resource:
            case resource if resource in (CONFIG_MAPS, SECRETS):
                return await self._read_keyed(reference, pod, has_values=bool(wanted.container))
            case resource if resource == TOKENS:
                return await self._token(reference, pod)
            case resource if resource == CLAIMS:
                return await self._claim(reference, pod)
            case _:
                return await self._read_named(reference)

    async def _read_keyed(self, reference: Reference, pod: KubeletPod, *, has_values: bool) -> Content:
        key = Key(pod.metadata.namespace, reference.name)
        request = msgspec.structs.replace(request_of("get", reference.resource, key), deadline_s=CALL_DEADLINE_S)
        try:
            read = _KEYED.decode((await self._node.client.call(request)).unwrap().body)
        except NotFound:
            return missing(reference)
        data = read.data or {}
        values = {key: msgspec.json.decode(text) for key, text in data.items()} if has_values else None
        return Content(frozenset(data), frozenset(read.binary_data or ()), values)

    async def _token(self, reference: Reference, pod: KubeletPod) -> Content:
        """Ask for a token of the pod's account, bound to the pod; an API server that issues none says so."""
        meta = pod.metadata
        bound = {"apiVersion": "v1", "kind": "Pod", "name": meta.name, "uid": meta.uid}
        audiences = [reference.audience] if reference.audience else []
        spec: Document = {"audiences": audiences, "expirationSeconds": TOKEN_S, "boundObjectRef": bound}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {}, "spec": spec}
        request = Request(
            verb="create",
            resource="serviceaccounts",
            namespace=meta.namespace,
            name=reference.name,
            subresource="token",
            body=encode(body),
            deadline_s=CALL_DEADLINE_S,
        )
        try:
            (await self._node.client.call(request)).unwrap()
        except NotFound as error:
            if not error.details.get("kind"):
                return Content(is_served=False)
            return Content(problem=f"failed to fetch token: {error.message}")
        except ApiError as error:
            return Content(problem=f"failed to fetch token: {error.message}")
        return NOTHING

    async def _claim(self, reference: Reference, pod: KubeletPod) -> Content:
        try:
            await volume_of(self._node.client, Key(pod.metadata.namespace, reference.name))
        except ValueError as error:
            return Content(problem=str(error))
        return NOTHING

    async def _read_named(self, reference: Reference) -> Content:
        """Look for a CSI driver, or for a runtime class."""
        try:
            await self._node.client.get_raw(reference.resource, Key("", reference.name))
        except NotFound:
            return Content(problem=_ABSENT[reference.resource].format(reference.name), is_missing=True)
        return NOTHING


_ABSENT = {
    DRIVERS: "kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: "
    "driver name {} not found in the list of registered CSI drivers",
    RUNTIME_CLASSES: 'runtimeclass.node.k8s.io "{}" not found',
}
