"""Recordings that are made up, and the page of them in one file."""

import msgspec

from lab.recordings.format import Meta
from lab.recordings.writer import Writer
from lab.ui.page import write_page
from services.telemetry.eventlog import Line
from tests.unit.recordings.histories import KINDS, History, node, pod

KINDS["noderesourcetopologies.topology.node.k8s.io"] = "NodeResourceTopology"
PLANTED = "planted-value-of-a-secret"
HOSTILE = '<img src=x onerror="window.pwned=1">'
RIGHT_TO_LEFT = "invoice\u202egnp.exe"


def topology(name, *cores):
    """A NodeResourceTopology: for each NUMA node what is allocatable, and what is available of it."""
    zones = [
        {
            "name": f"node-{number}", "type": "Node",
            "resources": [{"name": "cpu", "capacity": str(has), "allocatable": str(has), "available": str(free)}],
        }
        for number, (has, free) in enumerate(cores)
    ]  # fmt: skip
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "metadata": {"name": name, "uid": f"nrt-{name}"},
        "zones": zones,
    }


def some_history():
    """Nodes, pods that are bound, run, fail and go, a group of commits, a Secret, and names that mean harm."""
    history = History()
    for number in range(3):
        history.commit("nodes", node(f"n{number}", f"node-{number}"))
    history.commit("noderesourcetopologies.topology.node.k8s.io", topology("n0", (4, 1), (4, 3.5)))
    for number in range(40):
        history.commit("pods", pod(f"web-{number}", f"u{number}"))
    for number in range(30):
        history.commit("pods", pod(f"web-{number}", f"u{number}", node=f"n{number % 3}", phase="Running"))
    for number in range(10):
        group_end = number % 2 == 1
        phase = "Failed" if number < 6 else "Succeeded"
        history.commit(
            "pods", pod(f"web-{number}", f"u{number}", node=f"n{number % 3}", phase=phase), group_end=group_end
        )
    for number in range(3):
        history.commit("pods", pod(f"web-{number}", f"u{number}", node=f"n{number % 3}", phase="Failed"), "DELETED")
    history.commit("nodes", node("n2", "node-2", ready="False"))
    odd = pod("odd", "odd", node="n1", phase="Running", cpu="250m")
    odd["metadata"] |= {"labels": {"app": HOSTILE}, "annotations": {"note": HOSTILE, "file": RIGHT_TO_LEFT}}
    history.commit("pods", odd)
    secret = {
        "metadata": {"name": "key", "namespace": "shop", "uid": "s"},
        "data": {"token": PLANTED},
        "stringData": {"more": PLANTED},
    }
    history.commit("secrets", secret)
    odd["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2"
    history.commit("pods", odd)
    return history


def long_history(changes=2600):
    """More versions than a segment has."""
    history = History()
    for number in range(3):
        history.commit("nodes", node(f"n{number}", f"node-{number}"))
    for number in range(changes):
        which, turn = number % 90, number // 90
        if turn % 3 == 2:
            history.commit(
                "pods", pod(f"p{which}", f"u{which}-{turn // 3}", node=f"n{which % 3}", phase="Failed"), "DELETED"
            )
        else:
            phase = "Running" if turn % 3 else "Pending"
            history.commit(
                "pods",
                pod(f"p{which}", f"u{which}-{turn // 3}", node=f"n{which % 3}" if turn % 3 else "", phase=phase),
                group_end=number % 5 != 0,
            )
            pools = ("active", "unschedulable") if phase == "Pending" else ("",)
            history.move(f"u{which}-{turn // 3}", pools[number % len(pools)])
    history.commit("pods", pod("last", "last"))
    return history


def record(path, history, *, arm="", seed=7, digest="", attempts=True):
    """Write a history as a recording; bound pods have lines of the scheduler's."""
    writer = Writer(path, Meta(title="made up", scenario="made-up", arm=arm, seed=seed, digest=digest))
    writer.begin(0.0, 1_800_000_000.0, is_virtual=True)
    for number, (line, event) in enumerate(zip(history.lines, history.events, strict=True)):
        writer.line(line)
        if event is not None:
            writer.event(event)
        if attempts and line.obj["kind"] == "Pod" and line.data["phase"] == "Pending" and line.data["type"] == "ADDED":
            bound = bool(line.rv % 2)
            data = (
                {"outcome": "scheduled", "attempt": 1}
                if bound
                else {
                    "outcome": "unschedulable",
                    "attempt": 1,
                    "plugins": ["NodeResourcesFit"],
                    "message": "0/3 nodes are available: 3 Insufficient cpu.",
                }
            )
            writer.line(
                Line(
                    1,
                    10_000 + number,
                    line.mono_ns + 1_000_000,
                    line.wall,
                    "scheduler-0",
                    "1",
                    "sched.attempt",
                    rv_seen=line.rv,
                    obj=line.obj,
                    node=f"n{number % 3}" if bound else "",
                    data=data,
                )
            )
        if line.data.get("type") == "MODIFIED" and line.data.get("phase") == "Failed":
            writer.line(
                Line(
                    1,
                    20_000 + number,
                    line.mono_ns + 1_000,
                    line.wall,
                    "kubelet/h0",
                    "1",
                    "kubelet.reject",
                    rv_seen=line.rv,
                    obj=line.obj,
                    node="n0",
                    data={"reason": "OutOfcpu"},
                )
            )
    writer.close(msgspec.structs.replace(writer.meta, ended="2026-01-01T00:00:00Z"))
    return path


def page_of(folder, *recordings, detail="everything"):
    """Write the page of these recordings."""
    out = folder / "page.html"
    write_page(list(recordings), out, detail)
    return out
