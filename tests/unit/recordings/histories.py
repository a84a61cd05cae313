"""Short histories of nodes and pods, as event lines and the bodies that a watch brings."""

import hashlib
from dataclasses import dataclass, field
from typing import Any

import msgspec
from hypothesis import strategies as st

from services.api.wire import WatchEvent
from services.telemetry.eventlog import Line

SLICES, CLAIMS = "resourceslices.resource.k8s.io", "resourceclaims.resource.k8s.io"
TOPOLOGIES = "noderesourcetopologies.topology.node.k8s.io"
KINDS = {
    SLICES: "ResourceSlice",
    CLAIMS: "ResourceClaim",
    TOPOLOGIES: "NodeResourceTopology",
    "pods": "Pod",
    "nodes": "Node",
    "secrets": "Secret",
    "replicasets.apps": "ReplicaSet",
    "configmaps": "ConfigMap",
    "customresourcedefinitions.apiextensions.k8s.io": "CustomResourceDefinition",
    "geese.example.com": "Goose",
}


@dataclass
class History:
    """Commits of a server, numbered from 1 on, one every 10 ms; what each left stored is in `states`, by version."""

    rv: int = 0
    lines: list[Line] = field(default_factory=list)
    events: list[WatchEvent | None] = field(default_factory=list)
    states: list[dict[tuple[str, str, str], bytes]] = field(default_factory=lambda: [{}])
    stops: list[int] = field(default_factory=list)

    def commit(
        self, resource: str, document: dict[str, Any], type_: str = "MODIFIED", *, group_end: bool = True
    ) -> int:
        """Store a document (or its end); return the version."""
        self.rv += 1
        meta = {"namespace": "", **document["metadata"], "resourceVersion": str(self.rv)}
        kind = KINDS[resource]
        body = msgspec.json.encode({"kind": kind, **document, "metadata": meta})
        key = resource, meta["namespace"], meta["name"]
        state = dict(self.states[-1])
        type_ = type_ if type_ == "DELETED" else "MODIFIED" if key in state else "ADDED"
        state.pop(key, None)
        if type_ != "DELETED":
            state[key] = body
        self.states.append(state)
        data = {
            "type": type_,
            "group_end": self.rv if group_end else self.rv + 1,
            "content_sha256": hashlib.sha256(body).hexdigest(),
            "verb": "update",
        }
        data["owners"] = [each["uid"] for each in meta.get("ownerReferences", ())]
        if resource == "pods":
            spec, status = document.get("spec", {}), document.get("status", {})
            data |= {"node": spec.get("nodeName", ""), "phase": status.get("phase", ""), "requests": {"cpu": 100}}
        obj = {"kind": kind, "ns": meta["namespace"], "name": meta["name"], "uid": meta["uid"]}
        self.lines.append(self.line("store.commit", obj=obj, rv=self.rv, identity="alice", data=data))
        self.events.append(
            WatchEvent(
                type=type_,
                resource=resource,
                namespace=meta["namespace"],
                name=meta["name"],
                uid=meta["uid"],
                rv=self.rv,
                body=body,
            )
        )
        if group_end:
            self.stops.append(self.rv)
        return self.rv

    def move(self, uid: str, pool: str) -> None:
        """Have a pod enter a pool of the scheduling queue."""
        obj = {"kind": "Pod", "ns": "shop", "name": "p", "uid": uid}
        self.lines.append(self.line("sched.moved", obj=obj, data={"to": pool}))
        self.events.append(None)

    def line(self, ev: str, **fields: Any) -> Line:
        """Return a line of now."""
        number = len(self.lines) + 1
        return Line(1, number, self.rv * 10_000_000, "2026-01-01T00:00:00.000000Z", "apiserver", "0", ev, **fields)


def pod(
    name: str, uid: str, *, node: str = "", phase: str = "Pending", cpu: str = "100m", **status: Any
) -> dict[str, Any]:
    """Return a pod of namespace `shop` with one container."""
    container = {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}
    spec = {"containers": [container], **({"nodeName": node} if node else {})}
    return {
        "metadata": {"name": name, "namespace": "shop", "uid": uid},
        "spec": spec,
        "status": {"phase": phase, **status},
    }


