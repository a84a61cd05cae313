"""Turn a seed into a schedule of faults. Pure.

Swarm: each seed first draws which kinds of fault exist at all, because many seeds with few kinds find
more than all kinds always (guarantees T-SIM). More than half of the kills are aimed at a write site: they
wait for a line of the event log and strike in the middle of what it reports. Every fault ends before
`heal_s`; after that the mesh must come to rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from lab.scenarios.corruption import DAMAGES
from services.api.seams import Random
from services.client.link_faults import CUTS, SORTS
from services.runtime.components import component_of

KINDS = (
    "kill", "cut", "slow", "delay", "loss", "duplicate", "power",
    "pause", "clock", "disk", "boot", "node-cut", "node-slow", "node-loss", "node-drop",
)  # fmt: skip
EVERYTHING = "*"
_OF_NODES = ("node-cut", "node-slow", "node-loss", "node-drop")
_OFFSETS_S = ("30", "-30", "3600", "-3600")
SPOILED = 0.15
"""Share of seeds in which a kubelet loses its checkpoint or its runtime's records."""
LONG = 0.15
LONG_S = (45.0, 75.0)
"""Range in seconds of a node fault that lasts about as long as the grace period; LONG is the share of such faults."""
AIMED = 0.6
"""Share of kills that wait for a site."""

_SITES = {
    "apiserver": ("store.commit", "store.commit", "api.request", "api.response", "watch.open", "proc.start"),
    "scheduler": ("sched.attempt", "sched.assume", "sched.bind_call", "sched.bind_result", "watch.open", "proc.start"),
    "controllers": ("ctrl.reconcile", "ctrl.write", "ctrl.write", "watch.open", "proc.start"),
    "claim-controller": ("ctrl.reconcile", "ctrl.write", "ctrl.write", "watch.open", "proc.start"),
    "kubelet": (
        "kubelet.session", "kubelet.admit", "kubelet.checkpoint", "kubelet.start", "kubelet.stop",
        "kubelet.teardown_done", "kubelet.unbind_call", "kubelet.unbind_result", "proc.start",
    ),
    "dra-driver": ("driver.registered", "driver.prepare", "driver.unprepare", "watch.open", "proc.start"),
    "device-plugin": ("plugin.registered", "plugin.allocate", "plugin.pre_start", "proc.start"),
}  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """One fault. `duration_s`: how long the component stays down or stopped, or its link, disk or clock stays faulty.

    `component` is `node/<name>` for a fault of one node alone. `detail`: the direction of a cut, the sort of calls
    that are dropped, the error of a disk, the seconds a clock is off, what is lost and how. A kill with a `site`
    strikes `after_s` seconds after the component's `count`-th line of that event since `at_s`.
    """

    at_s: float
    kind: str
    component: str
    duration_s: float
    detail: str = ""
    site: str = ""
    count: int = 1
    after_s: float = 0.0


def draw(random: Random, components: Sequence[str], heal_s: float, nodes: Sequence[str] = ()) -> list[Fault]:
    """Return the faults of one run in order of time; at least one is a kill.

    Seconds count from the scenario's first act. A cut affects one direction or both; a delay holds back
    watch events only; slow holds back everything; power kills all components at once. Kinds that begin with `node-`
    affect the link of one of `nodes`; some of them last so long that other components think the node dead.
    """
    kubelets = [c for c in components if component_of(c) == "kubelet"]
    kinds = ["kill", *(kind for kind in KINDS[1:] if random.random() < 0.4)]
    faults: list[Fault] = []
    for number in range(random.randrange(2, 9)):
        kind = "kill" if number == 0 else random.choice(kinds)
        duration = random.uniform(0.1, heal_s / 4)
        at_s = random.uniform(0.0, heal_s - duration)
        component = random.choice(components)
        if kind == "kill":
            faults.append(_kill(random, at_s, component, duration))
            if random.random() < 0.3:
                # Once more while it recovers, or while it is not even up.
                again_s = min(at_s + duration * random.random() + random.uniform(0.0, 1.0), heal_s)
                faults.append(Fault(again_s, "kill", component, 0.0))
        elif kind == "power":
            faults.append(Fault(at_s, kind, EVERYTHING, random.uniform(0.0, 1.0)))
        elif kind in _OF_NODES:
            if nodes:
                faults.append(_of_node(random, at_s, kind, random.choice(nodes), duration))
        elif kind in ("pause", "clock"):
            detail = random.choice(_OFFSETS_S) if kind == "clock" else ""
            faults.append(Fault(at_s, kind, component, duration, detail))
        elif kind in ("disk", "boot"):
            if kubelets:
                detail = random.choice(("ENOSPC", "EIO")) if kind == "disk" else ""
                faults.append(Fault(at_s, kind, random.choice(kubelets), duration, detail))
        else:
            # The server has no link of its own: breaking it would break nothing.
            component = random.choice([c for c in components if c != "apiserver"])
            detail = random.choice(("requests", "replies", "both")) if kind == "cut" else ""
            faults.append(Fault(at_s, kind, component, duration, detail))
    # Drawn last, so that the other seeds are what they were before there was this.
    if kubelets and random.random() < SPOILED:
        what = random.choice(("checkpoint", "checkpoint", "runtime"))
        detail = f"{what} {random.choice(DAMAGES)}"
        faults.append(Fault(random.uniform(0.0, heal_s), "corrupt", random.choice(kubelets), 0.0, detail))
    return sorted(faults, key=lambda fault: fault.at_s)


def _of_node(random: Random, at_s: float, kind: str, node: str, duration_s: float) -> Fault:
    detail = ""
    if kind == "node-cut":
        detail = random.choice(CUTS[1:])
    elif kind == "node-drop":
        detail = random.choice(SORTS)
    if random.random() < LONG:
        duration_s = random.uniform(*LONG_S)
    return Fault(at_s, kind, f"node/{node}", duration_s, detail)


def _kill(random: Random, at_s: float, component: str, duration: float) -> Fault:
    down_s = duration * random.choice((0.0, 0.0, 1.0))
    if random.random() >= AIMED:
        return Fault(at_s, "kill", component, down_s)
    site = random.choice(_SITES[component_of(component)])
    count = random.choice((1, 1, 2, 3, 5, 8, 13))
    after_s = random.choice((0.0, random.uniform(0.0, 0.003)))
    # Most of what a scenario does, it does early.
    return Fault(at_s * random.random(), "kill", component, down_s, site=site, count=count, after_s=after_s)
