"""The settings of a kubelet host: its nodes, their parts, and the durations of its operations."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import msgspec

from kubelet.node.definition import NodeDefinition
from kubelet.runtime.latency import LatencyModel
from services.api.errors import UNREADABLE
from services.kwok.documents import Configuration, KwokError, load
from services.kwok.stages.document import StageError, load_stages
from services.kwok.stages.stage import Stage
from services.runtime.config import EXIT_USAGE, CommonConfig, StartError, setting


@dataclass(frozen=True, kw_only=True)
class KubeletConfig(CommonConfig):
    """Host emulated nodes in one process."""

    nodes: int = setting(0, "number of equal nodes to emulate")
    name_prefix: str = setting("node-", "names of these nodes: the prefix and a number")
    first: int = setting(0, "number of the first of these nodes")
    cpu: str = setting("8", "CPUs of each of these nodes")
    memory: str = setting("32Gi", "memory of each of these nodes")
    pods: int = setting(110, "most pods on each of these nodes")
    slot: str = setting("", "name that the nodes are named after: SLOT-0 and so on; for one of several equal hosts")
    slots: str = setting(
        "", "claim the first free one of the slots PREFIX0, PREFIX1 and so on by a Lease, and name the nodes after it"
    )
    zones: int = setting(0, "number of zones that these nodes are spread over; 0: no zone labels")
    nodes_file: str = setting("", "file with a JSON list of further node definitions")
    definitions: tuple[NodeDefinition, ...] = setting((), "further node definition as JSON; may be repeated")
    address: str = setting("127.0.0.1", "address the nodes advertise for logs and streams")
    port: int = setting(0, "port the nodes advertise for logs and streams; 0: --health-port, which serves only logs")
    tls_cert_file: str = setting(
        "", "certificate of the endpoint at --port, which only the API server may call; empty: no certificate"
    )
    tls_private_key_file: str = setting("", "private key of the certificate of --tls-cert-file")
    client_ca_file: str = setting("", "authority that signed the certificate of the API server")
    latency: tuple[str, ...] = setting(
        (), "STAGE=DISTRIBUTION, for example sandbox=lognormal:0.3,0.5 or all=constant:0; may be repeated"
    )
    registration_spread_s: float = setting(
        5.0, "seconds over which the nodes of a host of more than 20 register and watch again"
    )
    status_qps: float = setting(
        50.0, "limit on the pod status writes of a node in a second, after a burst of twice as many; 0: no limit"
    )
    crashloop_initial_s: float = setting(0.0, "first back-off of a container, seconds; 0: Kubernetes' own")
    crashloop_max_s: float = setting(0.0, "longest back-off of a container, seconds; 0: Kubernetes' own")
    completion_s: float = setting(
        0.0,
        "seconds after which a container with an unknown command ends, unless its pod always restarts it; 0: it runs "
        "on",
    )
    stages: tuple[str, ...] = setting(
        (), "file of KWOK documents: Stages, which move pods and nodes, and its other kinds; may be repeated"
    )
    enable_crds: tuple[str, ...] = setting(
        (), "kinds of KWOK whose objects are followed, separated by commas, or all; may be repeated"
    )
    host_commands: bool = setting(
        False, "run the commands of KWOK's Execs with `local` and of its PortForwards on this machine"
    )
    stages_seed: int = setting(0, "seed of the random choices of stages; objects of equal names then get equal choices")
    static_pods: str = setting(
        "", "directory of manifests of static pods: its files for every node, a folder named after a node for that node"
    )
    device_sockets: bool = setting(False, "let device plugins register with the nodes of --nodes")
    sockets_dir: str = setting("nodes", "directory of the nodes' sockets: plugins register at DIR/NODE/kubelet.sock")
    pod_events: Literal["all", "warnings"] = setting("all", "Events about pods and nodes: all, or only warnings")
    node_events: Literal["conditions", "all"] = setting(
        "conditions",
        "Events about nodes: conditions, or all, which adds cordons and limits and watches each node for them",
    )

    def in_slot(self, slot: str) -> "KubeletConfig":
        """Return the configuration of the host that holds this slot.

        Its nodes are defined one by one, so that values derived from a node's name, its pod network for example,
        differ between hosts.
        """
        equal = replace(self, name_prefix=f"{slot}-", first=0, nodes_file="", definitions=())
        return replace(self, slot="", slots="", nodes=0, definitions=equal.node_definitions())

    def check_slots(self) -> None:
        """Raise StartError when a slot is requested together with other flags that name the nodes, or without nodes."""
        if not self.slot and not self.slots:
            return
        asked, other = ("--slot", self.slot) if self.slot else ("--slots", self.slots)
        named = {
            "--slots": self.slots if self.slot else "",
            "--nodes-file": self.nodes_file,
            "--definitions": "".join(str(given) for given in self.definitions),
            "--first": str(self.first or ""),
        }
        for flag, value in named.items():
            if value:
                raise StartError(
                    f"{asked} {other} names the nodes; {flag} {value[:60]} would name them, too", EXIT_USAGE
                )
        if not self.nodes:
            raise StartError(f"{asked} {other} without --nodes: the slot has no node", EXIT_USAGE)

    def node_definitions(self) -> tuple[NodeDefinition, ...]:
        """Return all nodes this process hosts. Raises: StartError naming the file and the node."""
        definitions: list[NodeDefinition] = []
        if self.nodes < 0 or self.first < 0:
            raise StartError(f"--nodes {self.nodes} --first {self.first}: want 0 or more", EXIT_USAGE)
        try:
            for given in self.definitions:
                definitions.append(given if isinstance(given, NodeDefinition) else NodeDefinition.parse(_object(given)))
            for index in range(self.first, self.first + self.nodes):
                zone = f"zone-{index % self.zones}" if self.zones else ""
                name = f"{self.name_prefix}{index}"
                definitions.append(
                    NodeDefinition(
                        name=name,
                        cpu=self.cpu,
                        memory=self.memory,
                        pods=self.pods,
                        zone=zone,
                        device_socket=self.device_sockets,
                    )
                )
            if self.nodes_file:
                definitions += _read_file(self.nodes_file)
            for definition in definitions:
                definition.check()
        except ValueError as error:
            raise StartError(str(error), EXIT_USAGE) from None
        names = [d.name for d in definitions]
        if len(set(names)) != len(names):
            twice = next(n for i, n in enumerate(names) if n in names[:i])
            raise StartError(f"node {twice} is defined twice", EXIT_USAGE)
        return tuple(definitions)

    def read_stages(self) -> tuple[Stage, ...]:
        """Return the stages of all files, in order. Raises: StartError naming file, stage and path."""
        try:
            return load_stages(self.stages)
        except StageError as error:
            raise StartError(f"--stages {error}", EXIT_USAGE) from None

    def read_kwok(self) -> Configuration:
        """Return the content of documents of KWOK's other kinds. Raises: StartError naming file, document and field."""
        try:
            return load(self.stages, runs_commands=self.host_commands)
        except KwokError as error:
            raise StartError(f"--stages {error}", EXIT_USAGE) from None

    def kwok_kinds(self) -> tuple[str, ...]:
        """Return KWOK's kinds whose objects are followed. Raises: StartError."""
        if not self.enable_crds:
            return ()
        from services.kwok.definitions import choose_kinds  # expressions are large

        try:
            return choose_kinds(self.enable_crds)
        except ValueError as error:
            raise StartError(f"--enable-crds {error}", EXIT_USAGE) from None

    def latency_model(self, seed: int) -> LatencyModel:
        """Return the model of the duration of each stage. Raises: StartError for a malformed `latency`."""
        try:
            return LatencyModel.parse(self.latency, seed)
        except ValueError as error:
            raise StartError(f"--latency {error}", EXIT_USAGE) from None


def _object(text: str) -> dict[str, object]:
    try:
        return msgspec.json.decode(text, type=dict[str, object])
    except UNREADABLE as error:
        raise ValueError(f"--definitions {text[:60]!r}: {error}") from None


def _read_file(path: str) -> list[NodeDefinition]:
    try:
        items = msgspec.json.decode(Path(path).read_bytes(), type=list[dict[str, object]])
    except OSError as error:
        raise ValueError(f"--nodes-file {path}: {error.strerror}") from None
    except UNREADABLE as error:
        raise ValueError(f"--nodes-file {path}: {error}") from None
    return [NodeDefinition.parse(item) for item in items]
