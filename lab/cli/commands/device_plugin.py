"""`keplab device-plugin`: run a node's emulated device plugin, or command one that runs."""

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click
import msgspec

from kubelet.deviceplugin.emulated.plugin import ACTS, DevicePlugin
from kubelet.deviceplugin.emulated.serving import PluginConfig, build, command_plugin
from kubelet.managers.device_calls import KUBELET_SOCKET
from lab.cli.output import data_option, fail, no_mesh, takes
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


@dataclass(frozen=True, kw_only=True)
class PluginOptions:
    """Options of the plugin, one field an option or argument, as click parses it.

    `topology`: the NUMA node of each of the `devices`, with commas between, "" for no topology. `delay`: seconds.
    `folder`: the directory of the kubelet's socket, None where `node` and `data` say it. `act`: what a running
    plugin shall do with the devices `device_ids`; None: run a plugin.
    """

    node: str
    resource: str
    devices: int
    topology: str
    preferred: Literal["pairs", "spread"] | None
    pre_start: bool
    delay: float
    folder: Path | None
    data: Path
    act: str | None
    device_ids: tuple[str, ...]


@click.command("device-plugin", epilog=EPILOG)
@click.option("--node", default="", help="node of the plugin, whose kubelet it registers with")
@click.option("--resource", required=True, help="extended resource of the devices, DOMAIN/NAME")
@click.option(
    "--devices", type=int, default=1, show_default=True, help="number of devices, which are called dev-0, dev-1, …"
)
@click.option("--topology", default="", metavar="N,N,…", help="NUMA node of each device [none]")
@click.option(
    "--preferred", type=click.Choice(["pairs", "spread"]), help="devices that the plugin prefers to allocate together"
)
@click.option("--pre-start", is_flag=True, help="have the kubelet call the plugin before every start of a container")
@click.option("--delay", type=float, default=0.0, help="delay before the plugin registers again, in seconds [0]")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help=f"the directory of {KUBELET_SOCKET}, instead of --node and --data",
)
@data_option
@click.argument("act", required=False)
@click.argument("device_ids", nargs=-1, metavar="[DEVICE]...")
@takes(PluginOptions)
def device_plugin(options: PluginOptions) -> int:
    """Run an emulated device plugin, or command a running one.

    Without ACT the plugin runs until Ctrl-C; with ACT the running plugin does that next. It speaks the kubelet's device
    plugin API (v1beta1) on Unix sockets, and registers again whenever the kubelet has restarted. The node must accept
    plugins: see docs/how-to/devices.md.
    """
    folder = _folder(options)
    if options.act:
        return _command(folder, options, options.act)
    definition = _definition(options)
    node = options.node or "kubelet"
    config = {
        "name": plugin_name(node, definition.resource),
        "node": node,
        "folder": str(folder),
        "definition": msgspec.json.encode(definition).decode(),
    }
    words = [word for name, value in config.items() for word in (f"--{name}", value)]
    click.echo(f"{definition.resource}: {definition.devices} devices for {folder / KUBELET_SOCKET}; Ctrl-C ends it")
    return run("kubelet.deviceplugin.emulated", PluginConfig, build, [*words, "--health-port", "-1"], os.environ)


def _folder(options: PluginOptions) -> Path:
    """Return the directory of the kubelet's socket. Raises: SystemExit that says what is wrong with it."""
    chosen = options.folder
    if (chosen is None) == (not options.node):
        fail("want either --node NODE (of the mesh in --data) or --folder DIR")
    folder = (chosen or options.data / SOCKETS_FOLDER / options.node).absolute()
    if not chosen and not folder.parent.is_dir():
        no_mesh(options.data, options="--device-sockets")
    if not folder.is_dir():
        why = f"node {options.node} of the mesh on {options.data} takes no device plugins: " if not chosen else ""
        fail(f"{why}{folder} is not there")
    return folder


def _definition(options: PluginOptions) -> DevicePlugin:
    try:
        definition = DevicePlugin(
            resource=options.resource,
            devices=options.devices,
            topology=_numas(options.topology),
            preferred=options.preferred or "",
            pre_start=options.pre_start,
            delay_s=options.delay,
        )
        definition.check()
    except ValueError as error:
        fail(f"device plugin {options.resource}: {error}")
    return definition


def _numas(text: str) -> tuple[int, ...]:
    parts = [part for part in text.split(",") if part]
    if not all(part.isdecimal() for part in parts):
        raise ValueError(f"topology: {text!r}, want the NUMA node of each device, for example 0,0,1,1")
    return tuple(int(part) for part in parts)


def _command(folder: Path, options: PluginOptions, act: str) -> int:
    parent, node = str(folder.parent), folder.name
    try:
        asyncio.run(command_plugin(UnixSockets(), parent, node, options.resource, act, options.device_ids))
    except ValueError as error:
        fail(str(error))
    click.echo(f"{options.resource} of {options.node or folder}: {' '.join((act, *options.device_ids))}")
    return 0
