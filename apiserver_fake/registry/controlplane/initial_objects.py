"""The objects every cluster has from its first start; the server creates those that are missing."""

from collections.abc import Awaitable, Callable, Iterable

import msgspec

from apiserver_fake.registry.admission.priority import PRIORITY_CLASSES, SYSTEM_CLASSES
from apiserver_fake.storage.store import Store
from services.api.errors import AlreadyExists, Conflict
from services.api.meta import Document
from services.api.wire import Api, Request, Response

_WHY = ("run in the cluster, but can be moved to another node if necessary", "not be moved from their current node")
FIRST_OBJECTS: tuple[tuple[str, Document], ...] = (
    *(
        ("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for name in ("default", "kube-system", "kube-public", "kube-node-lease")
    ),
    *(
        (
            PRIORITY_CLASSES,
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": value,
                "description": f"Used for pods that must {why}.",
            },
        )
        for (name, value), why in zip(SYSTEM_CLASSES.items(), _WHY, strict=True)
    ),
)


async def create_first_objects(api: Api, store: Store, further: Iterable[Request]) -> None:
    """Create the first objects that are not stored, then send `further` requests that create some. Raises: ApiError."""
    for resource, document in FIRST_OBJECTS:
        name = document["metadata"]["name"]
        if store.get(resource, "", name) is None:
            request = Request(verb="create", resource=resource, body=msgspec.json.encode(document))
            _check_made(await api.call(request))
    for request in further:
        _check_made(await api.call(request))


async def keep_access_objects(
    api: Api, confirm: Callable[[], Awaitable[object]], writes: Callable[[], Iterable[Request]]
) -> None:
    """Send what a mode of access needs to be written, until nothing has come in between.

    `writes` are made from what is stored; `confirm` waits until that is what every server has written.

    Raises: ApiError.
    """
    is_changed = True
    while is_changed:
        # Written by another server at the same time: look at what that one has made of it.
        is_changed = False
        await confirm()
        for request in writes():
            response = await api.call(request)
            is_changed = is_changed or response.code == Conflict.code
            _check_made(response)


def _check_made(response: Response) -> None:
    """Raise the refusal of an object that the server makes; another API server may have made it meanwhile."""
    if response.code != AlreadyExists.code:
        response.unwrap()
