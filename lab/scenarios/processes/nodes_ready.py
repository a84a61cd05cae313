"""Waiting until nodes are Ready, as a client of the mesh sees them."""

import asyncio
from collections.abc import Collection

from services.api.kinds.node import Node
from services.api.seams import Clock
from services.api.wire import Api
from services.client.informer import Informer
from services.runtime.config import MeshError
from services.runtime.real import seeded_random

LIMIT_S = 60.0


async def nodes_ready(api: Api, clock: Clock, names: Collection[str]) -> None:
    """Return when all these nodes are Ready and without taints. Raises: MeshError after a minute."""
    changed = asyncio.Event()
    informer: Informer[Node] = Informer(api, Node, clock=clock, random=seeded_random(None))
    informer.on_change(lambda _: changed.set())
    watching = asyncio.create_task(informer.run())
    try:
        async with asyncio.timeout(LIMIT_S):
            while not set(names) <= {
                n.metadata.name for n in informer.lister.all() if n.is_ready and not n.spec.taints
            }:
                changed.clear()
                await changed.wait()
    except TimeoutError:
        raise MeshError(f"not all nodes are Ready after {LIMIT_S:g} s") from None
    finally:
        watching.cancel()
