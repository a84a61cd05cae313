"""Sources of the objects of a mesh with the simulator API: a cluster, copied once or followed, or a record.

Source: simulator 3, 4.2; kubernetes-sigs/kube-scheduler-simulator, `simulator/oneshotimporter`,
`simulator/syncer`.
"""

import asyncio
from pathlib import Path

import structlog

from lab.exchange.cluster import Cluster, Expired
from lab.exchange.format import Reading, open_stream
from lab.exchange.player import AS_FAST_AS_POSSIBLE, Player
from lab.exchange.reading import Source
from lab.exchange.rest.kubeconfig import read_access
from lab.exchange.rules import Rules
from lab.exchange.stream import Refused
from lab.exchange.sync import KINDS, Sync
from services.api.errors import ApiError, UnknownOutcome
from services.api.seams import Clock
from services.client.client import Client

AGAIN_S = 5.0
RULES = Rules(keep_owners=False, has_kubelets=True)
"""Rules for copied objects. As in the simulator, pods are copied without their owners."""
log = structlog.get_logger()


async def import_once(client: Client, kubeconfig: str, selector: str) -> None:
    """Copy a cluster's current objects; retry until that succeeds."""
    await _with_cluster(client, kubeconfig, selector, follows=False)


async def follow(client: Client, kubeconfig: str) -> None:
    """Copy a cluster's objects and their changes until cancelled."""
    await _with_cluster(client, kubeconfig, "", follows=True)


async def _with_cluster(client: Client, kubeconfig: str, selector: str, *, follows: bool) -> None:
    while True:
        try:
            async with Cluster(read_access(Path(kubeconfig))) as cluster:
                kinds = await cluster.kinds(KINDS)
                sync = Sync(cluster, client, RULES, selector=selector, forgotten=Expired, notify=_note)
                if follows:
                    await sync.run(kinds)
                for kind in kinds:
                    await sync.copy(kind)
                log.info("import.done", created=sync.synced.created, failures=len(sync.synced.failures))
                return
        except (Refused, ApiError, UnknownOutcome) as error:
            log.warning("import.failed", reason=str(error), again_after_s=AGAIN_S)
            await asyncio.sleep(AGAIN_S)


def _note(line: str) -> None:
    log.info("sync", line=line)


async def replay(client: Client, clock: Clock, file: str) -> None:
    """Play a record as fast as the API server accepts it, like the simulator."""
    try:
        _, stream = open_stream(Source(Path(file)), Reading(is_lenient=True))
        rules = Rules(keep_owners=False, keeps_existing=True, has_kubelets=True)
        player = Player(client, clock, rules, speed=AS_FAST_AS_POSSIBLE, is_lenient=True)
        played = await player.play(stream.changes)
    except (Refused, UnknownOutcome) as error:
        log.error("replay.ended", reason=str(error))
        return
    log.info("replay.done", applied=played.applied, failures=played.failures[:20], left_out=dict(stream.notes))
