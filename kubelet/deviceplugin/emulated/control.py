"""Command an emulated device plugin that runs somewhere what to do next."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kubelet.deviceplugin.emulated.plugin import Command, check_act
from kubelet.deviceplugin.emulated.serving import TELL, control_path
from services.api.local_rpc import RpcError, Sockets

TIMEOUT_S = 10.0


class PluginAway(ValueError):
    """There is no such plugin now; one that was killed comes back."""


async def tell_plugin(
    sockets: Sockets, sockets_dir: str, node: str, resource: str, act: str, devices: Sequence[str]
) -> None:
    """Return once the plugin has done it. Raises: ValueError when it cannot, PluginAway when it is not there."""
    check_act(act, devices)
    path = control_path(f"{sockets_dir}/{node}", resource)
    if not sockets.exists(path):
        raise PluginAway(f"node {node} has no emulated plugin for {resource}: {path} is not there")
    connection = sockets.dial(path)
    try:
        await connection.call(TELL, msgspec.json.encode(Command(act, tuple(devices))), TIMEOUT_S)
    except RpcError as error:
        raise ValueError(f"device plugin {resource} of node {node}: {error.message}") from None
    finally:
        await connection.close()
