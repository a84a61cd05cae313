"""What a scenario may do to the machines that its nodes are: one function a verb. A new verb is one more in `VERBS`."""

from pathlib import Path

from kubelet.agent.node_files import FAULTS, POWER, STATIC_PODS
from kubelet.node.health import NodeFaults, parse_node_faults
from kubelet.runtime.script import FORM
from services.scenarios.script.context import ScenarioContext, beside, named
from services.scenarios.script.scenario import Step


async def static_pod(context: ScenarioContext, step: Step) -> None:
    """`static-pod NODE FILE [as=NAME]`: put a manifest, a file beside the scenario, on the node; later ones replace it.

    `static-pod NODE NAME gone`: take it away.
    """
    node, file, *rest = step.args
    data = None
    if not rest:
        path = beside(context, file)
        if not path.is_file():
            raise ValueError(f"there is no file {file!r} beside the scenario")
        data = path.read_bytes()
    await context.mesh.put_file(node, f"{STATIC_PODS}/{step.options.get('as') or Path(file).name}", data)


async def fault(context: ScenarioContext, step: Step) -> None:
    """`fault NODE CLAUSES`: that is wrong with it from now on, until `heal NODE` (`kubelet/node/health.py`)."""
    node, _, clauses = step.rest.partition(" ")
    await context.mesh.put_file(node, FAULTS, clauses.encode())


async def heal(context: ScenarioContext, step: Step) -> None:
    """`heal NODE`: nothing is wrong with it any more, apart from what its definition says."""
    await context.mesh.put_file(step.args[0], FAULTS, None)


async def shutdown(context: ScenarioContext, step: Step) -> None:
    """`shutdown NODE`: its pods are ended in good order if its definition gives them time; then it is off."""
    await context.mesh.put_file(step.args[0], POWER, b"shutdown")


async def poweroff(context: ScenarioContext, step: Step) -> None:
    """`poweroff NODE`: it has no power from now on."""
    await context.mesh.put_file(step.args[0], POWER, b"off")


async def boot(context: ScenarioContext, step: Step) -> None:
    """`boot NODE`: it boots, whether or not it was off; what ran is gone."""
    await context.mesh.put_file(step.args[0], POWER, f"on {step.line}".encode())


VERBS = named(static_pod, fault, heal, shutdown, poweroff, boot)


def check(step: Step) -> None:
    """Raise ValueError for a mistake that can be seen before anything starts."""
    if step.verb == "static-pod" and (
        len(step.args) not in (2, 3) or step.args[2:] not in ((), ("gone",)) or step.options.keys() - {"as"}
    ):
        raise ValueError("want: static-pod NODE FILE [as=NAME], or static-pod NODE NAME gone")
    if step.verb == "fault":
        node, _, clauses = step.rest.partition(" ")
        if parse_node_faults(clauses) == NodeFaults():
            raise ValueError(f"fault {node}: {FORM}")
    if step.verb in ("heal", "shutdown", "poweroff", "boot") and len(step.args) != 1:
        raise ValueError(f"{step.verb} wants a node")