def node(name: str, uid: str, *, ready: str = "True", cpu: str = "8") -> dict[str, Any]:
    """Return a node of zone `zone-a`."""
    labels = {"topology.kubernetes.io/zone": "zone-a"}
    status = {
        "allocatable": {"cpu": cpu, "memory": "32Gi", "pods": "110", "example.com/gpu": "4"},
        "conditions": [{"type": "Ready", "status": ready}],
    }
    return {"metadata": {"name": name, "uid": uid, "labels": labels}, "status": status}


def devices_of(pool: str, *names: str) -> list[dict[str, str]]:
    """Return devices of a pool of driver `d`, as claims name them."""
    return [{"driver": "d", "pool": pool, "device": each} for each in names]


def slice_of(name: str, node: str, generation: int, *devices: str) -> dict[str, Any]:
    """Return a slice of driver `d`, whose pool is called like its node."""
    pool = {"name": node, "generation": generation}
    spec = {"driver": "d", "nodeName": node, "pool": pool, "devices": [{"name": each} for each in devices]}
    return {"metadata": {"name": name, "uid": name}, "spec": spec}


def claim(name: str, *devices: str) -> dict[str, Any]:
    """Return a claim that has these devices of node n1."""
    allocation = {"devices": {"results": devices_of("n1", *devices)}}
    return {"metadata": {"name": name, "namespace": "shop", "uid": name}, "status": {"allocation": allocation}}


def topology(node: str, available: str) -> dict[str, Any]:
    """Return the topology of a node with one NUMA node of 8 CPUs."""
    zone = {"name": "node-0", "resources": [{"name": "cpu", "allocatable": "8", "available": available}]}
    return {"metadata": {"name": node, "uid": f"t-{node}"}, "zones": [zone]}


DEVICES = [
    (SLICES, slice_of("s1", "n1", 1, "a", "b")),
    (SLICES, slice_of("s1", "n1", 2, "a")),
    (SLICES, slice_of("s2", "n1", 2, "c")),
    (CLAIMS, claim("c1", "a")),
    (CLAIMS, claim("c1", "c")),
    (CLAIMS, claim("c2", "a", "b")),
    (TOPOLOGIES, topology("n1", "8")),
    (TOPOLOGIES, topology("n1", "2500m")),
]


@st.composite
def histories(draw: st.DrawFn, changes_max: int = 40) -> History:
    """Draw changes of a few pods and nodes: made, changed, deleted, made again with the same name, in groups."""
    history, lives = History(), 0
    for _ in range(draw(st.integers(0, changes_max))):
        group_end = draw(st.sampled_from((True, True, False)))
        stored = history.states[-1]
        chosen = draw(st.integers(0, 7))
        if chosen == 7:
            history.move(f"pod-{draw(st.integers(0, lives))}", draw(st.sampled_from(("active", "unschedulable", ""))))
            continue
        if chosen == 6:
            resource, document = draw(st.sampled_from(DEVICES))
            held = stored.get((resource, document["metadata"].get("namespace", ""), document["metadata"]["name"]))
        elif chosen == 0:
            name = draw(st.sampled_from(("n1", "n2", "n3")))
            held = stored.get(("nodes", "", name))
            uid = msgspec.json.decode(held)["metadata"]["uid"] if held else f"node-{lives}"
            document = node(name, uid, ready=draw(st.sampled_from(("True", "False", "Unknown"))))
            resource = "nodes"
        else:
            name = draw(st.sampled_from(("a", "b", "c", "d")))
            held = stored.get(("pods", "shop", name))
            uid = msgspec.json.decode(held)["metadata"]["uid"] if held else f"pod-{lives}"
            document = pod(
                name,
                uid,
                node=draw(st.sampled_from(("", "n1", "n2", "n9"))),
                phase=draw(st.sampled_from(("Pending", "Running", "Succeeded", "Failed"))),
                cpu=draw(st.sampled_from(("100m", "2"))),
                nominatedNodeName=draw(st.sampled_from(("", "n1"))),
            )
            resource = "pods"
        lives += held is None
        is_deletion = held is not None and draw(st.integers(0, 3)) == 0
        history.commit(resource, document, "DELETED" if is_deletion else "MODIFIED", group_end=group_end)
    return history
