"""`keplab dra-driver`: run a node's emulated DRA driver, or command one that runs."""

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

import click
import msgspec

from kubelet.dra.calls import PLUGINS, REGISTRY
from kubelet.dra.emulated.definition import NAME, DriverDefinition, parse_drivers, read_definition
from kubelet.dra.emulated.driver import ACTS
from kubelet.dra.emulated.files import fields_of, read_driver
from kubelet.dra.emulated.serving import DriverConfig, build, command_driver
from lab.cli.output import EXIT_NOT_STARTED, data_option, fail, no_mesh, takes
from lab.scenarios.script.drivers import check_published
from services.runtime.certificates import authority
from services.runtime.components import driver_name
from services.runtime.config import EXIT_CONFIG, EXIT_IO, EXIT_LOCKED
from services.runtime.credentials import Credentials, client_pair, driver_host, put_driver
from services.runtime.mesh_directory import SOCKETS_FOLDER, read_state
from services.runtime.process import run
from services.runtime.unix_sockets import UnixSockets

EPILOG = f"""\
\b
Examples:
  keplab up --nodes 2 --device-sockets --detach
  keplab dra-driver --node node-0 --driver gpu.example.com:4
  keplab dra-driver --node node-0 --driver gpu.example.com:4:prepare=2:fail-prepare=0.1
  keplab dra-driver --node node-0 --config gpus.yaml
  keplab dra-driver --node node-0 --driver gpu.example.com taint gpu-0 broken:NoExecute
  keplab dra-driver --node node-0 --driver gpu.example.com hang

\b
ACT is one of: {", ".join(sorted(ACTS))}.
A taint is KEY[=VALUE]:EFFECT, after the devices.

\b
FILE is YAML or JSON with the fields name, devices (a number, or a list as in a ResourceSlice), sharedCounters, pools,
slices, generation, prepare, unprepare, publishDelay, sliceDelay (seconds, or lognormal:0.3,0.5), failPrepare,
failUnprepare, failCall (0 to 1), refusesDoubleUse, health, dead; for devices that pods wait for before they are bound
(KEP-5007) bindingConditions, bindingFailureConditions, bindingDelay (seconds), failBinding (devices), taintsFailed.
Instead of devices and pools, FILE may have ResourceSlices, as `kubectl get resourceslices -o yaml` prints them.
"""


@dataclass(frozen=True, kw_only=True)
class DriverOptions:
    """Options of the driver, one field an option or argument, as click parses it.

    `text`: its name and its definition in short; `config`: the file that defines it in full; one of them is given.
    `instance`: which of several, "" for the only one. `act`: what a running driver shall do with `words`; None: run
    a driver.
    """

    node: str
    text: str
    config: Path | None
    instance: str
    data: Path
    act: str | None
    words: tuple[str, ...]


@click.command("dra-driver", epilog=EPILOG)
@click.option("--node", required=True, help="node of the devices")
@click.option(
    "--driver", "text", default="", metavar="NAME[:DEVICES[:…]]", help="name of the driver, and its definition in short"
)
@click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="YAML or JSON file with the full definition of the driver",
)
@click.option("--instance", default="", help="name of this instance, where a driver has several while it is updated")
@data_option
@click.argument("act", required=False)
@click.argument("words", nargs=-1, metavar="[DEVICE]... [TAINT]")
@takes(DriverOptions)
def dra_driver(options: DriverOptions) -> int:
    """Run an emulated DRA driver, or command a running one.

    Without ACT the driver runs until Ctrl-C; with ACT the running driver does that. It registers with the kubelet of
    its node, publishes ResourceSlices, and prepares claims over the kubelet's gRPC API (dra.v1). The node must accept
    plugins: `keplab up --device-sockets`, or drivers in its definition.
    """
    data = options.data.absolute()
    _check(options)
    folder = data / SOCKETS_FOLDER / options.node
    if not folder.parent.is_dir():
        no_mesh(options.data, options="--device-sockets")
    if not (folder / REGISTRY).is_dir():
        fail(
            f"node {options.node} of the mesh on {options.data} takes no DRA drivers: {folder / REGISTRY} is not there"
        )
    if options.act:
        return _command(folder, options, options.act)
    definition = _definition(options)
    config = {
        "name": driver_name(options.node, definition.name) + (f"-{options.instance}" if options.instance else ""),
        "node": options.node,
        "sockets-dir": str(folder.parent),
        "definition": msgspec.json.encode(definition).decode(),
        "instance": options.instance,
        **_mesh(data, driver_name(options.node, definition.name), definition.name, options),
    }
    config["data-dir"] = str(data / config["name"])
    words = [word for name, value in config.items() for word in (f"--{name}", value)]
    socket = folder / PLUGINS / definition.name
    click.echo(f"{definition.name} of {options.node}: sockets in {socket}; Ctrl-C ends it")
    code = run("kubelet.dra.emulated", DriverConfig, build, [*words, "--health-port", "-1"], os.environ)
    return EXIT_NOT_STARTED if code in (EXIT_CONFIG, EXIT_IO, EXIT_LOCKED) else code


