"""What people put on the disks of emulated nodes while they run: manifests of static pods.

Looked for once a second: below `nodes/NODE/static-pods/` of the process's own disk, and in the directory
`--static-pods`, where a file is for every node of the process and a folder of a node's name for that node. A node
definition's `staticPods` are there from the beginning. Source: kubelet 3.1; upstream `pkg/kubelet/config/file.go`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec
import structlog

from kubelet.config import NodeDefinition
from kubelet.static_pods import SUFFIXES
from services.api.seams import Disk

LOOK_PERIOD_S = 1.0
FOLDER = "nodes/"
STATIC_PODS = "static-pods"

log = structlog.get_logger()


class Owner(Protocol):
    """A node whose disk is looked at."""

    @property
    def name(self) -> str:
        """The node's name."""

    def files_changed(self, files: Mapping[str, bytes]) -> None:
        """Take the manifests of static pods as they are now."""


class NodeFiles:
    """The disks of one process's nodes. Invariant: a node is told only of what is not as it was."""

    def __init__(self, disk: Disk, directory: str, definitions: Sequence[NodeDefinition]) -> None:
        self._disk, self._directory = disk, directory
        self._defined: dict[str, dict[str, bytes]] = {}
        for definition in definitions:
            if definition.static_pods:
                self._defined[definition.name] = {
                    f"definition/{index}": msgspec.json.encode(document)
                    for index, document in enumerate(definition.static_pods)
                }
        self._known: dict[str, dict[str, bytes]] = {}
        self._trouble = ""

    async def run(self, nodes: Sequence[Owner]) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(LOOK_PERIOD_S)
            self.look(nodes)

    def look(self, nodes: Sequence[Owner]) -> None:
        """Tell each node what its files are, if they are others than last time."""
        common, own = self._directory_files()
        for name in self._disk.names():
            if name.startswith(FOLDER):
                node, _, rest = name.removeprefix(FOLDER).partition("/")
                folder, _, file = rest.partition("/")
                if folder == STATIC_PODS and _is_manifest(file) and (data := self._disk.read(name)) is not None:
                    own.setdefault(node, {})[file] = data
        if not (common or own or self._defined or self._known):
            return
        for owner in nodes:
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
                    own[path.name] = dict(_files(path))
                elif _is_manifest(path.name):
                    common[path.name] = path.read_bytes()
            self._trouble = ""
        except OSError as error:
            if self._trouble != str(error):
                self._trouble = str(error)
                log.warning("static_pods.unreadable", directory=self._directory, reason=self._trouble)
        return common, own


def path_of(node: str, name: str) -> str:
    """Return where, on the disk of its process, a node looks for a file of its own."""
    return f"{FOLDER}{node}/{name}"


def _files(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.iterdir()):
        if _is_manifest(path.name):
            yield path.name, path.read_bytes()


def _is_manifest(file: str) -> bool:
    return file.endswith(SUFFIXES) and not file.startswith(".") and "/" not in file
