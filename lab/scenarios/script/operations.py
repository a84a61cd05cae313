"""Scenarios in the format of kube-scheduler-simulator's KEP-140: operations in steps. Pure.

A file with `kind: Scenario` becomes a scenario of keplab's own language: a step's operations, then a wait
until nothing changes any more. Nodes that the first step creates exist from the beginning, with kubelets.
Source: simulator 8; kubernetes-sigs/kube-scheduler-simulator,
`keps/140-scenario-based-simulation/README.md`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from services.api.documents import yaml_text
from services.api.meta import Document, metadata_of
from services.api.resources import resource_of_kind

KIND: Final = "Scenario"
GROUP: Final = "kube-scheduler-simulator"
API_VERSION: Final = f"simulation.{GROUP}.sigs.k8s.io/v1alpha1"
_OBJECT_BEGINS: Final = ("apiVersion:", "kind:", "metadata:", "spec:", "items:", "---", "{", "[")
OPERATIONS: Final = ("createOperation", "patchOperation", "deleteOperation", "doneOperation")
QUIET: Final = "10s"
"""Time without a change of any pod that ends a step: longer than the first rounds of any back-off, in virtual time."""
STEP_MAX: Final = "3600s"
_PATCH_TYPES: Final = {
    "": "merge",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/json-patch+json": "json",
}


@dataclass(frozen=True)
class Operation:
    """One operation. `what`: create, patch, delete or done; `body`: its content."""

    id: str
    step: int
    what: str
    body: Mapping[str, Any]

    @property
    def line(self) -> str:
        """Line of a scenario that performs the operation."""
        return "operation " + msgspec.json.encode({"id": self.id, self.what: self.body}).decode()


def is_operations(text: str) -> bool:
    """Return whether a text is a scenario in this format."""
    head = [line.split("#")[0].rstrip() for line in text.splitlines()]
    return f"kind: {KIND}" in head and any(line.startswith("apiVersion:") and GROUP in line for line in head)


def mistaken_object(text: str) -> str:
    """Return the error message for a text that is a YAML or JSON object instead of a scenario; empty for any
    other text.
    """
    lines = [line.split("#")[0].strip() for line in text.splitlines()]
    first = next((line for line in lines if line), "")
    if not first.startswith(_OBJECT_BEGINS):
        return ""
    if f"kind: {KIND}" in lines:
        version = next((line.partition(":")[2].strip() for line in lines if line.startswith("apiVersion:")), "")
        return f"apiVersion {version!r}: a {KIND} of KEP-140 has {API_VERSION}"
    return (
        "an object and no scenario; `apply FILE` in a scenario creates it, `keplab import FILE` brings it into a mesh"
    )


def read_operations(text: str) -> tuple[str, list[Operation]]:
    """Return the name and the operations in the order of their steps. Raises: ValueError naming the operation
    and the field.
    """
    document = yaml_text.load(text)
    if not isinstance(document, dict):
        raise ValueError(f"want a {KIND}")
    spec = document.get("spec") or {}
    given = spec.get("operations") if isinstance(spec, dict) else None
    if not isinstance(given, list) or not given:
        raise ValueError("spec.operations: want a list of operations")
    _check_controllers(spec.get("controllers") or {})
    operations = [_operation(number, each) for number, each in enumerate(given)]
    name = str(metadata_of(document).get("name") or "scenario")
    return name, sorted(operations, key=lambda each: each.step)


def _operation(number: int, given: Any) -> Operation:
    where = f"spec.operations[{number}]"
    if not isinstance(given, dict):
        raise ValueError(f"{where}: want an operation, not {type(given).__name__}")
    if unknown := [name for name in given if name not in ("id", "step", *OPERATIONS)]:
        raise ValueError(f"{where}.{unknown[0]}: want id, step and one of {', '.join(OPERATIONS)}")
    step = given.get("step")
    if isinstance(step, bool) or not isinstance(step, int) or step < 0:
        raise ValueError(f"{where}.step {step!r}: want a number from 0 on")
    names = [name for name in OPERATIONS if given.get(name) is not None]
    if len(names) != 1:
        what = " and ".join(names) if names else "nothing"
        raise ValueError(f"{where}: it says {what}: want exactly one of {', '.join(OPERATIONS)}")
    name, body = names[0], given[names[0]]
    if not isinstance(body, dict):
        raise ValueError(f"{where}.{name}: want an object, not {type(body).__name__}")
    what = name.removesuffix("Operation")
    if what != "done":
        _check(f"{where}.{name}", what, body)
    return Operation(str(given.get("id") or number), step, what, body)


def _check(where: str, what: str, body: Mapping[str, Any]) -> None:
    if what == "create":
        target, of = body.get("object"), f"{where}.object"
        metadata = target.get("metadata") if isinstance(target, dict) else None
    else:
        target, of, metadata = body.get("typeMeta"), f"{where}.typeMeta", body.get("objectMeta")
    if not isinstance(target, dict):
        raise ValueError(f"{of}: want an object")
    api_version, kind = str(target.get("apiVersion")), str(target.get("kind"))
    if resource_of_kind(api_version, kind) is None:
        raise ValueError(f"{of}: no kind {api_version} {kind} is served")
    if not isinstance(metadata, dict) or not (metadata.get("name") or metadata.get("generateName")):
        raise ValueError(f"{where}: {kind}: want metadata with a name")
    if what == "patch":
        if body.get("patchType", "") not in _PATCH_TYPES:
            raise ValueError(f"{where}.patchType {body['patchType']!r}: want one of {', '.join(_PATCH_TYPES)[2:]}")
        try:
            msgspec.json.decode(str(body.get("patch") or ""))
        except msgspec.DecodeError as error:
            raise ValueError(f"{where}.patch: no JSON: {error}") from None


def _check_controllers(given: Any) -> None:
    """Refuse what a simulated mesh cannot do: its controllers all run."""
    if not isinstance(given, dict):
        raise ValueError(f"spec.controllers {given!r}: want an object")
    for name in ("presimulationControllers", "preSimulationControllers", "simulationControllers"):
        sets = given.get(name) or {}
        disabled = (sets.get("disabled") or []) if isinstance(sets, dict) else None
        if not isinstance(disabled, list):
            raise ValueError(f"spec.controllers.{name} {sets!r}: want lists enabled and disabled")
        for controller in disabled:
            named = controller.get("name") if isinstance(controller, dict) else controller
            if named != "*":
                text = "a simulated mesh runs every controller; leave it out, or make its work impossible"
                raise ValueError(f"spec.controllers.{name}.disabled: {named!r}: {text}")


def as_scenario(name: str, operations: Sequence[Operation]) -> str:
    """Return the scenario in keplab's own language."""
    first = operations[0].step
    nodes = [each.body["object"] for each in operations if each.step == first and _is_node(each)]
    lines = [f"# {name}", f"limit {STEP_MAX}"]
    if nodes:
        documents = "---\n".join(yaml_text.dump(_ready(node)) for node in nodes)
        lines += ["file nodes-of-the-first-step.yaml <<KEP140", documents.rstrip("\n"), "KEP140"]
        lines.append("begin nodes-of-the-first-step.yaml format=kwok")
    for number in dict.fromkeys(each.step for each in operations):
        own = [each for each in operations if each.step == number]
        lines += [each.line for each in own if each.what != "done" and not (number == first and _is_node(each))]
        lines.append(f"settle quiet={QUIET} limit={STEP_MAX} workloads=any")
        if any(each.what == "done" for each in own):
            break
    return "\n".join(lines) + "\n"


def _is_node(operation: Operation) -> bool:
    return operation.what == "create" and operation.body["object"].get("kind") == "Node"


def _ready(node: Document) -> Document:
    """Return a node of a snapshot that names what it has, as far as the operation says."""
    status = node.get("status") or {}
    sizes = status.get("allocatable") or status.get("capacity") or {"cpu": "4", "memory": "32Gi", "pods": "110"}
    return {**node, "status": {**status, "allocatable": sizes, "capacity": status.get("capacity") or sizes}}


def patch_type_of(body: Mapping[str, Any]) -> str:
    """Return the type of a patch operation's patch: merge, strategic or json."""
    return _PATCH_TYPES[str(body.get("patchType") or "")]
