"""The files that users put on the disks of emulated nodes while they run: static pods, faults, capacity, power.

The files are read once a second. Manifests: below `nodes/NODE/static-pods/` of the process's own disk, and
in the directory `--static-pods`, where a file is for every node of the process and a folder with a node's
name is for that node; a node definition's `staticPods` are there from the beginning. Faults: the file
`nodes/NODE/faults`; without the file: as defined. Capacity: the file `nodes/NODE/capacity`, a JSON object
such as `{"cpu": "8", "memory": "32Gi"}`; without the file: as defined. Power: the file `nodes/NODE/power`
(`kubelet/agent/power.py`).
Source: kubelet 3.1, 8; upstream `pkg/kubelet/config/file.go`.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec
import structlog

from kubelet.agent.power import Power, Tenant
from kubelet.node.definition import NodeDefinition, resize_node
from kubelet.static_pods.manifests import SUFFIXES
from services.api.seams import Disk

LOOK_PERIOD_S = 1.0
FOLDER = "nodes/"
STATIC_PODS = "static-pods"
FAULTS = "faults"
CAPACITY = "capacity"
POWER = "power"

log = structlog.get_logger()


class NodeFiles:
    """The disks of one process's nodes. Invariant: only changed files are reported to a node."""

    def __init__(self, disk: Disk, directory: str, definitions: Sequence[NodeDefinition]) -> None:
        self._disk, self._directory = disk, directory
        self._defined: dict[str, dict[str, bytes]] = {}
        for definition in definitions:
            if pods := definition.static_pods:
                files = {f"definition/{index}": msgspec.json.encode(pod) for index, pod in enumerate(pods)}
                self._defined[definition.name] = files
        self._known: dict[str, dict[str, bytes]] = {}
        self._texts: dict[str, dict[str, str]] = {CAPACITY: {}, FAULTS: {}}
        """What was reported, by file and node."""
        self._error = ""

    async def run(self, nodes: Sequence[Tenant], power: Power) -> None:
        """Look at the files periodically until cancelled."""
        while True:
            await asyncio.sleep(LOOK_PERIOD_S)
            self.look(nodes, power)

    def forget(self, node: str) -> None:
        """Forget what was reported to a node that is new: everything is reported again."""
        self._known.pop(node, None)
        for reported in self._texts.values():
            reported.pop(node, None)

    def with_capacity(self, definition: NodeDefinition) -> NodeDefinition:
        """Return a node's definition with the present capacity of its machine."""
        try:
            return resize_node(definition, self._text(path_of(definition.name, CAPACITY)))
        except ValueError as error:
            log.warning("node.capacity_unreadable", node=definition.name, reason=str(error))
            return definition

    def _text(self, name: str) -> str:
        return (self._disk.read(name) or b"").decode(errors="replace")

    def look(self, nodes: Sequence[Tenant], power: Power) -> None:
        """Report to each node the files that changed since the last look; to `power` first."""
        common, own = self._directory_files()
        texts: dict[str, dict[str, str]] = {CAPACITY: {}, FAULTS: {}}
        for name in self._disk.names():
            if name.startswith(FOLDER):
                node, _, rest = name.removeprefix(FOLDER).partition("/")
                folder, _, file = rest.partition("/")
                if folder == STATIC_PODS and _is_manifest(file) and (data := self._disk.read(name)) is not None:
                    own.setdefault(node, {})[file] = data
                elif rest == POWER:
                    power.set_power(node, self._text(name))
                elif rest in texts:
                    texts[rest][node] = self._text(name)
        if not (common or own or self._defined or self._known or any((*texts.values(), *self._texts.values()))):
            return
        for owner in nodes:
            for file, report in ((CAPACITY, owner.capacity_changed), (FAULTS, owner.faults_changed)):
                text = texts[file].get(owner.name, "")
                if text != self._texts[file].get(owner.name, ""):
                    self._texts[file][owner.name] = text
                    report(text)
            files = {**self._defined.get(owner.name, {}), **common, **own.get(owner.name, {})}
            if files != self._known.get(owner.name, {}):
                self._known[owner.name] = files
                owner.files_changed(files)

    def _directory_files(self) -> tuple[dict[str, bytes], dict[str, dict[str, bytes]]]:
        """Return what `--static-pods` has for all nodes, and for single ones."""
        common: dict[str, bytes] = {}
        own: dict[str, dict[str, bytes]] = {}
        if not self._directory:
            return common, own
        try:
            for path in sorted(Path(self._directory).iterdir()):
                if path.is_dir():
                    own[path.name] = {p.name: p.read_bytes() for p in sorted(path.iterdir()) if _is_manifest(p.name)}
                elif _is_manifest(path.name):
                    common[path.name] = path.read_bytes()
            self._error = ""
        except OSError as error:
            if self._error != str(error):
                self._error = str(error)
                log.warning("static_pods.unreadable", directory=self._directory, reason=self._error)
        return common, own


def path_of(node: str, name: str) -> str:
    """Return the path of a node's own file on the disk of its process."""
    return f"{FOLDER}{node}/{name}"


def _is_manifest(file: str) -> bool:
    return file.endswith(SUFFIXES) and not file.startswith(".") and "/" not in file
