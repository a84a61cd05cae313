"""The store's current version, and bookmarks for watches: the reference for an observer of processes."""

from collections.abc import Sequence
from typing import Final

from services.api.wire import Api, Request
from services.client.rpc import RpcTransport

ANSWERED_WITHIN_S: Final = 5.0


async def newest_version(api: Api, transport: RpcTransport, resources: Sequence[str]) -> int:
    """Read the store's version by a consistent read, and request bookmarks on the transport's watches of these
    resources. Raises: ApiError, UnknownOutcome.
    """
    read = Request(verb="list", resource="namespaces", limit=1, deadline_s=ANSWERED_WITHIN_S)
    version = (await api.call(read)).unwrap().rv
    transport.request_progress(resources)
    return version
