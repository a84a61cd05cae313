"""Tell a story while a seed's faults happen, then wait for rest.

Under chaos the story's own expectations are not judged: a bound that holds on a healthy mesh says
nothing of a broken one. What is judged are the invariants, always, and that the mesh comes to rest
after the last heal (I20, I28).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping

from services.api.switches import Value
from services.chaos.plan import Fault, draw
from services.scenarios.invariants import Auditor, unrest_of
from services.scenarios.mesh import Mesh
from services.scenarios.observer import Observer
from services.scenarios.run import RunResult, simulate
from services.scenarios.script import Story
from services.scenarios.teller import Disturb

HEAL_S = 20.0
REST_LIMIT_S = 60.0
"""I28: the desired state at the latest this long after the last heal."""
PATIENCE = 8.0


async def _happen(mesh: Mesh, fault: Fault) -> None:
    await asyncio.sleep(fault.at_s)
    if fault.kind == "kill":
        await mesh.kill(fault.component, fault.duration_s)
        return
    match fault.kind:
        case "cut":
            mesh.link(fault.component, cut=fault.detail)
        case "delay":
            mesh.link(fault.component, watch_delay_s=fault.duration_s / 2)
        case "loss":
            mesh.link(fault.component, loss=0.05)
        case _:
            mesh.link(fault.component, duplicate=0.2)
    await asyncio.sleep(fault.duration_s)
    mesh.link(fault.component)


def run_chaos(
    story: Story, *, seed: int, overrides: Mapping[str, Value] | None = None, must_rest: bool = True
) -> RunResult:
    """Run one seed in virtual time. `must_rest` False: safety only, for arms that never settle."""

    def disturb_with(auditor: Auditor) -> Disturb:
        async def disturb(mesh: Mesh, observer: Observer) -> None:
            chance = random.Random(f"chaos/{seed}")
            faults = draw(chance, mesh.components(), HEAL_S)
            async with asyncio.TaskGroup() as group:
                for fault in faults:
                    group.create_task(_happen(mesh, fault))
            if must_rest:
                await _rest(observer, auditor)

        return disturb

    result = simulate(story, seed=seed, overrides=overrides, disturb=disturb_with, patience=PATIENCE)
    result.expectations = []
    result.passed = result.violation_count == 0 and not result.error
    return result


async def _rest(observer: Observer, auditor: Auditor) -> None:
    """Wait until replicas equal the wish and pods are quiet; report I20 and I28 when they are not in time."""
    resources = ("replicasets.apps", "deployments.apps")
    deadline = observer.now_s + REST_LIMIT_S
    while True:
        documents = {resource: list(observer.documents(resource)) for resource in resources}
        unrest = unrest_of(documents)
        if documents["replicasets.apps"] and not unrest:
            return
        if observer.now_s > deadline:
            for what, detail in unrest:
                auditor.report("I20", observer.now_s, (what,), detail)
            auditor.report("I28", observer.now_s, (), f"not at rest {REST_LIMIT_S:g} s after the last heal")
            return
        await asyncio.sleep(0.5)
