"""A state of the store at a version, from which a simulated mesh can begin: its objects and its nodes.

Facts that no object holds are derived as far as possible: each node from its Node, its running containers
from the statuses of its pods. Pure but for reading and writing the file.
"""

import gzip
import hashlib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from kubelet.dra.emulated.files import driver_fields
from kubelet.node.definition import NodeDefinition
from lab.recordings.format import Parts
from services.api.errors import UNREADABLE
from services.api.kinds.resourceslice import SLICES
from services.api.meta import Document
from services.api.times import format_micro_time, parse_time

KIND, API_VERSION = "State", "keplab.dev/v1"
PODS, NODES, LEASES = "pods", "nodes", "leases.coordination.k8s.io"
STANDARD_LABELS = ("kubernetes.io/", "beta.kubernetes.io/", "node.kubernetes.io/", "topology.kubernetes.io/")
"""Prefixes of labels that a kubelet sets on its node itself."""
OWN_TAINTS = ("node.kubernetes.io/",)
"""Prefixes of taints that controllers add and remove."""
ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"


class StateError(ValueError):
    """A state that cannot be used; the message gives the reason."""


class StoredObject(msgspec.Struct, frozen=True):
    """A stored object; `resource` is its wire name."""

    resource: str
    document: Document


class State(msgspec.Struct, frozen=True, kw_only=True):
    """All objects at version `rv`, and its wall-clock time in seconds since the epoch.

    `parts`: what is not derived from objects, for example definitions of nodes. `switches`: NAME=VALUE, as
    the mesh had them. `is_of_run`: the state is from a run, whose components drew random numbers from a seed.
    """

    rv: int
    wall_s: float
    objects: tuple[StoredObject, ...]
    parts: Parts = Parts()
    switches: tuple[str, ...] = ()
    is_of_run: bool = True

    @property
    def fingerprint(self) -> str:
        """Hexadecimal digest of the version and all uids.

        A simulation that begins here draws its random numbers from the fingerprint as well as from its seed. So
        it never repeats the random numbers that led to this state.
        """
        uids = sorted(str(each.document["metadata"].get("uid", "")) for each in self.objects)
        return hashlib.sha256(f"{self.rv}/{','.join(uids)}".encode()).hexdigest()[:16]

    def of(self, resource: str) -> list[Document]:
        """Return the objects of a resource, by its wire name."""
        return [each.document for each in self.objects if each.resource == resource]

    def definitions(self) -> list[Document]:
        """Return a definition of every node, with emulated drivers that publish the devices in its slices.

        Raises: StateError naming the node and the field.
        """
        drivers = drivers_by_node(self.of(SLICES))
        node_definitions = []
        for node in self.of(NODES):
            name = node["metadata"]["name"]
            of_it = {"drivers": drivers[name]} if name in drivers else {}
            node_definitions.append({**defined_by(node), **of_it, **self.parts.nodes.get(name, {})})
        for definition in node_definitions:
            try:
                NodeDefinition.parse(definition)
            except ValueError as error:
                raise StateError(str(error)) from None
        return node_definitions


def defined_by(node: Document) -> Document:
    """Return the definition of a node that reports the same as this Node object."""
    metadata, capacity = node["metadata"], (node.get("status") or {}).get("capacity") or {}
    labels = metadata.get("labels") or {}
    definition: Document = {
        "name": metadata["name"],
        "labels": {name: value for name, value in labels.items() if not name.startswith(STANDARD_LABELS)},
        "taints": [
            {name: taint[name] for name in ("key", "value", "effect") if taint.get(name)}
            for taint in (node.get("spec") or {}).get("taints") or ()
            if not taint["key"].startswith(OWN_TAINTS)
        ],
        "zone": labels.get(ZONE, ""),
        "region": labels.get(REGION, ""),
        "cpu": str(capacity.get("cpu", "8")),
        "memory": str(capacity.get("memory", "32Gi")),
        "ephemeralStorage": str(capacity.get("ephemeral-storage", "100Gi")),
        "pods": int(capacity.get("pods", 110)),
    }
    extended = {name: text for name, text in capacity.items() if "/" in name and str(text).isdigit() and int(text)}
    if extended:
        definition["extended"] = {name: int(text) for name, text in extended.items()}
    return definition


def drivers_by_node(slices: Iterable[Document]) -> dict[str, list[Document]]:
    """Return the drivers that publish these ResourceSlices, by node. Devices that several nodes can use, and
    incomplete pools, are left out.
    """
    groups: dict[tuple[str, str], list[Document]] = {}
    for resource_slice in slices:
        spec = resource_slice.get("spec") or {}
        if spec.get("nodeName"):
            groups.setdefault((str(spec["nodeName"]), str(spec.get("driver"))), []).append(resource_slice)
    drivers: dict[str, list[Document]] = {}
    for (node, _), of in sorted(groups.items()):
        try:
            drivers.setdefault(node, []).append(
                driver_fields(sorted(of, key=lambda each: str(each["metadata"]["name"])))
            )
        except ValueError:
            continue
    return drivers


def newest_moment(objects: Iterable[StoredObject]) -> float:
    """Return the newest time in any object, 0 if there is none. Leases keep it recent: nodes renew them every
    few seconds.
    """
    texts = []
    for stored_object in objects:
        texts.append(stored_object.document["metadata"].get("creationTimestamp"))
        if stored_object.resource == LEASES:
            texts.append((stored_object.document.get("spec") or {}).get("renewTime"))
    return max((parse_time(text) for text in texts if text), default=0.0)


def read_state(path: Path) -> State:
    """Read the state from a file that `write_state` wrote. Raises: StateError naming the file and the error."""
    try:
        raw = path.read_bytes()
        document = msgspec.json.decode(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
        if not isinstance(document, dict) or document.get("kind") != KIND:
            raise StateError(f"{path}: want a file with kind {KIND} of {API_VERSION}, as `keplab fork --save` makes it")
        objects = tuple(StoredObject(each["resource"], each["object"]) for each in document["items"])
        rv = int(document["metadata"]["resourceVersion"])
        return State(
            rv=rv,
            wall_s=parse_time(document["time"]),
            objects=objects,
            parts=msgspec.convert(document.get("parts") or {"nodes": document.get("nodes") or {}}, Parts),
            switches=tuple(document.get("switches") or ()),
        )
    except OSError as error:
        raise StateError(f"{path}: {error.strerror or error}") from None
    except StateError:
        raise
    except (*UNREADABLE, LookupError, TypeError, ValueError, EOFError) as error:
        raise StateError(f"{path}: {error}") from None


def write_state(path: Path, state: State) -> None:
    """Write a state to a file: JSON, compressed if the name ends in .gz. Raises: OSError."""
    document = {
        "kind": KIND,
        "apiVersion": API_VERSION,
        "metadata": {"resourceVersion": str(state.rv)},
        "time": format_micro_time(state.wall_s),
        "switches": list(state.switches),
        "parts": state.parts,
        "items": [{"resource": each.resource, "object": each.document} for each in state.objects],
    }
    text = msgspec.json.encode(document)
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
