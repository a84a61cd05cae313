"""Policies of all nodes at once, by switches: arms of one story can differ in them. Pure. Source: kubelet 11."""

from __future__ import annotations

from typing import Any

import msgspec

from kubelet.managers.options import ALPHA_GATE, BETA_GATE, check_gates
from kubelet.node.definition import NodeDefinition
from services.api.switches import Switches

_POLICIES = {
    "topology.policy": "topology_policy",
    "topology.scope": "topology_scope",
    "cpu.policy": "cpu_policy",
    "memory.policy": "memory_policy",
}
_OPTIONS = {"topology.options": "topology_options", "cpu.options": "cpu_options"}


def settled(node: NodeDefinition, switches: Switches) -> NodeDefinition:
    """Return the definition with what the switches say instead; an empty switch says nothing.

    Raises: ValueError naming the node when that cannot be, or when a CPU option's feature gate is off.
    """
    said: dict[str, Any] = {field: text for name, field in _POLICIES.items() if (text := switches.choice(name))}
    said |= {field: parse_options(text) for name, field in _OPTIONS.items() if (text := switches.choice(name))}
    if "cpu_options" in said:
        said["full_pcpus_only"] = False
    if "topology_options" in said:
        said["prefer_closest_numa"] = False
    changed = msgspec.structs.replace(node, **said) if said else node
    try:
        if said:
            changed.check()
        check_gates(changed.all_cpu_options, alpha=switches.flag(ALPHA_GATE), beta=switches.flag(BETA_GATE))
    except ValueError as error:
        raise ValueError(f"node {node.name}: {error}") from None
    return changed


def parse_options(text: str) -> dict[str, str]:
    """Return `A+B:VALUE` as {A: true, B: VALUE}; `none` is no option at all."""
    found: dict[str, str] = {}
    for part in text.split("+") if text != "none" else ():
        name, _, value = part.partition(":")
        found[name] = value or "true"
    return found
