"""The DRA drivers of a running mesh: what each kubelet knows of them, whether they answer, and what they publish."""

import asyncio
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from kubelet.dra import wire
from kubelet.dra.calls import REGISTRY
from lab.exchange.rest.blocking_client import BlockingRestClient
from lab.exchange.rest.endpoint import Endpoint
from lab.exchange.rest.kubeconfig import read_access
from lab.exchange.stream import Refused
from services.api.errors import UNREADABLE, ApiError
from services.api.local_rpc import RpcError, call_once, is_unserved
from services.runtime.components import component_of
from services.runtime.credentials import admin_headers
from services.runtime.mesh_directory import SOCKETS_FOLDER
from services.runtime.unix_sockets import UnixSockets

TIMEOUT_S = 1.0
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
ANSWERS, NO_ANSWER, CLOSED, NO_SOCKET = "answers", "no answer", "closed", "no socket"
"""States of a registration socket: a driver answers; a process does not answer, for example because it is stopped;
no process serves the socket, as after a SIGKILL; the file is no socket.
"""


def registered_drivers(data: Path, state: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return every driver by node, no matter who started it.

    Fields: `node`, `driver`, `registered` (with the kubelet), `connected`, `socket_state`, `devices` (how many are
    published, None when that cannot be read), `slices`, `pools`, `socket`, `endpoint`, `error`.
    """
    if not any((data / SOCKETS_FOLDER).glob(f"*/{REGISTRY}")):
        return []
    drivers = list(_kubelet_drivers(state, admin_headers(data)))
    sockets = [each["socket"] for each in drivers if Path(each["socket"]).is_socket()]
    states = asyncio.run(_states(sockets))
    published = _slices_by_driver(Path(state["kubeconfig"])) if drivers else {}
    for driver in drivers:
        driver["socket_state"] = states.get(driver["socket"], NO_SOCKET)
        slices = None if published is None else published.get((driver["node"], driver["driver"]), [])
        newest = _newest(slices or [])
        driver["slices"] = None if slices is None else len(newest)
        driver["pools"] = sorted({spec["pool"]["name"] for spec in newest})
        driver["devices"] = None if slices is None else sum(len(spec.get("devices") or ()) for spec in newest)
    return sorted(drivers, key=lambda each: (each["node"], each["driver"], each["socket"]))


def _kubelet_drivers(state: Mapping[str, Any], headers: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Yield what the kubelets that answer know of the files where drivers register."""
    for process in state["processes"]:
        if component_of(process["name"]) == "kubelet" and process["port"]:
            answer = _get(f"http://127.0.0.1:{process['port']}/draDrivers", headers)
            yield from answer or []


def _get(url: str, headers: Mapping[str, str]) -> Any:
    """Return the JSON there; None when there is no answer."""
    request = urllib.request.Request(url, headers=dict(headers))
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as reply:
            return msgspec.json.decode(reply.read())
    except (OSError, *UNREADABLE):
        return None


async def _states(paths: list[str]) -> dict[str, str]:
    return dict(zip(paths, await asyncio.gather(*map(_state, paths)), strict=True))


async def _state(path: str) -> str:
    """Return what is found at a registration socket, by asking as its kubelet does."""
    try:
        await call_once(UnixSockets(), path, wire.GET_INFO, wire.EMPTY, TIMEOUT_S)
    except RpcError as error:
        return CLOSED if is_unserved(error) else NO_ANSWER
    return ANSWERS


def _slices_by_driver(kubeconfig: Path) -> dict[tuple[str, str], list[dict[str, Any]]] | None:
    """Return the specs of all slices by node and driver; None when the API server does not answer."""
    try:
        slices = BlockingRestClient(Endpoint(read_access(kubeconfig)), TIMEOUT_S).get(SLICES)["items"]
    except (Refused, ApiError):
        return None
    specs: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for item in slices:
        spec = item["spec"]
        specs.setdefault((spec.get("nodeName", ""), spec["driver"]), []).append(spec)
    return specs


def _newest(specs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the slices of each pool's newest generation."""
    newest: dict[str, int] = {}
    for spec in specs:
        pool = spec["pool"]
        newest[pool["name"]] = max(newest.get(pool["name"], 0), pool["generation"])
    return [spec for spec in specs if spec["pool"]["generation"] == newest[spec["pool"]["name"]]]