def _check(options: DriverOptions) -> None:
    """End with one line when the options cannot be meant."""
    for option, name, may_be_empty in (("node", options.node, False), ("instance", options.instance, True)):
        if not (NAME.fullmatch(name) or (may_be_empty and not name)):
            fail(f"--{option} {name!r}: want lower-case letters, digits, `-` and `.`")
    if options.text and options.config is not None:
        fail(f"want --driver or --config, not both: {options.text!r} and {options.config}")


def _mesh(data: Path, process: str, driver: str, options: DriverOptions) -> dict[str, str]:
    """Return how the driver reaches the mesh: as its service account, by a token that is bound to its node."""
    state, credentials = read_state(data), Credentials(data / "credentials", "", {})
    if state is None or not credentials.server.is_file():
        no_mesh(options.data, options="--device-sockets")
    try:
        token_file = put_driver(credentials, process, driver, options.node)
    except (OSError, ValueError) as error:
        fail(f"DRA driver: {error}")
    mesh_options = {
        "server": str(state["grpc_target"]),
        "token-file": str(token_file),
        "events-dir": str(data / "events"),
    }
    return mesh_options | (_certificate(data, process) if state["security"] == "strict" else {})


def _certificate(data: Path, process: str) -> dict[str, str]:
    """Return how the driver proves that it belongs to a mesh in the profile `strict`."""
    try:
        signer = authority(data / "credentials")
        pair = client_pair(signer, process, driver_host(process))
    except (OSError, ValueError) as error:
        fail(f"DRA driver: {error}")
    return {
        "security": "strict",
        "client-certificate": str(pair.certificate),
        "client-key": str(pair.key),
        "certificate-authority": str(signer.path),
    }


def _definition(options: DriverOptions) -> DriverDefinition:
    where = f"{options.config}: " if options.config is not None else ""
    try:
        if options.config is not None:
            definition = read_driver(options.config)
        elif not options.text:
            raise ValueError("want --driver NAME:DEVICES or --config FILE")
        else:
            short = parse_drivers(options.text)
            if len(short) != 1:
                raise ValueError("want one driver")
            definition = read_definition(short[0])
    except ValueError as error:
        fail(f"DRA driver: {error}")
    try:
        check_published(definition)
    except ValueError as error:
        fail(f"DRA driver: {where}{error}")
    return definition


def _command(folder: Path, options: DriverOptions, act: str) -> int:
    name = options.text.partition(":")[0]
    try:
        if not name and options.config is not None:
            name = str(fields_of(options.config).get("name", ""))
        if not name:
            raise ValueError("want --driver NAME of the driver that is to act")
        parent, node = str(folder.parent), options.node
        asyncio.run(command_driver(UnixSockets(), parent, node, name, act, options.words))
    except ValueError as error:
        fail(str(error))
    click.echo(f"{name} of {options.node}: {' '.join((act, *options.words))}")
    return 0
