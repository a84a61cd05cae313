"""`keplab device-plugin`: be a node's emulated device plugin, or have the one that runs do something."""

import asyncio
import os
from pathlib import Path
from typing import Any

import click
import msgspec

from kubelet.deviceplugin.emulated.plugin import ACTS, DevicePlugin
from kubelet.deviceplugin.emulated.serving import PluginConfig, build, command_plugin
from kubelet.managers.device_calls import KUBELET_SOCKET
from lab.cli.output import data_option, fail, no_mesh
from services.runtime.components import plugin_name
from services.runtime.mesh_directory import SOCKETS_FOLDER
from services.runtime.process import run
from services.runtime.unix_sockets import UnixSockets

EPILOG = f"""\
\b
Examples:
  keplab up --nodes 2 --device-sockets --detach
  keplab device-plugin --node node-0 --resource example.com/gpu --devices 4
  keplab device-plugin --node node-0 --resource example.com/gpu --devices 4 --topology 0,0,1,1 --preferred pairs
  keplab device-plugin --node node-0 --resource example.com/gpu unhealthy dev-0 dev-1
  keplab device-plugin --node node-0 --resource example.com/gpu stop
  keplab device-plugin --folder /var/lib/kubelet/device-plugins --resource example.com/gpu   (a real kubelet)

\b
ACT is one of: {", ".join(sorted(ACTS))}.
"""


@click.command("device-plugin", epilog=EPILOG)
@click.option("--node", default="", help="the node whose kubelet it registers with")
@click.option("--resource", required=True, help="the extended resource its devices are counted as, DOMAIN/NAME")
@click.option("--devices", type=int, default=1, show_default=True, help="how many devices: dev-0, dev-1, …")
@click.option("--topology", default="", metavar="N,N,…", help="the NUMA node of each device [none]")
@click.option("--preferred", type=click.Choice(["pairs", "spread"]), help="which devices it prefers to give together")
@click.option("--pre-start", is_flag=True, help="it wants to be called before every start of a container")
@click.option("--delay", type=float, default=0.0, help="seconds it takes to register again [0]")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help=f"the directory of {KUBELET_SOCKET}, instead of --node and --data",
)
@data_option
@click.argument("act", required=False)
@click.argument("told", nargs=-1, metavar="[DEVICE]...")
def device_plugin(**given: Any) -> int:
    """Be an emulated device plugin, or command one that runs.

    Without ACT it runs until Ctrl-C; with ACT the one that runs does that next. It speaks the kubelet's device plugin
    API (v1beta1) on Unix sockets and registers again whenever the kubelet restarted. The node must take plugins: see
    docs/how-to/devices.md.
    """
    folder = _folder(given)
    if given["act"]:
        return _command(folder, given)
    definition = _definition(given)
    node = given["node"] or "kubelet"
    config = {
        "name": plugin_name(node, definition.resource),
        "node": node,
        "folder": str(folder),
        "definition": msgspec.json.encode(definition).decode(),
    }
    words = [word for name, value in config.items() for word in (f"--{name}", value)]
    click.echo(f"{definition.resource}: {definition.devices} devices for {folder / KUBELET_SOCKET}; Ctrl-C ends it")
    return run("kubelet.deviceplugin.emulated", PluginConfig, build, [*words, "--health-port", "-1"], os.environ)


def _folder(given: dict[str, Any]) -> Path:
    """Return the directory of the kubelet's socket. Raises: SystemExit that says what is wrong with it."""
    chosen: Path | None = given["folder"]
    if (chosen is None) == (not given["node"]):
        fail("want either --node NODE (of the mesh in --data) or --folder DIR")
    folder = (chosen or given["data"] / SOCKETS_FOLDER / given["node"]).absolute()
    if not chosen and not folder.parent.is_dir():
        no_mesh(given["data"], options="--device-sockets")
    if not folder.is_dir():
        why = f"node {given['node']} of the mesh on {given['data']} takes no device plugins: " if not chosen else ""
        fail(f"{why}{folder} is not there")
    return folder


def _definition(given: dict[str, Any]) -> DevicePlugin:
    try:
        definition = DevicePlugin(
            resource=given["resource"],
            devices=given["devices"],
            topology=_numas(given["topology"]),
            preferred=given["preferred"] or "",
            pre_start=given["pre_start"],
            delay_s=given["delay"],
        )
        definition.check()
    except ValueError as error:
        fail(f"device plugin {given['resource']}: {error}")
    return definition


def _numas(text: str) -> tuple[int, ...]:
    parts = [part for part in text.split(",") if part]
    if not all(part.isdecimal() for part in parts):
        raise ValueError(f"topology: {text!r}, want the NUMA node of each device, for example 0,0,1,1")
    return tuple(int(part) for part in parts)


def _command(folder: Path, given: dict[str, Any]) -> int:
    parent, node = str(folder.parent), folder.name
    try:
        asyncio.run(command_plugin(UnixSockets(), parent, node, given["resource"], given["act"], given["told"]))
    except ValueError as error:
        fail(str(error))
    click.echo(f"{given['resource']} of {given['node'] or folder}: {' '.join((given['act'], *given['told']))}")
    return 0
